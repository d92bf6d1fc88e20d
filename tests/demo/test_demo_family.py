"""The committed family: its manifest reads, and its cards render again without the demo's state."""

from pathlib import Path

import pytest

from demo import base
from demo.base import REPO
from demo.family import CARDS, manifest
from demo.train import ARMS, SETTINGS
from hubtools.family.manifest import parse_manifest, read_family

REVISION, WEIGHTS = "12" * 20, "ab" * 32


def test_manifest_names_what_the_demo_makes() -> None:
    family = read_family(CARDS)
    steps = range(SETTINGS["save_steps"], SETTINGS["max_steps"] + 1, SETTINGS["save_steps"])
    paths = [member.checkpoint for member in family.members]
    assert paths == [CARDS / "runs" / arm / f"checkpoint-{step}" for arm in ARMS for step in steps]
    assert family.manifest.family.base.repo == REPO
    assert family.manifest.family.base.path == f"../{base.FOLDER}"
    teacher = family.manifest.provenance.teacher
    assert teacher is not None
    assert (teacher.claim, teacher.requested, teacher.hosting) == (REPO, REPO, "self")


def test_only_the_two_values_of_a_run_are_put_in() -> None:
    text = manifest(CARDS / "family.toml", revision=REVISION, weights=WEIGHTS)
    found = parse_manifest(text, Path("family.toml"))
    assert found.family.base.revision == REVISION
    assert found.provenance.teacher is not None
    assert found.provenance.teacher.weights == WEIGHTS
    old = (CARDS / "family.toml").read_text(encoding="utf-8").splitlines()
    changed = [line for line, now in zip(old, text.splitlines(), strict=True) if line != now]
    assert [line.split(" =")[0] for line in changed] == ["base", "weights"]


def test_prose_says_what_the_checkpoints_are_worth() -> None:
    assert "not meant to be good" in (CARDS / "prose" / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("member", [member.id for member in read_family(CARDS).members])
def test_recorded_cards_belong_to_the_recorded_manifest(member: str) -> None:
    family = read_family(CARDS)
    name = family.member(member).repo.split("/")[1]
    card = (CARDS / "rendered" / f"{name}.md").read_text(encoding="utf-8")
    teacher, revision = family.manifest.provenance.teacher, family.manifest.family.base.revision
    assert teacher is not None
    assert f"`{teacher.weights}`" in card
    assert f"`{revision}`" in card
