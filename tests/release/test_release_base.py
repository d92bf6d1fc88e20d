"""Whether a local base is what the manifest says: held against the Hub, where it has it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from hubtools.family.manifest import read_family
from hubtools.hub.session import connect
from hubtools.localhub.server import LocalHub
from hubtools.release.base import compare_base
from hubtools.release.context import Release, open_release


def published_base(hub: LocalHub, family: Path) -> str:
    """The base on the Hub; the manifest is pinned to its commit."""
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("lab/tiny-base")
    commit = api.upload_folder(folder_path=family / "base", repo_id="lab/tiny-base").oid
    manifest = family / "family.toml"
    text = manifest.read_text()
    old = read_family(family).manifest.family.base.revision
    assert old is not None
    manifest.write_text(text.replace(old, commit))
    return str(commit)


def opened(hub: LocalHub | None, family: Path) -> Release:
    found = read_family(family)
    session = connect(hub.url, token=hub.token) if hub else None
    return open_release(found, found.members, clock=time.time, session=session)


def test_an_equal_copy_is_known_as_the_hubs_and_stays_so_offline(
    hub: LocalHub, family: Path
) -> None:
    published_base(hub, family)
    rehearsal = opened(hub, family)
    assert compare_base(rehearsal) == []
    assert rehearsal.base_files == "local"
    release = opened(hub, family)
    assert release.session is not None
    release.session = replace(release.session, endpoint="https://hub.example")
    assert compare_base(release) == []
    assert release.base_files == "hub"
    offline = opened(None, family)
    assert compare_base(offline) == []
    assert offline.base_files == "hub"
    with (family / "base" / "config.json").open("a") as config:
        config.write(" ")
    compare_base(offline := opened(None, family))
    assert offline.base_files == "local"


def test_another_model_under_that_name_stops_a_release(
    hub: LocalHub, family: Path, hubtools: Callable[..., Any]
) -> None:
    published_base(hub, family)
    weights = family / "base" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    ended = hubtools("release", "--yes", str(family))
    assert ended.code == 3, ended.err
    assert "error[HT526]" in ended.err
    assert not (family / "merged").exists()


def test_a_base_that_this_hub_does_not_have_is_not_compared(hub: LocalHub, family: Path) -> None:
    release = opened(hub, family)
    assert compare_base(release) == []
    assert release.base_files == "local"


def test_a_run_without_a_configuration_takes_that_of_the_pinned_base(
    hub: LocalHub, family: Path, hubtools: Callable[..., Any], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    commit = published_base(hub, family)
    run = tmp_path / "runs" / "global_step_7"
    run.mkdir(parents=True)
    model = AutoModelForCausalLM.from_pretrained(family / "base")
    torch.save(model.state_dict(), run / "pytorch_model.bin")
    argv = ("release", "me/first", "--from", str(run), "--base", f"lab/tiny-base@{commit}")
    done = hubtools(*argv, "--yes")
    assert done.code == 0, done.err
    api = HfApi(endpoint=hub.url, token=hub.token)
    assert {"config.json", "model.safetensors"} <= set(api.list_repo_files("me/first"))
    assert "inferred config.json" in done.err


def test_a_base_without_a_path_is_fetched_once_and_known_afterwards(
    hub: LocalHub, family: Path, hubtools: Callable[..., Any]
) -> None:
    published_base(hub, family)
    manifest = family / "family.toml"
    manifest.write_text(manifest.read_text().replace(', path = "base"', ""))
    before = hubtools("plan", "--exit-code", str(family))
    assert before.code == 10, before.err
    assert "base model" in before.out
    done = hubtools("release", "--yes", str(family))
    assert done.code == 0, done.err
    after = hubtools("plan", "--exit-code", str(family))
    assert after.code == 0, after.err + after.out
    shown = hubtools("card", "show", "red/s4", "--family", str(family))
    api = HfApi(endpoint=hub.url, token=hub.token)
    card = Path(api.hf_hub_download("lab/tiny-red-s4", "README.md", cache_dir=family / "c"))
    assert shown.out == card.read_text()
    assert "the snapshot of this commit in the Hugging Face cache was used" in shown.out
    assert "local copy" not in shown.out
