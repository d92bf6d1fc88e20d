"""`hubtools release` as a user gives it: a process, a Hub over HTTP, a family with everything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_family
from hub_state import remote_state
from huggingface_hub import HfApi

from hubtools.localhub.server import LocalHub, running

REPOS = ["lab/tiny-red-s4", "lab/tiny-red-s8"]


@dataclass(frozen=True)
class Released:
    """A family that was released once, and how that ended."""

    root: Path
    hub: LocalHub
    env: dict[str, str]
    first: subprocess.CompletedProcess[str]

    def hubtools(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hubtools", *argv],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=280,
            cwd=self.root.parent,
        )


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("released")
    root = tiny_family.make_models(folder / "family", max_position_embeddings=512)
    tiny_family.write_logs(root)
    tiny_family.write_manifest(root, suites='["short_qa"]', provenance=tiny_family.TEACHER)
    with running(folder / "hub", log=folder / "hub.log") as hub:
        env = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": hub.token,
            "HF_HOME": str(folder / "hf"),
            "OMP_NUM_THREADS": "1",
        }
        env.pop("HF_HUB_OFFLINE", None)
        argv = [sys.executable, "-m", "hubtools", "release", "--yes", "--json", str(root)]
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=280, cwd=folder
        )
        yield Released(root, hub, env, done)


def test_everything_is_on_the_hub_in_one_commit_each(released: Released) -> None:
    assert released.first.returncode == 0, released.first.stderr
    state = remote_state(released.hub, REPOS)
    for repo in REPOS:
        assert state[repo]["private"] is False
        assert state[repo]["commits"][0].startswith("Release tiny red/")
        assert len(state[repo]["commits"]) == 2  # the Hub's own first one, and ours
        assert {
            "README.md", "config.json", "model.safetensors", "tokenizer.json", "LICENSE",
            "chat_template.jinja", ".hubtools/release.json", ".hubtools/provenance.json",
            ".hubtools/card.lock.json", ".hubtools/evaluation/short_qa-seed0/run.json",
            ".hubtools/evaluation/base-short_qa-seed0/samples.jsonl",
        } <= state[repo]["files"].keys()  # fmt: skip
        assert not any("adapter" in path or "trainer" in path for path in state[repo]["files"])


def test_the_receipt_is_data_and_the_story_is_not(released: Released) -> None:
    receipt = json.loads(released.first.stdout)
    assert receipt["schema"] == "hubtools.release/1"
    assert receipt["failed"] == {}
    assert {m["repo"]: m["pushed"] for m in receipt["members"].values()} == dict.fromkeys(
        REPOS, True
    )
    assert "✓ commit" in released.first.stderr
    assert released.hub.token not in released.first.stderr + released.first.stdout


def test_a_second_run_does_nothing(released: Released) -> None:
    before = remote_state(released.hub, REPOS)
    journal = released.root / ".hubtools" / "journal.jsonl"
    length = len(journal.read_text().splitlines())
    done = released.hubtools("release", "--yes", "-q", str(released.root))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == REPOS
    assert done.stderr == ""
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()[length:]]
    assert set(events) <= {"release", "attested", "released"}
    assert remote_state(released.hub, REPOS) == before


def test_the_plan_says_that_nothing_is_left(released: Released) -> None:
    done = released.hubtools("plan", "--exit-code", "--json", str(released.root))
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["pending"] is False
    assert {change["action"] for change in plan["repos"]} == {"in sync"}


def test_card_show_gives_the_published_card_without_asking_the_hub(released: Released) -> None:
    for repo in REPOS:
        done = released.hubtools("card", "show", repo, "--family", str(released.root))
        assert done.returncode == 0, done.stderr
        api = HfApi(endpoint=released.hub.url, token=released.hub.token)
        readme = api.hf_hub_download(repo, "README.md", cache_dir=released.root / "c")
        assert done.stdout == Path(readme).read_text(encoding="utf-8")


def test_family_status_has_a_row_for_each_member(released: Released) -> None:
    done = released.hubtools("family", "status", "--json", str(released.root))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["members"]
    assert [row["checkpoint"] for row in rows] == ["red/s4", "red/s8"]
    assert {row["remote"] for row in rows} == {"in sync"}
    assert {row["evaluation"] for row in rows} == {"ok"}


def test_a_card_shows_no_number_of_another_member_as_its_own(released: Released) -> None:
    api = HfApi(endpoint=released.hub.url, token=released.hub.token)
    weights = {}
    for repo in REPOS:
        path = api.hf_hub_download(repo, ".hubtools/release.json", cache_dir=released.root / "c")
        record = json.loads(Path(path).read_text())
        own = record["member"]["id"]
        weights[own] = record["member"]["weights"]
        for fact in record["evidence"]["facts"]:
            if fact["id"].startswith("eval.") and fact["subject"]["member"] == own:
                assert fact["subject"]["weights"] == weights[own]
                assert fact["source"]["path"].startswith(".hubtools/evaluation/")
            elif fact["id"].startswith("eval.") and fact["subject"]["member"] != "base":
                assert fact["source"]["path"].startswith("hub:lab/tiny-red-")
    assert weights["red/s4"] != weights["red/s8"]


def test_the_teacher_is_what_the_logs_report(released: Released) -> None:
    api = HfApi(endpoint=released.hub.url, token=released.hub.token)
    card = Path(api.hf_hub_download(REPOS[0], "README.md", cache_dir=released.root / "c"))
    teacher = card.read_text().split("## Teacher")[1].split("## ")[0]
    assert "`deepseek-v4-flash`" in teacher
    assert "5" in teacher


def test_one_member_alone_names_the_sisters_whose_cards_would_change(
    released: Released, tmp_path: Path
) -> None:
    root = tmp_path / "family"
    shutil.copytree(released.root, root)
    manifest = root / "family.toml"
    manifest.write_text(manifest.read_text().replace('license = "apache-2.0"', 'license = "mit"'))
    done = released.hubtools("plan", "lab/tiny-red-s4", "--family", str(root), "--json")
    plan = json.loads(done.stdout)
    assert plan["targets"] == ["red/s4"]
    assert plan["sisters"] == ["red/s8"]
    assert plan["repos"][0]["card"] == "waits"


def test_changed_prose_changes_the_card_and_nothing_else(
    released: Released, tmp_path: Path
) -> None:
    root = tmp_path / "family"
    shutil.copytree(released.root, root)
    (root / "prose").mkdir()
    (root / "prose" / "limitations.md").write_text("It knows only colours.\n")
    before = remote_state(released.hub, REPOS)
    done = released.hubtools("release", "--yes", str(root))
    assert done.returncode == 0, done.stderr
    after = remote_state(released.hub, REPOS)
    for repo in REPOS:
        changed = {
            path
            for path, file in after[repo]["files"].items()
            if before[repo]["files"].get(path) != file
        }
        assert changed == {"README.md", ".hubtools/release.json", ".hubtools/card.lock.json"}
        assert len(after[repo]["commits"]) == len(before[repo]["commits"]) + 1


def test_a_sister_that_is_not_on_this_machine_is_shown_from_her_own_record(
    released: Released, tmp_path: Path
) -> None:
    root = tmp_path / "family"
    shutil.copytree(released.root, root, ignore=shutil.ignore_patterns(".hubtools", "merged"))
    shutil.rmtree(root / "runs" / "red" / "s4")
    done = released.hubtools("release", "--dry-run", "--family", str(root), "red/s8")
    assert done.returncode == 0, done.stderr
    card = next((root / ".hubtools" / "cards").glob("*/README.md")).read_text()
    row = next(line for line in card.splitlines() if line.startswith("| [lab/tiny-red-s4]"))
    assert row.count("95 % CI") == 2
    assert "hub:lab/tiny-red-s4/.hubtools/evaluation/short_qa-seed0/run.json" in card


LOAD = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
local = AutoModelForCausalLM.from_pretrained(sys.argv[2])
theirs = local.state_dict()
assert all(torch.equal(t, theirs[n]) for n, t in model.state_dict().items())
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
turn = [{"role": "user", "content": "Hello"}]
ids = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_tensors="pt")
print(model.generate(**ids, max_new_tokens=4, do_sample=False).shape[-1])
"""


def test_transformers_loads_what_was_released(released: Released, tmp_path: Path) -> None:
    local = next((released.root / "merged").glob("tiny-red-s4-*"))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, REPOS[0], str(local)],
        env={**released.env, "HF_HOME": str(tmp_path / "fresh")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 4
