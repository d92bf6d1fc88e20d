"""What adapter_config.json announces, and what the file holds: by PEFT's own rule."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from safetensors.torch import load_file, save_file
from tiny_models import save_adapter, save_base
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter, read_adapter_config
from hubtools.checkpoint.adapter_kinds import KNOWN, ignored_options
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.targets import announces
from hubtools.errors import CheckError


def changed(zoo: Zoo, target: Path, **fields: Any) -> tuple[Path, Path]:
    base, adapter = zoo.pair("llama", "plain")
    copy = Path(shutil.copytree(adapter, target / "adapter"))
    file = copy / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **fields}))
    return base, copy


def without(adapter: Path, words: str) -> None:
    file = adapter / "adapter_model.safetensors"
    save_file({name: t for name, t in load_file(file).items() if words not in name}, file)


def plan(base: Path, adapter: Path) -> MergePlan:
    return plan_merge([open_adapter(adapter, base.parent)], base)


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": ["q_proj"]},
        {"target_modules": r".*layers\.0\..*"},
        {"exclude_modules": ["v_proj"]},
        {"exclude_modules": r".*v_proj"},
        {"layers_to_transform": [1]},
        {"layers_to_transform": 1, "layers_pattern": "layers"},
    ],
    ids=str,
)
def test_factors_that_peft_leaves_out(zoo: Zoo, tmp_path: Path, fields: dict[str, Any]) -> None:
    base, adapter = changed(zoo, tmp_path, **fields)
    with pytest.raises(CheckError, match="HT111") as caught:
        plan(base, adapter)
    assert "not announced: model.layers." in caught.value.detail[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": "all-linear"},
        {"target_modules": r"^model\.(?!x).*_proj$"},
        {"layers_to_transform": [0, 1], "layers_pattern": ["blocks", "layers"]},
        {"exclude_modules": ["lm_head"]},
        {"target_modules": None},
    ],
    ids=str,
)
def test_factors_that_are_announced(zoo: Zoo, tmp_path: Path, fields: dict[str, Any]) -> None:
    base, adapter = changed(zoo, tmp_path, **fields)
    assert plan(base, adapter).to_json()["changed_tensors"] == 14


def test_a_target_without_factors_was_lost(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = changed(zoo, tmp_path)
    without(adapter, "v_proj")
    with pytest.raises(CheckError, match="HT114") as caught:
        plan(base, adapter)
    assert "target_modules names v_proj" in caught.value.detail[0]


def test_targets_of_other_models_may_be_named(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = changed(zoo, tmp_path)
    targets = json.loads((adapter / "adapter_config.json").read_bytes())["target_modules"]
    base, adapter = changed(zoo, tmp_path / "more", target_modules=[*targets, "c_attn", "query"])
    assert plan(base, adapter).to_json()["changed_tensors"] == 14


def test_layers_without_factors_are_told(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = changed(zoo, tmp_path)
    without(adapter, "layers.1.self_attn.q_proj")
    told = "1 of 2 model.layers.*.self_attn.q_proj have factors; the others stay as they are"
    assert plan(base, adapter).notes == (told,)


SLOW = r"(.|..|...)*(.|..)*[^\w.]"
MODULES = [
    "model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head",
    "layers.3.q_proj", "model.visual.blocks.2.attn.qkv", "model.layers.4.mlp.experts.7.up_proj",
]  # fmt: skip
KEYS = st.sampled_from([
    "q_proj", "proj", "mlp.down_proj", "layers.0.self_attn.q_proj", "lm_head", "qkv", "up_proj",
])  # fmt: skip
PATTERNS = st.sampled_from([".*proj", r"model\..*\.(q|up)_proj", ".*", "lm_head|.*qkv", "q_proj"])


@given(
    module=st.sampled_from(MODULES),
    targets=st.lists(KEYS, min_size=1, max_size=3) | PATTERNS,
    exclude=st.none() | st.lists(KEYS, max_size=2) | PATTERNS,
    saved=st.none() | st.lists(st.sampled_from(["lm_head", "mlp", "q_proj"]), max_size=2),
    layers=st.none() | st.just([]) | st.lists(st.sampled_from([0, 2, 3, 7, 11]), max_size=3),
    pattern=st.none() | st.sampled_from(["layers", "blocks", "experts", ["blocks", "layers"], []]),
)
def test_the_rule_is_that_of_peft(
    tmp_path_factory: pytest.TempPathFactory,
    module: str,
    targets: Any,
    exclude: Any,
    saved: Any,
    layers: Any,
    pattern: Any,
) -> None:
    if isinstance(targets, str):
        layers = pattern = None  # PEFT refuses them together
    if not layers:
        pattern = None
    fields = {
        "target_modules": targets,
        "exclude_modules": exclude,
        "modules_to_save": saved,
        "layers_to_transform": layers,
        "layers_pattern": pattern,
    }
    folder = tmp_path_factory.mktemp("config")
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 4, **fields}))
    theirs = bool(check_target_module_exists(LoraConfig(**fields), module))
    assert announces(read_adapter_config(folder), module) == theirs


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rank_pattern": {SLOW: 8}}, "takes more than"),
        ({"target_modules": SLOW}, "takes more than"),
        ({"exclude_modules": SLOW}, "takes more than"),
        ({"rank_pattern": {"(": 8}}, "is no regular expression"),
        ({"alpha_pattern": {"(?i)Q_PROJ": 8}}, "is no regular expression"),
        ({"target_modules": "*_proj"}, "is no regular expression"),
        ({"rank_pattern": {"a" * 30_000: 8}}, "has 30000 characters"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_patterns_that_cannot_be_used(
    zoo: Zoo, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    base, adapter = changed(zoo, tmp_path, **fields)
    start = time.monotonic()
    with pytest.raises(CheckError, match="HT110") as caught:
        plan(base, adapter)
    assert words in caught.value.message
    assert time.monotonic() - start < 10


def test_replication_has_a_limit(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = changed(zoo, tmp_path, layer_replication=[[0, 2]] * 1_000_000)
    with pytest.raises(CheckError, match="HT141") as caught:
        plan(base, adapter)
    assert len(caught.value.message) < 300


def test_options_of_other_programs_are_told(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = changed(zoo, tmp_path, lorap_emb_lr=1e-6, lora_dtype=None)
    (note,) = plan(base, adapter).notes
    assert "lorap_emb_lr" in note
    assert ignored_options(read_adapter_config(adapter)) == ["lorap_emb_lr"]


def test_every_option_of_peft_is_known() -> None:
    assert set(LoraConfig.__dataclass_fields__) == KNOWN


def test_a_target_that_has_another_name_in_memory_was_never_trained(tmp_path: Path) -> None:
    """GPT-NeoX stores `embed_out` and calls it `lm_head`: PEFT finds no such target."""
    base = save_base(tmp_path / "base", "gpt_neox", "bfloat16")
    adapter = save_adapter(tmp_path / "adapter", base, ["embed_out", "query_key_value"])
    plan = plan_merge([open_adapter(adapter, tmp_path)], base)
    assert {output.kind for output in plan.layout.outputs() if output.ops} == {"query_key_value"}
