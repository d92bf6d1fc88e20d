"""What sort of adapter was trained, in words: as its adapter_config.json says. Pure.

Source of what vLLM serves: `vllm/lora/peft_helper.py`, which takes LoRA alone, without DoRA and
without whole modules saved beside it.
"""

from __future__ import annotations

from typing import Any

from hubtools.card.model import CardInput
from hubtools.card.rules import in_family
from hubtools.card.text import Markdown, code

_NAMES = {"LORA": "LoRA", "ADALORA": "AdaLoRA", "LOHA": "LoHa", "LOKR": "LoKr", "VERA": "VeRA"}
_UNMERGED = frozenset({
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE",
    "ADAPTION_PROMPT", "XLORA", "POLY", "SHADOW", "LILY",
})  # fmt: skip


def adapter_words(card: CardInput) -> Markdown:
    """For example `LoRA adapter`, `adapter (IA3)`; the bare word where no file tells the type."""
    kind = _type(card)
    if kind == "LORA":
        return Markdown("DoRA adapter" if _fact(card, "dora") else "LoRA adapter")
    return Markdown(f"adapter ({code(_NAMES.get(kind, kind))})" if kind else "adapter")


def an_adapter(card: CardInput) -> Markdown:
    """The same with its article."""
    words = adapter_words(card)
    return Markdown(f"{'an' if words.startswith('a') else 'a'} {words}")


def vllm_serves(card: CardInput) -> bool:
    """Whether vLLM takes an adapter of this sort as it is."""
    return _type(card) == "LORA" and not (_fact(card, "dora") or _fact(card, "saved_modules"))


def merges(card: CardInput) -> bool:
    """Whether PEFT has a way to merge it into the base."""
    return _type(card) not in _UNMERGED


def _type(card: CardInput) -> str:
    """PEFT's name of the type; a rank of LoRA, which older evidence has alone, tells it too."""
    return str(_fact(card, "adapter_type") or ("LORA" if _fact(card, "lora_r") else ""))


def _fact(card: CardInput, name: str) -> Any:
    """A `train.*` value of this checkpoint, or of its family."""
    id = f"train.{name}"
    own = card.facts.get(id, card.member)
    found = own or next((f for f in card.facts if f.id == id and in_family(card, f)), None)
    return found.value if found is not None else None
