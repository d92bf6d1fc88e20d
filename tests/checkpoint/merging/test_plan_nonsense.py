"""Whatever stands in the configurations, a plan is made or refused: never a traceback."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from our_merge import no_processes
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.carry import small_files, with_edits
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import plan_merge
from hubtools.checkpoint.naming.names import NameMap, name_map
from hubtools.errors import CheckError

ADAPTER = (
    "trainable_token_indices", "layer_replication", "modules_to_save", "target_modules",
    "task_type", "ensure_weight_tying", "exclude_modules", "use_dora", "lora_bias", "bias",
    "target_parameters", "base_model_name_or_path", "fan_in_fan_out",
)  # fmt: skip
BASE = (
    "tie_word_embeddings", "architectures", "text_config", "num_hidden_layers", "layer_types",
    "vocab_size", "id2label", "quantization_config", "dtype", "torch_dtype", "model_type",
)  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.just(10**30)
    | st.floats()
    | st.sampled_from(["embed_tokens", "lm_head", "q_proj", "SEQ_CLS", "bnb-4bit", "", "é\ud800"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["embed_tokens", "lm_head", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@cache
def names_of(base: Path) -> NameMap:
    with no_processes():
        return name_map(base, [], base.parent / "names.log")


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        ("qwen2", "embedding and head"),
        ("qwen2", "tokens"),
        ("qwen2", "resized"),
        ("llama", "save both"),
        ("llama", "replicated"),
        ("llama", "classifier"),
        ("llama", "dora"),
    ],
)
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_configuration(zoo: Zoo, tmp_path: Path, kind: str, variant: str, data: Any) -> None:
    original = zoo.pair(kind, variant)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    if not base.exists():
        shutil.copytree(original[0], base)
        shutil.copytree(original[1], adapter)
    for folder, source, name, keys in (
        (adapter, original[1], "adapter_config.json", ADAPTER),
        (base, original[0], "config.json", BASE),
    ):
        changes = data.draw(st.dictionaries(st.sampled_from(keys), values, max_size=2))
        fields = {**json.loads((source / name).read_bytes()), **changes}
        (folder / name).write_text(json.dumps(fields))
    options = MergeOptions(
        keep_tied=data.draw(st.booleans()),
        dtype=data.draw(st.sampled_from([None, "float16"])),
    )
    with suppress(CheckError):
        plan = plan_merge(
            [open_adapter(adapter, tmp_path)], base, options, names=names_of(original[0])
        )
        json.dumps(plan.to_json())
        small = with_edits(small_files([adapter], base), plan.config_edits)
        json.loads(small["config.json"].data)
        assert plan.layout.bytes > 0
