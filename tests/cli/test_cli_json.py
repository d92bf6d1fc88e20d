"""What commands really print with `--json` is what the schemas say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_support import clean_env
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = """\
schema = 1
[family]
id = "tiny"
owner = "demo"
name = "{family}-{arm}-{step}"
kind = "full"
base = { repo = "demo/base", revision = "0123456789012345678901234567890123456789" }
license = "apache-2.0"
[arms.plain]
steps = ["s1"]
[inputs]
checkpoint = "../base"
[provenance]
status = "none"
reason = "no teacher was called"
"""
MODELS = (
    "from pathlib import Path\n"
    "from tiny_models import LINEAR, save_adapter, save_base\n"
    "base = save_base(Path('base'), 'llama', 'bfloat16')\n"
    "save_adapter(Path('adapter'), base, LINEAR['llama'])\n"
)


@dataclass(frozen=True)
class Project:
    """A folder with a tiny base, an adapter for it, a family of one checkpoint, and logs."""

    folder: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in clean_env().items() if k not in ("HF_TOKEN", "HF_HUB_OFFLINE")}
        return subprocess.run(
            [sys.executable, "-m", "hubtools", *argv],
            cwd=self.folder,
            env=env | {"HF_HOME": str(self.folder / "hf")},
            capture_output=True,
            text=True,
        )

    def answer(self, name: str, *argv: str, code: int = 0) -> dict[str, Any]:
        """The one object on stdout, held against schema `name`."""
        done = self.run(*argv, "--json")
        assert done.returncode == code, done.stderr
        assert done.stdout.count("\n") == 1
        value: dict[str, Any] = json.loads(done.stdout)
        schema = ROOT / "docs" / "schemas" / f"{name}.schema.json"
        Draft202012Validator(json.loads(schema.read_text())).validate(value)
        return value


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MODELS],
        cwd=folder,
        env=clean_env(PYTHONPATH=str(ROOT / "tests" / "support"), HF_HUB_OFFLINE="1"),
        check=True,
        capture_output=True,
    )
    (folder / "family").mkdir()
    (folder / "family" / "family.toml").write_text(MANIFEST)
    response = {"id": "a", "created": 1790000000, "model": "deepseek-v4-flash", "choices": []}
    response |= {"object": "chat.completion"}
    line = {"role": "agent", "request": {"model": "deepseek-chat"}, "response": response}
    (folder / "log.jsonl").write_text(json.dumps(line) + "\nnot json\n")
    return Project(folder)


def test_release_from_plan_to_receipt(project: Project) -> None:
    there = ("family", "--hub", "local")
    planned = project.answer("plan", "plan", *there)
    assert planned["pending"] is True
    dry = project.answer("release", "release", *there, "--dry-run")
    assert dry["members"] == {}
    released = project.answer("release", "push", *there, "--yes")
    assert released["members"]["plain/s1"]["pushed"] is True
    again = project.answer("release", "release", *there, "--yes")
    assert again["members"]["plain/s1"]["pushed"] is False
    assert project.answer("plan", "plan", *there)["pending"] is False
    status = project.answer("family-status", "family", "status", *there)
    assert status["members"][0]["remote"] == "in sync"
    rendered = project.answer("card-render", "card", "render", "family")
    assert rendered["cards"][0]["changed"] is True
    shown = project.answer("card-show", "card", "show", "plain/s1", "--family", "family")
    assert shown["text"] == Path(rendered["cards"][0]["file"]).read_text()


def test_a_failed_check_prints_its_answer_once(project: Project) -> None:
    found = project.answer("card-render", "card", "render", "family", "--check", "-o", "x", code=3)
    assert found["cards"][0]["changed"] is True


def test_merge(project: Project) -> None:
    dry = project.answer("merge", "merge", "adapter", "--base", "base", "--dry-run")
    assert "files" not in dry
    merged = project.answer("merge", "merge", "adapter", "--base", "base", "-o", "merged")
    assert merged["talk"]["tokens"]


def test_evaluate(project: Project) -> None:
    plan = project.answer("evaluate-plan", "evaluate", "base", "-o", "runs", "--dry-run")
    assert plan["cells"][0]["run"] is None
    found = project.answer("evaluate", "evaluate", "base", "-o", "runs")
    (run,) = found["runs"]
    assert run["n"] + run["failures"] == run["samples"] == run["items"]
    assert project.answer("evaluate", "evaluate", "base", "-o", "runs") == found
    assert project.answer("evaluate-show", "evaluate", "show", "runs")["runs"] == found["runs"]
    project.answer("evaluate-table", "evaluate", "table", "runs")
    kept = project.answer("evaluate-samples", "evaluate", "samples", "runs", "-n", "64")
    assert len(kept["samples"]) == kept["matching"] == run["samples"]
    again = project.answer("evaluate-rescore", "evaluate", "rescore", run["path"])
    assert again["metrics"] == run["metrics"]
    compared = project.answer("evaluate-compare", "evaluate", "compare", run["path"], again["path"])
    assert compared["differing"] == []
    argv = ("evaluate", "base", "-o", "runs", "--executor", "slurm")
    assert project.answer("evaluate-array", *argv)["jobs"] == 1


@pytest.mark.parametrize("claim", ["deepseek-v4-flash", "claude"])
def test_provenance(project: Project, claim: str) -> None:
    argv = ("provenance", "verify", "log.jsonl", "--claim", claim)
    found = project.answer("provenance-verify", *argv, code=0 if claim != "claude" else 3)
    assert (found["error"] is None) == (claim != "claude")
    assert found["bad_total"] == 1


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("plan", "nowhere"), 2),
        (("plan", "family", "--hub", "ftp://x"), 2),
        (("family", "status", "family", "--hub", "http://127.0.0.1:9"), 1),
        (("merge", "base", "--base", "base", "--dry-run"), 3),
        (("card", "show", "plain/s9", "--family", "family"), 2),
        (("release", "family", "--hub", "local"), 2),
    ],
)
def test_failures(project: Project, argv: tuple[str, ...], code: int) -> None:
    error = project.answer("error", *argv, code=code)["error"]
    assert error["exit_code"] == code
    assert error["next"]


def test_hub_serve(project: Project, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "hubtools", "hub", "serve", "--port", "0", "--json"],
        cwd=tmp_path,
        env=clean_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        value = json.loads(server.stdout.readline())
        server.terminate()
    schema = ROOT / "docs" / "schemas" / "hub-serve.schema.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(value)
