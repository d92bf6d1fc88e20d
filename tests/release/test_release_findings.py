"""Ways in which something unchecked could have been published, each closed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from hub_state import remote_state
from huggingface_hub import HfApi

from hubtools.errors import RemoteMovedError
from hubtools.family.manifest import read_family
from hubtools.hub.session import connect
from hubtools.localhub.server import LocalHub
from hubtools.release.context import open_release
from hubtools.release.engine import walk
from hubtools.release.run import make_plan
from hubtools.release.stages.push import prepare, visibility_marker

Hubtools = Callable[..., Any]


def test_an_option_of_from_is_not_dropped_in_silence(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    ended = hubtools("release", "--private", "--yes", str(family))
    assert ended.code == 2, ended.err
    assert "--private goes with --from" in ended.err
    assert not list(HfApi(endpoint=hub.url, token=hub.token).list_models())


def test_a_repo_that_somebody_made_since_the_plan_is_left_alone(
    hub: LocalHub, family: Path
) -> None:
    found = read_family(family)
    session = connect(hub.url, token=hub.token)
    release = open_release(found, found.members[:1], clock=time.time, session=session)
    make_plan(release)
    walk(release, execute=True)
    member = found.members[0]
    HfApi(endpoint=hub.url, token=hub.token).create_repo(member.repo, private=True)
    before = remote_state(hub, [member.repo])
    with pytest.raises(RemoteMovedError):
        prepare(release, member)
    assert remote_state(hub, [member.repo]) == before
    assert not visibility_marker(release, member).exists()


def test_a_secret_in_modelling_code_is_found(
    hub: LocalHub, hubtools: Hubtools, tmp_path: Path
) -> None:
    root = tiny_family.make_full_models(tmp_path / "full")
    tiny_family.write_manifest(root, kind="full")
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"
    (root / "runs" / "red" / "s4" / "modeling_tiny.py").write_text(f"TOKEN = '{secret}'\n")
    ended = hubtools("release", "--yes", str(root), "red/s4")
    assert ended.code == 3, ended.err
    assert "error[HT501]" in ended.err
    assert "modeling_tiny.py:1" in ended.err


def test_files_of_others_are_replaced_only_after_it_was_said(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("lab/tiny-red-s4")
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id="lab/tiny-red-s4")
    ended = hubtools("release", "--yes", str(family), "red/s4")
    assert ended.code == 0, ended.err
    assert "warning[HT527]" in ended.err
    assert "config.json" in ended.err


def test_a_record_is_sealed_again_when_a_sister_changes(family: Path) -> None:
    def sealed() -> str:
        found = read_family(family)
        release = open_release(found, found.members, clock=time.time)
        _, failures = walk(release, execute=True)
        assert not failures
        (record,) = (
            file
            for file in release.done["seal", "red/s4"]["files"]
            if file["path"] == ".hubtools/release.json"
        )
        data = json.loads(release.at(record["source"]).read_bytes())
        assert data["evidence"]["weights"]["red/s8"] == release.done["merge", "red/s8"]["weights"]
        return str(data["evidence"]["weights"]["red/s8"])

    before = sealed()
    config = family / "runs" / "red" / "s8" / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 24', '"lora_alpha": 12'))
    assert sealed() != before


def test_a_sister_that_failed_is_not_called_released(family: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = family / "runs" / "red" / "s8" / "adapter_model.safetensors"
    tensors = {name: torch.full_like(t, float("nan")) for name, t in load_file(file).items()}
    save_file(tensors, file)
    found = read_family(family)
    release = open_release(found, found.members, clock=time.time)
    _, failures = walk(release, execute=True)
    assert set(failures) == {"red/s8"}
    card = release.at(release.done["render", "red/s4"]["files"]["README.md"]["source"]).read_text()
    (row,) = (line for line in card.splitlines() if line.startswith("| `red` | `s8`"))
    assert "not released" in row
    assert "](https" not in row


def test_new_logs_are_verified_once_whatever_the_order(family: Path) -> None:
    tiny_family.write_logs(family)
    tiny_family.write_manifest(family, provenance=tiny_family.TEACHER)
    found = read_family(family)
    walk(open_release(found, found.members, clock=time.time), execute=True)
    tiny_family.write_logs(family, n=7)
    last = found.members[-1:]
    walk(open_release(found, last, clock=time.time), execute=True)
    cells, _ = walk(open_release(found, last, clock=time.time), execute=False)
    assert {cell.action for cell in cells} <= {"cached", "skip"}


def test_a_saved_plan_is_applied_from_anywhere(
    hubtools: Hubtools, family: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    assert hubtools("plan", str(family), "--plan-out", str(saved)).code == 0
    done = hubtools("release", "--apply", str(saved), "--yes")
    assert done.code == 0, done.err


def test_lost_samples_are_measured_again(family: Path) -> None:
    tiny_family.write_manifest(family, suites='["short_qa"]')
    found = read_family(family)
    walk(open_release(found, found.members[:1], clock=time.time), execute=True)
    for samples in (family / ".hubtools" / "runs").rglob("samples.jsonl"):
        samples.unlink()
    release = open_release(found, found.members[:1], clock=time.time)
    _, failures = walk(release, execute=True)
    assert not failures
    assert ("seal", "red/s4") in release.done


def test_a_base_path_that_is_gone_is_no_bug(hubtools: Hubtools, family: Path) -> None:
    shutil.rmtree(family / "base")
    shown = hubtools("card", "show", "red/s4", "--family", str(family))
    assert shown.code == 0, shown.err
    assert "Not evaluated" in shown.out


def test_a_rehearsal_makes_no_sister_released(
    hubtools: Hubtools, family: Path, hub: LocalHub
) -> None:
    assert hubtools("release", "--yes", "--hub", "local", str(family)).code == 0
    (receipt,) = (family / ".hubtools" / "releases").glob("*.json")

    def shown() -> str:
        ended = hubtools("card", "show", "red/s4", "--family", str(family))
        assert ended.code == 0, ended.err
        return str(ended.out)

    sister = "https://huggingface.co/lab/tiny-red-s8"
    assert sister not in shown()
    record = json.loads(receipt.read_text())
    for place, there in (("http://127.0.0.1:8080", False), (hub.url, True)):
        receipt.write_text(json.dumps({**record, "hub": place}))
        assert (sister in shown()) == there
