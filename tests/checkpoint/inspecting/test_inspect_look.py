"""What a directory is, told from real ones of every kind, and from damaged ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors.numpy import save_file

from hubtools.checkpoint.carry import carried_files, publishable_files
from hubtools.checkpoint.inspecting.basecheck import check_base
from hubtools.checkpoint.inspecting.look import look
from hubtools.checkpoint.kinds import named_step, trainer_kind, trainer_shards
from hubtools.digests import sha256_file
from hubtools.errors import CheckError

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


VERL = [f"actor/model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("names", "kind", "folder"),
    [
        (VERL, "verl-fsdp", "actor"),
        (["model_world_size_1_rank_0.pt"], "verl-fsdp", "."),
        (["critic/model_world_size_1_rank_0.pt", *VERL], "verl-fsdp", "actor"),
        ([".metadata", "__0_0.distcp"], "dcp", "."),
        (["pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp",
          "optimizer_0/.metadata", "optimizer_0/__0_0.distcp"], "dcp", "pytorch_model_fsdp_0"),
        (["global_step9/mp_rank_00_model_states.pt",
          "global_step9/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_to_fp32.py"],
         "deepspeed", "global_step9"),
        (["mp_rank_00_model_states.pt"], "deepspeed", "."),
        (["zero_pp_rank_0_mp_rank_00_model_states.pt"], "deepspeed", "."),
        (["mp_rank_00/model_optim_rng.pt"], "megatron", "mp_rank_00"),
        (["actor/dist_ckpt/common.pt", "actor/dist_ckpt/metadata.json",
          "actor/dist_ckpt/.metadata", "actor/dist_ckpt/__0_0.distcp"],
         "megatron", "actor/dist_ckpt"),
        (["optimizer_0/.metadata", "optimizer_0/__0_0.distcp"], None, ""),
        (["critic/model_world_size_1_rank_0.pt"], None, ""),
        (["global_step_1/actor/model_world_size_1_rank_0.pt",
          "global_step_2/actor/model_world_size_1_rank_0.pt"], None, ""),
        (["model.safetensors"], None, ""),
    ],
)  # fmt: skip
def test_whose_shards(tmp_path: Path, names: list[str], kind: str | None, folder: str) -> None:
    touch(tmp_path, *names)
    assert trainer_kind(tmp_path) == kind
    shards = trainer_shards(tmp_path)
    if shards is not None:
        assert shards.folder == tmp_path / folder
        assert look(tmp_path).kind == kind
    assert trainer_kind(tmp_path / "nowhere") is None


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    names = [f"actor/model_world_size_4_rank_{rank}.pt" for rank in (0, 3)]
    shards = trainer_shards(touch(tmp_path, *names))
    assert shards is not None
    assert (shards.world_size, shards.ranks, shards.missing) == (4, (0, 3), (1, 2))
    seen = look(tmp_path)
    (finding,) = [finding for finding in seen.findings if finding.id == "HT184"]
    assert finding.level == "error"
    assert "ranks 1, 2 of 4" in finding.message
    assert seen.broken


@pytest.mark.parametrize(
    "name",
    [
        "model_world_size_999999999999_rank_0.pt",
        f"model_world_size_{'9' * 200}_rank_0.pt",
        "zero_pp_rank_999999999999_mp_rank_00_optim_states.pt",
    ],
)
def test_a_name_that_claims_endless_ranks_is_only_a_name(tmp_path: Path, name: str) -> None:
    from hubtools.checkpoint.ingesting.ranks import rank_files

    shards = trainer_shards(touch(tmp_path, name))
    assert shards is not None
    assert len(shards.missing) == 100
    assert shards.lacking == shards.world_size - 1
    seen = look(tmp_path)
    assert len(seen.to_json()["trainer"]["missing_ranks"]) == 100
    assert [f.id for f in seen.findings if f.level == "error"] == ["HT184"]
    if name.startswith("model"):
        with pytest.raises(CheckError, match="HT167"):
            rank_files(tmp_path)


@pytest.mark.parametrize("size", [0, 1])
def test_ranks_beyond_the_world_are_refused(tmp_path: Path, size: int) -> None:
    from hubtools.checkpoint.ingesting.ranks import rank_files

    touch(tmp_path, *(f"model_world_size_{size}_rank_{rank}.pt" for rank in (0, 1)))
    with pytest.raises(CheckError, match="HT167"):
        rank_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"world_size": 8}', "says 8 ranks"), ("[", "unreadable"), ('{"world_size": 2}', "")],
)
def test_the_world_size_is_stated_twice(tmp_path: Path, text: str, words: str) -> None:
    touch(tmp_path, *VERL)
    (tmp_path / "actor" / "fsdp_config.json").write_text(text)
    found = [finding.message for finding in look(tmp_path).findings if finding.id == "HT184"]
    assert len(found) == bool(words)
    assert words in "".join(found)


@pytest.mark.parametrize("names", [["__0_0.distcp"], [".metadata"]])
def test_half_a_distributed_checkpoint(tmp_path: Path, names: list[str]) -> None:
    assert ("HT184", "error") in ids(touch(tmp_path, *names))


def test_real_shards_of_torch(tmp_path: Path) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 3, bias=False))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        step = tmp_path / "global_step_20" / "actor"
        step.mkdir(parents=True)
        torch.save(model.state_dict(), step / "model_world_size_1_rank_0.pt")
        optimizer = {"exp_avg": torch.zeros(100)}
        state = {"model": model.state_dict(), "optim": optimizer}
        dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=False)
    finally:
        dist.destroy_process_group()
    for path in (step.parent, step, tmp_path / "dcp"):
        seen = look(path)
        assert (seen.parameters, seen.dtypes) == (27, {"float32": (3, 27)}), path
        assert seen.findings == ()
    assert [step.value for step in look(step).steps] == [20]
    assert look(tmp_path).kind == "run"


def test_the_configuration_of_a_verl_step_lies_beside_it(made: Made, tmp_path: Path) -> None:
    base, adapter = made()
    touch(tmp_path, *VERL)
    beside = Path(shutil.copytree(base, tmp_path / "actor" / "huggingface"))
    (beside / "model.safetensors").unlink()
    seen = look(tmp_path)
    assert (seen.kind, seen.architecture) == ("verl-fsdp", "LlamaForCausalLM")
    assert (seen.tokenizer, seen.chat_template) == (("tokenizer.json",), True)
    assert (seen.foreign, seen.inside) == ((), ())
    lora = Path(shutil.copytree(adapter, tmp_path / "actor" / "lora_adapter"))
    config = json.loads((lora / "adapter_config.json").read_bytes())
    (lora / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 0}))
    assert [(one.name, one.kind) for one in look(tmp_path).inside] == [
        ("actor/lora_adapter", "adapter")
    ]
    assert ("HT183", "warning") in ids(tmp_path)
    assert ("HT183", "warning") in ids(lora)


def test_a_folder_of_checkpoints(made: Made, tmp_path: Path) -> None:
    base, adapter = made()
    for step in (500, 1000, 90):
        shutil.copytree(adapter, tmp_path / f"checkpoint-{step}")
    shutil.copytree(base, tmp_path / "final")
    touch(tmp_path, "global_step_7/actor/model_world_size_1_rank_0.pt", "wandb/run-1/files/x.json")
    seen = look(tmp_path)
    assert (seen.kind, seen.words()) == ("run", "a folder of 5 checkpoints")
    assert [(one.name, one.kind, one.step) for one in seen.inside] == [
        ("global_step_7", "verl-fsdp", 7),
        ("checkpoint-90", "adapter", 90),
        ("checkpoint-500", "adapter", 500),
        ("checkpoint-1000", "adapter", 1000),
        ("final", "full", None),
    ]
    assert [(foreign.what, foreign.files) for foreign in seen.foreign] == [("run logs", 1)]


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


STEPS = {
    "global_step_100": 100, "global_step7": 7, "checkpoint-500": 500, "step_3": 3, "step-3": 3,
    "iter_0000100": 100, "checkpoint": None, "checkpoint-best": None, "v2-checkpoint-5": None,
    "global_step_" + "9" * 40: None,
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_in_a_name(name: str) -> None:
    assert named_step(name) == STEPS[name]


def test_statements_of_the_step_that_disagree(broken: Pair) -> None:
    _, adapter = broken
    run = adapter.rename(adapter.with_name("checkpoint-9"))
    (run / "trainer_state.json").write_text('{"global_step": 8}')
    seen = look(run)
    assert [(step.value, step.claim) for step in seen.steps] == [(8, False), (9, True)]
    (finding,) = [finding for finding in seen.findings if finding.id == "HT178"]
    assert finding.level == "warning"
    assert "8 (trainer_state.json:/global_step)" in finding.message
    (run / "trainer_state.json").write_text('{"global_step": 9}')
    (run / "latest").write_text("global_step9\n")
    assert [step.value for step in look(run).steps] == [9, 9, 9]
    assert "HT178" not in {finding.id for finding in look(run).findings}


def test_code_is_named(broken: Pair) -> None:
    base, _ = broken
    (base / "modeling_tiny.py").write_text("")
    auto = {"AutoModel": "modeling_tiny.Tiny", "AutoConfig": "configuration_tiny.TinyConfig"}
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "auto_map": auto}))
    tokenizer = json.loads((base / "tokenizer_config.json").read_bytes())
    tokenizer["auto_map"] = {"AutoTokenizer": ["lab/other--tok.Slow", None]}
    (base / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    seen = look(base)
    assert seen.code == (
        "configuration_tiny.py (named in config.json, missing)",
        "lab/other--tok.Slow (tokenizer_config.json)",
        "modeling_tiny.py",
    )
    assert ("HT177", "warning") in ids(base)


def test_modules_that_a_module_imports_belong_to_the_model(broken: Pair, tmp_path: Path) -> None:
    base, adapter = broken
    texts = {
        "net.py": "from .helper import f\nfrom . import more\nimport train\nfrom .gone import g\n",
        "helper.py": "    from .deep import x\n# from .train import x\n",
        "deep.py": "from .net import A  # in a circle\n",
        "more.py": "",
        "train.py": "from .net import A\n",
    }
    for name, text in texts.items():
        (base / name).write_text(text)
    alone = look(base)
    assert alone.code == ()
    assert sum(foreign.files for foreign in alone.foreign) == 5
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "net.A"}}))
    seen = look(base)
    modules = ("deep.py", "helper.py", "more.py", "net.py")
    assert seen.code == modules
    assert [(foreign.files, foreign.example) for foreign in seen.foreign] == [(1, "train.py")]
    (base / "deep.py").write_text("/home/ann/secret = 1")
    assert [leak.file for leak in look(base).leaks if leak.published] == ["deep.py"]
    for files in (publishable_files(base, "full"), carried_files(adapter, base)):
        assert {name for name in files if name.endswith(".py")} == set(modules)


@pytest.mark.parametrize("name", ["helper.py", "other.py"])
def test_code_of_a_model_counts_against_its_base(broken: Pair, name: str) -> None:
    base, _ = broken
    (base / "modeling_x.py").write_text("from .helper import f\n")
    (base / "helper.py").write_text("def f(): pass\n")
    config = json.loads((base / "config.json").read_bytes())
    auto = {"auto_map": {"AutoModel": "modeling_x.A"}}
    (base / "config.json").write_text(json.dumps({**config, **auto}))

    class There(NamedTuple):
        size: int
        oid: str
        sha256: str | None

    listing = {
        file.name: There(file.stat().st_size, "", sha256_file(file)) for file in base.iterdir()
    }
    assert check_base(base, "a/b", "0" * 40, listing).verdict == "equal"
    (base / name).write_text("def f(): evil\n")
    check = check_base(base, "a/b", "0" * 40, listing)
    assert (check.verdict, list(check.differing)) == ("weights equal", [name])
    (base / name).unlink()
    check = check_base(base, "a/b", "0" * 40, listing)
    assert check.verdict == ("equal" if name == "other.py" else "weights equal")


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


def sharded(base: Path) -> Path:
    """The model of `base` in three files."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    out = base.with_name("sharded")
    model.save_pretrained(out, max_shard_size="60KB")
    return out


def test_a_missing_shard_is_named_and_the_rest_described(broken: Pair) -> None:
    path = sharded(broken[0])
    whole = look(path)
    assert len(whole.weights) > 2
    gone = list(whole.weights)[1]
    (path / gone).unlink()
    seen = look(path)
    assert (seen.kind, seen.missing, seen.broken) == ("full", (gone,), True)
    assert set(seen.weights) == set(whole.weights) - {gone}
    assert ("HT105", "error") in ids(path)
    assert seen.parameters is not None
    assert whole.parameters is not None
    assert 0 < seen.parameters < whole.parameters


def test_shards_without_their_index(broken: Pair) -> None:
    path = sharded(broken[0])
    (path / "model.safetensors.index.json").unlink()
    seen = look(path)
    assert (seen.kind, seen.broken) == ("full", True)
    assert ("HT105", "error") in ids(path)


@pytest.mark.parametrize("name", ["config.json", "adapter_config.json", "trainer_state.json"])
@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000])
def test_a_damaged_json_file_is_a_finding(broken: Pair, name: str, text: str) -> None:
    path = broken[1] if name == "adapter_config.json" else broken[0]
    (path / name).write_text(text)
    seen = look(path)
    assert seen.broken
    assert ("HT106", "error") in ids(path)
    assert seen.kind == ("adapter" if name == "adapter_config.json" else "full")


def test_damaged_weights_are_findings(broken: Pair) -> None:
    base, adapter = broken
    for file in (base / "model.safetensors", adapter / "adapter_model.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
        assert ("HT104", "error") in ids(file.parent)
        assert [f.id for f in look(file.parent).findings].count("HT104") == 1
    (base / "model.safetensors").rename(base / "x.gguf")
    assert ("HT179", "error") in ids(base)


def test_links_do_not_lead_in_circles(broken: Pair) -> None:
    base, _ = broken
    (base / "again").symlink_to(base, target_is_directory=True)
    (base / "gone.json").symlink_to(base / "nowhere")
    weights = base.parent / "blob"
    (base / "model.safetensors").rename(weights)
    (base / "model.safetensors").symlink_to(weights)
    seen = look(base)
    assert seen.kind == "full"
    assert seen.weights["model.safetensors"] == weights.stat().st_size


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="HT101"):
        look(tmp_path / "missing")
