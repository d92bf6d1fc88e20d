"""The code on a card runs: on a tiny model, with only the repo ids replaced by folders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from card_builders import LORA, reported, trained

from hubtools.card.model import Base, CardInput, FileRow, Usage
from hubtools.card.usage import snippets
from hubtools.facts import FactSet

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def code(card: CardInput, heading: str) -> str:
    found = next(s.code for s in snippets(card) if s.heading == heading)
    match = re.fullmatch(r"```\w+\n(.*)\n```", found, re.DOTALL)
    assert match is not None
    return match[1]


def words(card: CardInput) -> list[str]:
    return shlex.split(code(card, "vLLM").replace("\\\n", ""))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama with a chat template, and a LoRA adapter for it in `adapter/`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("tiny")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="!", pad_token="!")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(root / "model")
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(root / "model")
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(
        root / "adapter"
    )
    return root


def run(source: str, folders: dict[str, Path]) -> dict[str, Any]:
    for repo, folder in folders.items():
        assert f'"{repo}"' in source
        source = source.replace(f'"{repo}"', f'"{folder}"')
    names: dict[str, Any] = {}
    exec(compile(source, "card", "exec"), names)
    return names


def test_transformers_code_runs(
    card: Callable[..., CardInput], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = card(usage=Usage("float32"))
    names = run(code(mine, "transformers"), {mine.repo: tiny / "model"})
    assert names["output"].shape[1] > names["inputs"]["input_ids"].shape[1]
    assert capsys.readouterr().out
    plain = card(usage=Usage(chat=False))
    assert "apply_chat_template" not in code(plain, "transformers")
    run(code(plain, "transformers"), {plain.repo: tiny / "model"})


def test_adapter_code_runs_and_merges(
    card: Callable[..., CardInput],
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = card(kind="adapter", usage=Usage("float32"))
    monkeypatch.chdir(tmp_path)
    source = code(mine, "PEFT") + "\n" + code(mine, "Merged into the base")
    run(source, {mine.base.repo: tiny / "model", mine.repo: tiny / "adapter"})
    assert (tmp_path / "smol-plain-s4-merged" / "model.safetensors").is_file()


def test_the_base_is_pinned_everywhere(card: Callable[..., CardInput]) -> None:
    mine = card(kind="adapter", facts=FactSet(LORA))
    assert code(mine, "PEFT").count(f'revision="{mine.base.revision}"') == 2
    assert mine.base.revision in words(mine)
    loose = card(kind="adapter", base=Base("demo/base", ""))
    assert "revision" not in code(loose, "PEFT")
    assert "not stated" in snippets(loose)[0].text


def test_an_adapter_that_brings_its_tokenizer_uses_it(card: Callable[..., CardInput]) -> None:
    mine = card(kind="adapter", files=(FileRow("tokenizer_config.json", 9, "ab" * 32),))
    assert f'AutoTokenizer.from_pretrained("{mine.repo}")' in code(mine, "PEFT")
    bare = card(kind="adapter")
    pinned = f'("{bare.base.repo}", revision="{bare.base.revision}")'
    assert f"AutoTokenizer.from_pretrained{pinned}" in code(bare, "PEFT")


def test_vllm_gets_what_the_evaluation_used(card: Callable[..., CardInput]) -> None:
    usage = Usage("bfloat16", 16384, ("--enforce-eager", "--seed", "a --b"), tool_parser="hermes")
    assert words(card(usage=usage)) == [
        "vllm", "serve", "demo/smol-plain-s4", "--dtype", "bfloat16", "--max-model-len", "16384",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enforce-eager", "--seed",
        "a --b",
    ]  # fmt: skip
    assert words(card(usage=Usage())) == ["vllm", "serve", "demo/smol-plain-s4"]


def test_vllm_reserves_room_for_a_high_rank(card: Callable[..., CardInput]) -> None:
    def ranked(rank: int) -> list[str]:
        fact = replace(reported("x", "family", rank, f"a: “{rank}”"), id="train.lora_r")
        return words(card(kind="adapter", facts=FactSet((fact,))))

    assert "--max-lora-rank" not in ranked(16)
    assert ranked(24)[-4:-2] == ["--max-lora-rank", "32"]
    assert "--lora-modules" in ranked(24)


@pytest.mark.parametrize(
    "config",
    [
        {"adapter_type": "IA3"},
        {"adapter_type": "ADALORA"},
        {"adapter_type": "LORA", "lora_r": 8, "dora": True},
        {"adapter_type": "LORA", "lora_r": 8, "saved_modules": "lm_head"},
        {},
    ],
)
def test_vllm_is_shown_for_what_it_serves_alone(
    card: Callable[..., CardInput], config: dict[str, object]
) -> None:
    headings = [s.heading for s in snippets(card(kind="adapter", facts=FactSet(trained(**config))))]
    assert headings == ["PEFT", "Merged into the base"]


def test_trained_prompts_are_not_merged(card: Callable[..., CardInput]) -> None:
    facts = FactSet(trained(adapter_type="PROMPT_TUNING"))
    assert [s.heading for s in snippets(card(kind="adapter", facts=facts))] == ["PEFT"]


def test_no_deprecated_argument_is_shown(card: Callable[..., CardInput]) -> None:
    for kind in ("full", "merged", "adapter"):
        assert "torch_dtype" not in "".join(s.code for s in snippets(card(kind=kind)))
