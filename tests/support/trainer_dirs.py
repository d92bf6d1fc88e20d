"""Step directories as trainers leave them, made by really running torch.distributed (gloo).

`python trainer_dirs.py JOB ROOT RANK WORLD` is one rank; `train` starts them all. Every rank makes
all directories of a job in turn, because starting interpreters is what costs time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORLD = {"full": 4, "lora": 2}
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 107,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MOE = {**SIZES, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
DEEP = {
    **{name: SIZES[name] for name in SIZES if name not in ("head_dim", "num_key_value_heads")},
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**SIZES, "tie_word_embeddings": False}),
    "tied": ("qwen2", {**SIZES, "tie_word_embeddings": True}),
    "moe": ("qwen3_moe", {**MOE, "tie_word_embeddings": False}),
    "buffers": ("deepseek_v3", {**DEEP, "tie_word_embeddings": False}),
}


def model_of(name: str, seed: int = 0) -> Any:
    """The float32 model that was trained; the same in every process."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, fields = MODELS[name]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():  # vectors too, so that a lost row shows
        torch.nn.init.normal_(parameter, std=0.05)
    for buffer in model.state_dict().values():
        if not buffer.any():  # a buffer that is stored: not zero, so that a lost one shows
            torch.nn.init.normal_(buffer)
    return model


def save_side_files(path: Path, name: str) -> None:
    """What verl writes to `huggingface/`: configuration and tokenizer, no weights."""
    import torch
    from tiny_models import save_tokenizer

    model = model_of(name)
    model.config.architectures = [type(model).__name__]
    model.config.dtype = torch.bfloat16  # what the model was made for; the masters are float32
    model.config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    save_tokenizer(path)


def save_reference(path: Path, name: str, dtype: str) -> None:
    """What transformers itself writes for the trained model: the right answer."""
    import torch

    model_of(name).to(getattr(torch, dtype)).save_pretrained(path)


def verl_step(root: Path, name: str, wrap: Callable[[Any], Any]) -> None:
    """One `global_step_7/actor` with this rank's file, as verl's checkpoint manager saves it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import ShardedStateDictConfig, StateDictType

    actor = root / "global_step_7" / "actor"
    rank, world = dist.get_rank(), dist.get_world_size()
    model = wrap(model_of(name))
    if isinstance(model, FSDP):
        kind, config = StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=True)
        with FSDP.state_dict_type(model, kind, config):
            state = model.state_dict()
    else:
        state = model.state_dict()
    actor.mkdir(parents=True, exist_ok=True)
    torch.save(state, actor / f"model_world_size_{world}_rank_{rank}.pt")
    torch.save({"step": 7}, actor / f"optim_world_size_{world}_rank_{rank}.pt")
    if rank == 0:
        version = 1 if isinstance(model, FSDP) else 2
        text = json.dumps({"FSDP_version": version, "world_size": world})
        (actor / "fsdp_config.json").write_text(text)
        save_side_files(actor / "huggingface", name)


def dcp_step(root: Path, name: str, wrap: Callable[[Any], Any], wrapper: str) -> None:
    """A torch.distributed.checkpoint directory with the model under `wrapper`, and an optimizer."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = wrap(model_of(name))
    optimizer = torch.optim.AdamW(model.parameters())
    weights, momenta = get_state_dict(model, optimizer)
    state = {wrapper: weights} if wrapper else weights
    if wrapper == "app":
        state = {"app": {"model": weights, "optim": momenta}, "scheduler": {"last_epoch": 7}}
    dcp.save(state, checkpoint_id=root)


def lora_step(root: Path) -> None:
    """verl's step of a LoRA run: shards of the PEFT model, and `lora_adapter/` with alpha 0."""
    import torch
    import torch.distributed as dist
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from safetensors.torch import save_file
    from torch.distributed.fsdp import fully_shard

    actor = root / "global_step_7" / "actor"
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "down_proj"])
    model = get_peft_model(model_of("llama"), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    adapter = get_peft_model_state_dict(model)
    saved = {name: tensor.detach().clone() for name, tensor in adapter.items()}
    state = fully_shard(model).state_dict()
    actor.mkdir(parents=True, exist_ok=True)
    torch.save(state, actor / f"model_world_size_{world}_rank_{rank}.pt")
    if rank == 0:
        (actor / "fsdp_config.json").write_text(json.dumps({"world_size": world}))
        save_side_files(actor / "huggingface", "llama")
        config.save_pretrained(actor / "lora_adapter")
        file = actor / "lora_adapter" / "adapter_config.json"
        fields = json.loads(file.read_text())
        # What verl leaves there (verl-project/verl#4553).
        file.write_text(json.dumps({**fields, "lora_alpha": 0, "task_type": "CAUSAL_LM"}))
        save_file(saved, actor / "lora_adapter" / "adapter_model.safetensors")


def wrappers() -> dict[str, Callable[[Any], Any]]:
    """The ways a model is spread over the ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import ShardingStrategy, fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    world = dist.get_world_size()
    flat = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    hybrid = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("ddp", "fsdp"))
    one = {"device_id": torch.device("cpu"), "use_orig_params": True}

    def fsdp1(model: Any) -> Any:
        return FSDP(model, device_mesh=flat, **one)

    def hsdp1(model: Any) -> Any:
        strategy = ShardingStrategy.HYBRID_SHARD
        return FSDP(model, device_mesh=hybrid, sharding_strategy=strategy, **one)

    def two(mesh: Any) -> Callable[[Any], Any]:
        def wrap(model: Any) -> Any:
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)
            return fully_shard(model, mesh=mesh)

        return wrap

    def columns(model: Any) -> Any:
        def place(parameter: Any) -> Any:
            even = parameter.ndim == 2 and parameter.shape[1] % world == 0
            return Shard(1) if even else Shard(0)

        return fully_shard(model, mesh=flat, shard_placement_fn=place)

    def two_ways(model: Any) -> Any:
        grid = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("fsdp", "tp"))
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                ways = [Shard(0), Shard(1) if parameter.ndim > 1 else Replicate()]
                spread = distribute_tensor(parameter.data, grid, ways)
                setattr(module, name, torch.nn.Parameter(spread))
        return model

    def legacy(model: Any) -> Any:
        return FSDP(model, process_group=dist.group.WORLD, **one)

    ways = {"fsdp1": fsdp1, "hsdp1": hsdp1, "fsdp2": two(flat), "hsdp2": two(hybrid)}
    return {**ways, "columns": columns, "fsdp × tp": two_ways, "old": legacy}


def rank_main(job: str, root: Path, rank: int, world: int) -> None:
    """Everything one rank does."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{root}/meet", rank=rank, world_size=world)
    full_steps(root) if job == "full" else lora_step(root / "lora")
    dist.barrier()
    dist.destroy_process_group()


def full_steps(root: Path) -> None:
    """Full fine-tunes, spread and saved in every way that is read, and one that is not."""
    ways = wrappers()
    verl_step(root / "fsdp1", "llama", ways["fsdp1"])
    verl_step(root / "fsdp2-moe", "moe", ways["fsdp2"])
    verl_step(root / "hsdp1", "llama", ways["hsdp1"])
    verl_step(root / "hsdp2-tied", "tied", ways["hsdp2"])
    verl_step(root / "columns", "llama", ways["columns"])
    verl_step(root / "buffers", "buffers", ways["fsdp2"])
    verl_step(root / "two-ways", "llama", ways["fsdp × tp"])
    verl_step(root / "legacy", "llama", ways["old"])
    dcp_step(root / "dcp" / "pytorch_model_fsdp_0", "llama", ways["fsdp2"], "model")
    dcp_step(root / "dcp-app", "tied", ways["fsdp2"], "app")
    dcp_step(root / "dcp-moe", "moe", ways["hsdp2"], "")


def train(root: Path, job: str = "full") -> Path:
    """Run all ranks; the directories are under `root` afterwards."""
    root.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    argv = [sys.executable, "-W", "ignore", __file__, job, str(root)]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank), str(WORLD[job])],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(WORLD[job])
    ]
    stories = [rank.communicate()[0].decode() for rank in ranks]
    failed = [story for rank, story in zip(ranks, stories, strict=True) if rank.returncode]
    assert not failed, failed[0][-4000:]
    return root


if __name__ == "__main__":
    rank_main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
