"""Names told before are told again without transformers, and only to the same question."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from zoo import Zoo

from hubtools.checkpoint.naming import names, names_kept
from hubtools.checkpoint.naming.names import name_map
from hubtools.checkpoint.naming.names_child import work
from hubtools.checkpoint.naming.names_kept import keep, question, recall

ASKED = ["lm_head.weight"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that was told nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(names, "_ANSWERED", {})
    return tmp_path / "cache" / "hubtools" / "names"


@pytest.fixture
def asked_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bases that transformers was asked about (here, not in a child process)."""
    found: list[str] = []

    def here(module: str, job: dict[str, Any], **_: Any) -> Any:
        found.append(job["base"])
        return json.loads(json.dumps(work(job, lambda *_: None)))

    monkeypatch.setattr(names, "run_child", here)
    return found


@pytest.fixture
def base(zoo: Zoo, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo.base("mixtral"), tmp_path / "base"))


def again(base: Path, asked: list[str] = ASKED) -> names.NameMap:
    """As a later process asks."""
    names._ANSWERED.clear()
    return name_map(base, asked, None)


def test_a_copy_elsewhere_is_known(base: Path, tmp_path: Path, asked_of: list[str]) -> None:
    first = name_map(base, ASKED, None)
    other = Path(shutil.copytree(base, tmp_path / "other"))
    assert again(other) == first
    assert asked_of == [str(base)]


def test_every_part_of_the_question_counts(
    base: Path, asked_of: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed input is asked about anew, each alone."""
    from safetensors.torch import load_file, save_file

    weights, config = base / "model.safetensors", base / "config.json"
    before = weights.read_bytes(), config.read_bytes()
    keys = [question(base, ASKED), question(base, [*ASKED, "x.weight"])]
    tensors = load_file(weights)
    save_file({**tensors, "extra": tensors["model.norm.weight"].clone()}, weights)
    keys.append(question(base, ASKED))
    save_file({**tensors, "model.norm.weight": tensors["model.norm.weight"][:-1].clone()}, weights)
    keys.append(question(base, ASKED))
    weights.unlink()
    keys.append(question(base, ASKED))
    weights.write_bytes(before[0])
    config.write_text(json.dumps({**json.loads(before[1]), "num_hidden_layers": 1}))
    keys.append(question(base, ASKED))
    config.write_bytes(before[1])
    for library in ("transformers", "torch"):
        with monkeypatch.context() as patch:
            patch.setattr(names_kept, "version", lambda name, new=library: "9" * (name == new))
            keys.append(question(base, ASKED))
    code = names_kept.sha256_bytes
    with monkeypatch.context() as patch:
        patch.setattr(names_kept, "sha256_bytes", lambda data: code(data + b"#"))
        keys.append(question(base, ASKED))
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert question(base, ASKED) == keys[0]


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "folder"])
def test_a_damaged_answer_is_asked_again(
    base: Path, asked_of: list[str], cache: Path, damage: str
) -> None:
    first = name_map(base, ASKED, None)
    (kept,) = cache.iterdir()
    data = kept.read_bytes()
    if damage == "folder":
        kept.unlink()
        kept.mkdir()
    else:
        broken = {"torn": data[:-20], "flipped": data.replace(b'"lm', b'"ln'), "empty": b""}
        assert broken[damage] != data
        kept.write_bytes(broken[damage])
    assert again(base) == first
    assert len(asked_of) == 2


def test_where_nothing_can_be_written_the_answer_stands(
    base: Path, asked_of: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert name_map(base, ASKED, None) == again(base)
    assert len(asked_of) == 2


def test_a_version_in_the_making_is_not_kept(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_kept, "version", lambda _: "5.25.0.dev0")
    assert question(base, ASKED) is None


def test_only_the_last_answers_are_kept(cache: Path) -> None:
    for number in range(names_kept._MOST):
        keep(f"{number}", {"number": number})
        os.utime(cache / f"{number}.json", (number, number))
    assert recall("0") == {"number": 0}  # used just now
    keep("last", {})
    assert len(list(cache.iterdir())) == names_kept._MOST
    assert recall("1") is None
    assert recall("0") is not None
    assert recall("last") == {}
