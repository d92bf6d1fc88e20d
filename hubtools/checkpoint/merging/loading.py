"""A base and its adapters in memory, as transformers and PEFT load them; for child processes only.

Nothing is fetched, no remote code is run, and a key that finds no place is an error: PEFT itself
only warns about it, and then the model is the base.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG, WEIGHTS
from hubtools.checkpoint.adapter_kinds import is_training_state
from hubtools.checkpoint.jsonfile import read_object
from hubtools.errors import CheckError, EnvironmentFailure

_HEADS = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}


def library_versions() -> dict[str, str]:
    """Versions of torch, transformers and peft.

    Raises:
        EnvironmentFailure: HT123 one of them is not installed.
    """
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            f"{error.name} is needed to load a model with its adapter and is not installed",
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    modules = {"peft": peft, "torch": torch, "transformers": transformers}
    return {name: str(module.__version__) for name, module in modules.items()}


def stage_adapters(
    adapters: Sequence[Mapping[str, Any]], scratch: Path, base_is_residual: bool
) -> list[Path]:
    """Directories that PEFT can load: the safetensors file, and a configuration that fits the base.

    Args:
        adapters: `path` and `weights` of each; `renames` of tensors that PEFT would not find.
        scratch: made anew; holds links, and a copy where tensors are renamed.
        base_is_residual: tell PEFT not to change the base a second time.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    folders = []
    for number, adapter in enumerate(adapters):
        folder = scratch / f"adapter{number}"
        folder.mkdir(parents=True)
        fields = read_object(Path(adapter["path"]) / CONFIG)
        if base_is_residual:
            fields["init_lora_weights"] = True
        (folder / CONFIG).write_text(json.dumps(fields))
        weights, renames = Path(adapter["weights"]).absolute(), adapter.get("renames")
        if renames:
            from safetensors.torch import load_file, save_file

            tensors = load_file(weights)
            save_file({renames.get(n, n): t for n, t in tensors.items()}, folder / WEIGHTS)
        else:
            (folder / WEIGHTS).symlink_to(weights)
        folders.append(folder)
    return folders


def load_model(path: Path, dtype: Any, *, like: Path | None = None, task: str = "") -> Any:
    """The model in a directory, on the CPU, in evaluation mode.

    Args:
        path: directory.
        dtype: torch's, or `auto` for the one it is stored in.
        like: another directory whose class is meant: a base is loaded as what was made of it.
        task: of the adapter, which may be trained with another head than the base has.

    Raises:
        CheckError: HT130 it does not load.
    """
    import transformers

    config = read_object((like or path) / "config.json")
    named = config.get("architectures")
    name = _HEADS.get(task) or (str(named[0]) if isinstance(named, list) and named else "")
    loader = getattr(transformers, name, transformers.AutoModelForCausalLM)
    labels = {"num_labels": len(config["id2label"])} if _heads(config) else {}
    try:
        transformers.AutoConfig.from_pretrained(  # a type it knows
            path, local_files_only=True, trust_remote_code=False
        )
        model = loader.from_pretrained(
            path,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            **labels,
        )
    except Exception as error:  # whatever stops the library is what the user has to know
        raise _no_load(path, error) from error
    return model.eval()


def with_adapters(model: Any, folders: Sequence[Path], places: Sequence[Path]) -> Any:
    """The model with all adapters loaded, named `adapter0` and so on; the first one is active.

    Args:
        model: as `load_model` gives it.
        folders: as `stage_adapters` made them.
        places: where each adapter came from, for messages.

    Raises:
        CheckError: HT130 PEFT cannot load one, or leaves tensors of it aside.
    """
    from peft import PeftModel

    peft = model
    for number, (folder, place) in enumerate(zip(folders, places, strict=True)):
        name = f"adapter{number}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # told below, as an error, with names
                if number == 0:
                    peft = PeftModel.from_pretrained(model, str(folder), adapter_name=name)
                loaded = peft.load_adapter(str(folder), adapter_name=name, torch_device="cpu")
        except Exception as error:
            raise _no_load(place, error) from error
        lost = [key for key in _lost(peft, loaded) if not is_training_state(key)]
        if lost:
            raise _left_aside(place, lost)
    return peft.eval()


def _lost(peft: Any, loaded: Any) -> list[str]:
    """Keys that went astray; a missing one is not, when it names a parameter that others share."""
    missing = set(loaded.missing_keys)
    parameters = dict(peft.named_parameters(remove_duplicate=False))
    filled = {id(value) for name, value in parameters.items() if name not in missing}
    absent = [key for key in loaded.missing_keys if id(parameters.get(key)) not in filled]
    return [*absent, *loaded.unexpected_keys]


def activate_all(adapted: Any, place: Path) -> None:
    """Let every loaded adapter act at once.

    Raises:
        CheckError: HT130 PEFT cannot, for example when two trained the same module whole.
    """
    names = list(adapted.peft_config)
    if len(names) == 1:
        return
    try:
        adapted.base_model.set_adapter(names)
    except ValueError as error:
        raise _no_load(place, error) from error


def fit_vocabulary(model: Any, rows: int) -> None:
    """Give the embedding so many rows, as before the adapter was trained on added tokens."""
    if model.get_input_embeddings().weight.shape[0] != rows:
        model.resize_token_embeddings(rows, mean_resizing=False)


def _heads(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("id2label"), Mapping)


def _left_aside(path: Path, names: list[str]) -> CheckError:
    return CheckError(
        "HT130",
        "PEFT loads this adapter only in part",
        where=str(path),
        detail=(
            f"{len(names)} adapter tensors have no place, for example {names[0]}",
            "PEFT leaves them aside in silence, so what it computes is not what was trained.",
        ),
        next="merge without --engine peft and without --check logits: both rely on PEFT",
    )


def _no_load(path: Path, error: Exception) -> CheckError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CheckError(
        "HT130",
        "transformers or PEFT does not load this",
        where=str(path),
        detail=(f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:3]),
        next="transformers-cli env  # then compare with the versions that wrote it",
    )
