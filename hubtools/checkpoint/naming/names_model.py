"""The class of a base model, built from its config.json alone on the meta device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import read_object
from hubtools.errors import CheckError, EnvironmentFailure


def build(base: Path) -> Any:
    """The model that transformers itself has for `base`, without weights; no code of the base runs.

    Raises:
        CheckError: HT160, HT161, HT162, see `names.name_map`; HT106 config.json not readable.
        EnvironmentFailure: HT123 no transformers here.
    """
    fields = read_object(base / "config.json")
    try:
        import torch
        from transformers import AutoConfig
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            f"{error.name} is needed to tell how this model names its tensors",
            detail=("Nothing was written.",),
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    known = _known_types()
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise _foreign(base, fields)
    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
        model_class = _class_of(config)
    except Exception as error:  # a configuration class may raise anything at odd values
        raise _unusable(base, error) from error
    if model_class is None:
        raise _foreign(base, fields)
    try:
        with torch.device("meta"):
            return model_class(config)
    except Exception as error:
        raise _unusable(base, error) from error


def module_kinds(model: Any) -> dict[str, str]:
    """Path of each module with parameters of its own → what PEFT takes it for."""
    import torch
    from transformers.pytorch_utils import Conv1D

    bases = (torch.nn.Linear, torch.nn.Embedding, Conv1D, *_convolutions(torch.nn))
    found = {}
    for path, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            kinds = [base.__name__ for base in bases if isinstance(module, base)]
            found[path] = kinds[0] if kinds else type(module).__name__
    return found


def pages_in_out(model: Any) -> frozenset[str]:
    """Modules that say their stacked matrices lie as [in, out]."""
    return frozenset(
        path for path, module in model.named_modules() if getattr(module, "is_transposed", False)
    )


def _convolutions(nn: Any) -> tuple[type, ...]:
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention)


def _known_types() -> set[str]:
    from transformers import CONFIG_MAPPING

    return set(CONFIG_MAPPING.keys())


def _class_of(config: Any) -> Any:
    """The class that config.json names, or else the one the automatic classes would take."""
    import transformers

    for name in getattr(config, "architectures", None) or ():
        named = getattr(transformers, str(name), None)
        if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
            return named
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    return None


def _foreign(base: Path, fields: dict[str, Any]) -> CheckError:
    kind = fields.get("model_type") or "(none)"
    named = fields.get("architectures") or ["(none)"]
    classes = named if isinstance(named, list) else [named]
    what = f"model_type {kind}, architectures {', '.join(map(str, classes))}"
    if fields.get("auto_map"):
        return CheckError(
            "HT161",
            "this model exists only as code of its own (auto_map), which is not run",
            where=str(base / "config.json"),
            detail=(what, "So the names of its tensors cannot be told; nothing was written."),
            next="merge it where that code is trusted, then publish the merged model",
        )
    import transformers

    return CheckError(
        "HT160",
        f"transformers {transformers.__version__} does not know this model",
        where=str(base / "config.json"),
        detail=(what, "So the names of its tensors cannot be told; nothing was written."),
        next="pip install --upgrade transformers",
    )


def _unusable(base: Path, error: Exception) -> CheckError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CheckError(
        "HT162",
        "no model can be built from config.json",
        where=str(base / "config.json"),
        detail=(f"{type(error).__name__}: {' '.join(lines[:2])}", "Nothing was written."),
        next="restore config.json from the base model, then run the same command again",
    )
