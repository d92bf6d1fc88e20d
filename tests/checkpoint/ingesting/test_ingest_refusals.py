"""What is not the whole of one trained model is refused with the reason; nothing is written."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ingest_dcp import Bomb
from trainer_dirs import model_of, save_side_files

from hubtools.checkpoint.ingesting.dcp import Dcp
from hubtools.checkpoint.ingesting.ingest import ingest, plan_ingest
from hubtools.checkpoint.ingesting.ranks import rank_files, read_ranks
from hubtools.errors import CheckError, UsageError

Copy = Callable[[str], Path]


def refused(id: str, run: Callable[[], Any], *words: str) -> CheckError:
    """The error has this id, says these words, and names a next step."""
    with pytest.raises(CheckError) as caught:
        run()
    error = caught.value
    text = "\n".join([error.message, *error.detail, error.next])
    assert error.id == id, error
    assert all(word in text for word in words), text
    assert error.next
    return error


def actor(run: Path) -> Path:
    return run / "global_step_7" / "actor"


def rank_file(run: Path, rank: int) -> Path:
    return actor(run) / f"model_world_size_4_rank_{rank}.pt"


def test_a_missing_rank(copied: Copy) -> None:
    run = copied("fsdp1")
    rank_file(run, 2).unlink()
    refused("HT167", lambda: plan_ingest(run), "1 of 4 ranks", "2")
    for rank in (0, 1, 3):
        rank_file(run, rank).unlink()
    refused("HT167", lambda: plan_ingest(actor(run)), "4 of 4 ranks")


def test_worlds_mixed(copied: Copy, trained: Path) -> None:
    run = copied("fsdp1")
    shutil.copy(rank_file(run, 0), actor(run) / "model_world_size_2_rank_0.pt")
    refused("HT167", lambda: plan_ingest(run), "2 and 4 ranks")
    (actor(run) / "model_world_size_2_rank_0.pt").unlink()
    text = json.dumps({"world_size": 8})
    (actor(run) / "fsdp_config.json").write_text(text)
    refused("HT167", lambda: plan_ingest(run), "4 and 8 ranks")


def test_an_older_verl_wrote_no_config(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    (actor(run) / "fsdp_config.json").unlink()
    assert here(run, dtype="bfloat16", check=True)["report"]["world_size"] == 4


def test_a_file_of_another_mesh(copied: Copy, trained: Path, here: Any) -> None:
    run = copied("fsdp1")
    shutil.copy(rank_file(trained / "hsdp1", 1), rank_file(run, 1))
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "disagree")


def test_a_replica_of_another_step(copied: Copy, here: Any) -> None:
    run = copied("hsdp1")
    file = rank_file(run, 2)  # a copy of rank 0's shards
    other = torch.load(file, weights_only=True)
    other["model.norm.weight"]._local_tensor.add_(1)
    torch.save(other, file)
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "replicated", "norm")


def test_schedules_that_have_come_differently_far(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    for rank, step in ((0, 7), (1, 7), (2, 9), (3, 7)):
        extra = actor(run) / f"extra_state_world_size_4_rank_{rank}.pt"
        torch.save({"lr_scheduler": {"last_epoch": step}, "rng": torch.get_rng_state()}, extra)
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "steps 7 and 9")


def test_a_truncated_rank_file(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    for size in (0, 100, 50_000, rank_file(run, 3).stat().st_size - 1):
        os.truncate(rank_file(run, 3), size)
        refused("HT168", lambda: here(run, dtype="bfloat16", check=True), "rank_3.pt")


def test_a_hostile_rank_file_runs_nothing(copied: Copy, here: Any, tmp_path: Path) -> None:
    run = copied("fsdp1")
    torch.save({"model.norm.weight": Bomb(tmp_path / "gone off")}, rank_file(run, 1))
    error = refused("HT168", lambda: here(run, dtype="bfloat16", check=True), "would run code")
    assert "mkdir" in error.message
    assert not (tmp_path / "gone off").exists()


def test_legacy_sharded_tensors(trained: Path, here: Any) -> None:
    run = trained / "legacy"
    refused("HT169", lambda: here(run, dtype="bfloat16", check=True), "ShardedTensor", "FSDP2")


def test_two_sharded_dimensions(trained: Path, here: Any) -> None:
    run = trained / "two-ways"
    refused("HT169", lambda: here(run, dtype="bfloat16", check=True), "['S0', 'S1']", "hf_model")


@pytest.mark.parametrize("zero", [True, False])
def test_deepspeed_names_the_command_that_converts(tmp_path: Path, zero: bool) -> None:
    step = tmp_path / "checkpoint-40" / "global_step40"
    step.mkdir(parents=True)
    for rank in range(2):
        (step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(b"")
    (step / "mp_rank_00_model_states.pt").write_bytes(b"")
    if zero:
        (tmp_path / "checkpoint-40" / "zero_to_fp32.py").write_text("")
    error = refused("HT169", lambda: plan_ingest(tmp_path / "checkpoint-40"), "DeepSpeed")
    assert "zero_to_fp32" in error.next
    assert error.next.endswith("/consolidated -o OUT")


def test_several_steps_are_listed(trained: Path, tmp_path: Path, here: Any) -> None:
    for step in (5, 10, 100):
        shutil.copytree(trained / "fsdp1" / "global_step_7", tmp_path / f"global_step_{step}")
    error = refused("HT166", lambda: plan_ingest(tmp_path), "global_step_5, global_step_10")
    assert f"{tmp_path / 'global_step_100'} -o OUT" in error.next
    assert plan_ingest(tmp_path / "global_step_10").step == 10


def test_nothing_here(tmp_path: Path) -> None:
    refused("HT165", lambda: plan_ingest(tmp_path), "no weights here")
    refused("HT165", lambda: plan_ingest(tmp_path / "absent"), "not a directory")
    (tmp_path / "adapter_config.json").write_text("{}")
    refused("HT165", lambda: plan_ingest(tmp_path), "adapter already", "hubtools merge")


def test_the_dtype_is_asked_for(trained: Path, here: Any, reference: Any, copied: Copy) -> None:
    run = trained / "fsdp1"
    error = refused("HT170", lambda: here(run, check=True), "--dtype float32", "each value rounded")
    assert error.next.startswith(f"hubtools ingest {run} -o OUT --dtype bfloat16")
    # A trainer that wrote its masters' dtype down does not decide for the base's.
    run = copied("fsdp1")
    file = actor(run) / "huggingface" / "config.json"
    file.write_text(file.read_text().replace("bfloat16", "float32"))
    assert here(run, check=True)["report"]["dtypes_out"].keys() == {"F32"}
    base = reference("llama")
    refused("HT170", lambda: here(run, base=base, check=True), "the base declares bfloat16")
    with pytest.raises(UsageError, match="HT413"):
        plan_ingest(run, dtype="int8")


def test_the_config_of_another_model(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    file = actor(run) / "huggingface" / "config.json"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "num_hidden_layers": 3, "vocab_size": 140}))
    refused(
        "HT171",
        lambda: here(run, dtype="bfloat16", check=True),
        "missing: model.layers.2.",
        "more",
    )
    file.write_text(json.dumps({**fields, "vocab_size": 140}))
    refused(
        "HT171",
        lambda: here(run, dtype="bfloat16", check=True),
        "lm_head.weight is 131×64, expected 140×64",
    )
    file.write_text(json.dumps({**fields, "num_hidden_layers": 1}))
    refused("HT171", lambda: here(run, dtype="bfloat16", check=True), "unexpected: model.layers.1")
    file.write_text(json.dumps({**fields, "model_type": "no_such_model"}))
    refused("HT173", lambda: here(run, dtype="bfloat16", check=True), "no_such_model")


def whole(tmp_path: Path, name: str, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A directory with one pickle of all weights, edited."""
    run = tmp_path / "run"
    save_side_files(run, name)
    state = {key: value.clone() for key, value in model_of(name).state_dict().items()}
    edit(state)
    torch.save(state, run / "pytorch_model.bin")
    return run


def test_two_names_that_become_one(tmp_path: Path, here: Any) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["_orig_mod.model.norm.weight"] = state["model.norm.weight"]

    run = whole(tmp_path, "llama", edit)
    refused("HT171", lambda: here(run, dtype="bfloat16", check=True), "both become model.norm")


def test_tied_tensors_that_differ(tmp_path: Path, here: Any) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["lm_head.weight"][3, 4] += 1

    run = whole(tmp_path, "tied", edit)
    refused("HT174", lambda: here(run, dtype="bfloat16", check=True), "tied")


@pytest.mark.parametrize(
    ("dtype", "value", "word"),
    [
        ("bfloat16", float("nan"), "NaN"),
        ("float32", float("inf"), "infinity"),
        ("float16", 70_000.0, "too large"),
    ],
)
def test_values_that_cannot_be_written(
    tmp_path: Path, here: Any, dtype: str, value: float, word: str
) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["model.layers.1.mlp.up_proj.weight"][7, 7] = value

    run = whole(tmp_path, "llama", edit)
    refused("HT117", lambda: here(run, dtype=dtype), "layers.1.mlp.up_proj", word)


def test_one_pickle_is_read_without_running_it(tmp_path: Path, here: Any, reference: Any) -> None:
    from same_tensors import same

    run = whole(tmp_path, "tied", lambda state: None)
    assert here(run, dtype="bfloat16")["report"]["source"] == "pickle"
    assert same(tmp_path / "out", reference("tied"))


def test_the_output_is_something_else(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError, match="HT120"):
        ingest(trained / "fsdp1", out, dtype="bfloat16", log=tmp_path / "log")
    assert list(out.iterdir()) == []


def scribbled(data: bytes, chance: random.Random, ends: int) -> bytes:
    """The bytes with a few others in them, mostly where a file describes itself; or cut short."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 10])):
        place = chance.choice([chance.randrange(ends), -1 - chance.randrange(ends)])
        changed[place] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.1 else changed)


@pytest.mark.parametrize("seed", range(3))
def test_scribbles_in_a_rank_file_are_an_error_or_harmless(copied: Copy, seed: int) -> None:
    run = copied("fsdp1")
    good, chance = rank_file(run, 1).read_bytes(), random.Random(seed)
    caught = 0
    for _ in range(25):
        rank_file(run, 1).write_bytes(scribbled(good, chance, 9000))
        try:
            read_ranks(rank_files(actor(run)))
        except CheckError as error:
            caught += error.id in ("HT167", "HT168")
    assert caught > 5


@pytest.mark.parametrize("seed", range(3))
def test_scribbles_in_a_metadata_file_are_an_error_or_harmless(copied: Copy, seed: int) -> None:
    run = copied("dcp-app")
    good, chance = (run / ".metadata").read_bytes(), random.Random(seed)
    caught = 0
    for _ in range(25):
        (run / ".metadata").write_bytes(scribbled(good, chance, len(good)))
        try:
            found = Dcp(run)
            for name in found.shapes:
                found.tensor(name)
        except CheckError as error:
            caught += error.id == "HT168"
    assert caught > 5


def pickled(folder: Path, change: Callable[[str, Any], Any], **config: Any) -> Path:
    """A directory with a pickle of the model whose tensors `change` has changed."""
    save_side_files(folder, "llama")
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    state = {name: change(name, tensor) for name, tensor in model_of("llama").state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin")
    return folder


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.float8_e4m3fn])
def test_numbers_of_another_kind(tmp_path: Path, here: Any, kind: Any) -> None:
    run = pickled(tmp_path / "run", lambda name, t: t.to(kind) if "q_proj" in name else t)
    for dtype in (None, "float32"):
        refused("HT171", lambda dtype=dtype: here(run, dtype=dtype, check=True), "q_proj", "2 ")


def test_four_bits_are_refused_by_name(tmp_path: Path, here: Any) -> None:
    run = tmp_path / "run"
    model_of("llama").save_pretrained(run)
    file = run / "model.safetensors"
    length = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + length])
    entry = header["lm_head.weight"]
    entry["dtype"], entry["shape"] = "F4", [entry["shape"][0], entry["shape"][1] * 8]
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + file.read_bytes()[8 + length :])
    refused("HT171", lambda: here(run, check=True), "lm_head.weight is F4")


def test_a_dtype_that_is_offered_is_taken(tmp_path: Path, here: Any) -> None:
    run = pickled(tmp_path / "run", lambda _, tensor: tensor, dtype="float64")
    refused("HT170", lambda: here(run, check=True), "--dtype float64")
    assert here(run, dtype="float64", check=True)["report"]["dtypes_out"].keys() == {"F64"}


def test_auto_is_no_dtype(tmp_path: Path, here: Any) -> None:
    run = pickled(tmp_path / "run", lambda _, tensor: tensor, dtype="auto")
    here(run)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"


def flipped(file: Path) -> None:
    """One bit of the largest tensor is another one."""
    with zipfile.ZipFile(file) as archive:
        record = max(
            (r for r in archive.infolist() if "/data/" in r.filename), key=lambda r: r.file_size
        )
    data = bytearray(file.read_bytes())
    at = record.header_offset + 26
    name, extra = (int.from_bytes(data[i : i + 2], "little") for i in (at, at + 2))
    data[at + 4 + name + extra + record.file_size // 2 // 4 * 4 + 1] ^= 0x10
    file.write_bytes(data)


@pytest.mark.parametrize("run", ["fsdp1", "columns"])
def test_bits_that_rotted(copied: Copy, tmp_path: Path, here: Any, run: str) -> None:
    step = copied(run)
    flipped(rank_file(step, 1))
    refused("HT168", lambda: here(step, dtype="float32"), "CRC-32")
    assert not (tmp_path / "out/model.safetensors").exists()


def test_a_file_saved_without_checksums(tmp_path: Path, here: Any) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        run = pickled(tmp_path / "run", lambda _, tensor: tensor)
    finally:
        torch.serialization.set_crc32_options(True)
    here(run, dtype="float32")


def test_a_step_that_was_interrupted_is_named(copied: Copy) -> None:
    run = copied("fsdp1")
    later = Path(shutil.copytree(run / "global_step_7", run / "global_step_14"))
    (later / "actor/model_world_size_4_rank_3.pt").unlink()
    error = refused("HT166", lambda: plan_ingest(run), "global_step_7", "global_step_14 (not whole")
    assert error.next.endswith("global_step_7 -o OUT")
    shutil.rmtree(later / "actor")
    refused("HT166", lambda: plan_ingest(run), "global_step_14 (not whole: no weights)")
    later.rename(run / "global_step_2")  # an old step, whose weights the trainer deleted
    assert plan_ingest(run).step == 7


def test_an_output_that_is_there_leaves_nothing(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    link = tmp_path / "home/link"
    link.symlink_to("nowhere")
    for place in (link, tmp_path / "home", tmp_path / "home/.."):
        with pytest.raises(UsageError, match="HT120"):
            ingest(trained / "fsdp1", place, dtype="float32", log=tmp_path / "log")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "home", link]
