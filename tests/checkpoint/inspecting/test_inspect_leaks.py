"""What tells where an author works is found, with its place; what only looks like it is not."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint.inspecting.disclosed import (
    TEXT_LIMIT,
    is_text,
    leak_finding,
    metadata_leaks,
    published_leaks,
    text_leaks,
)
from hubtools.checkpoint.inspecting.leaks import identity
from hubtools.checkpoint.inspecting.look import look
from hubtools.provenance.secrets import scan_text

TOKEN = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("trained in /home/ann/runs/r2e, see", "home path", "/home/ann/runs/r2e"),
        ("(/Users/ann.b/models)", "home path", "/Users/ann.b/models"),
        ("C:\\Users\\Ann\\models", "home path", "C:\\Users\\Ann\\models"),
        ("at `/root/ckpt`", "home path", "/root/ckpt"),
        ("/home/ann", "home path", "/home/ann"),
        ("base_model: /mnt/nas/qwen3", "local path", "/mnt/nas/qwen3"),
        ("from /scratch-ssd/ann/x", "local path", "/scratch-ssd/ann/x"),
        ("data at s3://lab-bucket/sets/a.jsonl", "local path", "s3://lab-bucket/sets/a.jsonl"),
        ("runs/Nov30_22-01-11_gpu-node7", "host name", "gpu-node7"),
        ("events.out.tfevents.1700000000.node12.811.0", "host name", "node12"),
        ("http://vllm-3.cluster.local:8000/v1", "host name", "vllm-3.cluster.local"),
        ("served by ip-10-1-2-3", "host name", "ip-10-1-2-3"),
        ("http://192.168.1.20:8000", "host name", "192.168.1.20"),
        ("[run](https://wandb.ai/lab/rl/runs/ab12cd34)", "run id", "wandb.ai/lab/rl/runs/ab12cd34"),
        ("wandb/run-20260101_101112-ab12cd34/files", "run id", "run-20260101_101112-ab12cd34"),
        ("mail ann@lab.example.org or", "e-mail address", "ann@lab.example.org"),
    ],
)
def test_each_kind_in_prose(text: str, kind: str, value: str) -> None:
    assert list(identity(text)) == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "https://huggingface.co/home/ann/x",
        "see docs/home/ann",
        "/home/user/models and /home/your_name/x, /Users/username/y",
        "POST /v1/chat/completions",
        "input/output ratio, and/or",
        "{{ message.content }} </think>",
        "git@github.com:lab/repo.git",
        "ann@example.com, x@users.noreply.github.com",
        "@torch.no_grad() and a@b",
        "version 10.1.2 of torch 2.13.0",
        "threading.local and self.internal",
        "Qwen/Qwen3-4B-Thinking-2507",
        "https://wandb.ai/site",
    ],
)
def test_ordinary_prose_gives_nothing_away(text: str) -> None:
    assert list(identity(text)) == []


@pytest.mark.parametrize(
    ("pointer", "value", "found"),
    [
        ("/_name_or_path", "/ckpt/qwen3/step", [("local path", "/ckpt/qwen3/step")]),
        ("/dir", "file:///ckpt/qwen3", [("local path", "file:///ckpt/qwen3")]),
        ("/dir", "~/models/x", [("local path", "~/models/x")]),
        ("/meta/hostname", "gpu7", [("host name", "gpu7")]),
        ("/made_by/username", "ann", [("user name", "ann")]),
        ("/wandb_run_id", "ab12cd34", [("run id", "ab12cd34")]),
        ("/wandb_run_id", "", []),
        ("/name", "owner/name", []),
        ("/chat_template", "{% if a %}/think/no{% endif %}", []),
        ("/pattern", "/x", []),
    ],
)
def test_a_value_is_judged_as_a_whole(pointer: str, value: str, found: list[Any]) -> None:
    assert list(identity(value, pointer)) == found


def test_the_name_of_this_machine_is_a_host_name() -> None:
    assert list(identity("trained on trainbox, yes", host="trainbox")) == [
        ("host name", "trainbox")
    ]
    assert list(identity("trainboxes and my.trainbox", host="trainbox")) == []
    assert list(identity("a box", host="box")) == []


@pytest.mark.parametrize(
    "text",
    ["a.a-" * 100_000, "/home/" * 60_000, "a@" * 100_000, "events.out.tfevents.1." * 20_000,
     "wandb.ai/" * 40_000, "-" * 400_000, "1." * 200_000, "10.0.0.1 /home/ann " * 50_000],
    ids=["labels", "homes", "mails", "events", "runs", "dashes", "numbers", "leaks"],
)  # fmt: skip
def test_no_text_makes_the_search_slow(text: str) -> None:
    start = time.process_time()
    list(identity(text))
    assert time.process_time() - start < 10


def leaks(name: str, value: Any, **options: Any) -> list[tuple[str, str, str]]:
    data = value if isinstance(value, str) else json.dumps(value)
    found = text_leaks(name, data.encode(), published=True, **options)
    return [(leak.where, leak.kind, leak.value) for leak in found]


def test_places_are_pointers_in_json_and_lines_in_text() -> None:
    config = {"a": [{"b/c": "/home/ann/x"}], "n": 3, "again": "/home/ann/x"}
    assert leaks("config.json", config) == [("config.json:/a/0/b~1c", "home path", "/home/ann/x")]
    assert leaks("README.md", "one\n\nin /home/ann/x\n") == [
        ("README.md:3", "home path", "/home/ann/x")
    ]
    broken = '{\n "a": "/home/ann/x"'
    assert leaks("config.json", broken) == [("config.json:2", "home path", "/home/ann/x")]


def test_licences_and_code_may_name_their_authors() -> None:
    text = "Copyright ann@lab.org, see 10.0.0.1\n# /home/ann/src\n"
    for name in ("LICENSE", "modeling_x.py", "NOTICE.txt"):
        assert leaks(name, text) == [(f"{name}:2", "home path", "/home/ann/src")]


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "model.safetensors.index.json"])
def test_vocabularies_are_no_texts(name: str) -> None:
    assert not is_text(name)
    assert leaks(name, {"a": "/home/ann/x"}) == []


def test_a_secret_is_told_but_never_shown() -> None:
    found = list(
        text_leaks("a.json", b'{"t": "%s"}' % TOKEN.encode(), published=True, scan=scan_text)
    )
    assert [(leak.kind, leak.place) for leak in found] == [("secret", "1")]
    finding = leak_finding(found[0])
    assert (finding.id, finding.level) == ("HT175", "warning")
    assert TOKEN[3:-2] not in repr(finding) + repr(found)
    assert "revoke" in finding.next


def test_a_private_file_is_information_only() -> None:
    (leak,) = text_leaks("trainer_state.json", b'{"d": "/home/ann/x"}', published=False)
    finding = leak_finding(leak, root=Path("/runs/a"))
    assert (finding.id, finding.level) == ("HT176", "info")
    assert finding.where == "/runs/a/trainer_state.json:/d"


def test_what_a_release_rewrites_is_no_leak(broken: tuple[Path, Path]) -> None:
    _, adapter = broken
    (adapter / "generation_config.json").write_text("{}")
    files = {name: adapter / name for name in ("adapter_config.json", "tokenizer_config.json")}
    files = {name: path for name, path in files.items() if path.is_file()}
    pinned = {"base": "lab/base", "revision": "0" * 40}
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"].startswith("/")
    assert published_leaks(files, **pinned) == []
    config["auto_mapping"] = {"parent_library": "/home/ann/src/lib"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (finding,) = published_leaks(files, **pinned)
    assert finding.id == "HT175"
    assert finding.where == f"{adapter}/adapter_config.json:/auto_mapping/parent_library"
    (adapter / "adapter_config.json").write_text("[]")
    assert published_leaks(files, **pinned) == []


def test_a_run_is_searched_where_it_is_published_and_where_trainers_write(
    broken: tuple[Path, Path],
) -> None:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import TrainingArguments

    _, adapter = broken
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file(weights, adapter / "adapter_model.safetensors", {"made_on": "/home/ann/box"})
    arguments = TrainingArguments(output_dir="/home/ann/runs/a", hub_token=TOKEN, use_cpu=True)
    torch.save(arguments, adapter / "training_args.bin")
    (adapter / "trainer_state.json").write_text('{"best": "/home/ann/runs/a/checkpoint-8"}')
    (adapter / "README.md").write_text(f"made by {socket.gethostname()}, /home/ann/notes")
    (adapter / "logs").mkdir()
    (adapter / "logs" / "train.txt").write_text("/home/ann/never-read")
    description = look(adapter, scan=scan_text)
    found = {(leak.where, leak.kind, leak.published) for leak in description.leaks}
    assert {
        ("adapter_model.safetensors:__metadata__/made_on", "home path", True),
        ("training_args.bin:/output_dir", "home path", False),
        ("training_args.bin:/hub_token", "secret", False),
        ("trainer_state.json:/best", "home path", False),
        ("README.md:1", "home path", True),
    } <= found
    assert "never-read" not in repr(description.leaks)
    assert TOKEN not in repr(description)


def test_a_pickle_that_cannot_be_read_is_a_warning(broken: tuple[Path, Path]) -> None:
    _, adapter = broken
    (adapter / "training_args.bin").write_bytes(b"\x80\x04]")
    description = look(adapter)
    assert ("HT180", "warning") in {(f.id, f.level) for f in description.findings}
    assert not description.broken


@pytest.mark.parametrize("name", [".env", "NOTES.md", "run.sh", "notes", "conf/train.yaml"])
def test_secrets_in_files_of_no_checkpoint_are_found(broken: tuple[Path, Path], name: str) -> None:
    base, _ = broken
    file = base / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# by /home/ann\nTOKEN={TOKEN}\n")
    (leak,) = (leak for leak in look(base, scan=scan_text).leaks if leak.file == name)
    assert (leak.kind, leak.where, leak.published) == ("secret", f"{name}:2", False)
    finding = leak_finding(leak)
    assert (finding.id, finding.level) == ("HT176", "warning")
    assert TOKEN not in repr(finding)
    seen = look(base, scan=scan_text, public=True)
    (error,) = (finding for finding in seen.findings if name in finding.message)
    assert (error.id, error.level) == ("HT175", "error")


@pytest.mark.parametrize("name", [".git/config", "image.png", "tokenizer.json", "data"])
def test_what_no_upload_takes_or_is_no_text_is_not_searched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(TOKEN.encode() + b"\0")
    assert look(tmp_path, scan=scan_text).leaks == ()


def test_what_stands_in_keys_is_found(tmp_path: Path) -> None:
    text = json.dumps({"mix": {"/home/ann/a.jsonl": 0.5, "host": {"x": 1}}, "ann@lab.org": 1})
    found = list(text_leaks("config.json", text.encode(), published=True))
    assert [(leak.kind, leak.value, leak.place) for leak in found] == [
        ("e-mail address", "ann@lab.org", "/ (key)"),
        ("home path", "/home/ann/a.jsonl", "/mix (key)"),
    ]
    header = {"/home/ann/in/a/header": "x"}
    (leak,) = metadata_leaks("model.safetensors", header)
    assert (leak.place, leak.value) == ("__metadata__/ (key)", "/home/ann/in/a/header")


def test_a_text_too_large_to_scan_is_said_not_to_be_scanned(tmp_path: Path) -> None:
    leak = "/home/ann/runs\n"
    for size, found in ((TEXT_LIMIT - 100, True), (TEXT_LIMIT + 1, False)):
        file = tmp_path / "README.md"
        with file.open("w") as stream:
            stream.write(leak)
            stream.seek(size - len(leak))
            stream.write(leak)
        seen = look(tmp_path)
        assert [leak.place for leak in seen.leaks] == (["1"] if found else [])
        told = [f.level for f in seen.findings if "not scanned" in f.message]
        assert told == ([] if found else ["warning"])
        published = published_leaks({"README.md": file}, base="a/b", revision="0" * 40)
        assert [finding.id for finding in published] == (["HT175"] if found else ["HT182"])


@pytest.mark.parametrize(
    "piece",
    ["a-", "1.", "a@", "/home/", "-", "a.", "://", "/aa", "a.b", "b.local.", "sk-", "\\", "run-",
     "C:\\Users\\", "events.out.tfevents.1", "Jan1_11-11-11_", "wandb.ai/", "10.1.1.", "ip-1-"],
)  # fmt: skip
def test_scanning_takes_time_in_proportion(piece: str) -> None:
    text = (piece * (400_000 // len(piece)) + "@.local").encode()
    start = time.process_time()
    list(text_leaks("README.md", text, published=True, scan=scan_text))
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "text", ["node-7." + "a" * 300 + ".local", "sub.module.local", "x.internal"]
)
def test_what_is_no_host(text: str) -> None:
    assert list(identity(text)) == []
