"""A merge gives PEFT's bytes, in the base's files, with the right files beside them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LINEAR, TEMPLATE, save_adapter, save_base, save_tokenizer

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.plan import plan_merge
from hubtools.digests import sha256_file
from hubtools.errors import EnvironmentFailure, UsageError


def by_peft(base: Path, adapter: Path) -> dict[str, Any]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    return dict(model.merge_and_unload().state_dict())


def loaded(path: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(path).state_dict())


def assert_as_peft(base: Path, adapter: Path, out: Path) -> dict[str, Any]:
    """Merge, and compare every tensor with PEFT's, bytes and dtype."""
    import torch

    result = merge(adapter, base, out, log=out.with_name("log"))
    ours, theirs = loaded(out), by_peft(base, adapter)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        left, right = ours[name].contiguous(), tensor.contiguous()
        assert torch.equal(left.view(torch.uint8), right.view(torch.uint8)), name
    report: dict[str, Any] = result["report"]
    assert 0 < report["moved_elements"] <= report["changed_elements"]
    return report


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("kind", sorted(LINEAR))
def test_bytes_are_those_of_peft(made: Any, tmp_path: Path, kind: str, dtype: str) -> None:
    base, adapter = made(kind, dtype)
    report = assert_as_peft(base, adapter, tmp_path / "out")
    assert report["changed_tensors"] == 2 * len(LINEAR[kind])
    assert report["engine"] == "numpy"


VARIANTS: dict[str, dict[str, Any]] = {
    "rslora": {"use_rslora": True, "r": 5},
    "patterns": {
        "rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 3},
        "alpha_pattern": {"up_proj": 5, "^model.layers.0.self_attn.q_proj": 7},
    },
    "some layers": {"layers_to_transform": [1]},
    "gaussian": {"init_lora_weights": "gaussian"},
    "output layer": {"target_modules": ["lm_head", "q_proj"]},
    "rank 1": {"r": 1},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_with_the_same_arithmetic(made: Any, tmp_path: Path, name: str) -> None:
    base, _ = made()
    options = {"target_modules": ["q_proj", "up_proj"], **VARIANTS[name]}
    adapter = save_adapter(tmp_path / "adapter", base, options.pop("target_modules"), **options)
    assert_as_peft(base, adapter, tmp_path / "out")


def test_where_numpy_would_round_otherwise_torch_multiplies(made: Any, tmp_path: Path) -> None:
    base, _ = made()
    adapter = save_adapter(tmp_path / "adapter", base, ["down_proj"], r=256)  # 107 columns
    report = assert_as_peft(base, adapter, tmp_path / "out")
    assert report["engine"] == "torch"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_factors_stored_in_half_precision(made: Any, tmp_path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    base, _ = made()
    adapter = save_adapter(tmp_path / "adapter", base, ["v_proj", "down_proj"])
    file = adapter / "adapter_model.safetensors"
    save_file({k: v.to(getattr(torch, dtype)) for k, v in load_file(file).items()}, file)
    assert_as_peft(base, adapter, tmp_path / "out")


def test_shards_stay_as_they_are(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "llama", "bfloat16", max_shard_size="60KB")
    adapter = save_adapter(tmp_path / "adapter", base, LINEAR["llama"])
    shards = sorted(file.name for file in base.glob("*.safetensors"))
    assert len(shards) > 2
    assert_as_peft(base, adapter, tmp_path / "out")
    index = "model.safetensors.index.json"
    assert sorted(file.name for file in (tmp_path / "out").glob("*.safetensors")) == shards
    assert (tmp_path / "out" / index).read_bytes() == (base / index).read_bytes()


def test_a_false_total_in_the_index_is_corrected(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "qwen2", "float32", max_shard_size="90KB")
    adapter = save_adapter(tmp_path / "adapter", base, LINEAR["qwen2"])
    file = base / "model.safetensors.index.json"
    index = json.loads(file.read_bytes())
    right = index["metadata"]["total_size"]
    index["metadata"]["total_size"] = 339
    file.write_text(json.dumps(index))
    merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    assert json.loads((tmp_path / "out" / file.name).read_bytes()) == {
        **index,
        "metadata": {**index["metadata"], "total_size": right},
    }


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "qwen3", "bfloat16", tied=True)
    adapter = save_adapter(tmp_path / "adapter", base, LINEAR["qwen3"])
    assert_as_peft(base, adapter, tmp_path / "out")


def test_digests_sizes_and_config(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    umask = os.umask(0o027)
    try:
        result = merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    finally:
        os.umask(umask)
    out = tmp_path / "out"
    files = {file.name: file for file in out.iterdir()}
    assert {
        name: {"sha256": sha256_file(file), "size": file.stat().st_size}
        for name, file in files.items()
    } == result["files"]
    assert result["weights"] == {"model.safetensors": sha256_file(out / "model.safetensors")}
    assert (out / "config.json").read_bytes() == (base / "config.json").read_bytes()
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o640}


def test_tokenizer_comes_from_the_adapter_and_the_rest_from_the_base(
    broken: tuple[Path, Path], tmp_path: Path
) -> None:
    base, adapter = broken
    save_tokenizer(adapter, "trained: " + TEMPLATE)
    (adapter / "LICENSE").write_text("not this one")
    for name in ("optimizer.pt", "rng_state.pth", "scheduler.pt", ".secret", "training_args.bin"):
        (adapter / name).write_text("x")
        (base / name).write_text("x")
    (base / "README.md").write_text("card of the base")
    result = merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    out = tmp_path / "out"
    assert sorted(result["files"]) == [
        "LICENSE",
        "NOTICE.txt",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (out / "chat_template.jinja").read_text().startswith("trained: ")
    assert (out / "LICENSE").read_text() == "licence of the base\n"
    assert result["report"]["carried"]["tokenizer.json"] == "adapter"
    assert result["report"]["carried"]["NOTICE.txt"] == "base"


def test_the_same_job_again_is_checked_and_used(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    out = tmp_path / "out"
    first = merge(adapter, base, out, log=tmp_path / "log")
    before = {file: file.stat().st_mtime_ns for file in out.iterdir()}
    assert merge(adapter, base, out, log=tmp_path / "log") == first
    assert {file: file.stat().st_mtime_ns for file in out.iterdir()} == before
    with (out / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x55")
    with pytest.raises(UsageError, match="HT120") as caught:
        merge(adapter, base, out, log=tmp_path / "log")
    assert "changed since" in caught.value.detail[0]
    assert "rm " not in caught.value.next


def test_another_job_does_not_touch_what_is_there(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    out = tmp_path / "out"
    merge(adapter, base, out, log=tmp_path / "log")
    other = save_adapter(tmp_path / "other", base, ["q_proj"])
    digest = sha256_file(out / "model.safetensors")
    with pytest.raises(UsageError, match="HT120") as caught:
        merge(other, base, out, log=tmp_path / "log")
    assert f"rm -r {out}" in caught.value.next
    (out / "notes.txt").write_text("the user's own")
    with pytest.raises(UsageError, match="HT120") as caught:
        merge(other, base, out, log=tmp_path / "log")
    assert "rm " not in caught.value.next
    assert sha256_file(out / "model.safetensors") == digest
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").touch()
    with pytest.raises(UsageError, match="HT120"):
        merge(adapter, base, foreign, log=tmp_path / "log")
    assert list(foreign.iterdir()) == [foreign / "notes.txt"]


def test_an_empty_directory_is_free(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = made()
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    for place in (Path(), out):  # not under the shell that is in it
        with pytest.raises(UsageError, match="HT120"):
            merge(adapter, base, place, log=tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(UsageError, match="HT120"):
        merge(adapter, base, tmp_path / "link", log=tmp_path / "log")
    first = merge(adapter, base, out, log=tmp_path / "log")
    assert {file.name for file in out.iterdir()} == first["files"].keys()
    shutil.rmtree(out)
    out.mkdir()  # emptied: the record of the first time proves nothing
    assert merge(adapter, base, out, log=tmp_path / "log") == first
    assert {file.name for file in out.iterdir()} == first["files"].keys()


def test_the_plan_says_what_will_happen(made: Any) -> None:
    base, adapter = made("qwen2")
    plan = plan_merge([open_adapter(adapter, base.parent)], base).to_json()
    size = (base / "model.safetensors").stat().st_size
    assert plan == {
        "adapter_tensors": 12,
        "changed_tensors": 6,
        "tensors": 27,
        "changed_bytes": 2 * 2 * (64 * 64 + 32 * 64 + 64 * 107),
        "bytes": size,
        "files": ["model.safetensors"],
        "ranks": [8],
        "scalings": [3.0],
        "kinds": {"down_proj": 2, "q_proj": 2, "v_proj": 2},
        "classes": {"once": 6},
        "replaced": [],
        "added": [],
        "removed": [],
        "dtypes": {"BF16": 27},
        "engine": "numpy",
        "options": {"keep_tied": False, "dtype": None, "base_is_residual": False},
        "config": {},
        "notes": [],
    }


def test_no_folder_that_a_merge_did_not_make_is_named_for_removal(
    made: Any, tmp_path: Path
) -> None:
    base, adapter = made()
    for place in (base, adapter):
        with pytest.raises(UsageError, match="HT120") as caught:
            merge(adapter, base, place, log=tmp_path / "log")
        assert "rm " not in caught.value.next


def test_a_place_that_is_refused_is_left_as_it_was(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    home = tmp_path / "home" / "inner"
    home.mkdir(parents=True)
    (home / "link").symlink_to("nowhere")
    before = {file for file in tmp_path.rglob("*") if base not in file.parents}
    for place in (base, home / "..", home / "link"):
        with pytest.raises(UsageError, match="HT120"):
            merge(adapter, base, place, log=tmp_path / "log")
    with pytest.raises(EnvironmentFailure, match="HT901") as caught:
        merge(adapter, base, home / ("x" * 250), log=tmp_path / "log")
    assert caught.value.detail == ("Nothing was written.",)
    assert {file for file in tmp_path.rglob("*") if base not in file.parents} == before
