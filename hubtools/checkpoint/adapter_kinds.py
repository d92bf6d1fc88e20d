"""Which adapters merge by plain arithmetic, which only through PEFT, and which not at all.

Source: the merge methods of PEFT 0.21 (`tuners/*/layer.py`, `tuners/lora/variants.py`) and, for
what each start does to the base at load time, `tuners/lora/layer.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from hubtools.checkpoint.adapter import AdapterConfig

Way = Literal["stream", "peft", "refused"]

THROUGH_PEFT = frozenset({
    "ADALORA", "ADAMSS", "BEFT", "BOFT", "C3A", "DEFT", "DELORA", "FOURIERFT", "FROD", "GLORA",
    "GRALORA", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS", "OFT", "OSF", "PEANUT",
    "PSOFT", "PVERA", "RANDLORA", "ROAD", "SHIRA", "SUPERTUNING", "TINYLORA", "TRAINABLE_TOKENS",
    "UNILORA", "VBLORA", "VERA", "WAVEFT",
})  # fmt: skip

_INPUT = "what it adds depends on the input, so no fixed weights do the same"
_VIRTUAL = "it puts trained vectors before the input and leaves the weights alone"
REFUSED_TYPES = {
    "PROMPT_TUNING": _VIRTUAL,
    "MULTITASK_PROMPT_TUNING": _VIRTUAL,
    "P_TUNING": _VIRTUAL,
    "PREFIX_TUNING": _VIRTUAL,
    "CPT": _VIRTUAL,
    "CARTRIDGE": _VIRTUAL,
    "ADAPTION_PROMPT": "its gated attention over trained prompts is no matrix",
    "XLORA": _INPUT,
    "POLY": _INPUT,
    "SHADOW": "it is a second network beside the model",
    "LILY": "its layers share routed factors, which PEFT cannot merge either",
    "BONE": "PEFT replaced it by MiSS and no longer loads it",
}

# Fields of LoraConfig that change no arithmetic, or whose arithmetic the planner follows.
_FOLLOWED = frozenset({
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout",
    "use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern",
    "alpha_pattern", "megatron_core", "qalora_group_size", "runtime_config",
    "use_dora", "lora_bias", "bias", "modules_to_save", "trainable_token_indices",
    "layer_replication", "target_parameters", "fan_in_fan_out", "ensure_weight_tying",
    # How training began or went; the product B·A is read as it is.
    "eva_config", "corda_config", "lora_ga_config", "loftq_config", "velora_config",
    "monteclora_config",
})  # fmt: skip
_THROUGH_PEFT = {"use_bdlora": "BD-LoRA (block-diagonal factors)"}
_REFUSED = {
    "use_qalora": ("QA-LoRA", "its layers pool their inputs in groups, on a quantised base"),
    "alora_invocation_tokens": ("activated LoRA", "it acts only after its invocation tokens"),
    "arrow_config": ("Arrow", _INPUT),
    "kasa_config": ("KaSA", "it belongs to a base whose smallest singular values were cut off"),
    "megatron_config": ("Megatron's parallel layers", "its factors are those of another layout"),
}
KNOWN = _FOLLOWED | _THROUGH_PEFT.keys() | _REFUSED.keys()
_PEFT = (0, 21)  # whose options these are
_SAME_BASE = (True, False, None, "true", "gaussian", "eva", "orthogonal", "mica")
_OTHER_BASE = {
    "pissa": "PiSSA",
    "olora": "OLoRA",
    "corda": "CorDA",
    "lora_ga": "LoRA-GA",
    "loftq": "LoftQ",
}
_CONVERTIBLE = ("pissa", "olora", "corda", "lora_ga")
_UNMERGED = 'publish it unmerged: kind = "adapter" in family.toml'
_RESIDUAL = "give --base the changed base that training saved, and add --base-is-residual"
_CONVERT = (
    "model.save_pretrained(DIR, path_initial_model_for_weight_conversion=INITIAL_ADAPTER) in the"
    " training script, then merge DIR"
)
_TRAINING_STATE = re.compile(r"\.lora_(monteclora_sampler|velora_\w+)(\.|$)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an adapter is merged.

    Args:
        way: `stream`: arithmetic on the stored tensors; `peft`: only PEFT can; `refused`: no
            merged model is the same as this adapter over the base.
        what: the type or option that decides, in words; empty for `stream`.
        why: the reason, for `refused`.
        fix: what to do, for `refused`.
    """

    way: Way
    what: str = ""
    why: str = ""
    fix: str = ""


def classify(config: AdapterConfig, *, base_is_residual: bool = False) -> Verdict:
    """Decide from adapter_config.json alone.

    Args:
        config: of any type.
        base_is_residual: the base is the one that training changed (PiSSA and its like), saved.
    """
    kind = config.peft_type
    if kind in THROUGH_PEFT:
        return Verdict("peft", kind)
    if kind in REFUSED_TYPES:
        return Verdict("refused", kind, REFUSED_TYPES[kind], _UNMERGED)
    if kind != "LORA":
        why = "this version does not know how it changes a model"
        return Verdict("refused", kind or "no peft_type", why, _UNMERGED)
    return _refused_option(config) or _start(config, base_is_residual) or _option(config)


def ignored_options(config: AdapterConfig) -> list[str]:
    """Options of another program in a LoRA adapter, which PEFT drops when it loads it."""
    if config.peft_type != "LORA":
        return []
    return sorted(name for name, value in config.fields.items() if value and name not in KNOWN)


def is_training_state(tensor: str) -> bool:
    """Whether a tensor served training only: MonteCLoRA's sampler, VeLoRA's directions."""
    return _TRAINING_STATE.search(tensor) is not None


def _refused_option(config: AdapterConfig) -> Verdict | None:
    for name, value in config.fields.items():
        # An empty list of invocation tokens is still activated LoRA; elsewhere empty means unset.
        if name in _REFUSED and (
            value or (name == "alora_invocation_tokens" and value is not None)
        ):
            what, why = _REFUSED[name]
            return Verdict("refused", what, why, _UNMERGED)
        if value and name not in KNOWN and _newer(config):
            why = "this version does not know what it does to the arithmetic"
            return Verdict("refused", f"option {name}", why, _UNMERGED)
    return None


def _newer(config: AdapterConfig) -> bool:
    """Whether a PEFT wrote the file that may know options which this version does not."""
    match = re.match(r"(\d{1,9})\.(\d{1,9})", str(config.fields.get("peft_version") or ""))
    return match is not None and (int(match[1]), int(match[2])) > _PEFT


def _start(config: AdapterConfig, base_is_residual: bool) -> Verdict | None:
    start: Any = config.fields.get("init_lora_weights", True)
    if start in _SAME_BASE:
        return None
    name = str(start).lower()
    method = next((known for known in _OTHER_BASE if name.startswith(known)), None)
    if method is None:
        why = "this version does not know whether it changed the base"
        return Verdict("refused", f"init_lora_weights {start!r}", why, _UNMERGED)
    if base_is_residual:
        return None
    why = f"training began by changing the base (init_lora_weights {start!r})"
    fix = f"{_CONVERT}; or {_RESIDUAL}" if method in _CONVERTIBLE else _RESIDUAL
    return Verdict("refused", _OTHER_BASE[method], why, fix)


def _option(config: AdapterConfig) -> Verdict:
    for name, what in _THROUGH_PEFT.items():
        if config.fields.get(name):
            return Verdict("peft", what)
    return Verdict("stream")
