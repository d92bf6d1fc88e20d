"""Models whose names cannot be told: an error that says so, and no code of theirs that runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from zoo import Zoo

from hubtools.checkpoint.naming.names import name_map
from hubtools.checkpoint.naming.names_model import build
from hubtools.errors import CheckError, EnvironmentFailure


@pytest.fixture(autouse=True)
def _ask_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that an earlier test was told is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("hubtools.checkpoint.naming.names._ANSWERED", {})


@pytest.fixture
def changed(zoo: Zoo, tmp_path: Path) -> Any:
    """A copy of a base with other fields in config.json."""

    def change(**fields: Any) -> Path:
        base = tmp_path / "base"
        shutil.copytree(zoo.base("llama"), base)
        config = {**json.loads((base / "config.json").read_bytes()), **fields}
        kept = {name: value for name, value in config.items() if value is not None}
        (base / "config.json").write_text(json.dumps(kept))
        return base

    return change


def refusal(base: Path) -> CheckError:
    with pytest.raises(CheckError) as caught:
        build(base)
    assert caught.value.where.startswith(str(base / "config.json"))
    assert "nothing was written." in " ".join(caught.value.detail).lower()
    assert caught.value.next
    return caught.value


def test_a_model_type_of_tomorrow(changed: Any) -> None:
    error = refusal(changed(model_type="llama99", architectures=["Llama99ForCausalLM"]))
    assert error.id == "HT160"
    assert "llama99" in error.detail[0]


def test_a_class_of_tomorrow(changed: Any) -> None:
    base = changed(model_type="clip_vision_model", architectures=["CLIPForTimeTravel"])
    assert refusal(base).id == "HT160"


def test_a_class_of_another_name(changed: Any) -> None:
    """As the automatic classes do: the model type decides (sarvam_moe is a Glm4MoeForCausalLM)."""
    assert type(build(changed(architectures=["Mine"]))).__name__ == "LlamaForCausalLM"


def test_code_of_its_own_is_not_run(changed: Any) -> None:
    base = changed(
        model_type="mine",
        architectures=["Mine"],
        auto_map={"AutoConfig": "code.MineConfig", "AutoModelForCausalLM": "code.Mine"},
    )
    (base / "code.py").write_text(f"open({str(base / 'ran')!r}, 'w')\n")
    assert refusal(base).id == "HT161"
    assert not (base / "ran").exists()


def test_code_of_its_own_beside_a_known_type(changed: Any) -> None:
    """The class in transformers is taken, and the code is not run."""
    base = changed(auto_map={"AutoModelForCausalLM": "code.Mine"})
    (base / "code.py").write_text(f"open({str(base / 'ran')!r}, 'w')\n")
    assert type(build(base)).__name__ == "LlamaForCausalLM"
    assert not (base / "ran").exists()


@pytest.mark.parametrize(
    "fields",
    [{"hidden_size": "many"}, {"num_attention_heads": 0}, {"vocab_size": -3}],
    ids=str,
)
def test_a_configuration_of_no_model(changed: Any, fields: dict[str, Any]) -> None:
    assert refusal(changed(**fields)).id == "HT162"


def test_no_architecture_named(changed: Any) -> None:
    assert type(build(changed(architectures=None))).__name__ == "LlamaForCausalLM"


def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(CheckError) as caught:
        build(tmp_path)
    assert caught.value.id == "HT106"


def test_the_error_of_the_child_arrives(changed: Any, tmp_path: Path) -> None:
    base = changed(model_type="llama99")
    with pytest.raises(CheckError) as caught:
        name_map(base, [], tmp_path / "log")
    assert caught.value.id == "HT160"


@pytest.mark.parametrize("asked", [[], ["a name"] * 20_000], ids=["small job", "large job"])
def test_a_child_that_dies(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """Before it read its job, which may not even fit the pipe."""
    monkeypatch.setenv("PYTHONMALLOC", "no such allocator")
    with pytest.raises(EnvironmentFailure) as caught:
        name_map(zoo.base("llama"), asked, tmp_path / "log")
    assert caught.value.id == "HT904"
