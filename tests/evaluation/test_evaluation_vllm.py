"""Real vLLM: what it serves is what transformers computes, of the base and of a LoRA on it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from scripted_vllm import wait_for
from tiny_chat import save_tiny_adapter

from eval_harness.chat_template import ChatTemplate
from hubtools.evaluation.serving import serving
from hubtools.evaluation.spec import Engine, Target

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        "ENGINE_PYTHON" not in os.environ,
        reason="vLLM takes gigabytes and a minute: set ENGINE_PYTHON (make vllm-env)",
    ),
]
QUESTIONS = ["What is the capital of France?", "Name an element.", "Why?"]


def by_transformers(model: Path, adapter: Path | None, prompts: list[str]) -> list[str]:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        network = PeftModel.from_pretrained(network, adapter)
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        out = network.generate(**ids, max_new_tokens=12, do_sample=False)
        new = out[0, ids["input_ids"].shape[1] :]
        texts.append(tokenizer.decode(new, skip_special_tokens=True))
    return texts


def by_vllm(target: Target, prompts: list[str], log: Path) -> tuple[list[str], dict[str, Any]]:
    import httpx

    python = Path(os.environ["ENGINE_PYTHON"])
    engine = Engine("vllm", dtype="float32", python=python, max_model_len=256, concurrency=4)
    with serving(target, engine, log=log) as server:
        more = {"max_tokens": 12, "temperature": 0, "add_special_tokens": False}
        body = {"model": server.served_name, "prompt": prompts, **more}
        url = f"{server.url}/completions"
        answer = httpx.post(url, json=body, timeout=120, trust_env=False).json()
        return [choice["text"] for choice in answer["choices"]], dict(server.describe)


def serving_processes(model: Path) -> list[bytes]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(process.read_bytes())
    return [line for line in found if str(model).encode() in line]


def wide(folder: Path, narrow: Path) -> Path:
    """vLLM's attention on CPU wants heads of at least 32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shutil.copytree(narrow, folder)
    config = LlamaConfig.from_pretrained(narrow)
    torch.manual_seed(0)
    config.update({"hidden_size": 64, "head_dim": 32})
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_base_and_lora(tiny_chat: Path, tmp_path: Path) -> None:
    model = wide(tmp_path / "wide", tiny_chat)
    sister = save_tiny_adapter(tmp_path / "sister", model)
    template = ChatTemplate.load(model)
    prompts = [template.render([{"role": "user", "content": text}]) for text in QUESTIONS]
    said = {}
    for name, adapter in (("base", None), ("sister", sister)):
        target = Target(name, model=model, adapter=adapter)
        said[name], described = by_vllm(target, prompts, tmp_path / "log")
        assert said[name] == by_transformers(model, adapter, prompts)
        assert described["served_as"] == ("lora" if adapter else "model")
        assert described["system_fingerprint"].startswith("vllm-")
        assert described["max_model_len"] == 256
    assert said["base"] != said["sister"]
    assert wait_for(lambda: not serving_processes(model), 5)
