"""Plans over bases of other kinds: encoders with heads, embeddings by other names, odd sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from our_merge import no_processes
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.errors import CheckError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 70,
    "vocab_size": 131,
}


def saved(path: Path, model: Any) -> Path:
    model.save_pretrained(path)
    return path


def adapter(path: Path, model: Any, **options: Any) -> Path:
    get_peft_model(model, LoraConfig(r=2, lora_alpha=4, **options)).save_pretrained(path)
    return path


def classifier(path: Path, base: Path, labels: int) -> Path:
    model = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=labels, ignore_mismatched_sizes=True
    )
    return adapter(path, model, task_type="SEQ_CLS", target_modules=["query"])


def plan(base: Path, adapter: Path, dtype: str | None = None) -> MergePlan:
    with no_processes():
        options = MergeOptions(dtype=dtype)
        return plan_merge([open_adapter(adapter, base.parent)], base, options)


def add(base: Path, **tensors: torch.Tensor) -> None:
    file = base / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_labels_are_counted_at_the_last_layer(tmp_path: Path, labels: int) -> None:
    base = saved(tmp_path / "base", RobertaForMaskedLM(RobertaConfig(**SMALL, pad_token_id=1)))
    add(base, **{"a.counter": torch.arange(3)})  # the first tensor has no dtype of weights
    found = plan(base, classifier(tmp_path / "adapter", base, labels))
    assert found.config_edits["architectures"] == ["RobertaForSequenceClassification"]
    assert len(found.config_edits.get("id2label", "ab")) == labels
    heads = [o for o in found.layout.outputs() if o.name.startswith("classifier.")]
    assert {o.dtype for o in heads} == {"F32"}
    assert len(heads) == 4


def test_layers_that_nobody_holds(tmp_path: Path) -> None:
    base = saved(tmp_path / "base", BertForMaskedLM(BertConfig(**SMALL)))
    with pytest.raises(CheckError, match="HT145") as caught:
        plan(base, classifier(tmp_path / "adapter", base, 2))
    assert "bert.pooler.dense" in caught.value.detail[0]


def test_a_head_with_other_labels(tmp_path: Path) -> None:
    config = BertConfig(**SMALL, num_labels=5)
    base = saved(tmp_path / "base", BertForSequenceClassification(config))
    found = plan(base, classifier(tmp_path / "adapter", base, 3))
    (head,) = [o for o in found.layout.outputs() if o.name == "classifier.weight"]
    assert head.shape == (3, 48)
    assert len(found.config_edits["id2label"]) == 3
    assert "vocab_size" not in found.config_edits


@pytest.mark.parametrize(
    "options",
    [{"target_modules": ["embeddings"]}, {"modules_to_save": ["embeddings"]}],
    ids=["factors", "whole"],
)
def test_a_tied_embedding_of_another_name(tmp_path: Path, options: dict[str, Any]) -> None:
    config = MambaConfig(
        hidden_size=32, num_hidden_layers=1, vocab_size=131, state_size=4, time_step_rank=3
    )
    base = saved(tmp_path / "base", MambaForCausalLM(config))
    model = AutoModelForCausalLM.from_pretrained(base)
    found = plan(
        base, adapter(tmp_path / "adapter", model, **{"target_modules": ["in_proj"], **options})
    )
    assert "lm_head.weight" in found.to_json()["added"]
    assert found.config_edits["tie_word_embeddings"] is False


def test_sizes_the_other_way_round_are_another_base(tmp_path: Path) -> None:
    def llama(hidden: int, inner: int) -> Any:
        sizes = {**SMALL, "hidden_size": hidden, "intermediate_size": inner}
        return LlamaForCausalLM(LlamaConfig(**sizes))

    base = saved(tmp_path / "base", llama(64, 96))
    trained = adapter(tmp_path / "adapter", llama(96, 64), target_modules=["up_proj", "down_proj"])
    with pytest.raises(CheckError, match="HT113"):
        plan(base, trained)


def test_float64_is_not_cut_in_silence(tmp_path: Path) -> None:
    model = LlamaForCausalLM(LlamaConfig(**SMALL))
    base = saved(tmp_path / "base", model.double())
    trained = adapter(tmp_path / "adapter", model, target_modules=["up_proj"])
    with pytest.raises(CheckError, match="HT115") as caught:
        plan(base, trained)
    assert "--engine peft" in caught.value.next
    assert caught.value.next.endswith("--dtype float32")
    assert plan(base, trained, "float32").to_json()["dtypes"] == {"F32": 21}
    assert json.loads((base / "config.json").read_bytes())["dtype"] == "float64"
