"""The table of a plan: whole cells for a program, short ones for a person."""

from __future__ import annotations

import pytest

from hubtools.cli.output import Output
from hubtools.cli.planview import print_plan
from hubtools.release.plan import Cell, Plan, RepoChange

LONG = "for the base model's files, which are not on this machine yet"


def test_a_piped_table_is_tab_separated_and_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(
        family="tiny",
        hub="",
        targets=("red/s4",),
        cells=(Cell("merge", "red/s4", "waits", LONG),),
        repos=(RepoChange("lab/tiny-red-s4", "red/s4", "waits"),),
        findings=(),
    )
    print_plan(Output(color="never"), plan, story=False)
    header, row = capsys.readouterr().out.splitlines()
    assert len(header.split("\t")) == len(row.split("\t")) == 8
    assert LONG in row.split("\t")[2]
    print_plan(Output(color="never"), plan, story=True)
    assert "…" in capsys.readouterr().err
    monkeypatch.setattr(Output, "on_terminal", True)
    print_plan(Output(color="never"), plan, story=False)
    assert LONG not in capsys.readouterr().out
