"""`hubtools retriever` as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cli_support import clean_env
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
PASSAGE = {"id": "1", "contents": '"Oslo"\nThe capital of Norway.'}


def start(*argv: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hubtools", "retriever", *map(str, argv)],
        env=clean_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call(*argv: str | Path) -> tuple[int, str, str]:
    child = start(*argv)
    out, story = child.communicate(timeout=60)
    return child.returncode, out, story


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(PASSAGE) + "\n")
    return path


def test_a_corpus_is_built_served_and_searched(corpus: Path) -> None:
    index = corpus.with_name("index")
    code, out, story = call("build", corpus, "--out", index, "--json")
    assert code == 0, story
    built = json.loads(out)
    schema = json.loads((SCHEMAS / "retriever-build.schema.json").read_text())
    Draft202012Validator(schema).validate(built)
    server = start("serve", index, "--port", "0")
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        body = json.dumps({"queries": "Norway", "topk": None}).encode()
        with urllib.request.urlopen(f"{url}/retrieve", data=body, timeout=10) as answer:
            assert json.load(answer) == {"result": [[PASSAGE]]}
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            assert json.load(answer)["corpus_sha256"] == built["corpus_sha256"]
        taken = call("serve", index, "--port", url.rpartition(":")[2])
        assert (taken[0], "HT482" in taken[2]) == (1, True)
    finally:
        server.send_signal(signal.SIGINT)
        _, story = server.communicate(timeout=20)
    assert server.returncode == 0, story


def test_what_cannot_be_built_or_served_is_said(corpus: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(json.dumps(PASSAGE) + "\n{\n")
    for argv, words in (
        (("build", damaged, "--out", tmp_path / "i"), f"{damaged}:2"),
        (("build", corpus, "--out", corpus), "exists already"),
        (("build", corpus, "--out", corpus / "below"), "error[HT"),
        (("serve", tmp_path), "no index"),
    ):
        code, out, story = call(*argv)
        assert code in (1, 3)
        assert words in story
        assert "Traceback" not in story
        assert out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "damaged.jsonl"]
