"""A verl-like run by two real ranks, and a LoRA run of the same shape, for releases.

`python sharded_runs.py ROOT RANK` is one rank.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import trainer_dirs

WORLD = 2


def make_run(root: Path) -> Path:
    """`root/global_step_7`: `actor/` with rank files, configuration and tokenizer; no weights."""
    root.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    argv = [sys.executable, "-W", "ignore", __file__, str(root)]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for rank in range(WORLD)
    ]
    stories = [rank.communicate()[0].decode() for rank in ranks]
    assert not any(rank.returncode for rank in ranks), stories[0][-4000:]
    (root / "meet").unlink(missing_ok=True)
    return root / "global_step_7"


def make_lora_run(root: Path, run: Path, adapter: Path) -> Path:
    """The same with `lora_adapter/` as verl writes it: alpha is 0, the model beside it the base."""
    made = root / "global_step_7"
    shutil.copytree(run, made)
    lora = made / "actor" / "lora_adapter"
    shutil.copytree(adapter, lora)
    config = json.loads((lora / "adapter_config.json").read_text())
    (lora / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 0}))
    return made


def rank_main(root: Path, rank: int) -> None:
    """What one rank does."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    trainer_dirs.WORLD = WORLD
    dist.init_process_group("gloo", f"file://{root}/meet", rank=rank, world_size=WORLD)
    trainer_dirs.verl_step(root, "llama", trainer_dirs.wrappers()["fsdp2"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank_main(Path(sys.argv[1]), int(sys.argv[2]))
