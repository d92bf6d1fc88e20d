"""Tiny models of four architectures, LoRA adapters for them, and a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LINEAR = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "qwen2": ["q_proj", "v_proj", "down_proj"],
    "qwen3": ["q_proj", "k_proj", "o_proj", "up_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def config_of(kind: str, tied: bool = False, sizes: dict[str, int] | None = None) -> Any:
    """A configuration of two layers; sizes differ so that a transposed matrix shows."""
    from transformers import AutoConfig

    fields: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 107,  # odd on purpose: 107 = 2·53 + 1
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 131,
        "max_position_embeddings": 128,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if kind != "gpt_neox":
        fields |= {"num_key_value_heads": 2, "head_dim": 16}
    return AutoConfig.for_model(kind, **{**fields, **(sizes or {})})


def save_tokenizer(path: Path, template: str | None = TEMPLATE) -> None:
    """A byte-level tokenizer without merges: every text is tokens 3 to 130 or unknown."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:127]
    vocabulary = {token: id for id, token in enumerate(["<unk>", "<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(path)


def save_base(
    path: Path,
    kind: str,
    dtype: str,
    *,
    tied: bool = False,
    sizes: dict[str, int] | None = None,
    **save: Any,
) -> Path:
    """A randomly initialised model, with tokenizer and licence."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(
        config_of(kind, tied, sizes), dtype=getattr(torch, dtype)
    )
    model.save_pretrained(path, **save)
    save_tokenizer(path)
    (path / "LICENSE").write_text("licence of the base\n")
    (path / "NOTICE.txt").write_text("notice of the base\n")
    return path


def save_adapter(path: Path, base: Path, targets: list[str], **options: Any) -> Path:
    """A LoRA adapter with non-zero factors, saved by PEFT."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(11)
    options = {"r": 8, "lora_alpha": 24, "task_type": "CAUSAL_LM", **options}
    model = AutoModelForCausalLM.from_pretrained(base)
    peft = get_peft_model(model, LoraConfig(target_modules=targets, **options))
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.05)
    peft.save_pretrained(path, save_embedding_layers=False)
    return path
