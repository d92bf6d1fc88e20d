"""Bad input: a clear error with the fix, nothing lost, nothing half-published."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_family
from hub_state import remote_state
from huggingface_hub import HfApi

from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError
from hubtools.localhub.server import LocalHub, running
from hubtools.release.engine import raise_failures

Hubtools = Callable[..., Any]


def repos(hub: LocalHub) -> list[str]:
    return sorted(m.id for m in HfApi(endpoint=hub.url, token=hub.token).list_models())


def edit(family: Path, old: str, new: str) -> None:
    file = family / "family.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refused(hub: LocalHub, ended: Any, code: int, id: str) -> str:
    """The error has its code and id, names a next step, is no traceback, and nothing was made."""
    assert ended.code == code, ended.err
    assert f"error[{id}]" in ended.err
    assert "next: " in ended.err
    assert "Traceback" not in ended.err
    assert repos(hub) == []
    return str(ended.err)


def test_without_a_terminal_and_a_yes_it_fails_before_any_work(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    refused(hub, hubtools("release", str(family), stdin=0), 2, "HT002")
    assert not (family / ".hubtools" / "store").exists()


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


def test_a_card_written_by_hand_is_kept_until_it_is_adopted(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("lab/tiny-red-s4")
    text = "---\nlicense: mit\n---\n# By hand\n\nWords of a person.\n"
    api.upload_file(
        path_or_fileobj=text.encode(), path_in_repo="README.md", repo_id="lab/tiny-red-s4"
    )
    before = remote_state(hub, ["lab/tiny-red-s4"])
    ended = hubtools("release", "--yes", str(family))
    assert ended.code == 3, ended.err
    assert "error[HT517]" in ended.err
    assert "hubtools card adopt lab/tiny-red-s4" in ended.err
    assert remote_state(hub, ["lab/tiny-red-s4"]) == before
    adopted = hubtools("card", "adopt", "lab/tiny-red-s4", "--family", str(family))
    assert adopted.code == 0, adopted.err
    assert "Words of a person." in Path(adopted.out.strip()).read_text()
    done = hubtools("release", "--yes", str(family))
    assert done.code == 0, done.err
    card = api.hf_hub_download("lab/tiny-red-s4", "README.md", cache_dir=family / "cache")
    assert "Words of a person." in Path(card).read_text()


def test_an_edit_in_the_web_editor_stops_the_next_release(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    assert hubtools("release", "--yes", str(family), "red/s4").code == 0
    api = HfApi(endpoint=hub.url, token=hub.token)
    card = Path(api.hf_hub_download("lab/tiny-red-s4", "README.md", cache_dir=family / "cache"))
    edited = card.read_text() + "\nA person's remark.\n"
    api.upload_file(
        path_or_fileobj=edited.encode(), path_in_repo="README.md", repo_id="lab/tiny-red-s4"
    )
    ended = hubtools("release", "--yes", str(family), "red/s4")
    assert ended.code == 3, ended.err
    assert "error[HT517]" in ended.err
    adopted = hubtools("card", "adopt", "red/s4", "--family", str(family))
    assert adopted.code == 0, adopted.err
    assert Path(adopted.out.strip()).read_text() == "A person's remark.\n"
    done = hubtools("release", "--yes", str(family), "red/s4")
    assert done.code == 0, done.err


def test_a_saved_plan_does_not_outlive_a_foreign_commit(
    hub: LocalHub, hubtools: Hubtools, family: Path, tmp_path: Path
) -> None:
    assert hubtools("release", "--yes", str(family), "red/s4").code == 0
    (family / "prose").mkdir()
    (family / "prose" / "notes.md").write_text("More.\n")
    saved = tmp_path / "plan.json"
    planned = hubtools("plan", str(family), "red/s4", "--plan-out", str(saved))
    assert planned.code == 0, planned.err
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.upload_file(path_or_fileobj=b"x", path_in_repo="other.txt", repo_id="lab/tiny-red-s4")
    argv = ("release", "--yes", "--family", str(family), "--apply", str(saved))
    ended = hubtools(*argv)
    assert ended.code == 5, ended.err
    assert "head changed" in ended.err
    assert hubtools("plan", str(family), "red/s4", "--plan-out", str(saved)).code == 0
    assert hubtools(*argv).code == 0


def test_a_broken_sister_does_not_hold_up_the_others(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = family / "runs" / "red" / "s8" / "adapter_model.safetensors"
    good = file.read_bytes()
    tensors = {name: torch.full_like(t, float("nan")) for name, t in load_file(file).items()}
    save_file(tensors, file)
    ended = hubtools("release", "--yes", "--json", str(family))
    assert ended.code == 6, ended.err
    assert "error[HT502]" in ended.err
    assert "1 of 2 released; 1 not: red/s8" in ended.err
    assert repos(hub) == ["lab/tiny-red-s4"]
    file.write_bytes(good)
    done = hubtools("release", "--yes", str(family))
    assert done.code == 0, done.err
    assert repos(hub) == ["lab/tiny-red-s4", "lab/tiny-red-s8"]


def test_push_alone_refuses_what_is_not_sealed(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    refused(hub, hubtools("push", "--yes", str(family)), 2, "HT505")
    assert hubtools("release", "--dry-run", str(family)).code == 0
    assert repos(hub) == []
    done = hubtools("push", "--yes", str(family))
    assert done.code == 0, done.err
    assert len(repos(hub)) == 2


def test_a_hook_that_fails_stops_the_push(hub: LocalHub, hubtools: Hubtools, family: Path) -> None:
    with (family / "family.toml").open("a") as manifest:
        manifest.write('\n[hooks]\nbefore_push = "echo told; test -f allowed"\n')
    ended = hubtools("release", "--yes", str(family))
    assert "told" in refused(hub, ended, 3, "HT522")
    assert ended.out == ""
    (family / "allowed").touch()
    assert hubtools("release", "--yes", str(family)).code == 0


@pytest.mark.parametrize(
    ("table", "line", "id"),
    [
        ("[provenance]", 'aliases = "absent.toml"', "HT205"),
        ("[provenance.teacher]", 'served = "logs"', "HT204"),
        ("[provenance.teacher]", 'served = "absent.json"', "HT204"),
        ("[arms.red]", None, "HT085"),
    ],
)
def test_files_that_the_manifest_names_are_looked_at_before_any_work(
    hub: LocalHub, hubtools: Hubtools, family: Path, table: str, line: str | None, id: str
) -> None:
    tiny_family.write_logs(family)
    tiny_family.write_manifest(family, provenance=tiny_family.TEACHER)
    if line is None:
        edit(family, table, f'[card]\nreported = "absent.toml"\n{table}')
    else:
        edit(family, f"{table}\n", f"{table}\n{line}\n")
    refused(hub, hubtools("release", "--yes", str(family)), 3, id)
    assert not (family / ".hubtools" / "store").exists()


def test_a_plan_is_saved_over_nothing_but_a_plan(hubtools: Hubtools, family: Path) -> None:
    manifest = family / "family.toml"
    text = manifest.read_text()
    for place in (manifest, family):
        ended = hubtools("plan", "--offline", str(family), "--plan-out", str(place))
        assert ended.code == 2, ended.err
        assert "error[HT506]" in ended.err
    assert manifest.read_text() == text
    ended = hubtools("plan", "--offline", str(family), "--plan-out", str(manifest / "plan.json"))
    assert ended.code == 1, ended.err
    assert "error[HT901]" in ended.err
    for _ in range(2):
        argv = ("plan", "--offline", str(family), "--plan-out", str(family / "plan.json"))
        assert hubtools(*argv).code == 0


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "[" * 100_000,
        '{"targets": ["red/s4"]}',
        '{"schema": "hubtools.plan/1", "targets": [1], "stages": [], "repos": []}',
        '{"schema": "hubtools.plan/1", "targets": [], "stages": [1], "repos": []}',
        '{"schema": "hubtools.plan/1", "targets": [], "stages": [], "repos": {"a": 1}}',
        '{"schema": "hubtools.plan/1", "targets": [], "stages": [{"stage": []}], "repos": []}',
    ],
    ids=str.__len__,
)
def test_a_file_that_is_no_saved_plan(
    hub: LocalHub, hubtools: Hubtools, family: Path, tmp_path: Path, text: str
) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(text)
    argv = ("release", "--yes", "--family", str(family), "--apply", str(saved))
    refused(hub, hubtools(*argv), 2, "HT504")


@pytest.mark.parametrize(
    ("kinds", "finished", "code"),
    [
        ((EnvironmentFailure, EnvironmentFailure), 0, 1),
        ((AuthError, AuthError), 0, 4),
        ((AuthError, EnvironmentFailure), 0, 3),
        ((CheckError, CheckError), 0, 3),
        ((EnvironmentFailure, EnvironmentFailure), 1, 6),
    ],
)
def test_members_that_failed_alike_give_that_exit_code(
    kinds: tuple[type[HubtoolsError], ...], finished: int, code: int, tmp_path: Path
) -> None:
    targets = [SimpleNamespace(id=f"red/s{step}") for step in range(len(kinds))]
    release: Any = SimpleNamespace(targets=targets, family=SimpleNamespace(path=tmp_path))
    failures = {
        target.id: kind("HT902", f"no room for {target.id}")
        for target, kind in zip(targets, kinds, strict=True)
    }
    with pytest.raises(HubtoolsError, match="red/s0, red/s1") as caught:
        raise_failures(release, failures, finished)
    assert (caught.value.id, caught.value.exit_code) == ("HT502", code)


@pytest.mark.parametrize(
    "hook",
    [
        "rm -r .hubtools/cards",
        "for f in merged/*s4*/config.json; do tr a b < $f > t; cp t $f; done",
    ],
    ids=["removes", "changes"],
)
def test_a_hook_that_touches_what_is_sealed_publishes_nothing_else(
    hub: LocalHub, hubtools: Hubtools, family: Path, hook: str
) -> None:
    with (family / "family.toml").open("a") as manifest:
        manifest.write(f'\n[hooks]\nbefore_push = "{hook}"\n')
    ended = hubtools("release", "--yes", str(family), "red/s4")
    assert "after it was sealed" in refused(hub, ended, 1, "HT322")
