"""Without a manifest: what a directory says is inferred, shown, and kept beside the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from hub_state import remote_state

from hubtools.errors import UsageError
from hubtools.family.manifest import read_family
from hubtools.localhub.server import LocalHub
from hubtools.release.infer import infer_manifest, keep_manifest

REVISION = tiny_family.REVISION


def test_one_command_publishes_an_adapter(
    hub: LocalHub, hubtools: Callable[..., Any], family: Path
) -> None:
    run = family / "runs" / "red" / "s8"
    argv = ("release", "me/first", "--from", str(run), "--yes", "--license", "apache-2.0")
    base = ("--base", f"lab/tiny-base@{REVISION}", "--base-path", str(family / "base"))
    done = hubtools(*argv, *base)
    assert done.code == 0, done.err
    assert 'inferred kind = "adapter" (adapter_config.json)' in done.err
    assert "inferred step s8 (trainer_state.json)" in done.err
    state = remote_state(hub, ["me/first"])["me/first"]
    count = len(state["files"]) - (".gitattributes" in state["files"])
    assert f"✓ attest    main/s8 {count}/{count} files of me/first" in done.err
    assert {"adapter_model.safetensors", "adapter_config.json", "README.md"} <= state[
        "files"
    ].keys()
    kept = read_family(run.with_name("s8.first.hubtools"))
    assert [member.optimizer_step for member in kept.members] == [8]
    again = hubtools(*argv, *base)
    assert again.code == 0, again.err
    assert remote_state(hub, ["me/first"])["me/first"] == state
    manifest = run.with_name("s8.first.hubtools") / "family.toml"
    manifest.write_text(manifest.read_text().replace("apache-2.0", "mit"))
    edited = hubtools(*argv, *base)
    assert edited.code == 2
    assert "error[HT009]" in edited.err
    assert "family.license: there 'mit', now 'apache-2.0'" in edited.err


def test_a_wrong_flag_can_be_corrected_on_the_next_try(family: Path) -> None:
    run = family / "runs" / "red" / "s4"
    first = infer_manifest("me/first", run, base=f"lab/wrong@{REVISION}", license="mit")
    second = infer_manifest("me/first", run, base=f"lab/right@{REVISION}", license="apache-2.0")
    assert keep_manifest(first, "me/first", run) == keep_manifest(second, "me/first", run)
    kept = read_family(run.with_name("s4.first.hubtools")).manifest.family
    assert (kept.base.repo, kept.license) == ("lab/right", "apache-2.0")
    file = keep_manifest(second, "me/first", run)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="HT009"):
        keep_manifest(second, "me/first", run)


def test_a_directory_as_base_is_told_which_option_it_belongs_to(family: Path) -> None:
    with pytest.raises(UsageError) as caught:
        infer_manifest("me/first", family / "runs" / "red" / "s4", base=str(family / "base"))
    assert "--base-path" in caught.value.next


def test_the_base_comes_from_the_adapter_when_it_names_one(family: Path) -> None:
    run = family / "runs" / "red" / "s4"
    config = json.loads((run / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": "lab/tiny-base", "revision": REVISION}
    (run / "adapter_config.json").write_text(json.dumps(config))
    inferred = infer_manifest("me/first", run)
    assert "base lab/tiny-base (adapter_config.json)" in inferred.origins
    file = keep_manifest(inferred, "me/first", run)
    table = read_family(file).manifest.family
    assert (table.base.repo, table.base.revision) == ("lab/tiny-base", REVISION)


@pytest.mark.parametrize(
    ("repo", "base", "words"),
    [
        ("no-owner", "", "not a repo id"),
        ("me/first", "", "which base model"),
        ("me/first", "lab/tiny-base", "which revision"),
        ("me/first", "lab/tiny-base@main", "which revision"),
    ],
)
def test_what_cannot_be_known_is_asked_for(family: Path, repo: str, base: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        infer_manifest(repo, family / "runs" / "red" / "s4", base=base)
    assert caught.value.next


def test_an_adapter_of_another_type_is_merged_by_peft(family: Path) -> None:
    run = family / "runs" / "red" / "s4"
    (run / "adapter_config.json").write_text(json.dumps({"peft_type": "IA3"}))
    inferred = infer_manifest("me/first", run, base=f"lab/b@{REVISION}", kind="merged")
    assert 'merge engine = "peft" (adapter_config.json: IA3)' in inferred.origins
    manifest = read_family(keep_manifest(inferred, "me/first", run)).manifest
    assert manifest.merge.engine == "peft"


@pytest.mark.parametrize("place", ["", "policy"])
def test_a_pickled_adapter_is_merged_without_a_manifest(
    hub: LocalHub, hubtools: Callable[..., Any], family: Path, place: str
) -> None:
    import torch
    from safetensors.torch import load_file

    run = family / "runs" / "red" / "s4"
    file = run / "adapter_model.safetensors"
    (run / place).mkdir(exist_ok=True)
    torch.save(load_file(file), run / place / "adapter_model.bin")
    file.unlink()
    if place:
        (run / "adapter_config.json").rename(run / place / "adapter_config.json")
    base = ("--base", f"lab/tiny-base@{REVISION}", "--base-path", str(family / "base"))
    done = hubtools("release", "me/first", "--from", str(run), "--kind", "merged", "--yes", *base)
    assert done.code == 0, done.err
    assert "model.safetensors" in remote_state(hub, ["me/first"])["me/first"]["files"]


def test_a_step_that_name_and_trainer_tell_apart_is_not_published(
    hubtools: Callable[..., Any], family: Path
) -> None:
    run = (family / "runs" / "red" / "s4").rename(family / "runs" / "red" / "checkpoint-100")
    base = ("--base", f"lab/tiny-base@{REVISION}", "--base-path", str(family / "base"))
    ended = hubtools("release", "me/first", "--from", str(run), "--yes", *base)
    assert ended.code == 3, ended.err
    assert "error[HT528]" in ended.err


LOAD = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained(sys.argv[1])
model = PeftModel.from_pretrained(base, "me/first")
print(model.peft_config["default"].base_model_name_or_path, model.peft_config["default"].revision)
"""


def test_peft_loads_a_released_adapter_that_names_no_path_of_the_trainer(
    hub: LocalHub, hubtools: Callable[..., Any], family: Path, tmp_path: Path
) -> None:
    run = family / "runs" / "red" / "s4"
    base = ("--base", f"lab/tiny-base@{REVISION}", "--base-path", str(family / "base"))
    done = hubtools("release", "me/first", "--from", str(run), "--yes", *base)
    assert done.code == 0, done.err
    env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": str(tmp_path / "fresh")}
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(family / "base")],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split() == ["lab/tiny-base", REVISION]
