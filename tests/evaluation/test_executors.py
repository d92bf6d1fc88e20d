"""Jobs by checkpoint; the same runs from every executor, also when a worker is killed midway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import first_right
from scripted_server import says, serving

from hubtools.errors import HubtoolsError, UsageError
from hubtools.evaluation.executors.job import Job, job_from_json, jobs_of, read_job, run_job
from hubtools.evaluation.executors.local import run_here
from hubtools.evaluation.executors.ray import run_on_ray
from hubtools.evaluation.executors.slurm import write_array
from hubtools.evaluation.identity import model_weights
from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target


def cells(url: str, suite: Path, out: Path, members: tuple[str, ...] = ("a", "b")) -> list[Cell]:
    """Two seeds of each member on a scripted endpoint."""
    return [
        Cell(
            Target(member),
            str(suite),
            Engine(kind="endpoint", url=url, served_name=member),
            seed,
            out / member,
            SuiteOptions(),
        )
        for member in members
        for seed in (0, 1)
    ]


def samples(out: Path) -> dict[str, bytes]:
    """Member/number → bytes of its samples."""
    return {
        str(file.parent.relative_to(out)): file.read_bytes()
        for file in sorted(out.rglob("samples.jsonl"))
    }


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    with serving(first_right(5)) as (url, asked):
        yield url, asked


def test_jobs_are_the_cells_of_one_checkpoint_in_order(tmp_path: Path) -> None:
    made = cells("http://127.0.0.1:1/v1", tmp_path / "suite", tmp_path)
    jobs = jobs_of([made[0], made[2], made[1], made[3]])
    assert [[(c.target.member, c.seed) for c in job.cells] for job in jobs] == [
        [("a", 0), ("a", 1)],
        [("b", 0), ("b", 1)],
    ]
    assert [job_from_json(json.loads(json.dumps(job.to_json()))) for job in jobs] == jobs


def test_a_job_done_twice_asks_nothing_the_second_time(
    server: tuple[str, list[Any]], words: Path, tmp_path: Path
) -> None:
    url, asked = server
    (job,) = jobs_of(cells(url, words, tmp_path, ("a",)))
    first = run_job(job)
    count = len(asked)
    assert run_job(job) == first
    assert len(asked) == count
    assert [record["seed"] for record in first] == [0, 1]


def test_a_job_that_fails_does_not_stop_the_others(
    server: tuple[str, list[Any]], words: Path, tmp_path: Path
) -> None:
    url, _ = server
    gone = jobs_of(cells("http://127.0.0.1:9/v1", words, tmp_path, ("gone",)))
    failed, done = run_here([*gone, *jobs_of(cells(url, words, tmp_path, ("a",)))])
    assert isinstance(failed, HubtoolsError)
    assert failed.id == "HT404"
    assert not isinstance(done, HubtoolsError)
    assert len(done) == 2


def test_a_slurm_array_has_a_job_file_for_each_task_and_runs_it(
    server: tuple[str, list[Any]], words: Path, tmp_path: Path
) -> None:
    url, _ = server
    jobs = jobs_of(cells(url, words, tmp_path / "out"))
    script = write_array(jobs, tmp_path / "with space", ("--gres=gpu:1", "--time=2:00:00"))
    assert script == write_array(jobs, tmp_path / "with space", ("--gres=gpu:1", "--time=2:00:00"))
    text = script.read_text()
    assert "#SBATCH --array=0-1\n" in text
    assert "#SBATCH --gres=gpu:1\n#SBATCH --time=2:00:00\n" in text
    assert [read_job(script.with_name("jobs") / f"{n}.json") for n in (0, 1)] == jobs
    for task in ("0", "1"):
        done = subprocess.run(
            ["bash", str(script)],
            env={**os.environ, "SLURM_ARRAY_TASK_ID": task},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert sorted(samples(tmp_path / "out")) == [
        f"{member}/words/{number}" for member in "ab" for number in (1, 2)
    ]


@pytest.mark.parametrize("option", ["gres=gpu:1", "--time=1\nrm -rf /", ""])
def test_a_slurm_option_that_is_none_is_refused(option: str, tmp_path: Path) -> None:
    jobs = [Job(tuple(cells("http://127.0.0.1:1/v1", tmp_path, tmp_path)))]
    with pytest.raises(UsageError) as caught:
        write_array(jobs, tmp_path / "slurm", (option,))
    assert caught.value.id == "HT479"
    assert not (tmp_path / "slurm").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "hubtools.evaluate-job/1"}'])
def test_what_is_no_job_file_is_told(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_job(file)
    assert (caught.value.id, caught.value.where) == ("HT475", str(file))


def test_ray_gives_the_local_runs_also_when_a_worker_is_killed(words: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")

    def slowly(question: str, *rest: Any) -> Any:
        time.sleep(0.1)
        return says("w" + question.rpartition("word ")[2].rstrip("?"))

    with serving(slowly) as (url, _):
        run_here(jobs_of(cells(url, words, tmp_path / "local")))
        jobs = jobs_of(cells(url, words, tmp_path / "ray"))
        with ThreadPoolExecutor(1) as pool:
            ray = pool.submit(run_on_ray, jobs, log=tmp_path / "log", workers=2)
            killed = _kill_a_worker(tmp_path / "ray")
            results = ray.result()
    assert killed
    assert [[record["seed"] for record in result] for result in results] == [[0, 1], [0, 1]]
    assert samples(tmp_path / "ray") == samples(tmp_path / "local")


def _kill_a_worker(out: Path) -> bool:
    """SIGKILL the Ray worker that holds a run, once it has some answers."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        for journal in out.rglob("responses.jsonl.zst"):
            if journal.stat().st_size and (owner := _owner(journal)):
                os.kill(owner, signal.SIGKILL)
                return True
        time.sleep(0.02)
    return False


def _owner(journal: Path) -> int:
    """The worker whose child writes the journal; 0 when nobody does any more."""
    for process in Path("/proc").iterdir():
        try:
            if any(link.readlink() == journal for link in (process / "fd").iterdir()):
                return int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    return 0


def test_weights_that_changed_since_the_job_was_written_are_refused(
    words: Path, tiny_chat: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_chat, tmp_path / "model")
    target = Target("m", model_weights(model), model)
    job = Job((Cell(target, str(words), Engine(), 0, tmp_path / "out"),))
    file = model / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    (failed,) = run_here([job])
    assert isinstance(failed, HubtoolsError)
    assert (failed.id, failed.where) == ("HT483", str(model))
    assert not (tmp_path / "out").exists()


def test_a_job_file_has_paths_that_hold_from_any_folder(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(words, "suite")
    options = SuiteOptions(tool_template="t.jinja")
    target = Target("m", "ab" * 32, Path("model"), Path("adapter"))
    job = Job(
        (
            Cell(target, "suite", Engine(), 0, Path("out"), options),
            Cell(target, "short_qa", Engine(), 0, Path("out"), options),
            Cell(target, "lm_eval:task@tasks", Engine(), 0, Path("out"), options),
        )
    )
    read = read_job(write_array([job], Path("slurm")).with_name("jobs") / "0.json")
    assert [cell.suite for cell in read.cells] == [
        str(tmp_path / "suite"),
        "short_qa",
        f"lm_eval:task@{tmp_path / 'tasks'}",
    ]
    found = read.cells[0]
    paths = (found.target.model, found.target.adapter, found.out)
    assert paths == (tmp_path / "model", tmp_path / "adapter", tmp_path / "out")
    assert found.options.tool_template == str(tmp_path / "t.jinja")


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ({"url": "http://user:S3CRET@host/v1"}, {}),
        ({"url": "user:S3CRET@host/v1"}, {}),
        ({"url": "http:/user:S3CRET@host/v1"}, {}),
        ({"url": "http://host/v1?api_key=S3CRET"}, {}),
        ({"options": ("--api-key", "S3CRET")}, {}),
        ({"options": ("--api-key=S3CRET",)}, {}),
        ({}, {"user": "http://u:S3CRET@host/v1#m"}),
        ({}, {"retriever_url": "http://u:S3CRET@host"}),
    ],
)
def test_a_password_is_never_written_into_a_job_file(
    engine: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    asked = Engine(**{"kind": "endpoint", "url": "http://host/v1", **engine})
    cell = Cell(Target("m"), "short_qa", asked, 0, tmp_path, SuiteOptions(**options))
    with pytest.raises(UsageError) as caught:
        write_array([Job((cell,))], tmp_path / "slurm")
    assert caught.value.id == "HT484"
    assert "S3CRET" not in str(caught.value.to_json())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("engine.kind", "bogus"),
        ("engine.concurrency", "x"),
        ("engine.concurrency", -3),
        ("engine.url", ""),
        ("engine.timeout", 0.0),
        ("options.temperature", "x"),
        ("options.temperature", float("nan")),
        ("options.limit", 0),
        ("options.bogus", 1),
        ("suite", 5),
        ("out", "a\0b"),
        ("seed", "x"),
        ("seed", -1),
        ("seed", 1.5),
        ("seed", None),
        ("seed", True),
        ("target.member", 5),
        ("target.member", ""),
        ("target.weights", "f" * 64),
    ],
)
def test_a_job_file_with_a_value_that_no_option_gives_is_refused(
    place: str, value: Any, tmp_path: Path
) -> None:
    (job,) = jobs_of(cells("http://127.0.0.1:1/v1", tmp_path, tmp_path, ("a",)))
    data = job.to_json()
    *outer, last = place.split(".")
    holder = data["cells"][0]
    for name in outer:
        holder = holder[name]
    holder[last] = value
    file = tmp_path / "job.json"
    file.write_text(json.dumps(data))
    with pytest.raises(UsageError) as caught:
        read_job(file)
    assert caught.value.id == "HT475"
    assert "\n" not in caught.value.message
