"""From the names a trainer saved to the names of the model: wrappers go, nothing else. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

_PARTS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")
_PEFT = "base_model.model."
_ADAPTER = (".lora_", "lora_magnitude_vector", ".modules_to_save.", ".token_adapter.")
_OTHER_STATES = ("optim", "scheduler", "lr_scheduler", "rng", "scaler", "dataloader", "train_state")


def is_adapter_key(name: str) -> bool:
    """Whether a tensor belongs to a LoRA adapter inside the model."""
    return any(part in name for part in _ADAPTER)


def is_adapted(name: str) -> bool:
    """Whether a tensor belongs to a model with an adapter in it: the base alone is not what was
    trained.
    """
    return is_adapter_key(name) or ".base_layer." in name


def unwrapped(name: str) -> str:
    """The name without what FSDP, compile, activation checkpointing and PEFT put into it."""
    for part in _PARTS:
        name = name.replace(part, "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name.removeprefix(_PEFT)


def cleaned(names: Iterable[str], expected: Collection[str]) -> dict[str, str]:
    """Name in the model → name as saved.

    A wrapper around the whole state (`model.`, `app.model.`, `state_dict.`) is found by what the
    model expects: the prefix that makes most names right. States beside it are left out.

    Args:
        names: as saved.
        expected: names the model may have.

    Raises:
        ValueError: when two saved names become one, or the model is there twice.
    """
    by_name: dict[str, str] = {}
    for saved in names:
        name = unwrapped(saved)
        if name in by_name:
            raise ValueError(f"{by_name[name]} and {saved} both become {name}")
        by_name[name] = saved
    known = set(expected)
    prefixes = _wrappers(by_name, known)
    if len(prefixes) > 1:
        listed = " and ".join(f"{prefix}*" for prefix in sorted(prefixes))
        raise ValueError(f"the model is there {len(prefixes)} times: as {listed}")
    prefix = next(iter(prefixes), "")
    result: dict[str, str] = {}
    for name, saved in by_name.items():
        if name not in known and not (prefix and name.startswith(prefix)):
            if name.partition(".")[0].startswith(_OTHER_STATES):
                continue
            if prefix and _sibling(name, prefix):
                continue
        inner = unwrapped(name.removeprefix(prefix))
        if inner in result:
            raise ValueError(f"{result[inner]} and {saved} both become {inner}")
        result[inner] = saved
    return result


def _wrappers(names: Iterable[str], expected: set[str]) -> list[str]:
    """The prefix after which most names are expected ones; several when each holds a whole model.

    Other states are not asked: an optimizer may hold a copy of the model.
    """
    fits: dict[str, set[str]] = defaultdict(set)
    total = 0
    for name in names:
        total += not name.startswith(_OTHER_STATES)
        start = 0
        for _ in range(4):  # `app.state.model.` is as deep as trainers wrap
            if unwrapped(name[start:]) in expected:
                fits[name[:start]].add(name)
            dot = name.find(".", start)
            if dot < 0 or name[start:dot].startswith(_OTHER_STATES):
                break
            start = dot + 1
    best = max(map(len, fits.values()), default=0)
    found: list[str] = []
    for prefix in sorted((p for p, hits in fits.items() if len(hits) == best), key=len):
        if not any(fits[prefix] & fits[other] for other in found):
            found.append(prefix)
    copies = len(found) * best >= 0.8 * total  # else a few names fit by chance
    return found if copies else found[:1]


def _sibling(name: str, prefix: str) -> bool:
    """Whether `name` is another state beside the model's, as `app.optim.` beside `app.model.`."""
    around = prefix.rstrip(".").rpartition(".")[0]
    inner = name.removeprefix(f"{around}.") if around else name
    return inner.partition(".")[0].startswith(_OTHER_STATES)
