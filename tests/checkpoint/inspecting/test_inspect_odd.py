"""However odd the files, looking at them ends in a description or a named error."""

from __future__ import annotations

import json
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.inspecting.leaks import identity
from hubtools.checkpoint.inspecting.look import look
from hubtools.checkpoint.inspecting.texts import texts
from hubtools.checkpoint.unpickle import read_pickle
from hubtools.errors import CheckError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS | st.sampled_from(["auto_map", "/home/ann/x", "owner/name", "LORA", "a--b.C"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = [
    "architectures", "model_type", "_name_or_path", "tie_word_embeddings", "text_config",
    "quantization_config", "quant_method", "bits", "config_groups", "auto_map", "peft_type", "r",
    "lora_alpha", "use_rslora", "target_modules", "base_model_name_or_path", "init_lora_weights",
    "bias", "modules_to_save", "chat_template", "global_step", "log_history", "weight_map",
    "metadata", "member", "result", "rank_pattern", "revision",
]  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6)
NAMES = [
    "config.json", "adapter_config.json", "tokenizer_config.json", "trainer_state.json",
    "generation_config.json", "model.safetensors.index.json", ".hubtools/release.json",
    "actor/huggingface/config.json", "actor/lora_adapter/adapter_config.json",
]  # fmt: skip


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(NAMES), OBJECTS | JSON, min_size=1), st.booleans())
def test_any_json(files: dict[str, Any], shards: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if shards:
            files = {**files, "actor/model_world_size_1_rank_0.pt": 0}
        for name, value in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(json.dumps(value))
        json.dumps(look(root).to_json(), allow_nan=False)


@settings(max_examples=100)
@given(
    st.sampled_from(["README.md", "latest", "x.gguf", "model.safetensors", "training_args.bin",
                     "pytorch_model.bin", ".metadata", "adapter_model.bin"]),
    st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"---\n{text}\n---".encode()),
)  # fmt: skip
def test_any_bytes(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text("{}")
        (Path(folder) / name).write_bytes(data)
        look(Path(folder))


@pytest.mark.parametrize(
    "front",
    ["base_model: [[[", "base_model: &a [*a]", "base_model: 2026-13-45", "base_model: {a: b}",
     "base_model:", "- base_model", "a: !!python/x base_model"],
)  # fmt: skip
def test_odd_front_matter_names_no_base(tmp_path: Path, front: str) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front}\n---\n")
    assert look(tmp_path).base == ""


@pytest.mark.parametrize("front", ["base_model: lab/base", "base_model:\n- lab/base\n- lab/two"])
def test_the_base_of_a_card(tmp_path: Path, front: str) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front}\n---\n# Model\n")
    seen = look(tmp_path)
    assert (seen.base, seen.base_source) == ("lab/base", "README.md: base_model")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(-(1 << 60), 1 << 60), inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN, st.integers(0, 5))
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    assert unpickled(pickle.dumps(value, protocol), protocol) == value


def unpickled(data: bytes, protocol: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.bin"
        file.write_bytes(data)
        value = read_pickle(file)
    return plain(value) if protocol < 3 else value


def plain(value: Any) -> Any:
    """Before protocol 3, bytes are a call of codecs.encode: a record of it."""
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if getattr(value, "name", "") == "_codecs.encode":
        return value.args[0].encode(value.args[1])
    if getattr(value, "name", "") in ("__builtin__.bytes", "builtins.bytes"):
        return b""
    return value


@given(st.binary(max_size=300))
def test_any_pickle_is_a_value_or_an_error(data: bytes) -> None:
    followed(data)


def followed(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.bin"
        file.write_bytes(data)
        with suppress(CheckError):
            list(texts(read_pickle(file)))


OPCODES = [b"(", b"]", b"}", b")", b"N", b"0", b"1", b"2", b"a", b"e", b"s", b"u", b"t", b"\x85",
           b"\x86", b"l", b"d", b"\x8f", b"\x90", b"\x91", b"R", b"b", b"o", b"\x81", b"\x92",
           b"\x93", b"q\x00", b"h\x00", b"\x94", b"Va\n", b"cos\nsystem\n", b"ios\nsystem\n",
           b"Q", b"P1\n", b"\x82\x01", b"\x97", b"\x98", b"K\x01", b"G" + bytes(8)]  # fmt: skip


@settings(max_examples=400)
@given(st.lists(st.sampled_from(OPCODES), max_size=30))
def test_any_program_of_opcodes_is_a_value_or_an_error(program: list[bytes]) -> None:
    followed(b"".join(program) + b".")


@given(st.text(), st.sampled_from(["", "/a", "/host", "/run_id"]))
def test_any_text_can_be_searched(text: str, pointer: str) -> None:
    for _, value in identity(text, pointer, "trainbox"):
        assert value
