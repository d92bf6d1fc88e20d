"""Whatever is done to an adapter or a base: merged, or refused in words; never a traceback."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from our_merge import merged, no_processes
from zoo import Zoo

from hubtools.errors import HubtoolsError

PAIRS = [
    ("llama", "plain"),
    ("llama", "dora"),
    ("llama", "tokens"),
    ("llama", "resized embedding"),
    ("qwen2", "save both"),
    ("gpt2", "bias all"),
    ("mixtral", "gate_up and down"),
    ("qwen3_moe", "old experts"),
    ("gemma3", "plain"),
    ("llama", "classifier"),
    ("llama", "replicated"),
    ("qwen2", "tied embedding"),
    ("gpt2", "lora bias"),
    ("qwen2_5_vl", "old names"),
]


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


small = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(allow_nan=True),
    st.sampled_from(
        ["", "lora", "q_proj", "(", "model.layers.0", "none", "../x", "pissa", "é\ud800"]
    ),
)
values = st.recursive(
    small,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["q_proj", "lm_head", "", "0", "("]), inner, max_size=2),
    ),
    max_leaves=6,
)
FIELDS = {
    "adapter_config.json": [
        "r", "lora_alpha", "peft_type", "bias", "use_dora", "use_rslora", "lora_bias",
        "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules", "modules_to_save",
        "trainable_token_indices", "layer_replication", "target_parameters", "init_lora_weights",
        "base_model_name_or_path", "revision", "ensure_weight_tying", "fan_in_fan_out",
        "task_type", "layers_to_transform", "layers_pattern", "use_bdlora", "a_later_invention",
    ],
    "config.json": [
        "model_type", "architectures", "tie_word_embeddings", "vocab_size", "num_hidden_layers",
        "hidden_size", "layer_types", "torch_dtype", "dtype", "text_config", "vision_config",
        "quantization_config", "auto_map", "num_local_experts", "num_labels", "id2label",
    ],
    "generation_config.json": ["eos_token_id"],
    "tokenizer_config.json": ["chat_template"],
}  # fmt: skip


def damage_config(data: Any, base: Path, adapter: Path) -> None:
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    file = (adapter if name.startswith("adapter") else base) / name
    fields = json.loads(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        key = data.draw(st.sampled_from(FIELDS[name]))
        if data.draw(st.booleans()):
            fields[key] = data.draw(values)
        else:
            fields.pop(key, None)
    file.write_text(json.dumps(fields), errors="surrogatepass")


def damage_bytes(data: Any, base: Path, adapter: Path) -> None:
    file = data.draw(
        st.sampled_from([adapter / "adapter_model.safetensors", base / "model.safetensors",
                         adapter / "adapter_config.json", base / "config.json"])
    )  # fmt: skip
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(content), 4000) - 1))
        content[place] = data.draw(st.integers(0, 255))
    file.write_bytes(content)


def damage_tensors(data: Any, base: Path, adapter: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = data.draw(
        st.sampled_from([adapter / "adapter_model.safetensors", base / "model.safetensors"])
    )
    tensors = load_file(file)
    names = sorted(tensors)
    pieces = sorted({piece for name in names for piece in name.split(".")})
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(names))
        if name not in tensors:
            continue
        what = data.draw(st.sampled_from(["drop", "rename", "reshape", "dtype", "value", "twin"]))
        tensor = tensors.pop(name)
        other = name.split(".")
        other[data.draw(st.integers(0, len(other) - 1))] = data.draw(st.sampled_from(pieces))
        if what == "rename":
            tensors[".".join(other)] = tensor
        elif what == "twin":
            tensors |= {name: tensor, ".".join(other): tensor.clone()}
        elif what == "reshape":
            shape = data.draw(st.lists(st.integers(0, 9), max_size=3))
            tensors[name] = torch.ones(shape, dtype=tensor.dtype)
        elif what == "dtype":
            kind = data.draw(
                st.sampled_from(["int64", "bool", "float64", "float8_e4m3fn", "uint8"])
            )
            tensors[name] = tensor.to(getattr(torch, kind))
        elif what == "value":
            tensors[name] = tensor * data.draw(st.sampled_from([0.0, 1e38, float("nan")]))
    save_file(tensors, file, metadata={"format": "pt"})


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_told(zoo: Zoo, data: Any) -> None:
    kind, variant = data.draw(st.sampled_from(PAIRS))
    sources = zoo.pair(kind, variant)
    damage = data.draw(st.sampled_from([damage_config, damage_bytes, damage_tensors]))
    options = data.draw(st.sampled_from([{}, {"dtype": "float16"}, {"keep_tied": True}]))
    with tempfile.TemporaryDirectory() as folder:
        base, adapter = (Path(folder) / name for name in ("base", "adapter"))
        shutil.copytree(sources[0], base)
        shutil.copytree(sources[1], adapter)
        damage(data, base, adapter)
        with suppress(HubtoolsError):  # anything else fails the test
            merged(base, adapter, Path(folder) / "out", **options)
            return
        assert not (Path(folder) / "out").exists()
