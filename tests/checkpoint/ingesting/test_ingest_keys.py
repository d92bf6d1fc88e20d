"""Wrappers of names go, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.checkpoint.ingesting.keys import cleaned, is_adapted, unwrapped

MODEL = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight")
PARTS = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.")


@given(
    prefix=st.sampled_from(["", "model.", "module.", "app.model.", "state_dict.", "model.module."]),
    wrapped=st.lists(st.sampled_from(PARTS), max_size=3),
    place=st.integers(0, 3),
)
def test_any_wrapping_gives_the_model_names(prefix: str, wrapped: list[str], place: int) -> None:
    def wrap(name: str) -> str:
        parts = name.split(".")
        cut = min(place, len(parts) - 1)
        return prefix + ".".join([*parts[:cut], *[w.rstrip(".") for w in wrapped], *parts[cut:]])

    saved = {wrap(name): name for name in MODEL}
    assert cleaned(saved, MODEL) == {name: key for key, name in saved.items()}


def test_a_wrapper_is_only_what_the_model_does_not_have() -> None:
    bare = [name.removeprefix("model.") for name in MODEL]  # a model without a head's `model.`
    assert cleaned([f"model.{name}" for name in bare], bare).keys() == set(bare)
    assert cleaned(MODEL, MODEL) == {name: name for name in MODEL}


def test_other_states_are_left_out_and_strangers_are_not() -> None:
    saved = [f"app.model.{name}" for name in MODEL]
    others = ["app.optim.state.lm_head.weight.exp_avg", "scheduler.x", "optimizer.state.a"]
    assert cleaned([*saved, *others], MODEL).keys() == set(MODEL)
    assert cleaned([*saved, "app.value_head.weight"], MODEL).keys() == {
        *MODEL,
        "app.value_head.weight",
    }


def test_two_that_become_one() -> None:
    with pytest.raises(ValueError, match=r"both become lm_head.weight"):
        cleaned([*MODEL, "module.lm_head.weight"], MODEL)


def test_peft_names() -> None:
    assert unwrapped("base_model.model.lm_head.weight") == "lm_head.weight"
    assert is_adapted("base_model.model.x.q_proj.base_layer.weight")
    assert is_adapted("x.q_proj.lora_A.default.weight")
    assert not is_adapted("model.layers.0.self_attn.q_proj.weight")


def test_a_model_that_is_there_twice() -> None:
    twice = [f"{prefix}.{name}" for prefix in ("model", "ema") for name in MODEL]
    with pytest.raises(ValueError, match=r"2 times: as ema\.\* and model\.\*"):
        cleaned(twice, MODEL)
    masters = [f"optimizer.fp32.{name}" for name in MODEL]
    wrapped = [f"model.{name}" for name in MODEL]
    assert cleaned([*wrapped, *masters], MODEL).keys() == set(MODEL)
    assert cleaned([*MODEL, *masters], MODEL).keys() == set(MODEL)
    assert cleaned([*MODEL, "optimizer.state.x"], MODEL).keys() == set(MODEL)
