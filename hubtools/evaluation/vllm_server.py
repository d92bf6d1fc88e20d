"""How a checkpoint is served by vLLM: the command line, and what the record says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.backends.transformers import tokenizer_folder
from hubtools.errors import UsageError
from hubtools.evaluation.kv_cache import bytes_per_token
from hubtools.evaluation.spec import Engine, Target

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_OURS = ("--model", "--served-model-name", "--host", "--port", "--dtype", "--api-key")
_GIB = 1 << 30
SEQUENCES = {"cpu": 8, "cuda": 256}
"""Samples that the engine computes together when nobody says how many."""


def command(python: Path, target: Target, engine: Engine, name: str, port: int) -> list[str]:
    """The command that serves `target` on the loopback address.

    With an adapter the base is served as `NAME-base` and the adapter, as LoRA, as `name`.
    The request alone decides how is sampled: a checkpoint's generation_config.json does not.

    Raises:
        UsageError: HT001 an option of the engine that is ours to set.
    """
    for option in engine.options:
        if option.split("=")[0] in _OURS:
            raise UsageError(
                "HT001",
                f"{option.split('=')[0]} is set by hubtools and cannot be an engine option",
                next="leave it away; see hubtools evaluate --help for its own options",
            )
    model, adapter = target.model, target.adapter
    assert model is not None
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    argv += ["--served-model-name", name if adapter is None else f"{name}-base"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--dtype", engine.dtype]
    argv += ["--generation-config", "vllm", "--max-num-seqs", str(sequences(engine))]
    if engine.max_model_len is not None:
        argv += ["--max-model-len", str(engine.max_model_len)]
    if engine.device.startswith("cpu"):
        argv.append("--enforce-eager")
    if adapter is not None:
        argv += ["--enable-lora", "--max-lora-rank", str(_slot(lora_rank(adapter)))]
        argv += ["--lora-modules", json.dumps({"name": name, "path": str(adapter)})]
        source = tokenizer_folder(model, adapter)
        argv += [] if source == model else ["--tokenizer", str(source)]
    return [*argv, *engine.options]


def sequences(engine: Engine) -> int:
    """Samples that the engine may compute together."""
    return engine.concurrency or SEQUENCES["cpu" if engine.device.startswith("cpu") else "cuda"]


def environment(target: Target, engine: Engine) -> dict[str, str]:
    """Variables for the server: no network, no reports home, room for the keys and values."""
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    device, _, number = engine.device.partition(":")
    if device == "cuda" and number:
        env["CUDA_VISIBLE_DEVICES"] = number
    if device == "cpu":
        env["VLLM_CPU_KVCACHE_SPACE"] = str(_kv_gib(target, engine))
    return env


def lora_rank(adapter: Path) -> int:
    """The largest rank in adapter_config.json; 0 when it does not say."""
    try:
        fields = json.loads((adapter / "adapter_config.json").read_bytes())
        ranks = [fields.get("r") or 0, *(fields.get("rank_pattern") or {}).values()]
        return max(map(int, ranks))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0  # the server says what is wrong with it


def _slot(rank: int) -> int:
    return next((size for size in _RANKS if size >= rank), _RANKS[-1])


def _kv_gib(target: Target, engine: Engine) -> int:
    """Whole GiB for every sequence at full length, 1 to 16."""
    assert target.model is not None
    try:
        config = json.loads((target.model / "config.json").read_bytes())
        length = engine.max_model_len or int(config.get("max_position_embeddings") or 4096)
    except (OSError, ValueError, TypeError, AttributeError):
        return 1  # the server says what is wrong with it
    need = bytes_per_token(config, engine.dtype) * length * sequences(engine)
    return min(max(math.ceil(need / _GIB), 1), 16)


def described(
    target: Target, engine: Engine, versions: Mapping[str, str], told: Mapping[str, Any]
) -> dict[str, Any]:
    """The record's `engine`: what decides the answers, without paths.

    Args:
        target: as served.
        engine: as started.
        versions: of `engine_environment.check_environment`.
        told: what the server said: `max_model_len`, `system_fingerprint`.
    """
    lora = {} if target.adapter is None else {"lora_rank": lora_rank(target.adapter)}
    return {
        "engine": "vllm",
        "versions": dict(versions),
        "dtype": engine.dtype,
        "device": engine.device,
        "served_as": "model" if target.adapter is None else "lora",
        **lora,
        "max_num_seqs": sequences(engine),
        "eager": engine.device.startswith("cpu") or "--enforce-eager" in engine.options,
        "options": list(engine.options),
        **told,
    }
