"""`plan` tells before any work what the card would be refused for after it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from hubtools.errors import Finding
from hubtools.family.manifest import read_family
from hubtools.release.context import open_release
from hubtools.release.refuse import grouped, told
from hubtools.release.run import make_plan


def findings(root: Path) -> list[Finding]:
    family = read_family(root)
    return list(make_plan(open_release(family, family.members, clock=time.time)).findings)


@pytest.mark.parametrize(
    ("id", "manifest", "prose"),
    [
        ("HT061", ('"apache-2.0"', '"apache2"'), ""),
        ("HT064", ('["en"]', '["zh-CN"]'), ""),
        ("HT021", ("", ""), "TODO: write this\n"),
        ("HT022", ("", ""), "<script>alert(1)</script>\n"),
        ("HT083", ("", ""), "<!-- hubtools:begin results -->\n"),
    ],
)
def test_a_card_that_would_be_refused(
    family: Path, id: str, manifest: tuple[str, str], prose: str
) -> None:
    file = family / "family.toml"
    file.write_text(file.read_text().replace(*manifest) if manifest[0] else file.read_text())
    (family / "prose").mkdir()
    (family / "prose" / "summary.md").write_text(prose)
    found = [finding for finding in findings(family) if finding.level == "error"]
    assert {finding.id for finding in found} == {id}
    assert {finding.member for finding in found} == {"red/s4", "red/s8"}


def test_nothing_is_foreseen_for_a_good_family(family: Path) -> None:
    assert [finding.id for finding in findings(family)] == []


def test_files_that_nothing_reads_are_told(family: Path) -> None:
    (family / "prose" / "red-s9").mkdir(parents=True)
    (family / "reported.toml").write_text("schema = 1\n")
    found = findings(family)
    assert [finding.id for finding in found] == ["HT525", "HT525"]
    assert "red-s8" in found[0].next
    assert 'reported = "reported.toml"' in found[1].next


def test_the_same_finding_about_several_members_is_told_once() -> None:
    one = Finding("HT061", "error", "no licence id", where="family.toml", member="a/s1")
    other = replace(one, member="a/s2")
    (told_once,) = grouped([one, other])
    assert told(told_once) == "error[HT061] a/s1, a/s2: no licence id (family.toml)"
    assert grouped([replace(one, member="")]) == [replace(one, member="")]
