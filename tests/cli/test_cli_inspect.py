"""`hubtools inspect` as a user meets it: directories, files, repos, a base held to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_support import clean_env
from huggingface_hub import HfApi
from jsonschema import Draft202012Validator
from tiny_models import LINEAR, save_adapter, save_base

from hubtools.localhub.server import LocalHub, running

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "inspect.schema.json"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    folder = tmp_path_factory.mktemp("hub")
    with running(folder / "root", faults=[], log=folder / "log") as hub:
        yield hub


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, hub: LocalHub) -> Path:
    """A base and an adapter, on this machine and on the Hub."""
    root = tmp_path_factory.mktemp("models")
    base = save_base(root / "base", "llama", "bfloat16")
    adapter = save_adapter(root / "checkpoint-8", base, LINEAR["llama"])
    (adapter / "trainer_state.json").write_text('{"global_step": 8}')
    (adapter / "README.md").unlink()
    api = HfApi(endpoint=hub.url, token=hub.token)
    for name, folder in (("ann/base", base), ("ann/lora", adapter)):
        api.create_repo(name)
        api.upload_folder(repo_id=name, folder_path=folder)
    return root


@pytest.fixture
def inspect(models: Path, hub: LocalHub) -> Run:
    def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        here = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token} | env
        return subprocess.run(
            [sys.executable, "-m", "hubtools", "inspect", *map(str, argv)],
            cwd=models,
            env=clean_env(**here),
            capture_output=True,
            text=True,
        )

    return run


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(value)
    return value


def test_a_directory_as_a_table(inspect: Run, models: Path) -> None:
    done = inspect("checkpoint-8")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["what", "checkpoint-8"]
    table = dict(rows)
    assert table["is"] == "adapter: LoRA rank 8, alpha 24"
    assert "claimed, not checked" in table["base"]
    assert ["step", "8 (trainer_state.json:/global_step)"] in rows
    assert table["dtype"].startswith("float32: 28 tensors")
    assert "warning[HT175]" in done.stderr
    assert f"{models}/base" in done.stderr


def test_a_directory_as_json(inspect: Run, models: Path) -> None:
    value = answer(inspect("checkpoint-8", "--json"))
    assert (value["kind"], value["place"]) == ("adapter", "checkpoint-8")
    assert value["adapter"]["rank"] == 8
    assert [step["value"] for step in value["steps"]] == [8, 8]
    assert value["base_check"] is value["remote"] is None
    assert value["leaks"][0]["where"] == "adapter_config.json:/base_model_name_or_path"


def test_quiet_is_the_kind_alone(inspect: Run) -> None:
    done = inspect("base", "-q")
    assert (done.stdout, done.stderr) == ("full\n", "")


@pytest.mark.parametrize("name", ["ann/lora", "ann/lora@main", "hf://ann/lora"])
def test_a_repo(inspect: Run, name: str) -> None:
    value = answer(inspect(name, "--json"))
    here = answer(inspect("checkpoint-8", "--json"))
    assert value["place"] == f"ann/lora@{value['remote']['commit']}"
    same = ("kind", "words", "adapter", "weights", "dtypes", "parameters", "base", "tokenizer")
    assert {key: value[key] for key in same} == {key: here[key] for key in same}
    assert value["remote"]["bytes_read"] < 70_000  # at first, 64 KiB of a weight file are read
    assert all(leak["published"] for leak in value["leaks"])


def test_a_repo_leaves_nothing_behind(inspect: Run, tmp_path: Path) -> None:
    done = inspect("ann/base", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_broken_repo_is_named_by_its_id(inspect: Run, hub: LocalHub, tmp_path: Path) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("ann/broken", exist_ok=True)
    for name, data in (("config.json", b"{}"), ("model.safetensors", b"\x10" + bytes(30))):
        api.upload_file(path_or_fileobj=data, path_in_repo=name, repo_id="ann/broken")
    value = answer(inspect("ann/broken", "--json"), code=3)
    (finding,) = value["findings"]
    assert finding["id"] == "HT104"
    assert finding["where"] == f"{value['place']}/model.safetensors"
    done = inspect("ann/broken")
    assert done.returncode == 3
    assert f"at {value['place']}/model.safetensors" in done.stderr


def test_a_repo_with_large_texts_is_sound_and_says_what_was_not_read(
    inspect: Run, hub: LocalHub, models: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(models / "base", tmp_path / "copy"))
    text = json.dumps({"pad": "x" * (3 << 20), "name_or_path": "/home/ann/tokenizer"})
    (copy / "tokenizer_config.json").write_text(text)
    (copy / "log.md").write_text("x" * (3 << 20))
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("ann/large")
    api.upload_folder(repo_id="ann/large", folder_path=copy)
    value = answer(inspect("ann/large", "--json"))
    assert "tokenizer_config.json:/name_or_path" in [leak["where"] for leak in value["leaks"]]
    assert [f["id"] for f in value["findings"] if "log.md was not read" in f["message"]] == [
        "HT182"
    ]


def test_a_base_that_is_what_it_is_said_to_be(inspect: Run) -> None:
    value = answer(inspect("base", "--base", "ann/base", "--json"))
    check = value["base_check"]
    assert (check["verdict"], check["differing"]) == ("equal", {})
    assert check["hashed"] > value["weights"][0]["size"]
    done = inspect("base", "--base", f"ann/base@{check['commit']}")
    assert f"base\tthis is ann/base@{check['commit']}, byte for byte\n" in done.stdout


def flip(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)


def longer(path: Path) -> None:
    (path / "config.json").write_text((path / "config.json").read_text() + "\n")


def gone(path: Path) -> None:
    (path / "generation_config.json").unlink()


def more(path: Path) -> None:
    (path / "merges.txt").touch()


@pytest.mark.parametrize(
    ("change", "verdict", "differing"),
    [
        (flip, "differs", {"model.safetensors": "other bytes of the same size"}),
        (longer, "weights equal", None),
        (gone, "weights equal", {"generation_config.json": "not here"}),
        (more, "weights equal", {"merges.txt": "not in the repo"}),
    ],
)
def test_a_base_that_is_not(
    inspect: Run, models: Path, tmp_path: Path, change: Any, verdict: str, differing: Any
) -> None:
    copy = Path(shutil.copytree(models / "base", tmp_path / "copy"))
    (copy / "optimizer.pt").write_text("no part of a model")
    assert answer(inspect(copy, "--base", "ann/base", "--json"))["base_check"]["verdict"] == "equal"
    change(copy)
    value = answer(inspect(copy, "--base", "ann/base", "--json"), code=3)
    assert value["base_check"]["verdict"] == verdict
    if differing is not None:
        assert value["base_check"]["differing"] == differing
    done = inspect(copy, "--base", "ann/base")
    assert done.returncode == 3
    assert "error[HT181]" in done.stderr
    assert ("its weights are" in done.stderr) == (verdict == "weights equal")


def test_without_a_hub_a_base_stays_a_claim(inspect: Run) -> None:
    dead = "http://127.0.0.1:9"
    value = answer(inspect("base", "--base", "ann/base", "--json", "--hub", dead))
    assert value["base_check"]["verdict"] == "unchecked"
    assert "HT307" in value["base_check"]["why"]
    offline = answer(inspect("base", "--base", "ann/base", "--json", HF_HUB_OFFLINE="1"))
    assert offline["base_check"]["verdict"] == "unchecked"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("nowhere",), 2, "neither a path here nor owner/name"),
        (("ann/nothing",), 1, "HT308"),
        (("ann/nothing",), 1, "Nor is there a directory or file ann/nothing here."),
        (("ann/base@nowhere",), 1, "HT308"),
        (("ann/base", "--hub", "http://127.0.0.1:9"), 1, "HT307"),
        (("ann/base", "--hub", "http://127.0.0.1:9"), 1, "Nor is there a directory or file"),
        (("ann/base", "--base", "ann/base"), 2, "--base is for a directory"),
        (("checkpoint-8", "--base", "ann/base"), 2, "--base is for the directory of a whole model"),
        (("base", "--base", "ann/nothing"), 1, "HT308"),
        (("ann/base", "--hub", "local"), 2, "no embedded Hub keeps its repos here"),
        (("base", "--base", "base"), 2, "neither a path here nor owner/name"),
    ],
)
def test_refusals(inspect: Run, argv: tuple[str, ...], code: int, words: str) -> None:
    done = inspect(*argv)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    error = json.loads(inspect(*argv, "--json").stdout)
    assert error["schema"] == "hubtools.error/1"


def test_a_damaged_directory_is_described_and_ends_with_three(
    inspect: Run, models: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(models / "base", tmp_path / "copy"))
    flip(copy)
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:-1])
    (copy / "config.json").write_text("[1]")
    value = answer(inspect(copy, "--json"), code=3)
    assert {finding["id"] for finding in value["findings"]} == {"HT104", "HT106"}
    done = inspect(copy)
    assert done.stdout.startswith("what\t")
    assert done.stderr.count("error[") == 1
    assert "HT104" in done.stderr or "not a whole safetensors file" in done.stderr


def test_many_leaks_are_cut_short_for_people(inspect: Run, models: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(models / "base", tmp_path / "copy"))
    (copy / "README.md").write_text("".join(f"/home/ann/runs/{i}\n" for i in range(100)))
    assert len(answer(inspect(copy, "--json"))["leaks"]) == 100
    done = inspect(copy)
    assert done.stderr.count("warning[HT175]") == 40
    assert "and 60 more" in done.stderr


def test_no_framework_is_loaded_for_a_directory(models: Path) -> None:
    code = (
        "import sys, json\n"
        "from hubtools.cli.main import main\n"
        "try: main(['inspect', 'checkpoint-8', '-q'])\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=models, capture_output=True, text=True, env=clean_env()
    )
    modules = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not modules & {"torch", "transformers", "peft", "numpy", "huggingface_hub", "rich"}


def test_a_table_on_a_terminal(on_terminal: Any, models: Path) -> None:
    code = f"from hubtools.cli.main import main; main(['inspect', {str(models / 'base')!r}])"
    screen = on_terminal(code)
    assert screen.code == 0
    assert "whole model (a base or a fine-tune)" in screen.text


def test_a_secret_in_a_repo_is_an_error_and_other_files_are_not_called_unpublished(
    inspect: Run, hub: LocalHub, models: Path
) -> None:
    token = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("ann/told", exist_ok=True)
    api.upload_folder(repo_id="ann/told", folder_path=models / "base")
    api.upload_file(
        path_or_fileobj=f"HF_TOKEN={token}".encode(), path_in_repo=".env", repo_id="ann/told"
    )
    done = inspect("ann/told")
    assert done.returncode == 3
    assert "error[HT175]" in done.stderr
    assert "in .env, on the Hub" in done.stderr
    assert token not in done.stdout + done.stderr
    assert "no part of it" in done.stdout
    assert "not published" not in done.stdout + done.stderr


def test_a_place_without_a_checkpoint_says_so(inspect: Run, tmp_path: Path) -> None:
    done = inspect(tmp_path)
    assert done.returncode == 3
    assert "error[HT101]: there is no checkpoint here" in done.stderr
