"""A random chat model of a few thousand parameters with a real tokenizer, made in a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eval_harness.suite import load_suite

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tiny_chat(folder: Path, *, seed: int = 0, positions: int = 1024) -> Path:
    """A Llama with 2 layers of width 32, byte-level BPE and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((item.context for item in load_suite("short_qa").items), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_tiny_adapter(folder: Path, base: Path, *, seed: int = 0) -> Path:
    """A LoRA on the attention of `base` that changes what it says."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "o_proj"])
    tuned = get_peft_model(model, config)
    torch.manual_seed(seed)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    tuned.save_pretrained(folder)
    return folder


def write_suite(
    folder: Path,
    n: int,
    *,
    extractor: str = "short_answer/1",
    scorers: Sequence[str] = ("em/1", "f1_squad/1"),
    **changes: object,
) -> Path:
    """A small suite of its own: n questions of the form "What is word <i>?"."""
    import hashlib

    folder.mkdir(parents=True, exist_ok=True)
    items = [
        {
            "id": f"w-{i:02d}",
            "category": "words",
            "question": f"What is word {i}?",
            "context": f"Word {i} is w{i}." if i % 2 else "",
            "answers": [f"w{i}"],
        }
        for i in range(n)
    ]
    raw = "".join(json.dumps(item) + "\n" for item in items).encode()
    (folder / "items.jsonl").write_bytes(raw)
    suite = {
        "schema": 2,
        "id": folder.name,
        "version": "1",
        "title": "Words",
        "description": "Words by number.",
        "items": "items.jsonl",
        "items_sha256": hashlib.sha256(raw).hexdigest(),
        **changes,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in suite.items()]
    lines += ["[prompt]", 'with_context = "{context} {question}"', 'without_context = "{question}"']
    lines += ["[sampling]", "max_new_tokens = 8", "temperature = 0.0"]
    for scorer in scorers:
        name = scorer.partition("/")[0].removesuffix("_squad")
        lines += ["[[metrics]]", f'name = "{name}"', f'scorer = "{scorer}"']
        lines += [f'extractor = "{extractor}"']
    (folder / "suite.toml").write_text("\n".join(lines) + "\n")
    return folder
