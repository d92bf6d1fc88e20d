"""`hf`, `upload_folder` and `snapshot_download`, with xet as installed and without it."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest
from witness_machine import Machine, digests, finished

from hubtools.localhub.server import LocalHub, running


def make_folder(folder: Path, seed: str, size: int = 11_000_000) -> Path:
    """A checkpoint-like folder: weights, binary and text files, nested, empty, unusual names.

    The Hub keeps equal bytes once, so each test has its own: otherwise nothing would be sent.
    """
    noise = random.Random(seed)
    contents = {
        "model.safetensors": noise.randbytes(size),
        "README.md": b"---\nlicense: apache-2.0\n---\n# A folder\n",
        "config.json": b"{}\n",
        "empty.txt": b"",
        "optimizer.pt": noise.randbytes(100_000) * 3,
        "runs/a b/l\u00f6g.txt": b"Zeile\n" * 1000,
        "runs/data+100%.bin": noise.randbytes(1000),
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_hf_upload_and_download(tmp_path: Path, machine: Machine, other: Machine) -> None:
    repo = f"lab/cli-{machine.kind}"
    folder = make_folder(tmp_path / "sent", repo)
    machine.hf("upload", repo, str(folder), ".", "--commit-message", "first")
    other.hf("download", repo, "--local-dir", str(tmp_path / "got"))
    assert digests(tmp_path / "got") == digests(folder)
    other.hf("download", repo, "config.json", "--local-dir", str(tmp_path / "one"))
    assert list(digests(tmp_path / "one")) == ["config.json"]


def test_a_folder_comes_back_whichever_way_it_went(
    tmp_path: Path, hub: LocalHub, machine: Machine
) -> None:
    repo = f"lab/folder-{machine.kind}"
    folder = make_folder(tmp_path / "sent", repo)
    before = len(machine.traffic())
    first = machine.run("files_client.py", "upload", repo=repo, folder=str(folder))
    requests = machine.traffic()[before:]
    assert ("POST /_xet/v1/xorbs/" in requests) == machine.xet
    assert ("/info/lfs/objects/batch" in requests) != machine.xet
    sent = digests(folder)
    by_path = {item["path"]: item for item in machine.run("files_client.py", "listing", repo=repo)}
    assert {"model.safetensors", "optimizer.pt"} <= by_path.keys()
    for path, item in by_path.items():
        assert item["sha256"] == sent[path]
        assert item["size"] == (folder / path).stat().st_size
        assert (item["xet"] is not None) == machine.xet
    (folder / "config.json").write_bytes(b'{"changed": true}\n')
    (folder / "optimizer.pt").write_bytes(repo.encode() + b"\0smaller")
    machine.run("files_client.py", "upload", repo=repo, folder=str(folder))
    for xet in (True, False):
        reader = Machine(tmp_path / f"reader-{xet}", hub, xet)
        before = len(machine.traffic())
        now = reader.run("files_client.py", "snapshot", repo=repo)
        assert digests(Path(now)) == digests(folder)
        then = reader.run("files_client.py", "snapshot", repo=repo, revision=first)
        assert digests(Path(then)) == sent
        requests = machine.traffic()[before:]
        assert ("GET /_xet/v1/reconstructions/" in requests) == (machine.xet and xet)


@pytest.mark.slow
def test_a_file_of_several_xorbs(tmp_path: Path, machine: Machine, other: Machine) -> None:
    repo = f"lab/large-{machine.kind}"
    folder = tmp_path / "sent"
    folder.mkdir()
    noise = random.Random(repo).randbytes(80_000_000)
    (folder / "model.safetensors").write_bytes(noise + noise[:20_000_000])
    machine.run("files_client.py", "upload", repo=repo, folder=str(folder))
    if machine.xet:
        assert len(list((machine.hub.root / "xet" / "xorbs").glob("*.xorb"))) >= 2
    got = other.run("files_client.py", "snapshot", repo=repo)
    assert digests(Path(got)) == digests(folder)


def test_four_clients_at_once_in_one_repo(
    tmp_path: Path, hub: LocalHub, machine: Machine, other: Machine
) -> None:
    repo = f"lab/crowd-{machine.kind}"
    folder = make_folder(tmp_path / "sent", repo, size=2_000_000)
    machine.run("files_client.py", "upload", repo=repo, folder=str(folder))
    shared = (folder / "model.safetensors").read_bytes()
    crowd = []
    for n in range(4):
        path = folder / f"part-{n}.safetensors"
        path.write_bytes(b"%d" % n + shared + random.Random(f"{repo}{n}").randbytes(3_000_000))
        sender = Machine(tmp_path / f"sender-{n}", hub, machine.xet)
        crowd.append(
            sender.script("files_client.py", "add", repo=repo, path=str(path), at=path.name)
        )
    commits = [json.loads(finished(process)) for process in crowd]
    assert len(set(commits)) == 4
    got = other.run("files_client.py", "snapshot", repo=repo)
    assert digests(Path(got)) == digests(folder)


def test_a_landed_upload_survives_a_killed_hub(tmp_path: Path, xet: bool) -> None:
    folder = make_folder(tmp_path / "sent", "killed")
    with running(tmp_path / "root", log=tmp_path / "log") as hub:
        sender = Machine(tmp_path / "sender", hub, xet)
        sender.run("files_client.py", "upload", repo="lab/kept", folder=str(folder))
        os.kill(hub.pid, signal.SIGKILL)
    with running(tmp_path / "root", log=tmp_path / "log") as hub:
        reader = Machine(tmp_path / "reader", hub, xet)
        got = reader.run("files_client.py", "snapshot", repo="lab/kept")
        assert digests(Path(got)) == digests(folder)
        (folder / "later.bin").write_bytes(b"later\0" * 1000)
        sender = Machine(tmp_path / "sender", hub, xet)
        sender.run("files_client.py", "upload", repo="lab/kept", folder=str(folder))
        got = reader.run("files_client.py", "snapshot", repo="lab/kept")
        assert digests(Path(got)) == digests(folder)


def test_a_hub_without_xet_fails_the_default_client_and_serves_the_other(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "sent", "plain", size=100_000)
    with running(tmp_path / "root", log=tmp_path / "log", xet=False) as plain:
        why = Machine(tmp_path / "default", plain).run(
            "files_client.py", "upload_and_say_why_not", repo="lab/plain", folder=str(folder)
        )
        assert why["type"] == "builtins.ConnectionError"
        assert "404 Not Found" in why["text"]
        assert "xet-write-token" in why["text"]
        sender = Machine(tmp_path / "lfs", plain, xet=False)
        sender.run("files_client.py", "upload", repo="lab/plain", folder=str(folder))
        reader = Machine(tmp_path / "reader", plain)
        got = reader.run("files_client.py", "snapshot", repo="lab/plain")
        assert digests(Path(got)) == digests(folder)
