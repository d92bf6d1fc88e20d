"""transformers and peft, as a user's script has them."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SHARD = "150KB"
TEXT = "one two three two one"


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = {"<unk>": 0, "<eos>": 1, "one": 2, "two": 3, "three": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")


def make_model(seed: str) -> LlamaForCausalLM:
    torch.manual_seed(int.from_bytes(seed.encode()[-4:]))
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def logits(model: Any, ids: list[int]) -> str:
    with torch.no_grad():
        out = model(torch.tensor([ids])).logits
    return sha256(out.numpy().tobytes()).hexdigest()


def push(repo: str, adapter: str, folder: str) -> dict[str, Any]:
    """Push a sharded model, its tokenizer and an adapter; save the same in `folder`."""
    model, tokenizer = make_model(repo), make_tokenizer()
    ids = tokenizer(TEXT)["input_ids"]
    plain = logits(model, ids)
    for part in (model, tokenizer):
        extra = {"max_shard_size": SHARD} if part is model else {}
        part.push_to_hub(repo, **extra)
        part.save_pretrained(Path(folder) / "model", **extra)
    model.name_or_path = repo
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    tuned = get_peft_model(model, config).eval()
    tuned.push_to_hub(adapter)
    tuned.save_pretrained(str(Path(folder) / "adapter"))
    return {"ids": ids, "plain": plain, "tuned": logits(tuned, ids)}


def load(repo: str, adapter: str) -> dict[str, Any]:
    """Load everything back, by name alone."""
    ids = AutoTokenizer.from_pretrained(repo)(TEXT)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(repo).eval()
    plain = logits(model, ids)
    tuned = logits(PeftModel.from_pretrained(model, adapter).eval(), ids)
    by_adapter = logits(AutoModelForCausalLM.from_pretrained(adapter).eval(), ids)
    layers = AutoConfig.from_pretrained(repo).num_hidden_layers
    return {
        "ids": ids,
        "plain": plain,
        "tuned": tuned,
        "by_adapter": by_adapter,
        "layers": layers,
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
