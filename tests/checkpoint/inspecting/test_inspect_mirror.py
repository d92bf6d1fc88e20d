"""A repo laid out with holes is described as the directory it came from, from a few kilobytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint.inspecting.look import look
from hubtools.checkpoint.inspecting.mirror import mirror
from hubtools.errors import CheckError

Made = Callable[..., tuple[Path, Path]]


class Folder:
    """A directory read in parts, as a repo is; counts what it gives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given: dict[str, int] = {}
        self.sizes = {
            file.relative_to(path).as_posix(): file.stat().st_size
            for file in path.rglob("*")
            if file.is_file()
        }

    def read(self, name: str, begin: int, end: int) -> bytes:
        data = (self.path / name).read_bytes()[begin:end]
        self.given[name] = self.given.get(name, 0) + len(data)
        return data


@pytest.fixture
def model(made: Made, tmp_path: Path) -> Path:
    """A sharded model with more bytes than are fetched at first, and what repos also hold."""
    import numpy as np
    from safetensors.numpy import save_file

    path = Path(shutil.copytree(made()[0], tmp_path / "model"))
    extra = {f"extra.{i:05}.weight": np.zeros(50, np.float32) for i in range(2000)}
    save_file(extra, path / "model-00001-of-00001.safetensors")
    (path / "optimizer.pt").write_bytes(bytes(1 << 20))
    (path / "README.md").write_text("trained in /home/ann/x")
    return path


def test_it_is_described_like_the_original(model: Path, tmp_path: Path) -> None:
    folder = Folder(model)
    mirror(folder.sizes, folder.read, tmp_path / "holes")
    seen = look(tmp_path / "holes", public=True)
    here = look(model, public=True)
    assert replace(seen, path=model) == here
    assert [leak.where for leak in seen.leaks] == ["README.md:1"]


def test_only_headers_and_small_texts_are_fetched(model: Path, tmp_path: Path) -> None:
    folder = Folder(model)
    mirror(folder.sizes, folder.read, tmp_path / "holes")
    assert "optimizer.pt" not in folder.given
    assert "tokenizer.json" not in folder.given
    weights = model / "model-00001-of-00001.safetensors"
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    assert header > 64 << 10
    assert folder.given[weights.name] == header
    assert folder.given["model.safetensors"] <= 64 << 10
    copy = (tmp_path / "holes" / weights.name).read_bytes()
    assert len(copy) == weights.stat().st_size
    assert not copy[header:].strip(b"\0")
    big = tmp_path / "holes" / "optimizer.pt"
    assert big.stat().st_size == 1 << 20
    assert big.stat().st_blocks == 0


def test_large_configs_are_fetched_and_large_texts_are_said_to_be_unread(
    made: Made, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(made()[0], tmp_path / "model"))
    config = '{"pad": "%s", "name_or_path": "/home/ann/tokenizer"}' % ("x" * (5 << 20))
    (model / "tokenizer_config.json").write_text(config)
    (model / "notes.md").write_text("/home/ann/x\n" * (1 << 18))
    folder = Folder(model)
    holes = mirror(folder.sizes, folder.read, tmp_path / "holes")
    assert holes == {"notes.md"}
    seen = look(tmp_path / "holes", public=True, holes=holes)
    assert not seen.broken
    assert ("tokenizer_config.json:/name_or_path") in [leak.where for leak in seen.leaks]
    (unread,) = [finding for finding in seen.findings if finding.id == "HT182"]
    assert unread.level == "warning"
    assert "notes.md was not read" in unread.message
    assert unread.next


def test_a_configuration_that_was_not_fetched_is_not_called_damaged(
    made: Made, tmp_path: Path
) -> None:
    model, adapter = made()
    for path, name in ((model, "config.json"), (adapter, "adapter_config.json")):
        copy = Path(shutil.copytree(path, tmp_path / path.name / "copy"))
        (copy / name).write_bytes(bytes(100))
        (copy / "trainer_state.json").write_bytes(bytes(100))
        assert look(copy, public=True).broken
        seen = look(copy, public=True, holes={name, "trainer_state.json"})
        assert not seen.broken
        assert {f.message.split()[0] for f in seen.findings} >= {name, "trainer_state.json"}


def test_a_gguf_header_is_fetched_as_far_as_it_goes(tmp_path: Path) -> None:
    import gguf
    import numpy as np

    path = tmp_path / "repo" / "a.gguf"
    path.parent.mkdir()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"a long token number {i}" for i in range(20_000)])
    writer.add_tensor("w", np.zeros((1 << 20,), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = Folder(path.parent)
    mirror(folder.sizes, folder.read, tmp_path / "holes")
    assert look(tmp_path / "holes", public=True).parameters == 1 << 20
    assert folder.given["a.gguf"] < 2 << 20 < path.stat().st_size


@pytest.mark.parametrize(
    "lie", [b"", b"\xff" * 8, (1 << 40).to_bytes(8, "little") + b"{}", b"\x02\0\0\0\0\0\0\0{"]
)
def test_a_lying_header_is_a_finding_and_fetches_nothing_more(tmp_path: Path, lie: bytes) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "config.json").write_text("{}")
    (repo / "model.safetensors").write_bytes(lie + bytes(200_000) if lie else b"")
    folder = Folder(repo)
    mirror(folder.sizes, folder.read, tmp_path / "holes")
    seen = look(tmp_path / "holes", public=True)
    assert [finding.id for finding in seen.findings] == ["HT104"]
    assert folder.given.get("model.safetensors", 0) <= 64 << 10


@pytest.mark.parametrize("name", ["../x.json", "/etc/x.json", "a/../../x.json", "a//b", "./a", ""])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    into = tmp_path / "in" / "holes"
    into.mkdir(parents=True)

    def read(name: str, begin: int, end: int) -> bytes:
        return b"{}"

    with pytest.raises(CheckError, match="HT182"):
        mirror({"config.json": 2, name: 2}, read, into)
    assert list(into.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    def read(*_: Any) -> bytes:
        raise AssertionError("nothing is fetched")

    with pytest.raises(CheckError, match="HT182"):
        mirror({f"{i}.json": 1 for i in range(10_001)}, read, tmp_path)
