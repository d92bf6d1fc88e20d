"""Does a checkpoint load and talk? Asked of each one before it is published, merged or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.children import run_child
from hubtools.errors import UsageError
from hubtools.progress import Progress, silent

TALK_VERSION = 1


def talk(
    path: Path, *, base: Path | None = None, log: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Load `path` offline with transformers (an adapter over `base` with PEFT), and let it speak.

    Args:
        path: a model or adapter directory.
        base: directory of an adapter's base; not used for a model.
        log: where the child process tells its story.
        progress: steps done.

    Returns:
        `prompt`, `text`, `tokens` (ids, at most 16, greedy), `dtype`, `chat_template` (bool),
        `vocabulary` {tokenizer, embedding}, `findings` (JSON of Finding), `versions`.

    Raises:
        CheckError: HT130 it does not load, HT131 logits are not finite; HT10x as
            `inspect_checkpoint`.
        UsageError: HT124 an adapter without its base.
        EnvironmentFailure: HT123 a library is missing, HT904 the child died.
    """
    kind = inspect_checkpoint(path).kind
    if kind == "adapter" and base is None:
        raise UsageError(
            "HT124",
            "an adapter speaks only over its base, and no base was given",
            where=str(path),
            next="name the model it was trained on: --base DIR",
        )
    job = {
        "path": str(path.absolute()),
        "base": str(base.absolute()) if base is not None and kind == "adapter" else "",
        "label": f"load {path.name}",
    }
    offline = {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return run_child(
        "hubtools.checkpoint.talk_child",
        job,
        log=log,
        what=f"loading {path}",
        progress=progress,
        env=offline,
    )
