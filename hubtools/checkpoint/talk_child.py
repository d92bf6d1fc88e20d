"""The child process that loads a checkpoint and lets it speak; see `talk.talk`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.vocabulary import vocabulary_findings
from hubtools.children import child_main
from hubtools.errors import CheckError, EnvironmentFailure, HubtoolsError
from hubtools.progress import Progress

_QUESTION = "What is the capital of France?"
_PLAIN = "The capital of France is"
_TOKENS = 16


def work(job: Mapping[str, str], progress: Progress) -> dict[str, Any]:
    """Load, check the vocabulary, generate; the result is that of `talk.talk`."""
    path, base = Path(job["path"]), Path(job["base"]) if job["base"] else None
    label = job["label"]
    progress(label, 0, 3, "steps")
    versions = _versions(base is not None)
    model = _load(path, base)
    progress(label, 1, 3, "steps")
    tokenizer = _tokenizer(path, base)
    findings, templated = vocabulary_findings(model, tokenizer, path)
    progress(label, 2, 3, "steps")
    try:
        prompt, tokens = _speak(model, tokenizer, path, templated)
    except HubtoolsError:
        raise
    except Exception as error:  # a model whose code fails does not work for a reader either
        raise _no_load(path, f"generating: {type(error).__name__}: {error}") from error
    progress(label, 3, 3, "steps")
    return {
        "prompt": prompt,
        "text": tokenizer.decode(tokens, skip_special_tokens=True),
        "tokens": tokens,
        "dtype": str(model.dtype).removeprefix("torch."),
        "chat_template": templated,
        "vocabulary": {
            "tokenizer": len(tokenizer),
            "embedding": model.get_input_embeddings().weight.shape[0],
        },
        "findings": [finding.to_json() for finding in findings],
        "versions": versions,
    }


def _versions(with_peft: bool) -> dict[str, str]:
    try:
        import torch
        import transformers

        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        if with_peft:
            import peft

            versions["peft"] = peft.__version__
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            f"{error.name} is needed to load a checkpoint and is not installed",
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    return {name: str(version) for name, version in versions.items()}


def _load(path: Path, base: Path | None) -> Any:
    try:
        model, report = _class_of(base or path).from_pretrained(
            base or path, output_loading_info=True, use_safetensors=True, local_files_only=True
        )
    except Exception as error:  # whatever stops the library stops a reader of the card, too
        raise _no_load(base or path, f"{type(error).__name__}: {error}") from error
    gaps = {kind: list(report[kind]) for kind in ("missing_keys", "mismatched_keys")}
    for kind, names in gaps.items():
        if names:
            raise _no_load(base or path, f"{kind.replace('_', ' ')}: {_some(names)}")
    return (model if base is None else _adapted(model, path)).eval()


def _class_of(path: Path) -> Any:
    """The class that config.json names: a model that sees, or classifies, is no CausalLM."""
    import transformers

    transformers.AutoConfig.from_pretrained(path, local_files_only=True)  # a type it knows
    named = read_object(path / "config.json").get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    return getattr(transformers, name, transformers.AutoModelForCausalLM)


def _adapted(model: Any, path: Path) -> Any:
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            adapted = PeftModel.from_pretrained(model, str(path))
        except Exception as error:
            _refuse_resized(model, path, str(error))
            raise _no_load(path, f"{type(error).__name__}: {error}") from error
    for warning in told:
        if "missing adapter keys" in str(warning.message):
            raise _no_load(path, str(warning.message))
    return adapted


def _refuse_resized(model: Any, path: Path, error: str) -> None:
    """HT136: whoever loads the card's code meets the same error, so no base is resized here."""
    rows = model.get_input_embeddings().weight.shape[0]
    shapes = r"size mismatch for (\S+):.*?\[(\d+)[^\]]*\]\)? from checkpoint.*?\[(\d+)"
    for name, own, there in re.findall(shapes, error, re.DOTALL):
        if int(there) == rows != int(own):
            raise CheckError(
                "HT136",
                f"the vocabulary was resized in training: {name} of the adapter has {own} rows, the"
                f" base has {there}, and PEFT does not put the one on the other",
                where=str(path),
                detail=("Nothing was published.",),
                next='publish it merged, which resizes the base: kind = "merged" in the manifest'
                " (with --from: --kind merged)",
            )


def _tokenizer(path: Path, base: Path | None) -> Any:
    from transformers import AutoTokenizer

    first_error: Exception | None = None
    for place in (path, *([base] if base is not None else [])):
        try:
            return AutoTokenizer.from_pretrained(place, local_files_only=True)
        except Exception as error:
            first_error = first_error or error
    raise _no_load(path, f"tokenizer: {type(first_error).__name__}: {first_error}")


def _speak(model: Any, tokenizer: Any, path: Path, templated: bool) -> tuple[str, list[int]]:
    import torch

    prompt = _PLAIN
    if templated:
        turn = [{"role": "user", "content": _QUESTION}]
        prompt = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=not templated)
    ids, rows = inputs["input_ids"], model.get_input_embeddings().weight.shape[0]
    if ids.numel() == 0 or int(ids.max()) >= rows:
        what = f"token {int(ids.max())}, but the embedding has {rows} rows" if ids.numel() else "-"
        raise _no_load(path, f"the tokenizer does not fit the model: {what}")
    if not model.can_generate():
        return prompt, _classified(model, ids, path)
    with torch.no_grad():
        reply = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=_TOKENS,
            output_logits=True,
            return_dict_in_generate=True,
        )
    for step, logits in enumerate(reply.logits):
        _require_finite(logits, f"token {step + 1}", path)
    return prompt, [int(token) for token in reply.sequences[0, ids.shape[1] :]]


def _classified(model: Any, ids: Any, path: Path) -> list[int]:
    """A classifier says nothing; it has to compute."""
    import torch

    with torch.no_grad():
        _require_finite(model(input_ids=ids).logits, "its classes", path)
    return []


def _require_finite(logits: Any, where: str, path: Path) -> None:
    import torch

    if not bool(torch.isfinite(logits).all()):
        raise CheckError(
            "HT131",
            f"the model does not compute: logits are not finite at {where}",
            where=str(path),
            detail=("Nothing was published.",),
            next="choose an earlier step of the run, before training diverged",
        )


def _some(names: list[Any]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(str(name) for name in names[:3]) + more


def _no_load(path: Path, why: str) -> CheckError:
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    return CheckError(
        "HT130",
        "the checkpoint does not load",
        where=str(path),
        detail=(*lines[:3], "Nothing was published."),
        next=f"transformers-cli env  # then compare with the versions that wrote {path.name}",
    )


if __name__ == "__main__":
    child_main(work)
