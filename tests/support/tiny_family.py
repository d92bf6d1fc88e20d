"""A family of tiny LoRA adapters on a tiny base, with teacher logs: real files, made in seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tiny_models import LINEAR, save_adapter, save_base

REVISION = "0123456789abcdef0123456789abcdef01234567"
MANIFEST = """\
schema = 1
[family]
id = "tiny"
owner = "lab"
kind = "{kind}"
license = "apache-2.0"
base = {{ repo = "lab/tiny-base", revision = "{revision}", path = "base" }}
languages = ["en"]
suites = {suites}
[arms.red]
steps = ["s4", "s8"]
[inputs]
checkpoint = "runs/{{arm}}/{{step}}"
[provenance]
{provenance}
"""
NO_TEACHER = 'status = "none"\nreason = "no teacher was called"'
TEACHER = """\
status = "logs"
[provenance.teacher]
logs = "logs/*.jsonl"
requested = "deepseek-chat"
claim = "deepseek-v4-flash"
"""


def make_models(root: Path, **sizes: int) -> Path:
    """`base`, and adapter runs `red/s4` and `red/s8` with different weights and trainer states."""
    base = save_base(root / "base", "llama", "float32", sizes=sizes)
    for seed, step in ((1, 4), (2, 8)):
        run = save_adapter(root / "runs" / "red" / f"s{step}", base, LINEAR["llama"], r=seed * 2)
        state = {"global_step": step, "epoch": step / 8, "log_history": [{"loss": 3.0 / step}]}
        (run / "trainer_state.json").write_text(json.dumps(state))
    return root


def make_full_models(root: Path) -> Path:
    """`base`, and two full checkpoints `red/s4` and `red/s8`."""
    base = save_base(root / "base", "llama", "float32")
    for step in (4, 8):
        run = root / "runs" / "red" / f"s{step}"
        shutil.copytree(base, run)
        (run / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return root


def write_manifest(
    root: Path, *, kind: str = "merged", suites: str = "[]", provenance: str = NO_TEACHER
) -> Path:
    """`family.toml` over what `make_models` made."""
    text = MANIFEST.format(kind=kind, suites=suites, provenance=provenance, revision=REVISION)
    file = root / "family.toml"
    file.write_text(text)
    return file


def write_logs(root: Path, reported: str = "deepseek-v4-flash", n: int = 5) -> Path:
    """Chat completions of a teacher, as a client would have kept them."""
    lines = []
    for turn in range(n):
        response = {
            "id": f"0f0e7c1a-0000-4000-8000-{turn:012d}",
            "object": "chat.completion",
            "created": 1_780_000_000 + turn,
            "model": reported,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": f"answer {turn}"},
                    "finish_reason": "stop",
                }
            ],
        }
        request = {"model": "deepseek-chat", "messages": [{"role": "user", "content": f"q {turn}"}]}
        lines.append(json.dumps({"role": "agent", "request": request, "response": response}))
    file = root / "logs" / "teacher.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    return file
