"""Adapters as people have them: below a folder of their name, as a pickle, of another kind."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from refusal import edit
from tiny_models import save_adapter

from hubtools.errors import Finding
from hubtools.family.manifest import read_family
from hubtools.release.context import Release, open_release
from hubtools.release.engine import walk
from hubtools.release.gc import delete, find_garbage
from hubtools.release.refuse import in_manifest
from hubtools.release.stages.check import check_local


def opened(root: Path) -> Release:
    found = read_family(root)
    return open_release(found, found.members[:1], clock=time.time)


def errors(root: Path) -> dict[str, Finding]:
    return {f.id: f for f in check_local(opened(root)) if f.level == "error"}


def merged(root: Path) -> tuple[str, str]:
    """Digest of the weights of the first member, and whether the stage had to run."""
    release = opened(root)
    cells, failures = walk(release, execute=True)
    assert not failures
    action = next(cell.action for cell in cells if cell.stage == "merge")
    return release.done["merge", "red/s4"]["weights"], action


def pickled(run: Path) -> None:
    import torch
    from safetensors.torch import load_file

    file = run / "adapter_model.safetensors"
    torch.save(load_file(file), run / "adapter_model.bin")
    file.unlink()


def nested(run: Path) -> None:
    (run / "policy").mkdir()
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (run / name).rename(run / "policy" / name)


def test_a_converted_pickle_is_collected_when_it_is_not_read_any_more(family: Path) -> None:
    run = family / "runs" / "red" / "s4"
    shutil.copytree(run, family / "before")
    pickled(run)
    merged(family)
    (copy,) = (family / ".hubtools" / "converted").glob("*.safetensors")
    assert copy not in [item.path for item in find_garbage(opened(family))]
    shutil.rmtree(run)
    (family / "before").rename(run)
    (item,) = (item for item in find_garbage(opened(family)) if item.path == copy)
    assert delete(opened(family), item)
    assert not copy.exists()


@pytest.mark.parametrize("change", [pickled, nested])
def test_an_adapter_is_the_same_however_it_was_saved(family: Path, change: object) -> None:
    run = family / "runs" / "red" / "s4"
    expected, _ = merged(family)
    change(run)  # type: ignore[operator]
    assert errors(family) == {}
    assert merged(family) == (expected, "run")
    assert merged(family) == (expected, "cached")
    weights = next(file for file in run.rglob("adapter_model.*"))
    with weights.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    cells, _ = walk(opened(family), execute=False)
    assert next(cell.action for cell in cells if cell.stage == "merge") == "run"


def test_an_adapter_that_needs_peft_says_what_to_set_and_is_merged(family: Path) -> None:
    run = family / "runs" / "red" / "s4"
    shutil.rmtree(run)
    targets = ["q_proj", "down_proj"]
    save_ia3(run, family / "base", targets)
    assert 'add engine = "peft" to [merge]' in errors(family)["HT150"].next
    edit(family, "[inputs]", '[merge]\nengine = "peft"\n[inputs]')
    assert errors(family) == {}
    digest, action = merged(family)
    assert (len(digest), action) == (64, "run")


def test_an_adapter_that_names_another_base_is_told(family: Path, tmp_path: Path) -> None:
    run = family / "runs" / "red" / "s4"

    def told(named: str, revision: str = "") -> list[str]:
        config = json.loads((run / "adapter_config.json").read_text())
        config |= {"base_model_name_or_path": named, "revision": revision or None}
        (run / "adapter_config.json").write_text(json.dumps(config))
        return [f.message for f in check_local(opened(family)) if f.id == "HT531"]

    assert told("lab/tiny-base") == told("lab/tiny-base", "main") == []
    assert told(str(family / "base")) == told("/gone/base") == []
    shutil.copytree(family / "base", tmp_path / "same")
    assert told(str(tmp_path / "same")) == []
    (other,) = told("lab/other")
    assert "lab/other" in other
    assert "lab/tiny-base@0123456" in other
    (moved,) = told("lab/tiny-base", "f" * 40)
    assert "f" * 40 in moved
    (tmp_path / "same" / "config.json").write_text("{}")
    (local,) = told(str(tmp_path / "same"))
    assert str(tmp_path / "same") in local


def test_a_resized_adapter_is_told_to_be_merged(family: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    edit(family, 'kind = "merged"', 'kind = "adapter"')
    run = family / "runs" / "red" / "s4"
    shutil.rmtree(run)
    model = AutoModelForCausalLM.from_pretrained(family / "base")
    model.resize_token_embeddings(model.config.vocab_size + 8)
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    get_peft_model(model, config).save_pretrained(run, save_embedding_layers=True)
    _, failures = walk(opened(family), execute=True)
    assert failures["red/s4"].id == "HT136"
    assert 'kind = "merged"' in failures["red/s4"].next


def save_ia3(path: Path, base: Path, targets: list[str]) -> None:
    import torch
    from peft import IA3Config, get_peft_model
    from transformers import AutoModelForCausalLM

    config = IA3Config(
        task_type="CAUSAL_LM", target_modules=targets, feedforward_modules=targets[1:]
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ia3_" in name:
                parameter.normal_(1, 0.1)
    model.save_pretrained(path)


def test_the_card_shows_what_the_merge_did_and_nothing_of_this_machine(family: Path) -> None:
    base = family / "base"
    run = family / "runs" / "red" / "s4"
    shutil.rmtree(run)
    save_adapter(run, base, ["q_proj"], modules_to_save=["lm_head"])
    merged(family)
    card = next((family / ".hubtools" / "cards").glob("*/README.md")).read_text()
    section = card.split("### How the weights were made")[1].split("\n## ")[0]
    assert "| `q_proj` | 2 |" in section
    assert "| `lm_head` | 1 |" in section
    assert "float32, rounded once" in section
    assert str(family) not in card


def test_a_full_model_is_no_adapter(family: Path) -> None:
    edit(family, 'checkpoint = "runs/{arm}/{step}"', 'checkpoint = "base"')
    assert 'set kind = "full"' in errors(family)["HT515"].next


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ("hubtools ingest runs/x -o OUT --dtype float16  # each", 'dtype = "float16" to [ingest]'),
        ("hubtools ingest x -o OUT --lora-alpha ALPHA", "add lora_alpha = ALPHA to [ingest]"),
        ("run the same command without --lora-alpha", "remove lora_alpha from [ingest]"),
        ("run the same command with --engine peft", 'add engine = "peft" to [merge]'),
        ("give it, and add --base-is-residual", "add base_is_residual = true to [merge]"),
        (
            "name the base it was trained on: --base DIR",
            "correct base, or give it its path, in",
        ),
        (
            "hubtools ingest run/lora_adapter -o OUT --lora-alpha ALPHA  # the adapter is there",
            "set checkpoint to run/lora_adapter in [inputs], and lora_alpha = ALPHA in [ingest]",
        ),
        ("ls runs", "ls runs"),
    ],
)
def test_fixes_are_told_in_the_words_of_a_manifest(fix: str, said: str) -> None:
    assert said in in_manifest(fix, "family.toml")
