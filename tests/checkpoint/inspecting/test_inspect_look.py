"""What a directory is, told from real ones of every kind, and from damaged ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from hubtools.checkpoint.inspecting.look import look

Pair = tuple[Path, Path]
Made = Callable[..., Pair]


def ids(path: Path) -> set[tuple[str, str]]:
    return {(finding.id, finding.level) for finding in look(path).findings}


def test_a_model(made: Made) -> None:
    base, _ = made("qwen3", "float16")
    seen = look(base)
    assert (seen.kind, seen.evidence) == ("full", "config.json and model.safetensors")
    assert (seen.architecture, seen.model_type) == ("Qwen3ForCausalLM", "qwen3")
    assert list(seen.dtypes) == ["float16"]
    assert seen.weights == {"model.safetensors": (base / "model.safetensors").stat().st_size}
    assert (seen.tokenizer, seen.chat_template, seen.generation_config) == (
        ("tokenizer.json",),
        True,
        True,
    )
    assert (seen.foreign, seen.code, seen.findings, seen.leaks) == ((), (), (), ())


def test_tied_matrices_count_once(tmp_path: Path) -> None:
    import numpy as np

    matrix, norm = np.ones((7, 3), np.float32), np.ones(3, np.float32)
    tensors = {"model.embed_tokens.weight": matrix, "model.norm.weight": norm}
    save_file({**tensors, "lm_head.weight": matrix}, tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_text('{"tie_word_embeddings": true}')
    assert look(tmp_path).parameters == 24
    config.write_text('{"text_config": {"tie_word_embeddings": true}}')
    assert look(tmp_path).parameters == 24
    config.write_text("{}")
    assert look(tmp_path).parameters == 45


def test_an_adapter_and_its_kind(broken: Pair) -> None:
    _, adapter = broken
    seen = look(adapter)
    assert (seen.kind, seen.words()) == ("adapter", "adapter: LoRA rank 8, alpha 24")
    assert seen.base_source == "adapter_config.json:/base_model_name_or_path"
    assert (
        seen.base
        == json.loads((adapter / "adapter_config.json").read_bytes())["base_model_name_or_path"]
    )
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    config |= {"use_dora": True, "use_rslora": True, "modules_to_save": ["lm_head"]}
    config |= {"init_lora_weights": "pissa", "bias": "all"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert look(adapter).words() == (
        "adapter: LoRA rank 8, alpha 24, started as pissa, rsLoRA, DoRA, modules_to_save, bias all"
    )
    (adapter / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    assert look(adapter).words() == "adapter: IA3"


def test_an_adapter_in_a_pickle_is_described(broken: Pair) -> None:
    import torch
    from safetensors.torch import load_file

    _, adapter = broken
    weights = adapter / "adapter_model.safetensors"
    parameters = look(adapter).parameters
    torch.save(load_file(weights), adapter / "adapter_model.bin")
    weights.unlink()
    seen = look(adapter)
    assert (seen.kind, seen.parameters, list(seen.weights)) == (
        "adapter",
        parameters,
        ["adapter_model.bin"],
    )
    (adapter / "adapter_model.bin").unlink()
    assert ids(adapter) >= {("HT101", "error")}


def test_a_merge_is_known_by_its_record(made: Made, tmp_path: Path) -> None:
    from hubtools.checkpoint.merging.merge import merge

    base, adapter = made("qwen2")
    out = tmp_path / "out"
    merge(adapter, base, out, log=tmp_path / "log")
    assert look(out).kind == "merged"
    assert ".out.merge/job.json" in look(out).evidence
    other = tmp_path / "other"
    out.rename(other)
    assert look(other).kind == "full"
    record = {"member": {"kind": "merged"}}
    (other / ".hubtools").mkdir()
    (other / ".hubtools" / "release.json").write_text(json.dumps(record))
    assert look(other).kind == "merged"
    (other / ".hubtools" / "release.json").write_text("[" * 10_000)
    assert look(other).kind == "full"


def test_a_record_of_other_weights_proves_nothing(broken: Pair) -> None:
    base, _ = broken
    job = base.parent / f".{base.name}.merge" / "job.json"
    job.parent.mkdir()
    job.write_text(json.dumps({"result": {"files": {"model.safetensors": {"size": 1}}}}))
    assert look(base).kind == "full"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq 4-bit"),
        ({"quant_method": "awq", "bits": 4}, "awq 4-bit"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes 4-bit"),
        ({"load_in_8bit": True}, "bitsandbytes 8-bit"),
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8 8-bit"),
        ({"quant_method": "mxfp4"}, "mxfp4 4-bit"),
        (
            {"quant_method": "compressed-tensors",
             "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
            "compressed-tensors 8-bit",
        ),
        ({"quant_method": "hqq", "bits": "4"}, "hqq"),
    ],
)  # fmt: skip
def test_a_declared_quantisation(broken: Pair, declared: Any, words: str) -> None:
    base, _ = broken
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "quantization_config": declared}))
    seen = look(base)
    assert (seen.kind, seen.words()) == ("quantised", f"quantised model: {words}")
    assert seen.evidence == "config.json:/quantization_config"


@pytest.mark.parametrize(
    ("tensors", "words", "parameters"),
    [
        ({"q.weight": ((32, 1), "uint8"), "q.weight.absmax": ((1,), "float32"),
          "q.weight.quant_map": ((16,), "float32")}, "bitsandbytes 4-bit", 64),
        ({"q.weight": ((8, 8), "int8"), "q.SCB": ((8,), "float32")}, "bitsandbytes 8-bit", 64),
        ({"q.qweight": ((1, 8), "int32"), "q.qzeros": ((1, 1), "int32"),
          "q.scales": ((1, 8), "float16"), "q.g_idx": ((8,), "int32")}, "gptq or awq 4-bit", 64),
        ({"e.gate_up_proj_blocks": ((2, 4, 1, 4), "uint8"),
          "e.gate_up_proj_scales": ((2, 4, 1), "uint8")}, "mxfp4 4-bit", 64),
    ],
)  # fmt: skip
def test_a_quantisation_that_only_tensors_show(
    tmp_path: Path, tensors: Any, words: str, parameters: int
) -> None:
    import numpy as np

    arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in tensors.items()}
    norm = {"norm.weight": np.zeros(5, np.float16)}
    save_file({**arrays, **norm}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    seen = look(tmp_path)
    assert seen.words() == f"quantised model: {words}"
    assert seen.parameters == parameters + 5


def touch(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return root


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["config.json", "pytorch_model.bin"], "pickle"),
        (["consolidated.00.pth", "params.json"], "consolidated"),
        (["pytorch_model.bin"], "consolidated"),
        (["README.md"], "unknown"),
        ([], "unknown"),
    ],
)
def test_what_is_only_named(tmp_path: Path, names: list[str], kind: str) -> None:
    assert look(touch(tmp_path, *names)).kind == kind


def test_weights_without_a_configuration(made: Made, tmp_path: Path) -> None:
    base, _ = made()
    shutil.copy(base / "model.safetensors", tmp_path / "consolidated.safetensors")
    seen = look(tmp_path)
    assert (seen.kind, seen.evidence) == ("consolidated", "consolidated.safetensors")
    assert seen.parameters == look(base).parameters
    one = look(tmp_path / "consolidated.safetensors")
    assert (one.kind, one.parameters, one.files) == ("consolidated", seen.parameters, 1)


def test_foreign_files_by_sort(broken: Pair) -> None:
    _, adapter = broken
    before = look(adapter).foreign
    touch(
        adapter, "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json",
        "training_args.bin", ".git/HEAD", "wandb/run-1/config.yaml", "runs/a/events.out.tfevents.1",
        "__pycache__/a.pyc", "notes.txt", ".hubtools/release.json", "README.md", ".gitattributes",
    )  # fmt: skip
    assert before == ()
    assert {foreign.what: foreign.files for foreign in look(adapter).foreign} == {
        "cache": 1, "optimizer state": 1, "other": 1, "random state": 1, "run logs": 2,
        "scheduler state": 1, "trainer state": 2, "version control": 1,
    }  # fmt: skip


def test_one_file_is_read_with_the_configuration_beside_it(broken: Pair) -> None:
    base, adapter = broken
    seen = look(base / "model.safetensors")
    assert (seen.kind, seen.architecture, seen.files) == ("full", "LlamaForCausalLM", 2)
    assert (seen.parameters, seen.foreign) == (look(base).parameters, ())
    assert list(seen.weights) == ["model.safetensors"]
    assert look(adapter / "adapter_model.safetensors").words() == look(adapter).words()
    (base / "config.json").write_text("[")
    assert [f.id for f in look(base / "model.safetensors").findings] == ["HT106"]
    (base / "config.json").unlink()
    alone = look(base / "model.safetensors")
    assert (alone.kind, alone.architecture, alone.findings) == ("consolidated", "", ())
