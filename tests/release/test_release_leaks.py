"""A release warns of what its files would tell about their author's machine, and only of that."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import tiny_family

from hubtools.errors import Finding
from hubtools.family.manifest import read_family
from hubtools.release.context import open_release
from hubtools.release.stages.check import check_local


def leaks(root: Path) -> list[Finding]:
    family = read_family(root)
    release = open_release(family, family.members, clock=time.time)
    return [finding for finding in check_local(release) if finding.id == "HT175"]


def write(file: Path, **fields: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **fields}))


@pytest.mark.parametrize("kind", ["merged", "adapter"])
def test_what_is_rewritten_or_stays_at_home_is_not_warned_of(family: Path, kind: str) -> None:
    tiny_family.write_manifest(family, kind=kind)
    run = family / "runs" / "red" / "s4"
    named = json.loads((run / "adapter_config.json").read_bytes())["base_model_name_or_path"]
    assert named.startswith("/")
    (run / "notes.txt").write_text("/home/ann/runs")
    assert leaks(family) == []


def test_a_path_in_the_configuration_of_the_base_is_carried_on(family: Path) -> None:
    write(family / "base" / "tokenizer_config.json", name_or_path="/home/ann/base")
    found = leaks(family)
    assert [finding.member for finding in found] == ["red/s4", "red/s8"]
    assert {finding.level for finding in found} == {"warning"}
    place = family / "base" / "tokenizer_config.json"
    assert {finding.where for finding in found} == {f"{place}:/name_or_path"}


def test_an_adapter_is_searched_itself(family: Path) -> None:
    tiny_family.write_manifest(family, kind="adapter")
    run = family / "runs" / "red" / "s8"
    write(run / "adapter_config.json", task_type="/home/ann/x")
    assert [finding.where for finding in leaks(family)] == [f"{run}/adapter_config.json:/task_type"]


def test_a_broken_base_is_told_once_and_elsewhere(family: Path) -> None:
    (family / "base" / "tokenizer_config.json").write_text("[1]")
    assert leaks(family) == []
