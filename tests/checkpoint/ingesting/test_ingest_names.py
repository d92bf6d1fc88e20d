"""In-memory names of this transformers become the on-disk names people have, for every layout."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import load_base
from same_tensors import same, stored
from zoo import EXPERTS, KINDS, Zoo

from hubtools.checkpoint.ingesting.expected import from_transformers
from hubtools.checkpoint.shards import read_weights
from hubtools.errors import CheckError


def step_of(base: Path, state: dict[str, Any], run: Path) -> Path:
    """A directory with these weights as one pickle, and the base's configuration."""
    run.mkdir()
    shutil.copy(base / "config.json", run)
    torch.save(state, run / "pytorch_model.bin")
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_in_memory_names_go_back_to_the_disk(
    zoo: Zoo, here: Any, tmp_path: Path, kind: str
) -> None:
    base = zoo.base(kind)
    state = load_base(base).state_dict()
    run = step_of(base, {f"module.{k}": v for k, v in state.items()}, tmp_path / "run")
    # Only the base can say whether people have `vision_tower.vision_model.` or `vision_tower.`.
    here(run, base=base if kind == "gemma3" else None)
    assert same(tmp_path / "out", base)


@pytest.mark.parametrize("kind", KINDS)
def test_on_disk_names_stay(zoo: Zoo, here: Any, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import load_file

    base = zoo.base(kind)
    state = load_file(base / "model.safetensors")
    here(step_of(base, state, tmp_path / "run"))
    assert same(tmp_path / "out", base)


@pytest.mark.parametrize("kind", KINDS)
def test_the_meta_model_knows_each_tensor_on_the_disk(zoo: Zoo, kind: str) -> None:
    base = zoo.base(kind)
    layouts = from_transformers(base)
    shapes = {name: entry.shape for name, (_, entry) in read_weights(base).tensors().items()}
    fitting = [one for one in layouts if {n: view.shape for n, view in one.disk.items()} == shapes]
    assert fitting
    assert (fitting[0] is layouts[0]) == (kind != "gemma3")
    if kind in EXPERTS:
        assert any(view.start for view in fitting[0].disk.values())


def test_more_families_keep_every_element() -> None:
    """Each on-disk tensor is a view; together they are the whole model. No weights are made."""
    import transformers

    families = {
        "deepseek_v3": {"n_routed_experts": 8, "first_k_dense_replace": 1},
        "glm4_moe": {"n_routed_experts": 8},
        "gpt_oss": {},
        "phimoe": {},
        "olmoe": {},
        "phi3": {},
        "gpt_neox": {},
        "qwen3_next": {"num_hidden_layers": 4},
        "jamba": {"num_hidden_layers": 4},
    }
    for kind, fields in families.items():
        config = transformers.AutoConfig.for_model(kind, **{"num_hidden_layers": 2, **fields})
        kinds = transformers.AutoModelForCausalLM._model_mapping
        config.architectures = [kinds[type(config)].__name__]
        expected = described(config)
        assert len(expected.disk) >= len({view.source for view in expected.disk.values()}) > 10
        assert all(name.isascii() for name in expected.disk)


def described(config: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return from_transformers(Path(folder))[0]


def test_code_of_its_own_is_not_run(zoo: Zoo, tmp_path: Path) -> None:
    base = Path(shutil.copytree(zoo.base("llama"), tmp_path / "base"))
    text = (base / "config.json").read_text()
    code = '{"AutoConfig": "configuration_own.Own", "AutoModel": "modeling_own.M"}'
    text = text.replace('"model_type": "llama"', f'"model_type": "own", "auto_map": {code}')
    (base / "config.json").write_text(text)
    flag = tmp_path / "was run"
    for name in ("configuration_own", "modeling_own"):
        (base / f"{name}.py").write_text(f"open({str(flag)!r}, 'w')\n")
    with pytest.raises(CheckError, match="HT173"):
        from_transformers(base)
    assert not flag.exists()


def test_a_copy_that_changes_values_is_not_taken_for_a_view(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import core_model_loading

    revert = core_model_loading.revert_weight_conversion

    def scaled(model: Any, state: Any) -> Any:
        found = revert(model, state)
        return {name: tensor * 2 if "norm" in name else tensor for name, tensor in found.items()}

    monkeypatch.setattr(core_model_loading, "revert_weight_conversion", scaled)
    with pytest.raises(CheckError, match=r"HT173") as caught:
        from_transformers(zoo.base("llama"))
    assert any("no plain part" in line for line in caught.value.detail)


def test_a_shared_tensor_is_stored_once(zoo: Zoo, here: Any, tmp_path: Path) -> None:
    base = zoo.base("gemma3")
    state = load_base(base).state_dict()
    report = here(step_of(base, state, tmp_path / "run"))["report"]
    assert report["dropped"] == ["lm_head.weight"]
    assert not any("lm_head" in name for name in stored(tmp_path / "out"))
