"""Opening an adapter: where it lies, and a pickle that is read without being obeyed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from our_merge import no_processes
from safetensors.torch import load_file, save_file

from hubtools.checkpoint.adapter import open_adapter, read_adapter_config
from hubtools.errors import CheckError, EnvironmentFailure, HubtoolsError, UsageError

LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
FACTOR = torch.arange(32.0).reshape(4, 8)


class Touches:
    """An object whose unpickling would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return described(tmp_path / "adapter")


def described(path: Path, **fields: Any) -> Path:
    path.mkdir(parents=True)
    (path / "adapter_config.json").write_text(json.dumps({**LORA, **fields}))
    return path


def refused(path: Path, scratch: Path) -> HubtoolsError:
    with pytest.raises(HubtoolsError) as caught:
        open_adapter(path, scratch)
    assert not list(scratch.glob("*.safetensors"))
    return caught.value


def test_the_directory_itself(folder: Path, tmp_path: Path) -> None:
    save_file({"a": FACTOR}, folder / "adapter_model.safetensors")
    adapter = open_adapter(folder, tmp_path / "scratch")
    assert (adapter.path, adapter.named) == (folder, folder)
    assert adapter.weights == folder / "adapter_model.safetensors"
    assert not (tmp_path / "scratch").exists()


def test_the_only_directory_inside(tmp_path: Path) -> None:
    inner = described(tmp_path / "run" / "policy")
    save_file({"a": FACTOR}, inner / "adapter_model.safetensors")
    (tmp_path / "run" / "runs").mkdir()
    adapter = open_adapter(tmp_path / "run", tmp_path / "scratch")
    assert (adapter.path, adapter.named) == (inner, tmp_path / "run")


def test_several_inside_are_for_the_user_to_choose(tmp_path: Path) -> None:
    for name in ("critic", "policy"):
        described(tmp_path / "run" / name)
    error = refused(tmp_path / "run", tmp_path / "scratch")
    assert isinstance(error, UsageError)
    assert error.id == "HT152"
    assert "critic, policy" in error.message
    assert error.next.endswith(str(tmp_path / "run" / "policy"))


def test_neither_adapter_nor_weights(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", tmp_path / "scratch").id == "HT112"
    assert refused(tmp_path / "nowhere", tmp_path / "scratch").id == "HT112"
    assert refused(folder, tmp_path / "scratch").id == "HT101"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_becomes_safetensors_once(folder: Path, tmp_path: Path, zipped: bool) -> None:
    tensors = {"a": FACTOR, "shared": FACTOR, "turned": FACTOR.T, "half": FACTOR.bfloat16()}
    file = folder / "adapter_model.bin"
    torch.save(tensors, file, _use_new_zipfile_serialization=zipped)
    first = open_adapter(folder, tmp_path / "scratch").weights
    assert first.parent == tmp_path / "scratch"
    found = load_file(first)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    stamp = first.stat().st_mtime_ns
    assert open_adapter(folder, tmp_path / "scratch").weights == first
    assert first.stat().st_mtime_ns == stamp
    torch.save({"a": -FACTOR}, file)
    again = open_adapter(folder, tmp_path / "scratch").weights
    assert torch.equal(load_file(again)["a"], -FACTOR)


def test_safetensors_win_over_a_pickle_beside_them(folder: Path, tmp_path: Path) -> None:
    save_file({"a": FACTOR}, folder / "adapter_model.safetensors")
    (folder / "adapter_model.bin").write_bytes(b"not even a pickle")
    adapter = open_adapter(folder, tmp_path / "scratch")
    assert adapter.weights.name == "adapter_model.safetensors"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_does_not(folder: Path, tmp_path: Path, zipped: bool) -> None:
    harm = tmp_path / "harm"
    file = folder / "adapter_model.bin"
    torch.save({"a": Touches(harm)}, file, _use_new_zipfile_serialization=zipped)
    error = refused(folder, tmp_path / "scratch")
    assert isinstance(error, CheckError)
    assert error.id == "HT151"
    assert "would run code" in error.message
    assert any("system" in line for line in error.detail)
    assert not harm.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "no tensors"),
        ([FACTOR], "holds a list"),
        ({"a": 3}, "'a' is a int"),
        ({"a": FACTOR.to_sparse()}, "not a plain tensor"),
        ({"a": torch.zeros(1).expand(10**12)}, "claims 4000000000000 bytes"),
        ({"a": torch.zeros(2, 2, dtype=torch.complex128)}, "'a' is torch.complex128"),
        ({"a": torch.zeros(2, 2, device="meta")}, "'a' is meta (without values)"),
        ({3: FACTOR}, "3 cannot be the name"),
        ({"a\nb": FACTOR}, "'a\\nb' cannot be the name"),
        ({"__metadata__": FACTOR}, "'__metadata__' cannot be the name"),
        (b"", "damaged"),
        (b"PK\x03\x04 a zip cut short", "damaged"),
    ],
    ids=[
        "empty",
        "list",
        "number",
        "sparse",
        "stretched",
        "complex",
        "meta",
        "number as name",
        "unprintable",
        "reserved",
        "nothing",
        "cut",
    ],
)
def test_what_is_no_set_of_tensors(folder: Path, tmp_path: Path, content: Any, words: str) -> None:
    file = folder / "adapter_model.bin"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with no_processes():
        error = refused(folder, tmp_path / "scratch")
    assert error.id == "HT151"
    assert words in error.message
    assert str(file) == error.where


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:.*quantized:UserWarning")
def test_a_quantised_tensor_is_none_that_can_be_merged(folder: Path, tmp_path: Path) -> None:
    quantised = torch.quantize_per_tensor(FACTOR, 0.1, 0, torch.qint8)
    torch.save({"a": quantised}, folder / "adapter_model.bin")
    with no_processes():
        assert refused(folder, tmp_path / "scratch").id == "HT151"


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint16, torch.int64, torch.float64, torch.complex64, torch.float8_e5m2],
)
def test_every_dtype_of_safetensors_is_converted(
    folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    torch.save({"a": FACTOR.to(dtype)}, folder / "adapter_model.bin")
    with no_processes():
        weights = open_adapter(folder, tmp_path / "scratch").weights
    assert load_file(weights)["a"].dtype == dtype


def test_a_log_stays_when_an_error_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that dies without a word sends its user to the log."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    torch.save({"a": FACTOR}, folder / "adapter_model.bin")
    open_adapter(folder, tmp_path / "scratch")
    torch.save([FACTOR], folder / "adapter_model.bin")
    with pytest.raises(CheckError, match="HT151"):
        open_adapter(folder, tmp_path / "scratch")
    assert not list((tmp_path / "temporary").iterdir())
    monkeypatch.setenv("PYTHONHOME", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentFailure, match="HT904") as caught:
        open_adapter(folder, tmp_path / "scratch")
    log = Path(caught.value.where)
    assert str(log) in caught.value.next
    assert log.read_text()


def test_other_types_give_other_meanings_to_rank_and_patterns(tmp_path: Path) -> None:
    patterns = {"rank_pattern": {"q_proj": [True, False]}, "r": None}
    config = read_adapter_config(described(tmp_path / "ada", peft_type="ADALORA", **patterns))
    assert (config.peft_type, config.rank) == ("ADALORA", 0)
    with pytest.raises(CheckError, match="HT110"):
        read_adapter_config(described(tmp_path / "lora", **patterns))
