"""Ingesting eight verl rank files: beside a merge that writes the same bytes, and beside `cp -r`.

Random weights, sharded by rows over eight ranks as FSDP2 shards them. Every side is a fresh
process, its inputs dropped from the page cache, and is timed until `sync` returns; the best round
counts. Outputs are hashed, tensor by tensor, and removed: one is on the disk at a time. Without
options: Qwen2.5-0.5B's shape in three rounds. `--quick`: one round. `--full`: Qwen2.5-7B's shape
(15 GB), one round. The promise is for bfloat16 shards, of which as many bytes are read as in the
merge; `masters` are the same shards in float32, and `no base` knows the model from its config.json
alone, so that transformers is loaded.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _shapes import LARGE, SMALL, Shape, write_adapter, write_model
from common import Run, arguments, emit, measured

from hubtools.checkpoint.shards import read_weights

RANKS = 8
SPLIT = """
import sys, torch
import torch.distributed as dist
from pathlib import Path
from safetensors import safe_open
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore
base, out, dtype, rank, world = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
rank, world = int(rank), int(world)
dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
mesh = DeviceMesh("cpu", list(range(world)), mesh_dim_names=("fsdp",))
state = {}
for file in sorted(base.glob("*.safetensors")):
    with safe_open(file, "pt") as tensors:
        for name in tensors.keys():
            whole = tensors.get_slice(name)
            shape = torch.Size(whole.get_shape())
            rows = -(-shape[0] // world)
            part = whole[rank * rows : min(shape[0], (rank + 1) * rows)].to(getattr(torch, dtype))
            stride = torch.empty(shape, device="meta").stride()
            state[name] = DTensor.from_local(
                part.clone(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
torch.save(state, out / f"model_world_size_{world}_rank_{rank}.pt")
"""
MERGE = """
import sys
from pathlib import Path
from hubtools.checkpoint.merging.merge import merge
adapter, base, out = map(Path, sys.argv[1:])
merge([adapter], base, out, log=out.with_suffix(".log"))
"""
INGEST = """
import sys
from pathlib import Path
from hubtools.checkpoint.ingesting.ingest import ingest
run, base, out = (Path(p) if p else None for p in sys.argv[1:])
ingest(run, out, base=base, dtype="bfloat16", log=out.with_suffix(".log"))
"""
COPY = "cp -r $1 $2"


class Targets(NamedTuple):
    """Wall against the merge, peak resident MB; and how often each side runs."""

    rounds: int
    merge: float
    rss: float


SMALL_TARGETS = Targets(3, 2.0, 1000)
QUICK_TARGETS = Targets(1, 3.0, 1000)  # on a machine that may be busy
LARGE_TARGETS = Targets(1, 1.5, 1000)


def main() -> None:
    """Measure the shape that was asked for."""
    asked = arguments()
    if asked.full:
        compare("ingest 7B", LARGE, LARGE_TARGETS, masters=False)
    else:
        compare("ingest", SMALL, QUICK_TARGETS if asked.quick else SMALL_TARGETS, masters=True)


def compare(area: str, shape: Shape, targets: Targets, masters: bool) -> None:
    """Make model, adapter and rank files, run the sides in turn, print a line a promise."""
    with tempfile.TemporaryDirectory(prefix="ingest-", dir=".") as folder:
        root = Path(folder).absolute()
        base, adapter, run = root / "base", root / "adapter", root / "global_step_8"
        write_model(shape, base)
        write_adapter(shape, adapter, base)
        split(base, run, "bfloat16")
        sides = {
            "merge": ([sys.executable, "-c", MERGE, adapter, base], [base, adapter]),
            "cp -r": (["sh", "-c", COPY, "sh", run / "actor"], [run / "actor"]),
            "ours": ([sys.executable, "-c", INGEST, run, base], [run / "actor"]),
            "no base": ([sys.executable, "-c", INGEST, run, ""], [run / "actor"]),
        }
        if masters:
            wide = root / "global_step_9"
            split(base, wide, "float32")
            sides["masters"] = ([sys.executable, "-c", INGEST, wide, base], [wide / "actor"])
        best: dict[str, Run] = {}
        digests: dict[str, str] = {}
        for _ in range(targets.rounds):
            for name, (command, inputs) in sides.items():
                out = root / "out"
                found = measured([*map(str, command), str(out)], inputs, None)
                if name not in best or found.wall < best[name].wall:
                    best[name] = found
                if name not in ("merge", "cp -r"):
                    digests[name] = values(out)
                shutil.rmtree(out)
                shutil.rmtree(root / ".out.ingest", ignore_errors=True)
                shutil.rmtree(root / ".out.merge", ignore_errors=True)
        wrong = sum(digest != values(base) for digest in digests.values())
    peers = {name: {**side._asdict(), "first": None} for name, side in best.items()}
    more = {"shape": f"{shape.words}; {RANKS} ranks", "rounds": targets.rounds}
    commands = {"merge": MERGE, "ours": INGEST, "cp -r": COPY, "rank files": SPLIT}
    emit(f"{area}: outputs that differ from the model that was sharded", wrong, "outputs", None, 0,
         wrong == 0, **more, commands=commands)  # fmt: skip
    ratio = best["ours"].wall / best["merge"].wall
    emit(f"{area}: wall, sha256 included, against the merge", ratio, "ratio", peers, targets.merge,
         ratio <= targets.merge, **more)  # fmt: skip
    rss = max(side.rss for name, side in best.items() if name not in ("merge", "cp -r"))
    emit(f"{area}: peak RSS of all processes", rss, "MB", None, targets.rss, rss <= targets.rss,
         **more)  # fmt: skip


def split(base: Path, run: Path, dtype: str) -> None:
    """Write the rank files of a model, one rank after the other."""
    actor = run / "actor"
    actor.mkdir(parents=True)
    shutil.copytree(base, run / "huggingface", ignore=shutil.ignore_patterns("*safetensors*"))
    for rank in range(RANKS):
        argv = [sys.executable, "-c", SPLIT, base, actor, dtype, str(rank), str(RANKS)]
        subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)


def values(model: Path) -> str:
    """Digest of names and bytes of all tensors, however they are laid out in files."""
    digest = hashlib.sha256()
    for name, (file, entry) in sorted(read_weights(model).tensors().items()):
        digest.update(f"{name} {entry.dtype} {entry.shape}".encode())
        with (model / file).open("rb") as stream:
            stream.seek(entry.begin)
            left = entry.end - entry.begin
            while left:
                part = stream.read(min(left, 1 << 24))
                digest.update(part)
                left -= len(part)
    return digest.hexdigest()


if __name__ == "__main__":
    main()
