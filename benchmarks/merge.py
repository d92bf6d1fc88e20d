"""Merging a LoRA of rank 16 on all seven linear layers into a model of Qwen2.5-0.5B's shape.

Random weights, 494 M parameters in bfloat16 (0.988 GB, tied embeddings), beside PEFT's load, merge
and save, and beside `cp -r` of the base. Every side is a fresh process, its inputs dropped from the
page cache, and is timed until `sync` returns. With `--quick` each side runs once, else three times
in turn; the best run counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common import emit, quick

SHAPE = "Qwen2.5-0.5B: 24 layers, 896 wide, 4864 inner, 151936 tokens, tied; LoRA r=16 on 7 layers"
MAKE = """
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.for_model(
    "qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24, vocab_size=151936,
    num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.save_pretrained(sys.argv[1])
targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
peft = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=targets))
with torch.no_grad():
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            parameter.normal_(0, 0.02)
peft.save_pretrained(sys.argv[2])
"""
OURS = """
import sys
from pathlib import Path
from hubtools.checkpoint.merging.merge import merge
adapter, base, out = map(Path, sys.argv[1:])
merge(adapter, base, out, log=out.with_suffix(".log"))
"""
PEFT = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
adapter, base, out = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
model.merge_and_unload().save_pretrained(out)
"""


class Run(NamedTuple):
    """One process: wall seconds with sync, CPU seconds, peak resident MB, seconds to first byte."""

    wall: float
    cpu: float
    rss: float
    first: float


class Targets(NamedTuple):
    """Wall against PEFT and against cp, peak resident MB, seconds to the first byte."""

    peft: float
    copy: float
    rss: float
    first: float


TARGETS = Targets(0.25, 2.2, 150, 0.3)
QUICK_TARGETS = Targets(0.4, 4.0, 150, 0.8)  # one cold round, on a machine that may be busy


def measured(argv: list[str], inputs: list[Path], watched: Path | None = None) -> Run:
    """Run `argv` with cold inputs; `watched` is the file whose first byte is waited for."""
    for folder in inputs:
        for file in folder.iterdir():
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.sync()
    begin = time.perf_counter()
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    first = float("nan")
    if watched is not None:
        while child.poll() is None and not (watched.exists() and watched.stat().st_size):
            time.sleep(0.001)
        first = time.perf_counter() - begin
    assert child.stderr is not None
    story = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    os.sync()
    wall = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode != 0:
        raise SystemExit(story.decode())
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, first)


def main() -> None:
    """Make the model, run the three sides, print one line for each promise."""
    short = quick()
    target, rounds = (QUICK_TARGETS, 1) if short else (TARGETS, 3)
    with tempfile.TemporaryDirectory(prefix="merge-", dir=".") as folder:
        root = Path(folder).absolute()
        base, adapter = root / "base", root / "adapter"
        subprocess.run(
            [sys.executable, "-c", MAKE, base, adapter], check=True, stderr=subprocess.DEVNULL
        )
        best = compare(root, adapter, base, rounds)
        same = identical(root / "ours", root / "peft")
    ours, peft, copy = best["ours"], best["peft"], best["cp -r"]
    sides = {name: {**run._asdict(), "first": None} for name, run in best.items()}
    commands = {"ours": OURS, "peft": PEFT, "cp -r": "cp -r BASE OUT"}

    def line(measure: str, value: float, unit: str, peer: object, limit: float) -> None:
        ok = value <= limit
        emit(measure, value, unit, peer, limit, ok, shape=SHAPE, rounds=rounds, quick=short)

    emit("merge: files equal to PEFT's, byte for byte", same, "files", None, 1, same == 1,
         shape=SHAPE, rounds=rounds, quick=short, commands=commands)  # fmt: skip
    line("merge: wall, sha256 included, against PEFT", ours.wall / peft.wall, "ratio", sides,
         target.peft)  # fmt: skip
    line("merge: wall against cp -r", ours.wall / copy.wall, "ratio", sides, target.copy)
    line("merge: peak RSS", ours.rss, "MB", sides, target.rss)
    line("merge: start to first byte", ours.first, "s", None, target.first)


def compare(root: Path, adapter: Path, base: Path, rounds: int) -> dict[str, Run]:
    """The best run of each side; their outputs stay for a comparison."""
    best: dict[str, Run] = {}
    for _ in range(rounds):
        for name in ("peft", "cp -r", "ours"):
            out = root / name
            subprocess.run(["rm", "-rf", out, root / f".{name}.merge"], check=True)
            if name == "cp -r":
                run = measured(["cp", "-r", str(base), str(out)], [base])
            else:
                script = OURS if name == "ours" else PEFT
                first = root / ".ours.merge" / "files" / "model.safetensors"
                argv = [sys.executable, "-c", script, str(adapter), str(base), str(out)]
                run = measured(argv, [base, adapter], first if name == "ours" else None)
            if name not in best or run.wall < best[name].wall:
                best[name] = run
            sys.stderr.write(f"{name}: {json.dumps(run._asdict())}\n")
    return best


def identical(ours: Path, theirs: Path) -> int:
    """How many of our weight files have exactly the bytes of theirs."""
    return sum(
        (theirs / file.name).is_file()
        and subprocess.run(["cmp", "-s", file, theirs / file.name]).returncode == 0
        for file in ours.glob("*.safetensors")
    )


if __name__ == "__main__":
    main()
