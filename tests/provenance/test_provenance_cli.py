"""`hubtools provenance verify` as a user runs it."""

import json
from pathlib import Path

import pytest

from hubtools.cli.main import main


def write_log(path: Path, models: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        for n, model in enumerate(models):
            answer = {
                "id": f"chatcmpl-x{n}",
                "object": "chat.completion",
                "created": 1781000000,
                "model": model,
                "choices": [{"message": {"role": "assistant", "content": "Hi"}}],
            }
            pair = {"role": "agent", "request": {"model": "deepseek-chat"}, "response": answer}
            stream.write(json.dumps(pair) + "\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "logs" / "run.jsonl", ["deepseek-v4-flash"] * 6)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["provenance", "verify", *argv])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def manifest(folder: Path, provenance: str) -> None:
    (folder / "family.toml").write_text(
        "schema = 1\n[family]\n"
        'id = "fam"\nowner = "me"\nname = "{family}-{arm}-{step}"\nkind = "full"\n'
        'base = { repo = "org/base", revision = "' + "0" * 40 + '" }\nlicense = "apache-2.0"\n'
        '[arms.a]\nsteps = ["s1"]\n[inputs]\ncheckpoint = "runs/{arm}"\n' + provenance
    )


TEACHER = """[provenance]
status = "logs"
[provenance.teacher]
logs = "logs/*.jsonl"
requested = "deepseek-chat"
claim = "{claim}"
"""


def test_a_confirmed_claim_is_a_table_and_exit_0(project: Path, capsys) -> None:
    code, out, err = run(capsys, "logs/*.jsonl", "--claim", "DeepSeek V4 Flash")
    assert code == 0
    assert out.splitlines() == [
        "source\tclaimed\trequested\treported in raw responses\tverdict",
        "agent\tDeepSeek V4 Flash\tdeepseek-chat\tdeepseek-v4-flash 6/6\t"
        "✓ resolved: the logs report this name, not a copy of the request",
    ]
    assert "note  deepseek-chat was an alias of deepseek-v4-flash" in err
    grade = "evidence grade B (responses as a client saves them)"
    assert f"verdict RESOLVED, {grade}: 1 file, 6 lines, responses dated 2026-" in err


def test_a_row_has_no_tick_when_the_logs_as_a_whole_have_none(project: Path, capsys) -> None:
    log = project / "logs" / "run.jsonl"
    log.write_text(log.read_text() + "not json\n")
    code, out, err = run(capsys, "logs")
    assert code == 0
    assert out.splitlines()[1].endswith("\t! partial: some lines could not be counted")
    assert "verdict PARTIAL" in err
    write_log(log, ["deepseek-v4-flash"] * 3)
    log.write_text(log.read_text().replace("1781000000", "1745300000"))
    code, out, err = run(capsys, "logs")
    assert code == 3
    assert out.splitlines()[1].endswith("\t✗ suspect: see the first note")
    assert "✓" not in out
    first = next(line for line in err.splitlines() if line.startswith("note  "))
    assert "that name came into use on 2026-04-24" in first
    assert "error[HT211]: the logs are suspect: deepseek-v4-flash is reported for 2025-" in err


def test_an_alias_as_claim_passes_with_a_word(project: Path, capsys) -> None:
    code, _, err = run(capsys, "logs", "--claim", "deepseek-chat")
    assert code == 0
    assert "note  the claim deepseek-chat is an alias" in err


def test_an_empty_log_stops_at_the_log(project: Path, capsys) -> None:
    (project / "logs" / "run.jsonl").write_text("")
    code, _, err = run(capsys, "logs")
    assert code == 3
    assert "error[HT212]" in err
    assert "at logs/run.jsonl\n" in err


def test_json_is_one_object(project: Path, capsys) -> None:
    code, out, _ = run(capsys, "logs", "--claim", "deepseek-v4-flash", "--json")
    (line,) = out.splitlines()
    data = json.loads(line)
    assert code == 0
    assert data["schema"] == "hubtools.provenance-verify/1"
    assert (data["verdict"], data["grade"], data["error"]) == ("RESOLVED", "B", None)
    assert data["roles"]["agent"]["k"] == data["roles"]["agent"]["n"] == 6
    assert set(data["created"]) == {"from", "to"}


def test_a_contradicted_claim_exits_3_both_ways(project: Path, capsys) -> None:
    code, out, err = run(capsys, "logs", "--claim", "claude-x")
    assert code == 3
    assert "✗ contradicts the claim" in out
    assert "error[HT210]: teacher claim contradicted by the logs" in err
    assert "claim   claude-x (--claim)" in err
    code, out, _ = run(capsys, "logs", "--claim", "claude-x", "--json")
    (line,) = out.splitlines()
    assert code == 3
    assert json.loads(line)["error"]["id"] == "HT210"


def test_quiet_prints_the_word_alone(project: Path, capsys) -> None:
    code, out, err = run(capsys, "logs", "-q")
    assert (code, out, err) == (0, "RESOLVED\n", "")


def test_a_manifest_says_where_and_what(project: Path, capsys, monkeypatch) -> None:
    manifest(project, TEACHER.format(claim="DeepSeek V4 Flash"))
    assert run(capsys, str(project))[0] == 0
    assert run(capsys)[0] == 0
    manifest(project, TEACHER.format(claim="claude-x"))
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    code, _, err = run(capsys, "..")
    assert code == 3
    assert "claude-x (" in err
    assert "family.toml:" in err


def test_a_server_of_ones_own(project: Path, capsys) -> None:
    code, out, err = run(capsys, "logs", "--self-hosted", "--weights", "1" * 64)
    assert code == 0
    assert "! name only" in out
    assert "whatever its operator configured" in err


@pytest.mark.parametrize(
    ("argv", "id"),
    [
        (["nothing.jsonl"], "HT201"),
        (["fam", "--claim", "x"], "HT208"),
        (["fam"], "HT207"),
        ([], "HT209"),
    ],
)
def test_wrong_use_exits_2_with_the_next_command(
    project: Path, capsys, argv: list[str], id: str
) -> None:
    (project / "fam").mkdir()
    manifest(project / "fam", '[provenance]\nstatus = "none"\nreason = "no teacher"\n')
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert f"error[{id}]" in err
    assert "next: " in err


def test_a_person_may_point_anywhere(project: Path, capsys, monkeypatch) -> None:
    (project / "work").mkdir()
    monkeypatch.chdir(project / "work")
    assert run(capsys, "../logs/*.jsonl")[0] == 0
    assert run(capsys, str(project / "logs"))[0] == 0
