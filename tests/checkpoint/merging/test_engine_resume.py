"""What a killed merge finished is kept while it is what it was; everything else is made again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LINEAR, save_adapter, save_base

from hubtools.checkpoint.journal import Journal
from hubtools.checkpoint.merging.child import finished
from hubtools.checkpoint.merging.finish import finish
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.written import Sums, Written
from hubtools.digests import sha256_bytes
from hubtools.errors import CheckError, EnvironmentFailure

Pair = tuple[Path, Path]
SCRIPT = """
import sys
from pathlib import Path
from typing import Any
from hubtools.checkpoint.merging.merge import merge
adapter, base, out = map(Path, sys.argv[1:])
merge(adapter, base, out, log=out.with_name("log"))
"""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """(base, adapter): shards of 6 MB."""
    root = tmp_path_factory.mktemp("sharded")
    sizes = {"vocab_size": 40_000, "intermediate_size": 40_000}
    base = save_base(root / "base", "llama", "bfloat16", sizes=sizes, max_shard_size="6MB")
    return base, save_adapter(root / "adapter", base, LINEAR["llama"], r=2)


def shards(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.safetensors")) if folder.is_dir() else []


def killed(pair: Pair, out: Path, when: Callable[[Path], bool]) -> Path:
    """Start a merge in a process of its own, kill it -9 when `when(its new files)`."""
    base, adapter = pair
    new = out.with_name(f".{out.name}.merge") / "files"
    argv = [sys.executable, "-c", SCRIPT, str(adapter), str(base), str(out)]
    child = subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None and not when(new):
        time.sleep(0.0002)
    assert child.poll() is None, "it ended before it could be killed"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return new


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        name: ((folder / name).stat().st_ino, (folder / name).stat().st_mtime_ns)
        for name in shards(folder)
    }


def test_killed_between_files(sharded: Pair, tmp_path: Path) -> None:
    base, adapter = sharded
    undisturbed = merge(adapter, base, tmp_path / "undisturbed", log=tmp_path / "log")
    out = tmp_path / "out"
    new = killed(sharded, out, lambda new: len(shards(new)) >= 2)
    journal = json.loads((new.parent / "journal.json").read_bytes())
    kept = {name: stamp for name, stamp in stamps(new).items() if name in journal["files"]}
    assert kept
    assert not out.exists()
    assert merge(adapter, base, out, log=tmp_path / "log") == undisturbed
    now = stamps(out)
    assert all(now[name] == stamp for name, stamp in kept.items())
    assert sorted(os.listdir(new.parent)) == ["job.json", "lock"]


def test_a_finished_file_that_was_changed_is_made_again(sharded: Pair, tmp_path: Path) -> None:
    base, adapter = sharded
    undisturbed = merge(adapter, base, tmp_path / "undisturbed", log=tmp_path / "log")
    new = killed(sharded, tmp_path / "out", lambda new: len(shards(new)) >= 2)
    journal = json.loads((new.parent / "journal.json").read_bytes())
    first = new / min(journal["files"])
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    assert merge(adapter, base, tmp_path / "out", log=tmp_path / "log") == undisturbed


def test_another_job_starts_afresh(sharded: Pair, tmp_path: Path) -> None:
    base, _ = sharded
    other = save_adapter(tmp_path / "other", base, ["q_proj"], r=3)
    undisturbed = merge(other, base, tmp_path / "undisturbed", log=tmp_path / "log")
    new = killed(sharded, tmp_path / "out", lambda new: len(shards(new)) >= 2)
    assert shards(new)
    assert merge(other, base, tmp_path / "out", log=tmp_path / "log") == undisturbed


def once(do: Callable[[], None]) -> Callable[..., None]:
    """A listener that acts once, when the first bytes are told."""
    done: list[int] = []

    def listen(label: str, so_far: int, total: int | None, unit: str) -> None:
        if not done:
            done.append(so_far)
            do()

    return listen


@pytest.mark.parametrize("which", ["base", "adapter"])
def test_an_input_that_changes_meanwhile(tmp_path: Path, which: str) -> None:
    """Another process writes the very file that is read: whatever was read, it is not published."""
    base = save_base(tmp_path / "base", "llama", "bfloat16", sizes={"vocab_size": 400_000})
    adapter = save_adapter(tmp_path / "adapter", base, ["q_proj"], r=2)
    file = next((base if which == "base" else adapter).glob("*.safetensors"))

    def touch() -> None:
        data = file.read_bytes()
        with file.open("r+b") as stream:
            stream.seek(len(data) - 1)
            stream.write(bytes([data[-1] ^ 1]))

    with pytest.raises(EnvironmentFailure, match="HT155") as caught:
        merge(
            adapter,
            base,
            tmp_path / "out",
            log=tmp_path / "log",
            progress=once(touch),
        )
    assert caught.value.where == str(file.resolve())
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path / ".out.merge") == ["lock"]
    merge(adapter, base, tmp_path / "out", log=tmp_path / "log")


@pytest.mark.parametrize(
    "name",
    ["base/config.json", "base/tokenizer.json", "base/LICENSE", "adapter/adapter_config.json"],
)
def test_a_small_file_that_changes_meanwhile(tmp_path: Path, name: str) -> None:
    """The result is of the files as they were, or it is not there; no rerun keeps a mixture."""
    base = save_base(tmp_path / "base", "llama", "bfloat16", sizes={"vocab_size": 400_000})
    adapter = save_adapter(tmp_path / "adapter", base, ["q_proj"], r=2)
    file = tmp_path / name
    before = file.read_bytes()
    touch = once(lambda: file.write_bytes(before + b"\n"))
    with pytest.raises(EnvironmentFailure, match="HT155") as caught:
        merge(adapter, base, tmp_path / "out", log=tmp_path / "log", progress=touch)
    assert caught.value.where == str(file)
    assert not (tmp_path / "out").exists()
    file.write_bytes(before)
    result = merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    assert merge(adapter, base, tmp_path / "out", log=tmp_path / "log") == result


def test_a_small_file_that_changes_last_is_written_as_it_was_read(
    sharded: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look at the inputs and the last file of the result."""
    base = shutil.copytree(sharded[0], tmp_path / "base")
    before = (base / "config.json").read_bytes()

    def late(*arguments: Any) -> dict[str, Any]:
        (base / "config.json").write_bytes(b"{}")
        return finish(*arguments)

    monkeypatch.setattr("hubtools.checkpoint.merging.finish.finish", late)
    merge(sharded[1], base, tmp_path / "out", log=tmp_path / "log")
    assert (tmp_path / "out" / "config.json").read_bytes() == before


def test_a_merge_that_changes_nothing_keeps_nothing(sharded: Pair, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base, _ = sharded
    adapter = save_adapter(tmp_path / "adapter", base, ["q_proj"], r=2)
    file = adapter / "adapter_model.safetensors"
    save_file({k: v * ("lora_B" not in k) for k, v in load_file(file).items()}, file)
    with pytest.raises(CheckError, match="HT116"):
        merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    assert os.listdir(tmp_path / ".out.merge") == ["lock"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"job": "j"}', '{"job": "j", "files": 3}', '{"job": "other", "files": {}}',
     '{"job": "j", "files": {"f": 1}}', '{"job": "j", "files": {"f": {"sha256": "00"}}}'],
)  # fmt: skip
def test_a_journal_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "journal.json").write_text(text)
    (tmp_path / "f").write_bytes(b"data")
    assert finished(Journal(tmp_path / "journal.json", "j"), tmp_path, "f") is None


def test_a_journal_remembers(tmp_path: Path) -> None:
    written = Written(sha256_bytes(b"data"), 4, {"w": Sums(3, 2, 0.1, 1 / 3)})
    Journal(tmp_path / "journal.json", "j").add("f", written.to_json())
    again = Journal(tmp_path / "journal.json", "j")
    assert finished(again, tmp_path, "f") is None  # it is not there
    (tmp_path / "f").write_bytes(b"data")
    assert finished(again, tmp_path, "f") == written
    (tmp_path / "f").write_bytes(b"dat\0")
    assert finished(again, tmp_path, "f") is None
    assert again.names == {"f"}
