"""What a checkpoint's own files say about its training, as facts with file and pointer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.trainer import TrainerState
from hubtools.digests import sha256_file
from hubtools.facts import Fact, Source, Subject

_TRAINER = {
    "global_step": ("optimizer_steps", "steps"),
    "epoch": ("epoch", ""),
    "learning_rate": ("peak_learning_rate", ""),
    "train_batch_size": ("per_device_batch_size", ""),
    "loss": ("last_logged_loss", ""),
}
_LORA = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "use_rslora": "rslora",
    "target_modules": "lora_targets",
    "use_dora": "dora",
    "modules_to_save": "saved_modules",
}
_OTHER = {"target_modules": "adapter_targets", "modules_to_save": "saved_modules"}
"""Of a type that is no LoRA, whose fields of the same name may mean something else."""


def checkpoint_facts(
    trainer: TrainerState | None,
    adapter: AdapterConfig | None,
    *,
    run: Path,
    member: str,
    weights: str,
    path: str,
) -> list[Fact]:
    """Facts from trainer_state.json and adapter_config.json.

    Args:
        trainer: its trainer_state.json, if there is one.
        adapter: its adapter_config.json, if there is one.
        run: the run's directory.
        member: whose facts they are.
        weights: digest of the weights that are published for it.
        path: how the run's folder is named on the card.

    Returns:
        `train.*` facts, status `measured`, each with the file's sha256 and a JSON pointer.
    """
    facts: list[Fact] = []

    def add(name: str, value: Any, file: Path, pointer: str, unit: str = "") -> None:
        inside = file.relative_to(run).as_posix() if file.is_relative_to(run) else file.name
        source = Source(f"{path}/{inside}", sha256_file(file), pointer)
        subject = Subject(member, weights)
        facts.append(Fact(f"train.{name}", value, "measured", source, subject, unit))

    if trainer is not None:
        for field, (name, unit) in _TRAINER.items():
            value = getattr(trainer, field)
            if value is not None:
                add(name, value, trainer.path, trainer.pointers[field], unit)
    if adapter is not None:
        if adapter.peft_type:
            add("adapter_type", adapter.peft_type, adapter.path, "/peft_type")
        for field, name in (_LORA if adapter.peft_type == "LORA" else _OTHER).items():
            value = adapter.fields.get(field)
            if isinstance(value, list):
                value = ", ".join(sorted(str(item) for item in value))
            if value not in (None, False, ""):
                add(name, value, adapter.path, f"/{field}")
    return facts
