"""--engine peft as processes: killed while PEFT works, run again, whole in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from oracle import stored
from other_types import save_other
from zoo import Zoo

from hubtools.checkpoint.merging.merge import merge


def test_killed_while_peft_merges(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "bfloat16")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    out, work = tmp_path / "out", tmp_path / ".out.merge"
    argv = [sys.executable, "-m", "hubtools", "merge", str(adapter), "--engine", "peft"]
    argv += ["--check", "logits", "--no-talk", "--json", "-o", str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        until = time.monotonic() + 120
        while not list(work.glob("raw-*")) and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
    assert not out.exists()
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["logits"]["equal"]
    assert sorted(path.name for path in work.iterdir()) == [
        "job.json",
        "lock",
        "log",
        "logits.json",
    ]
    merge([adapter], base, tmp_path / "again", engine="peft", log=tmp_path / "log")
    ours, theirs = stored(out), stored(tmp_path / "again")
    assert all(bool((ours[name] == theirs[name]).all()) for name in theirs)
    same = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert json.loads(same.stdout)["weights"] == data["weights"]
