"""What is damaged, missing or only half there becomes a finding; the rest is described."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubtools.checkpoint.inspecting.look import look
from hubtools.errors import CheckError

Pair = tuple[Path, Path]


def ids(path: Path) -> set[tuple[str, str]]:
    return {(finding.id, finding.level) for finding in look(path).findings}


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
    gone, kept = list(whole.weights)[1:3]
    assert look(path / kept).weights == whole.weights
    assert look(path / kept).findings == ()
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
