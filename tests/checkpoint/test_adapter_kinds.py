"""Every type and option of PEFT is in exactly one class, and a refusal says why and what to do."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint import adapter_kinds
from hubtools.checkpoint.adapter import Adapter, AdapterConfig, read_adapter_config
from hubtools.checkpoint.adapter_kinds import (
    REFUSED_TYPES,
    THROUGH_PEFT,
    classify,
    is_training_state,
)
from hubtools.checkpoint.merging.ways import require_mergeable
from hubtools.errors import CheckError


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(**changes: Any) -> AdapterConfig:
        lora = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "init_lora_weights": True}
        (tmp_path / "adapter_config.json").write_text(json.dumps({**lora, **changes}))
        return read_adapter_config(tmp_path)

    return make


def test_every_type_of_peft_is_in_one_class() -> None:
    from peft import PeftType

    gone = {"BONE"}  # not a type any more; adapters of it are still about
    known = {"LORA"} | THROUGH_PEFT | REFUSED_TYPES.keys()
    assert {str(kind.value) for kind in PeftType} == known - gone
    assert THROUGH_PEFT & REFUSED_TYPES.keys() == set()


def test_every_option_of_lora_is_in_one_class() -> None:
    from peft import LoraConfig

    classes = [
        adapter_kinds._FOLLOWED,
        adapter_kinds._THROUGH_PEFT.keys(),
        adapter_kinds._REFUSED.keys(),
    ]
    options = {field.name for field in fields(LoraConfig)}
    assert [name for name in options if sum(name in one for one in classes) != 1] == []


def test_what_a_default_configuration_of_peft_holds_is_streamed(tmp_path: Path) -> None:
    from peft import LoraConfig

    LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM").save_pretrained(tmp_path)
    assert classify(read_adapter_config(tmp_path)).way == "stream"


@pytest.mark.parametrize(
    "changes",
    [
        {"use_dora": True},
        {"use_rslora": True},
        {"lora_bias": True},
        {"bias": "all"},
        {"modules_to_save": ["lm_head"]},
        {"trainable_token_indices": [1]},
        {"layer_replication": [[0, 2]]},
        {"target_parameters": ["experts.down_proj"]},
        {"fan_in_fan_out": True},
        {"ensure_weight_tying": True},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}},
        {"init_lora_weights": "orthogonal"},
        {"init_lora_weights": "mica"},
        {"velora_config": {"num_groups": 4}},
        {"monteclora_config": {"num_samples": 4}},
        {"corda_config": {"corda_method": "kpm"}},
        {"unheard_of": 1, "peft_version": "0.21.2"},
        {"unheard_of": None, "unset": [], "off": False},
    ],
    ids=str,
)
def test_streamed(config: Any, changes: dict[str, Any]) -> None:
    assert classify(config(**changes)).way == "stream"


def test_mica_is_rounded_twice(config: Any) -> None:
    assert config(init_lora_weights="mica").rounding == "twice"
    assert config().rounding == "once"


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"peft_type": kind}, kind) for kind in sorted(THROUGH_PEFT)]
    + [({"use_bdlora": {"nblocks": 2}}, "BD-LoRA (block-diagonal factors)")],
    ids=str,
)
def test_through_peft(config: Any, changes: dict[str, Any], what: str) -> None:
    verdict = classify(config(**changes))
    assert (verdict.way, verdict.what) == ("peft", what)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"peft_type": kind}, kind) for kind in sorted(REFUSED_TYPES)]
    + [
        ({"peft_type": "NEXT_YEAR"}, "NEXT_YEAR: this version does not know"),
        ({"peft_type": ""}, "no peft_type"),
        ({"use_qalora": True}, "QA-LoRA"),
        ({"alora_invocation_tokens": [1, 2]}, "activated LoRA"),
        ({"alora_invocation_tokens": []}, "activated LoRA"),
        ({"arrow_config": {"top_k": 3}}, "Arrow"),
        ({"kasa_config": {"beta": 0.1}}, "KaSA"),
        ({"megatron_config": {"a": 1}}, "Megatron"),
        ({"unheard_of": 1, "peft_version": "0.99.0"}, "option unheard_of"),
        ({"init_lora_weights": "unheard_of"}, "init_lora_weights 'unheard_of'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("base_is_residual", [False, True])
def test_refused_whatever_the_base(
    config: Any, changes: dict[str, Any], words: str, base_is_residual: bool
) -> None:
    error = refusal(config(**changes), base_is_residual)
    assert words in error.message
    assert 'kind = "adapter"' in error.next


@pytest.mark.parametrize(
    ("start", "words", "convertible"),
    [
        ("pissa", "PiSSA", True),
        ("pissa_niter_16", "PiSSA", True),
        ("olora", "OLoRA", True),
        ("OLoRA", "OLoRA", True),
        ("corda", "CorDA", True),
        ("lora_ga", "LoRA-GA", True),
        ("loftq", "LoftQ", False),
    ],
)
def test_a_start_that_changed_the_base(
    config: Any, start: str, words: str, convertible: bool
) -> None:
    error = refusal(config(init_lora_weights=start), False)
    assert words in error.message
    assert "--base-is-residual" in error.next
    assert ("path_initial_model_for_weight_conversion" in error.next) == convertible
    assert classify(config(init_lora_weights=start), base_is_residual=True).way == "stream"


def test_rank_zero(config: Any) -> None:
    assert "rank 0" in refusal(config(r=0), False).message


def test_state_of_training_is_told_from_what_was_trained() -> None:
    head = "base_model.model.model.layers.0.self_attn.q_proj"
    assert is_training_state(f"{head}.lora_monteclora_sampler.std_prior_vector")
    assert is_training_state(f"{head}.lora_velora_embed.default")
    assert not is_training_state(f"{head}.lora_A.weight")


def refusal(config: AdapterConfig, base_is_residual: bool) -> CheckError:
    folder = config.path.parent
    adapter = Adapter(folder, config, folder / "adapter_model.safetensors", folder)
    with pytest.raises(CheckError) as caught:
        require_mergeable(adapter, base_is_residual=base_is_residual)
    assert caught.value.id == "HT110"
    assert caught.value.where == str(config.path)
    return caught.value
