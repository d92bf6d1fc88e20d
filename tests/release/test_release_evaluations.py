"""Suites of one's own, several seeds and a nudge in a manifest: repeats, anchor rows, and where
their records stand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "eval_harness"))  # tiny_chat

import pytest
import tiny_family
from huggingface_hub import HfApi
from tiny_chat import write_suite

from hubtools.localhub.server import LocalHub

REPO = "lab/tiny-red-s4"


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """A family whose suite is sampled with two seeds, with and without a nudge."""
    root = tiny_family.make_models(tmp_path / "family", max_position_embeddings=512)
    suite = write_suite(root / "words", 4)
    toml = suite / "suite.toml"
    text = toml.read_text().replace("temperature = 0.0", "temperature = 1.0")
    toml.write_text('nudge = "Answer with one word."\n' + text)
    tiny_family.write_manifest(root, suites='["./words"]')
    with (root / "family.toml").open("a") as stream:
        stream.write(
            "\n[evaluation]\nseeds = [0, 1]\n"
            '[evaluation.options."./words"]\nnudge = "both"\nlimit = 3\n'
        )
    return root


def test_repeats_and_anchor_rows_of_a_manifest(
    evaluated: Path, hub: LocalHub, hubtools: Callable[..., Any]
) -> None:
    done = hubtools("release", "--yes", "--json", str(evaluated), REPO)
    assert done.code == 0, done.err
    api = HfApi(endpoint=hub.url, token=hub.token)
    folder = ".hubtools/evaluation/"
    found = {name.removeprefix(folder) for name in api.list_repo_files(REPO) if folder in name}
    assert found == {
        f"{owner}words{nudge}-{part}"
        for owner in ("", "base-")
        for nudge in ("", "-nudge")
        for part in (
            "repeats.json",
            *(f"seed{n}/{file}" for n in (0, 1) for file in ("run.json", "samples.jsonl")),
        )
    }
    got = evaluated.parent / "got"
    card = Path(api.hf_hub_download(REPO, "README.md", local_dir=got)).read_text()
    assert card.count("### Words") == 2
    assert "Here 3 of its questions were asked: at most 3 of each category" in card
    assert "prompt.nudge: not stated there, Answer with one word. here." in card
    assert "of 2 repeats" in card or " and " in card  # equal values, or both of them
    name = f"{folder}words-nudge-repeats.json"
    repeats = json.loads(Path(api.hf_hub_download(REPO, name, local_dir=got)).read_bytes())
    assert [run["seed"] for run in repeats["runs"]] == [0, 1]
    assert {run["path"] for run in repeats["runs"]} == {
        f"{folder}words-nudge-seed{n}/run.json" for n in (0, 1)
    }
    second = hubtools("release", "--yes", "--json", str(evaluated), REPO)
    assert second.code == 0, second.err
    assert len(api.list_repo_commits(REPO)) == 2  # the Hub's own first one, and ours
