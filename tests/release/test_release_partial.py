"""Saved plans, sisters that fail, hooks, and pushing alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_family
from huggingface_hub import HfApi
from refusal import edit, refused, repos

from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError
from hubtools.localhub.server import LocalHub
from hubtools.release.engine import raise_failures

Hubtools = Callable[..., Any]


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
