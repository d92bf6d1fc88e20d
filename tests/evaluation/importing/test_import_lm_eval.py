from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from import_sources import RECORDED, raw, take

from hubtools.errors import HubtoolsError


@pytest.fixture
def doubles(tmp_path: Path) -> Path:
    return shutil.copytree(RECORDED / "doubles", tmp_path / "doubles")


def change(folder: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    (path,) = folder.glob("results_*.json")
    told = json.loads(path.read_bytes())
    how(told)
    path.write_text(json.dumps(told))


def test_generated_answers_are_read_with_their_scores(doubles: Path, tmp_path: Path) -> None:
    run = take(doubles, tmp_path / "out")
    assert run.status == "external"
    assert run.suite == "lm_eval-doubles"
    assert run.harness == {"name": "lm_eval", "version": "0.4.13"}
    assert run.metrics == {"exact_match": {"value": 0.25, "n": 4, "items": 4, "k": 1}}
    first, *_, right, _ = run.iter_samples()
    assert (first["item"], first["output"], first["answers"]) == ("doubles/0", "lol", ["0"])
    assert first["messages"] == [{"role": "user", "content": "Twice 0 is"}]
    assert (right["item"], right["scores"]) == ("doubles/2", {"exact_match": 1.0})
    assert {"served", "engine", "dtype", "returned_model"} <= set(run.missing)


def test_choices_are_read_and_their_interval_is_never_zero_wide(tmp_path: Path) -> None:
    run = take(RECORDED / "pairs", tmp_path)
    assert {n: (m["k"], m["n"]) for n, m in run.metrics.items()} == {
        "acc": (5, 6),
        "acc_norm": (4, 6),
    }
    sure = run.interval("acc")
    assert sure.low < 5 / 6 < sure.high


def test_without_samples_the_figures_are_only_reported(doubles: Path, tmp_path: Path) -> None:
    next(doubles.glob("samples_*")).unlink()
    run = take(doubles, tmp_path / "out")
    assert (run.status, run.samples, run.grids) == ("reported", 0, {})
    assert run.metrics["exact_match"] == {
        **{"value": 0.25, "n": 4, "items": 4},
        **{"standard_error": 0.25, "reported": True},
    }
    assert "samples" in run.missing


def test_na_nan_and_zero_errors_are_no_figures(doubles: Path, tmp_path: Path) -> None:
    next(doubles.glob("samples_*")).unlink()

    def odd(told: dict[str, Any]) -> None:
        told["results"]["doubles"] |= {
            "f1,none": float("nan"),
            "f1_stderr,none": "N/A",
            "exact_match_stderr,none": 0.0,
            "bleu,none": 31.5,
        }

    change(doubles, odd)
    run = take(doubles, tmp_path / "out")
    assert run.metrics == {"exact_match": {"value": 0.25, "n": 4, "items": 4, "reported": True}}


def test_two_runs_in_one_folder_are_not_mixed(doubles: Path, tmp_path: Path) -> None:
    (results,) = doubles.glob("results_*.json")
    other = results.with_name("results_2026-12-02T00-00-00.000000.json")
    shutil.copyfile(results, other)
    with pytest.raises(HubtoolsError, match="HT462"):
        take(doubles, tmp_path / "out")
    assert take(results, tmp_path / "out").status == "external"
    assert take(other, tmp_path / "out").status == "reported"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda t: t["n-samples"]["doubles"].update(original=9), "4 of 9 documents"),
        (lambda t: t["n-samples"]["doubles"].update(original=5, effective=5), "4 samples of 5"),
        (lambda t: t["results"]["doubles"].update({"exact_match,none": 0.5}), "states exact_match"),
    ],
)
def test_what_is_not_whole_or_contradicts_itself_is_refused(
    doubles: Path, tmp_path: Path, how: Callable[[dict[str, Any]], Any], why: str
) -> None:
    change(doubles, how)
    with pytest.raises(HubtoolsError, match=rf"HT463.*{why}"):
        take(doubles, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.json"))


def test_a_part_of_the_data_is_fine_where_a_limit_was_asked_for(
    doubles: Path, tmp_path: Path
) -> None:
    def limited(told: dict[str, Any]) -> None:
        told["n-samples"]["doubles"]["original"] = 9
        told["config"]["limit"] = 4.0

    change(doubles, limited)
    assert take(doubles, tmp_path / "out").n == 4


def test_a_metric_that_is_no_mean_of_samples_is_left_out(doubles: Path, tmp_path: Path) -> None:
    def corpus(told: dict[str, Any]) -> None:
        told["configs"]["doubles"]["metric_list"][0]["aggregation"] = "f1"

    change(doubles, corpus)
    with pytest.raises(HubtoolsError, match="HT464"):
        take(doubles, tmp_path / "out")


def test_a_null_score_leaves_the_metric_out(tmp_path: Path) -> None:
    folder = shutil.copytree(RECORDED / "pairs", tmp_path / "pairs")
    (path,) = folder.glob("samples_*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[2]["acc_norm"] = float("nan")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = take(folder, tmp_path / "out")
    assert list(run.metrics) == ["acc"]
    assert raw(run)["left_out"] == ["acc_norm"]


def two_tasks(folder: Path) -> Path:
    """The recorded task as one of two, the other with the opposite scores."""
    (results,), (samples,) = folder.glob("results_*"), folder.glob("samples_*")
    told = json.loads(results.read_bytes())
    for part in ("results", "configs", "versions", "n-samples", "n-shot"):
        told[part]["other"] = copy.deepcopy(told[part]["doubles"])
    told["results"]["other"]["exact_match,none"] = 0.75
    results.write_text(json.dumps(told))
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    rows = [row | {"exact_match": 1 - row["exact_match"]} for row in rows]
    other = samples.with_name(samples.name.replace("_doubles_", "_other_"))
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return results


def test_each_task_of_several_has_the_mean_that_is_stated(doubles: Path, tmp_path: Path) -> None:
    results = two_tasks(doubles)
    run = take(doubles, tmp_path / "out")
    figures = {name: part["metrics"]["exact_match"] for name, part in run.categories.items()}
    assert {name: (m["k"], m["n"]) for name, m in figures.items()} == {
        "doubles": (1, 4),
        "other": (3, 4),
    }
    results.write_text(results.read_text().replace("0.75", "0.5"))
    with pytest.raises(HubtoolsError, match=r"HT463.*samples of other give 0.75"):
        take(doubles, tmp_path / "out")


def test_samples_of_one_task_of_two_are_refused(doubles: Path, tmp_path: Path) -> None:
    two_tasks(doubles)
    next(doubles.glob("samples_other_*")).unlink()
    with pytest.raises(HubtoolsError, match=r"HT463.*none of other"):
        take(doubles, tmp_path / "out")
