from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tiny_chat import save_tiny_chat

from eval_harness.backends.transformers import TransformersBackend
from eval_harness.chat import Reply, Request
from eval_harness.errors import HarnessError
from eval_harness.suite import load_suite

SUITE = load_suite("short_qa")
CHATS = [SUITE.messages(item) for item in SUITE.items[:4]]


def ask(backend: TransformersBackend, chats: list = CHATS, **more: object) -> list[Reply]:
    how = {"max_tokens": 6, **more}
    requests = [Request(chat, **how) for chat in chats]  # type: ignore[arg-type]
    return asyncio.run(backend.ask_all(requests))


def load(model: Path, adapter: Path | None = None, batch_size: int = 4) -> TransformersBackend:
    return TransformersBackend(model, adapter, "float32", "cpu", batch_size)


def test_answers_are_those_of_generate_one_by_one(tiny_chat: Path) -> None:
    """Batched and padded on the left, against transformers itself without batch or padding."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    replies = ask(load(tiny_chat))
    model = AutoModelForCausalLM.from_pretrained(tiny_chat, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny_chat)
    for chat, reply in zip(CHATS, replies, strict=True):
        prompt = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        made = model.generate(**prompt, max_new_tokens=6, do_sample=False)
        new = made[0, prompt.input_ids.shape[1] :]
        assert reply.text == tokenizer.decode(new, skip_special_tokens=True)
        assert (reply.prompt_tokens, reply.completion_tokens) == (
            prompt.input_ids.shape[1],
            len(new),
        )
        assert reply.finish == ("stop" if new[-1] == tokenizer.eos_token_id else "length")


def test_the_checkpoints_own_sampling_defaults_do_not_count(
    tiny_chat: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    other = tmp_path / "opinionated"
    shutil.copytree(tiny_chat, other)
    wishes = {"do_sample": True, "temperature": 9.0, "repetition_penalty": 5.0, "max_length": 3}
    path = other / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **wishes}))
    assert ask(load(other)) == ask(load(tiny_chat))
    assert ask(load(other, tiny_adapter)) == ask(load(tiny_chat, tiny_adapter))


def test_sampling_follows_the_seed(tiny_chat: Path) -> None:
    backend = load(tiny_chat)
    first = ask(backend, temperature=1.0, seed=1)
    assert first == ask(backend, temperature=1.0, seed=1)
    assert first != ask(backend, temperature=1.0, seed=2)


def test_an_adapter_changes_the_answers_and_is_named(tiny_chat: Path, tiny_adapter: Path) -> None:
    plain, tuned = load(tiny_chat), load(tiny_chat, tiny_adapter)
    assert [reply.text for reply in ask(plain)] != [reply.text for reply in ask(tuned)]
    assert plain.describe()["versions"].keys() == {"torch", "transformers"}
    assert tuned.describe()["versions"].keys() == {"torch", "transformers", "peft"}


def test_a_prompt_that_does_not_fit_is_a_failure_of_that_prompt(tmp_path: Path) -> None:
    small = load(save_tiny_chat(tmp_path / "small", positions=64))
    replies = ask(small, [CHATS[0], [{"role": "user", "content": "Hi"}]])
    assert replies[0].text is None
    assert "does not fit the model" in replies[0].failure
    assert replies[1].text is not None
    assert replies[1].failure == ""


def test_weights_that_are_not_finite_end_the_run(tiny_chat: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "nan"
    shutil.copytree(tiny_chat, broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"].fill_(float("nan"))
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HarnessError, match="not finite") as caught:
        ask(load(broken))
    assert caught.value.kind == "bad_model"


def test_pickled_weights_and_empty_folders_are_refused(tiny_chat: Path, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    shutil.copytree(tiny_chat, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (pickled, empty):
        with pytest.raises(HarnessError) as caught:
            load(folder)
        assert (caught.value.kind, caught.value.where) == ("bad_model", str(folder))


def test_a_model_without_chat_template_gets_the_bare_prompt(
    tiny_chat: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(tiny_chat, bare)
    (bare / "chat_template.jinja").unlink()
    [with_template], [without] = ask(load(tiny_chat), CHATS[:1]), ask(load(bare), CHATS[:1])
    assert without.prompt_tokens is not None
    assert with_template.prompt_tokens is not None
    assert without.prompt_tokens < with_template.prompt_tokens


@pytest.mark.parametrize("old", ["self_attn", "layers.1.self_attn.q_proj"])
def test_an_adapter_whose_weights_find_no_place_is_refused(
    tiny_chat: Path, tiny_adapter: Path, tmp_path: Path, old: str
) -> None:
    from safetensors.torch import load_file, save_file

    lost = tmp_path / "lost"
    shutil.copytree(tiny_adapter, lost)
    tensors = load_file(lost / "adapter_model.safetensors")
    moved = {name.replace(old, "elsewhere"): tensor for name, tensor in tensors.items()}
    assert moved.keys() != tensors.keys()
    save_file(moved, lost / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HarnessError, match="does not belong to this base") as caught:
        load(tiny_chat, lost)
    assert (caught.value.kind, caught.value.where) == ("bad_model", str(lost))


def test_code_in_a_checkpoint_is_not_run(tiny_chat: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(tiny_chat, odd)
    config = json.loads((odd / "config.json").read_text())
    config |= {
        "model_type": "odd",
        "auto_map": {"AutoConfig": "odd.C", "AutoModelForCausalLM": "odd.M"},
    }
    (odd / "config.json").write_text(json.dumps(config))
    (odd / "odd.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(HarnessError) as caught:
        load(odd)
    assert caught.value.kind == "bad_model"
    assert not (tmp_path / "ran").exists()
