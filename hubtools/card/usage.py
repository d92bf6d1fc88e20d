"""Code that loads the checkpoint: transformers, PEFT, vLLM as the evaluation ran it. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from hubtools.card.adapters import merges, vllm_serves
from hubtools.card.model import CardInput
from hubtools.card.text import Markdown, fenced

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_ASK = """messages = [{"role": "user", "content": "What is the capital of France?"}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)"""
_CONTINUE = 'inputs = tokenizer("The capital of France is", return_tensors="pt")'
_GENERATE = """output = model.generate(**inputs, max_new_tokens=64)
answer = output[0, inputs["input_ids"].shape[1] :]
print(tokenizer.decode(answer, skip_special_tokens=True))"""


@dataclass(frozen=True)
class Snippet:
    """One way to load the checkpoint: its heading, a sentence, the code block."""

    heading: str
    text: str
    code: Markdown


def snippets(card: CardInput) -> list[Snippet]:
    """How to load and run this checkpoint, by kind."""
    if card.kind == "adapter":
        merged = [_merge(card)] if merges(card) else []
        return [_peft(card), *merged, *([_vllm(card)] if vllm_serves(card) else [])]
    return [_transformers(card), _vllm(card)]


def _arguments(card: CardInput, *, base: bool) -> str:
    """Further keyword arguments of `from_pretrained`."""
    revision = f', revision="{card.base.revision}"' if base and card.base.revision else ""
    dtype = f', dtype="{card.usage.dtype}"' if card.usage.dtype else ""
    return revision + dtype


def _question(card: CardInput) -> str:
    return _ASK if card.usage.chat else _CONTINUE


def _transformers(card: CardInput) -> Snippet:
    source = f"""from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({_py(card.repo)})
model = AutoModelForCausalLM.from_pretrained({_py(card.repo)}{_arguments(card, base=False)})
{_question(card)}
{_GENERATE}"""
    return Snippet("transformers", "", fenced(source, "python"))


def _load_adapter(card: CardInput) -> str:
    pinned = f", revision={_py(card.base.revision)}" if card.base.revision else ""
    own = any(row.path == "tokenizer_config.json" for row in card.files)
    tokenizer = _py(card.repo) if own else f"{_py(card.base.repo)}{pinned}"
    arguments = f"{_py(card.base.repo)}{_arguments(card, base=True)}"
    line = f"base = AutoModelForCausalLM.from_pretrained({arguments})"
    if len(line) > 88:
        line = f"base = AutoModelForCausalLM.from_pretrained(\n    {arguments}\n)"
    return f"""{line}
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
model = PeftModel.from_pretrained(base, {_py(card.repo)})"""


def _peft(card: CardInput) -> Snippet:
    source = f"""from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

{_load_adapter(card)}
{_question(card)}
{_GENERATE}"""
    text = (
        "The adapter alone is not a model: load its base, at the pinned commit, then the adapter."
    )
    if not card.base.revision:
        text = (
            "The adapter alone is not a model: load its base, then the adapter. The commit of the"
            " base it was trained on is not stated."
        )
    return Snippet("PEFT", text, fenced(source, "python"))


def _merge(card: CardInput) -> Snippet:
    folder = card.repo.rpartition("/")[2] + "-merged"
    source = f"""model = model.merge_and_unload()
model.save_pretrained({_py(folder)})
tokenizer.save_pretrained({_py(folder)})"""
    return Snippet("Merged into the base", "After loading as above:", fenced(source, "python"))


def _vllm(card: CardInput) -> Snippet:
    words = ["vllm", "serve", card.repo]
    if card.kind == "adapter":
        name = card.repo.rpartition("/")[2]
        words = ["vllm", "serve", card.base.repo]
        words += ["--revision", card.base.revision] if card.base.revision else []
        words += ["--enable-lora", "--lora-modules", f"{name}={card.repo}"]
        words += _rank(card)
    words += ["--dtype", card.usage.dtype] if card.usage.dtype else []
    if card.usage.max_model_len:
        words += ["--max-model-len", str(card.usage.max_model_len)]
    if card.usage.tool_parser:
        words += ["--enable-auto-tool-choice", "--tool-call-parser", card.usage.tool_parser]
    words += card.usage.flags
    evaluated = bool(card.usage.flags or card.usage.max_model_len)
    text = "With the flags that the author states for the evaluation:" if evaluated else ""
    return Snippet("vLLM", text, fenced(_shell(words), "bash"))


def _rank(card: CardInput) -> list[str]:
    """Above rank 16 vLLM refuses an adapter unless it is told the size to reserve."""
    fact = card.facts.get("train.lora_r", card.member) or card.facts.get("train.lora_r")
    if fact is None or not isinstance(fact.value, int) or fact.value <= 16:
        return []
    return ["--max-lora-rank", str(next((r for r in _RANKS if r >= fact.value), fact.value))]


def _shell(words: list[str]) -> str:
    """One command, an option a line when it is long."""
    line = " ".join(map(shlex.quote, words))
    if len(line) <= 80:
        return line
    pieces = [(" \\\n  " if word.startswith("--") else " ") + shlex.quote(word) for word in words]
    return "".join(pieces).lstrip()


def _py(text: str) -> str:
    """A Python string literal in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
