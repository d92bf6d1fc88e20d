"""`evaluate table | compare` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import column, made_run

from hubtools.cli.failure import run
from hubtools.cli.main import cli


def test_a_baseline_that_is_no_row_is_exit_2_with_the_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for member in ("a", "b"):
        made_run(tmp_path, {"em": column(1, 0)}, member=member)
    assert run(cli, ["evaluate", "table", str(tmp_path), "--baseline", "nope"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "No row is called 'nope'; there are: a, b." in said.err
    assert run(cli, ["evaluate", "table", str(tmp_path), "--baseline", "b"]) == 0
    assert "em: a - b = " in capsys.readouterr().err


def test_piped_and_markdown_tables_say_their_protocol(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0)}, dtype=d) for d in ("bfloat16", "float32")]
    ids = [one.protocol_id[:12] for one in runs]
    assert run(cli, ["evaluate", "table", str(tmp_path)]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[-1] for row in rows] == ["protocol", ids[0], "protocol", ids[1]]
    assert run(cli, ["evaluate", "table", str(tmp_path), "--markdown"]) == 0
    out = capsys.readouterr().out
    assert all(f"- protocol {one} · " in out for one in ids)


def test_what_may_not_be_compared_is_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (
        str(made_run(tmp_path, {"em": column(1, 0)}, member=m, dtype=dtype).path)
        for m, dtype in (("a", "bfloat16"), ("b", "float32"))
    )
    assert run(cli, ["evaluate", "compare", a, b]) == 3
    assert "may not be compared" in capsys.readouterr().out
    assert run(cli, ["--json", "evaluate", "compare", a, b]) == 3
    assert json.loads(capsys.readouterr().out)["comparable"] is False
    assert run(cli, ["evaluate", "compare", a, a]) == 0
