"""Bad input: a clear error with the fix, nothing lost, nothing half-published."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from hub_state import remote_state
from refusal import edit, refused, repos

from hubtools.localhub.server import LocalHub, running

Hubtools = Callable[..., Any]


def test_without_a_terminal_and_a_yes_it_fails_before_any_work(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    story = refused(hub, hubtools("release", str(family), stdin=0), 2, "HT002")
    assert "red/s4" in story.partition("error[HT002]")[0]  # the plan, so that one knows for what
    assert not (family / ".hubtools" / "store").exists()


def test_what_is_wrong_is_told_before_a_yes_is_asked_for(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    edit(family, f', revision = "{tiny_family.REVISION}"', "")
    refused(hub, hubtools("release", str(family), stdin=0), 3, "HT512")
    unnamed = hubtools("release", "me/first", "--from", str(family / "runs/red/s4"), stdin=0)
    refused(hub, unnamed, 2, "HT009")


def test_a_contradicted_claim_ends_it_before_a_weight_is_touched(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    tiny_family.write_logs(family, reported="another-model")
    tiny_family.write_manifest(family, provenance=tiny_family.TEACHER)
    story = refused(hub, hubtools("release", "--yes", str(family)), 3, "HT210")
    assert "family.toml:" in story
    assert "teacher.jsonl:1" in story
    assert not (family / "merged").exists()


@pytest.mark.parametrize(
    ("token", "id"), [("", "HT302"), ("hf_" + "wrong" * 6, "HT303")], ids=["missing", "wrong"]
)
def test_token(hub: LocalHub, hubtools: Hubtools, family: Path, token: str, id: str) -> None:
    ended = hubtools("release", "--yes", str(family), env={"HF_TOKEN": token})
    story = refused(hub, ended, 4, id)
    assert "wrongwrong" not in story
    assert id != "HT302" or "/token" in story  # where the embedded Hub keeps it


def test_a_hub_that_is_not_there(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    ended = hubtools("release", "--yes", str(family), env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    refused(hub, ended, 1, "HT307")


def test_an_unknown_member_gets_the_nearest_name(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    story = refused(hub, hubtools("release", "--yes", str(family), "red/s5"), 2, "HT005")
    assert "red/s4" in story


def test_a_base_without_revision(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    edit(family, f'revision = "{tiny_family.REVISION}", ', "")
    assert "family.toml:7" in refused(hub, hubtools("release", "--yes", str(family)), 3, "HT512")


def test_an_adapter_for_another_architecture(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    file = family / "base" / "config.json"
    shutil.rmtree(family / "base")
    from tiny_models import save_base

    save_base(family / "base", "gpt_neox", "float32")
    assert file.is_file()
    ended = hubtools("release", "--yes", str(family))
    assert ended.code == 3, ended.err
    assert "red/s4" in ended.err
    assert "red/s8" in ended.err  # both are told at once
    assert not (family / "merged").exists()
    assert repos(hub) == []


def test_a_repo_id_that_is_too_long(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    edit(family, 'id = "tiny"', f'id = "{"t" * 93}"')
    refused(hub, hubtools("release", "--yes", str(family)), 3, "HT311")


def test_a_step_that_the_trainer_state_contradicts(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    state = family / "runs" / "red" / "s8" / "trainer_state.json"
    state.write_text(json.dumps({"global_step": 80}))
    story = refused(hub, hubtools("release", "--yes", str(family)), 3, "HT516")
    assert "trainer_state.json" in story


def test_a_secret_in_prose_is_not_published(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"
    (family / "prose").mkdir()
    (family / "prose" / "notes.md").write_text(f"Run it with HF_TOKEN={secret}\n")
    story = refused(hub, hubtools("release", "--yes", str(family)), 3, "HT250")
    assert "prose/notes.md:1" in story
    assert secret not in story
    (family / "prose" / "notes.md").unlink()
    with (family / "base" / "LICENSE").open("a") as carried:
        carried.write(f"token {secret}\n")
    story = refused(hub, hubtools("release", "--yes", str(family)), 3, "HT501")
    assert "LICENSE:" in story
    assert secret not in story


def test_a_full_disk_loses_nothing(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ended = hubtools("release", "--yes", str(family), preexec_fn=full)
    assert ended.code == 1, ended.err
    assert "error[HT901]" in ended.err
    assert "Traceback" not in ended.err
    assert repos(hub) == []
    assert not list((family / "merged").glob("tiny-*"))
    done = hubtools("release", "--yes", str(family))
    assert done.code == 0, done.err


def test_two_releases_at_once(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    from hubtools.files import locked

    with locked(family / ".hubtools" / "lock", "family tiny"):
        story = refused(hub, hubtools("release", "--yes", str(family)), 1, "HT903")
    assert "pid" in story


def test_a_hub_without_xet_says_what_to_set(
    hubtools: Hubtools, family: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "noxet", log=tmp_path / "noxet.log", xet=False) as plain:
        env = {"HF_ENDPOINT": plain.url, "HF_TOKEN": plain.token}
        ended = hubtools("release", "--yes", str(family), env=env)
        assert ended.code != 0
        assert "HF_HUB_DISABLE_XET=1" in ended.err
        assert "Traceback" not in ended.err
        done = hubtools("release", "--yes", str(family), env={**env, "HF_HUB_DISABLE_XET": "1"})
        assert done.code == 0, done.err
        names = ["lab/tiny-red-s4", "lab/tiny-red-s8"]
        assert {s["private"] for s in remote_state(plain, names).values()} == {False}
