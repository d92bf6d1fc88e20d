"""What the CLI tests share: a tidy environment, the heavy libraries, the command tree."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

HEAVY = {
    "datasets",
    "huggingface_hub",
    "jinja2",
    "numpy",
    "peft",
    "rich",
    "starlette",
    "torch",
    "transformers",
    "yaml",
}


def clean_env(**extra: str) -> dict[str, str]:
    """This environment without colour and completion settings."""
    drop = {"NO_COLOR", "FORCE_COLOR", "HUBTOOLS_DEBUG", "_HUBTOOLS_COMPLETE"}
    env = {name: value for name, value in os.environ.items() if name not in drop}
    return env | {"HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"} | extra


def walk(command: click.Command, path: str = "hubtools") -> Iterator[tuple[str, click.Command]]:
    """Every command of the tree with the words that call it, parents first."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, f"{path} {name}")
