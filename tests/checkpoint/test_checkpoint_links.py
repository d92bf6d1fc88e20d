"""Links beside the weights: those of a cache are followed, none brings in a stranger's file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from our_merge import no_processes
from tiny_models import save_adapter, save_base

from hubtools.checkpoint.carry import carried_files, publishable_files
from hubtools.checkpoint.ingesting.ingest import plan_ingest
from hubtools.checkpoint.merging.merge import merge
from hubtools.errors import CheckError

SECRET = '{"secret": "of the machine"}'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "elsewhere" / "id.json"
    file.parent.mkdir()
    file.write_text(SECRET)
    return file


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    base = tmp_path / "base"
    save_base(base, "llama", "float32")
    return base, save_adapter(tmp_path / "adapter", base, ["q_proj"])


@pytest.mark.parametrize(
    ("side", "name"),
    [
        ("base", "tokenizer.json"), ("adapter", "tokenizer.json"), ("base", "LICENSE"),
        ("base", "chat_template.jinja"), ("adapter", "chat_template.jinja"),
    ],
)  # fmt: skip
def test_a_link_out_of_the_directory_is_refused_by_name(
    pair: tuple[Path, Path], secret: Path, tmp_path: Path, side: str, name: str
) -> None:
    base, adapter = pair
    file = tmp_path / side / name
    file.unlink(missing_ok=True)
    file.symlink_to(secret)
    with no_processes(), pytest.raises(CheckError) as caught:
        merge([adapter], base, tmp_path / "out", log=tmp_path / "log")
    assert (caught.value.id, caught.value.where) == ("HT156", str(file))
    assert str(secret) in caught.value.next
    assert not (tmp_path / "out").exists()
    kind = "adapter" if side == "adapter" else "full"
    with pytest.raises(CheckError, match="HT156"):
        publishable_files(tmp_path / side, kind)


def test_a_linked_folder_of_templates_is_one_as_well(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    outside = tmp_path / "private"
    outside.mkdir()
    (outside / "tool.jinja").write_text(SECRET)
    (pair[1] / "additional_chat_templates").symlink_to(outside)
    with pytest.raises(CheckError, match="HT156"):
        carried_files(pair[1], pair[0])


def test_a_link_that_leads_nowhere_is_not_passed_over(pair: tuple[Path, Path]) -> None:
    (pair[1] / "tokenizer_config.json").unlink(missing_ok=True)
    (pair[1] / "tokenizer_config.json").symlink_to("gone.json")
    with pytest.raises(CheckError, match="HT156") as caught:
        carried_files(pair[1], pair[0])
    assert "nowhere" in caught.value.detail[0]


def test_an_adapters_own_configuration_may_not_be_one(
    pair: tuple[Path, Path], secret: Path
) -> None:
    (pair[1] / "adapter_config.json").unlink()
    (pair[1] / "adapter_config.json").symlink_to(secret)
    with pytest.raises(CheckError, match="HT156"):
        publishable_files(pair[1], "adapter")


def test_links_within_the_directory_and_weights_elsewhere_are_followed(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    base, _ = pair
    (base / "files").mkdir()
    (base / "config.json").rename(base / "files" / "c.json")
    (base / "config.json").symlink_to("files/c.json")
    shutil.move(base / "model.safetensors", tmp_path / "weights")
    (base / "model.safetensors").symlink_to(tmp_path / "weights")
    (tmp_path / "named").symlink_to(base)
    assert {"config.json", "model.safetensors"} <= publishable_files(base, "full").keys()
    assert (
        publishable_files(tmp_path / "named", "full").keys()
        == publishable_files(base, "full").keys()
    )


@pytest.mark.parametrize("blobs", ["its own", "a link"])
def test_a_snapshot_of_the_cache_links_to_its_own_blobs_only(
    pair: tuple[Path, Path], tmp_path: Path, blobs: str
) -> None:
    repo = tmp_path / "models--owner--name"
    snapshot = repo / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    place = repo / "blobs"
    if blobs == "a link":
        place.symlink_to(tmp_path / "private", target_is_directory=True)
        (tmp_path / "private").mkdir()
    else:
        place.mkdir()
    for file in pair[0].iterdir():
        shutil.copy(file, place / file.name)
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    if blobs == "its own":
        assert (
            publishable_files(snapshot, "full").keys() == publishable_files(pair[0], "full").keys()
        )
        return
    with pytest.raises(CheckError, match="HT156"):
        publishable_files(snapshot, "full")


def test_a_run_that_is_taken_in_is_held_to_the_same(
    pair: tuple[Path, Path], secret: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run" / "global_step_1"
    shutil.copytree(pair[0], run)
    assert plan_ingest(run).files
    for name in ("tokenizer.json", "generation_config.json"):
        (run / name).unlink(missing_ok=True)
        os.symlink(secret, run / name)
        with pytest.raises(CheckError, match="HT156"):
            plan_ingest(run)
        (run / name).unlink()
