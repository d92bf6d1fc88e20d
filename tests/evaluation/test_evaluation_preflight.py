"""What is known before the first question is said before it: all of it, errors first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hubtools.errors import CheckError, Finding
from hubtools.evaluation.kv_cache import bytes_per_token
from hubtools.evaluation.preflight import Wants, free_memory, preflight, require
from hubtools.evaluation.spec import Engine, Target

TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}
PLAIN = "{{ messages[0].content }}{% if add_generation_prompt %}A:{% endif %}"
SHOWN = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + PLAIN
CONFIG = {
    "max_position_embeddings": 8192,
    "vocab_size": 4,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
}
ENGINE = Engine("vllm", dtype="bfloat16")
FITS = Wants(max_tokens=512, max_context=8192)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 3}]}
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "chat_template.jinja").write_text(PLAIN)
    return folder


def found(model: Path, wants: Wants = FITS, engine: Engine = ENGINE, **more: Any) -> list[Finding]:
    return preflight(Target("s4", model=model), engine, wants, **more)


def ids(findings: list[Finding]) -> list[str]:
    return [f"{finding.level} {finding.id}" for finding in findings]


def configured(model: Path, **changes: Any) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, **changes}))


def test_all_is_well(model: Path) -> None:
    assert found(model) == []
    require([])


@pytest.mark.parametrize(
    ("context", "engine", "served", "who"),
    [
        (8193, ENGINE, None, "the model allows 8192"),
        (4097, Engine("vllm", max_model_len=4096), None, "--max-model-len allows 4096"),
        (2049, ENGINE, 2048, "the server allows 2048"),
    ],
)
def test_context(model: Path, context: int, engine: Engine, served: int | None, who: str) -> None:
    [finding] = found(model, Wants(512, context), engine, max_model_len=served)
    assert ids([finding]) == ["error HT440"]
    assert who in finding.message
    assert finding.member == "s4"
    assert found(model, Wants(512, context - 1), engine, max_model_len=served) == []


def test_an_answer_that_fills_the_context(model: Path) -> None:
    assert ids(found(model, Wants(max_tokens=100, max_context=100))) == ["error HT440"]
    assert ids(found(model, Wants(max_tokens=9000))) == ["error HT440"]


@pytest.mark.parametrize(
    ("rope", "allowed"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
        ({"type": "linear", "factor": 2.0}, 16384),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"rope_type": "default"}, 8192),
    ],
)
@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
def test_stretched_positions(model: Path, name: str, rope: dict[str, Any], allowed: int) -> None:
    configured(model, **{name: rope})
    assert found(model, Wants(512, allowed)) == []
    assert ids(found(model, Wants(512, allowed + 1))) == ["error HT440"]


def test_memory_of_keys_and_values(model: Path) -> None:
    # 2 (K and V) x 30 layers x 3 heads x 64 wide x 2 bytes
    assert bytes_per_token(CONFIG, "bfloat16") == 23040
    assert bytes_per_token({"text_config": CONFIG}, "float32") == 46080
    assert bytes_per_token({}, "float32") == 0
    need = 23040 * 8192 * 10
    wants = Wants(512, 8192, concurrency=10)
    assert found(model, wants, memory=need) == []
    [finding] = found(model, wants, memory=need - 1)
    assert ids([finding]) == ["warning HT441"]
    assert "1.9 GB" in finding.message
    on_gpu = Engine("vllm", dtype="bfloat16", device="cuda")
    assert found(model, wants, on_gpu, memory=need - 1) == []
    memory = free_memory()
    assert memory is None or memory > 1 << 20


def test_a_template_that_ignores_tools(model: Path, tmp_path: Path) -> None:
    wants = Wants(512, 8192, tools=(TOOL,))
    assert ids(found(model, wants)) == ["error HT442"]
    declared = tmp_path / "tools.jinja"
    declared.write_text(SHOWN)
    assert found(model, Wants(512, 8192, tools=(TOOL,), tool_template=declared)) == []
    (model / "chat_template.jinja").write_text(SHOWN)
    assert found(model, wants) == []


def test_stop_strings(model: Path) -> None:
    assert ids(found(model, Wants(512, stop=("\n\n", "</answer>")))) == ["warning HT443"]
    assert ids(found(model, Wants(512, markup=True))) == ["warning HT443"]
    assert found(model, Wants(512, markup=True, stop=("</search>",))) == []


def test_what_the_template_adds(model: Path) -> None:
    (model / "chat_template.jinja").write_text(PLAIN + "<think>\n")
    assert ids(found(model)) == ["info HT444"]
    (model / "chat_template.jinja").write_text("{{ strftime_now('%Y') }}" + PLAIN)
    assert ids(found(model)) == ["warning HT444"]


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_file_that_is_missing(model: Path, file: str) -> None:
    (model / file).unlink()
    assert "error HT403" in ids(found(model))


def test_more_words_than_rows(model: Path) -> None:
    configured(model, vocab_size=3)
    [finding] = found(model)
    assert (finding.id, "ids up to 3" in finding.message) == ("HT403", True)


def test_a_template_that_is_broken(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{% for %}")
    assert ids(found(model)) == ["error HT403"]


def test_an_adapters_own_template_counts(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name in ("tokenizer.json", "chat_template.jinja"):
        (adapter / name).write_bytes((model / name).read_bytes())
    (adapter / "tokenizer_config.json").write_text("{}")
    (adapter / "chat_template.jinja").write_text(SHOWN)
    wants = Wants(512, tools=(TOOL,))
    target = Target("s4", model=model, adapter=adapter)
    assert preflight(target, ENGINE, wants) == []
    assert ids(preflight(Target("s4", model=model), ENGINE, wants)) == ["error HT442"]


def test_an_endpoint_shows_only_what_its_server_says() -> None:
    asked = Engine("endpoint", url="http://127.0.0.1:1/v1")
    assert preflight(Target("s"), asked, FITS) == []
    assert ids(preflight(Target("s"), asked, FITS, max_model_len=4096)) == ["error HT440"]


def test_all_findings_come_at_once_errors_first(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    findings = found(model, Wants(512, 9000, tools=(TOOL,), stop=("\n\n",)))
    assert ids(findings) == ["error HT403", "error HT442", "error HT440", "warning HT443"]
    with pytest.raises(CheckError) as caught:
        require(findings)
    assert caught.value.id == "HT403"
    assert [line[:5] for line in caught.value.detail] == ["HT442", "HT440", "Nothi"]
