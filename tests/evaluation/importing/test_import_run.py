from __future__ import annotations

import copy
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_sources import (
    HEADER,
    RECORDED,
    console,
    eee,
    eee_result,
    everything,
    generations,
    inspect_log,
    inspect_sample,
    take,
    write_rows,
)

from hubtools.cli.failure import run as cli_run
from hubtools.cli.main import cli
from hubtools.errors import HubtoolsError
from hubtools.evaluation.importing.detect import kind_of

KEY = "sk-proj-0123456789abcdefABCDEF"


def test_figures_of_every_eval_ever_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    told = eee(
        eee_result("GSM8K", 0.4),
        eee_result("MMLU", 61.5, score_type="continuous", min_score=0, max_score=100),
        eee_result("MMLU", 0.6),
        eee_result("Elo", 1210.0, score_type="continuous", min_score=0, max_score=3000),
        eee_result("Scale", 0.5, score_type="continuous", min_score=-1, max_score=1),
        eee_result("Perplexity", 0.5, lower_is_better=True),
    )
    path.write_text(json.dumps(told))
    run = take(path, tmp_path / "out")
    values = {n: m["value"] for n, m in run.metrics.items()}
    assert values == pytest.approx({"GSM8K": 0.4, "MMLU": 0.615, "MMLU_2": 0.6, "Elo": 1210 / 3000})
    assert (run.status, run.harness["name"], run.requested) == ("reported", "helm", "acme/mini")
    assert run.metrics["GSM8K"]["n"] == 80
    assert json.loads(run.path.read_text())["left_out"] == ["Scale", "Perplexity"]
    assert {"samples", "engine", "returned_model"} <= set(run.missing)


def sources(folder: Path) -> dict[str, Path]:
    log = folder / "a.txt"
    log.write_text(console({0: {"val-core/nq/em/mean@1": 0.5}}))
    report = folder / "b.txt"
    report.write_text(json.dumps(eee(eee_result("GSM8K", 0.4)), indent=1))
    return {
        "verl": log,
        "verl metrics": write_rows(folder / "c", [{"step": 1, "data": {"val-core/x": 1}}]),
        "verl dump": write_rows(folder / "d", generations([[1.0]])),
        "lm_eval": RECORDED / "doubles",
        "inspect": inspect_log(folder / "e.zip", [inspect_sample("a", "C")]),
        "every_eval_ever": report,
    }


def test_kinds_are_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    for kind, path in sources(tmp_path).items():
        assert kind_of(path) == kind.split()[0], kind
    (results,) = (RECORDED / "pairs").glob("results_*")
    assert kind_of(shutil.copyfile(results, tmp_path / "anything")) == "lm_eval"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"hello", b"PK\x05\x06" + bytes(18), b"\xff\xfe\x00", b"{" * 9000],
)
def test_what_is_nobodys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results_1.json"
    path.write_bytes(content)
    with pytest.raises(HubtoolsError, match="HT460") as told:
        take(path, tmp_path / "out")
    assert "--kind" in told.value.next
    with pytest.raises(HubtoolsError, match="HT460"):
        take(path, tmp_path / "out", kind="helm")
    for kind in ("verl", "lm_eval", "inspect", "every_eval_ever"):
        with pytest.raises(HubtoolsError, match=r"HT46[1-4]"):
            take(path, tmp_path / "out", kind=kind)
    assert not list((tmp_path / "out").rglob("*.json"))


def test_samples_of_lm_eval_alone_lead_to_their_results(tmp_path: Path) -> None:
    (samples,) = (RECORDED / "doubles").glob("samples_*")
    with pytest.raises(HubtoolsError, match=r"HT460.*results file"):
        take(samples, tmp_path)


def test_the_same_results_become_one_run(tmp_path: Path) -> None:
    first = take(RECORDED / "doubles", tmp_path)
    assert take(RECORDED / "doubles", tmp_path).path == first.path
    other = take(RECORDED / "doubles", tmp_path, weights="0" * 64)
    assert other.path.parent.name == "2"
    assert not list(first.path.parent.parent.glob(".*.tmp"))


def test_no_key_is_kept(tmp_path: Path) -> None:
    samples = [inspect_sample("a", "C"), inspect_sample("b", "I", error=f"401 api_key={KEY}")]
    samples[0]["messages"][1]["content"] = f"the key is {KEY}"
    samples[0]["metadata"] = {"api_key": "short", "url": f"https://me:{KEY}@acme.test/v1"}
    take(inspect_log(tmp_path / "log", samples), tmp_path / "out")
    rows = [row | {"output": KEY, "headers": {"x": KEY}} for row in generations([[1], [0]])]
    take(write_rows(tmp_path / "rows", rows), tmp_path / "out")
    folder = shutil.copytree(RECORDED / "doubles", tmp_path / "doubles")
    (results,) = folder.glob("results_*")
    told = json.loads(results.read_bytes())
    told["model_name"], told["config"]["gen_kwargs"] = KEY, {"api_key": KEY}
    results.write_text(json.dumps(told))
    take(folder, tmp_path / "out")
    report = eee(eee_result(f"bench {KEY}", 0.5))
    (tmp_path / "eee").write_text(json.dumps(report))
    take(tmp_path / "eee", tmp_path / "out")
    written = everything(tmp_path / "out")
    assert "the key is ***" in written
    assert KEY not in written


@pytest.mark.parametrize("name", ["../../up", "..", "長い名前" * 60, "a/" * 300, "\n"])
def test_no_name_leaves_the_folder_or_is_too_long_for_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text(json.dumps(eee(eee_result(name, 0.5))))
    run = take(tmp_path / "x", tmp_path / "in" / "out")
    assert run.path.parent.parent.parent == tmp_path / "in" / "out"


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(HubtoolsError, match="HT461"):
        take(tmp_path / "nothing", tmp_path / "out")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.just(float("nan")),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just("\ud800"),
)


def paths_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [at, *(place for key, item in items for place in paths_in(item, (*at, key)))]


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """`value` with another one at that place."""
    if not at:
        return new
    changed = copy.copy(value)
    changed[at[0]] = put(changed[at[0]], at[1:], new)
    return changed


(RESULTS,) = ((RECORDED / "doubles").glob("results_*"),)
_LM_EVAL = next(RESULTS)
DOCUMENTS: dict[str, Any] = {
    "lm_eval": json.loads(_LM_EVAL.read_bytes()),
    "every_eval_ever": eee(eee_result("GSM8K", 0.4)),
    "verl": generations([[1.0]])[0],
    "inspect header": HEADER,
    "inspect sample": inspect_sample("a", "C"),
}
PLACES = [(name, place) for name, value in DOCUMENTS.items() for place in paths_in(value)]


@settings(max_examples=200)
@given(where=st.sampled_from(PLACES), value=VALUES)
def test_any_odd_value_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, where: tuple[str, tuple[Any, ...]], value: Any
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    name, place = where
    document = put(DOCUMENTS[name], place, value)
    path, kind = folder / "source", name.split()[0]
    try:
        if kind == "inspect":
            sample = document if name.endswith("sample") else inspect_sample("a", "C")
            odd = document if name.endswith("header") else HEADER
            inspect_log(path, [], lambda header: (header.clear(), header.update(odd)))  # type: ignore[func-returns-value]
            with zipfile.ZipFile(path, "a") as log:
                log.writestr("samples/a_epoch_1.json", json.dumps(sample))
                log.writestr("samples/b_epoch_1.json", json.dumps(inspect_sample("b", "I")))
        else:
            path.write_text(json.dumps(document))
    except (TypeError, ValueError, AttributeError):
        return  # not a value that this part of the file can have
    told = ""
    try:
        take(path, folder / "out", kind=kind)
    except HubtoolsError as error:
        told = error.id
    assert told in {"", "HT461", "HT462", "HT463", "HT464", "HT406"}
    assert bool(told) != bool(list((folder / "out").rglob("run.json")))


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "train.log"
    log.write_text(
        console({0: {"val-core/nq/em/mean@4": 0.275}, 20: {"val-core/nq/em/mean@4": 0.5}})
    )
    argv = ["evaluate", "import", str(log), "--member", "acme/r2e"]
    assert cli_run(cli, argv) == 2
    assert "--step 20" in capsys.readouterr().err
    assert cli_run(cli, [*argv, "--step", "20", "--seed", "7"]) == 0
    assert "acme/r2e (reported)\tverl_nq\t0.500\tnot known" in capsys.readouterr().out
    kept = "evaluations/acme--r2e/verl_nq/1"
    assert cli_run(cli, ["evaluate", "samples", kept]) == 2
    assert "only reported" in capsys.readouterr().err
    assert cli_run(cli, ["evaluate", "show", kept]) == 0
    assert "seed 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("member", "folder"),
    [("..", "unnamed"), ("a/../b", "a--..--b"), ("x" * 300, "x" * 200), ("r2e at 20", "r2e-at-20")],
)
def test_a_members_name_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli_run(cli, ["evaluate", "import", str(RECORDED / "pairs"), "--member", member]) == 0
    assert [path.name for path in (tmp_path / "evaluations").iterdir()] == [folder]
    assert [path.name for path in tmp_path.iterdir()] == ["evaluations"]


@pytest.mark.parametrize("member", ["", " ", "a\nb", "a|b", "\udc80"])
def test_a_name_that_cannot_stand_in_a_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], member: str
) -> None:
    argv = ["evaluate", "import", str(RECORDED / "pairs"), "--member", member, "-o", str(tmp_path)]
    assert cli_run(cli, argv) == 2
    assert "--member" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
