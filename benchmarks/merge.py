"""Merging a LoRA of rank 16 on all seven linear layers: beside PEFT, `cp -r`, and the bare disk.

Random weights in bfloat16. Every side is a fresh process, its inputs dropped from the page cache,
and is timed until `sync` returns; the best round counts. Outputs are hashed, tensor by tensor, and
removed: one is on the disk at a time. Without options: Qwen2.5-0.5B's shape in three rounds, then
DoRA and fused experts, the latter also with the names that the merge before it kept (`again`; all
others find an empty cache). `--quick`: one round of the first. `--full`: Qwen2.5-7B's shape
(15 GB), one round; PEFT needs 16 GB of memory for it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _shapes import DORA, EXPERTS, LARGE, SMALL, Shape, write_adapter, write_model
from common import Run, arguments, emit, measured

from hubtools.checkpoint.shards import read_weights

OURS = """
import sys
from pathlib import Path
from hubtools.checkpoint.merging.merge import merge
adapter, base, out = map(Path, sys.argv[1:])
merge([adapter], base, out, log=out.with_suffix(".log"))
"""
PEFT = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
adapter, base, out = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
model.merge_and_unload().save_pretrained(out)
"""
COPY = 'cp -r "$1" "$2"'
DISK = """
mkdir "$2"
for file in "$1"/*.safetensors; do
  dd if="$file" of="$2/${file##*/}" bs=4M iflag=direct oflag=direct status=none || exit 1
done
"""
COMMANDS = {"ours": OURS, "again": OURS, "peft": PEFT, "cp -r": COPY, "dd": DISK}


class Targets(NamedTuple):
    """Wall against PEFT, cp and dd; peak resident MB; seconds to the first byte. None: no promise.

    Args:
        rounds: how often each side runs.
    """

    rounds: int
    peft: float
    copy: float | None = None
    disk: float | None = None
    rss: float | None = None
    first: float | None = None


SMALL_TARGETS = Targets(3, 0.25, copy=2.2, rss=150, first=0.3)
QUICK_TARGETS = Targets(1, 0.4, copy=4.0, rss=150, first=0.8)  # on a machine that may be busy
LARGE_TARGETS = Targets(1, 0.2, copy=1.0, disk=1.7, rss=150, first=0.3)
OTHER_TARGETS = Targets(1, 1 / 3)


def main() -> None:
    """Measure the shapes that were asked for."""
    asked = arguments()
    if asked.full:
        compare("merge 7B", LARGE, LARGE_TARGETS)
    elif asked.quick:
        compare("merge", SMALL, QUICK_TARGETS)
    else:
        compare("merge", SMALL, SMALL_TARGETS)
        compare("merge DoRA", DORA, OTHER_TARGETS)
        compare("merge fused experts", EXPERTS, OTHER_TARGETS)


def compare(area: str, shape: Shape, targets: Targets) -> None:
    """Run every side, print one line for each promise."""
    with tempfile.TemporaryDirectory(prefix="merge-", dir=".") as folder:
        root = Path(folder).absolute()
        write_model(shape, root / "base")
        write_adapter(shape, root / "adapter", root / "base")
        sides = ["peft", "ours"]
        sides += ["again"] * (shape.experts > 0)
        sides += ["cp -r"] * (targets.copy is not None) + ["dd"] * (targets.copy is not None)
        best, tensors = _rounds(root, sides, targets.rounds)
    extra = {"shape": shape.words, "rounds": targets.rounds}
    peers = {name: run._asdict() for name, run in best.items()}
    ours = best["ours"]

    def line(measure: str, value: float, unit: str, limit: float | None) -> None:
        if limit is not None:
            emit(f"{area}: {measure}", value, unit, peers, limit, value <= limit, **extra)

    wrong = sum(tensors["peft"].get(name) != sha for name, sha in tensors["ours"].items())
    emit(f"{area}: tensors with other bytes than PEFT's", wrong, "tensors", len(tensors["peft"]),
         0, not wrong and len(tensors["ours"]) == len(tensors["peft"]), **extra,
         commands=COMMANDS)  # fmt: skip
    line(
        "wall, sha256 included, against PEFT", ours.wall / best["peft"].wall, "ratio", targets.peft
    )
    if "again" in best:
        known = best["again"].wall / best["peft"].wall
        line("wall against PEFT, names kept from an earlier merge", known, "ratio", targets.peft)
    if "cp -r" in best:
        line("wall against cp -r", ours.wall / best["cp -r"].wall, "ratio", targets.copy)
        line("wall against dd, O_DIRECT", ours.wall / best["dd"].wall, "ratio", targets.disk)
    line("peak RSS, all processes", ours.rss, "MB", targets.rss)
    line("start to first byte", ours.first or float("nan"), "s", targets.first)


def _rounds(
    root: Path, sides: list[str], rounds: int
) -> tuple[dict[str, Run], dict[str, dict[str, str]]]:
    """The best run of each side, and sha256 of each tensor that PEFT and we wrote."""
    best: dict[str, Run] = {}
    tensors: dict[str, dict[str, str]] = {}
    base, adapter, cache = root / "base", root / "adapter", root / "cache"
    for _ in range(rounds):
        for name in sides:
            out = root / name
            if name in ("ours", "again", "peft"):
                if name == "ours":
                    shutil.rmtree(cache, ignore_errors=True)
                argv = ["env", f"XDG_CACHE_HOME={cache}"]
                argv += [sys.executable, "-c", COMMANDS[name], str(adapter), str(base), str(out)]
            else:
                argv = ["sh", "-c", COMMANDS[name], "sh", str(base), str(out)]
            watched = root / ".ours.merge" / "files" if name == "ours" else None
            run = measured(argv, [base, adapter], watched)
            if name not in best or run.wall < best[name].wall:
                best[name] = run
            if name in ("ours", "peft") and name not in tensors:
                tensors[name] = digests(out)
            shutil.rmtree(out)
            shutil.rmtree(root / f".{name}.merge", ignore_errors=True)
            sys.stderr.write(f"{name}: {json.dumps(run._asdict())}\n")
    return best, tensors


def digests(folder: Path) -> dict[str, str]:
    """Tensor name → sha256 of its bytes."""
    found = {}
    for header in read_weights(folder).headers.values():
        with header.path.open("rb") as stream:
            for entry in header.tensors:
                stream.seek(entry.begin)
                digest = hashlib.sha256(f"{entry.dtype} {entry.shape}".encode())
                left = entry.end - entry.begin
                while left:
                    piece = stream.read(min(left, 4 << 20))
                    digest.update(piece)
                    left -= len(piece)
                found[entry.name] = digest.hexdigest()
    return found


if __name__ == "__main__":
    main()
