from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import column, drawn, made_run, told_run

from hubtools.errors import CheckError
from hubtools.evaluation.compare import compare_repeats, compared
from hubtools.evaluation.run_facts import repeats_record
from hubtools.evaluation.tables import metric_json, metric_tables


def test_runs_of_one_protocol_share_a_table_and_the_others_name_what_differs(
    tmp_path: Path,
) -> None:
    """Base and checkpoint, each with and without the nudge: two tables of two."""
    scores = {"em": column(1, 0, 1, 0)}
    nudged = {"text": "{question}", "nudge": "Final answer:"}
    runs = [
        made_run(tmp_path, scores, member=member, prompt=prompt)
        for prompt in ({"text": "{question}"}, nudged)
        for member in ("base", "r2e")
    ]
    plain, with_nudge = metric_tables(runs)
    assert [row[0] for row in plain.rows] == [row[0] for row in with_nudge.rows] == ["base", "r2e"]
    assert plain.differs == ()
    assert [str(d) for d in with_nudge.differs] == [
        "prompt.nudge: not stated against Final answer:"
    ]
    assert with_nudge.notes[0] == (
        "not comparable with the first table, which has another protocol:"
        " prompt.nudge: Final answer: here, not stated there"
    )


def test_a_macro_suite_shows_macro_micro_and_parts_with_their_own_sizes(tmp_path: Path) -> None:
    ems = column(*[1.0] * 2, *[0.0] * 6, 1.0, 1.0)
    run = made_run(
        tmp_path,
        {"em": ems},
        categories=["nq"] * 8 + ["bamboogle"] * 2,
        average="macro",
        limit=8,
    )
    [table] = metric_tables([run])
    assert table.columns == (
        *("checkpoint", "suite", "macro em", "macro em 95%", "micro em", "nq", "bamboogle"),
        *("n", "failed"),
    )
    [row] = table.rows
    assert (row[2], row[4:]) == ("0.625", ("0.400", "0.250", "1.000", "10", "0"))
    assert "questions: nq 8, bamboogle 2" in table.notes
    assert "bamboogle has 2 questions; 8 were asked for" in table.notes
    assert run.macro["em"]["value"] == 0.625


@pytest.mark.parametrize(
    ("seeds", "shown"),
    [
        ([1], "0.500"),
        ([1, 2], "0.500 and 0.250"),
        ([1, 2, 3], "0.500 (SD 0.250 of 3 runs)"),
        ([1, 4], "0.500 (2 equal runs)"),
    ],
)
def test_repeats_share_a_row_and_no_plus_minus_goes_without_its_kind(
    tmp_path: Path, seeds: list[int], shown: str
) -> None:
    by_seed = {1: (1, 1, 0, 0), 2: (1, 0, 0, 0), 3: (1, 1, 1, 0), 4: (0, 0, 1, 1)}
    runs = [made_run(tmp_path, {"em": column(*by_seed[seed])}, seed=seed) for seed in seeds]
    [table] = metric_tables([*runs, runs[0]])  # the same run twice counts once
    [row] = table.rows
    assert row[2] == shown
    assert "±0" not in " ".join((*row, *table.notes))
    low, high = map(float, row[3].split("–"))
    assert low < 0.5 < high


def test_other_weights_under_the_same_name_are_another_row(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0)}, weights=digest) for digest in ("aa", "bb")]
    [table] = metric_tables(runs)
    assert [row.runs[0].weights for row in table.lines] == ["aa", "bb"]
    assert [row.label for row in table.lines] == ["base [weights aa]", "base [weights bb]"]
    [made] = table.comparisons
    assert (made.a, made.b) == ("base [weights bb]", "base [weights aa]")


def test_unknown_weights_are_never_one_checkpoint(tmp_path: Path) -> None:
    """A server may have been given another model between two runs."""
    told = [
        replace(made_run(tmp_path, {"em": column(*row)}, seed=seed), weights="")
        for seed, row in enumerate([(1, 1, 1, 1), (0, 0, 0, 0)])
    ]
    [table] = metric_tables(told)
    assert [(row[0], row[2], row[4]) for row in table.rows] == [
        ("base [seed 0]", "1.000", "4"),
        ("base [seed 1]", "0.000", "4"),
    ]
    assert not [note for note in table.notes if "pass@" in note]
    with pytest.raises(CheckError, match="not known to be the same"):
        repeats_record(told, ["a", "b"])


def test_other_files_of_the_model_are_another_checkpoint(tmp_path: Path) -> None:
    a, b = (made_run(tmp_path, {"em": column(1, 0)}, seed=seed) for seed in (0, 1))
    [table] = metric_tables([replace(a, model_files="aa"), replace(b, model_files="bb")])
    assert [row.label for row in table.lines] == ["base [seed 0]", "base [seed 1]"]


def test_a_macro_mean_over_fewer_categories_is_none_and_wins_nothing(tmp_path: Path) -> None:
    how: dict[str, Any] = {"categories": ["easy", "easy", "hard", "hard"], "average": "macro"}
    runs = [
        made_run(tmp_path, {"em": column(1, 1, 1, 0)}, **how),
        made_run(tmp_path, {"em": column(1, 1, None, None)}, member="part", **how),
        made_run(tmp_path, {"em": column(1, 1, 0, 0)}, member="low", **how),
    ]
    [table] = metric_tables(runs, best=True)
    assert [row[2] for row in table.rows] == ["0.750", "—", "0.500"]
    assert [(made.a, made.b) for made in table.comparisons] == [("low", "base")]
    assert "part: no macro mean, nothing was scored in hard" in table.notes
    assert table.selection is not None
    assert table.selection.of == 2
    assert [note for note in table.notes if note.startswith("best on macro em: base, ")]
    assert [one.metric for one in compared([runs[1]], [[runs[0]]])] == ["em"]
    with pytest.raises(CheckError, match="no scored question of every category in common"):
        compare_repeats([runs[1]], [runs[0]], "em", part="macro")


def test_the_macro_mean_of_one_category_is_its_mean(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, {"em": column(1, 1, 0, 0)}, member=member, average="macro")
        for member in ("base", "mi")
    ]
    [table] = metric_tables(runs, best=True)
    assert [row[2] for row in table.rows] == ["0.500", "0.500"]
    assert runs[0].macro["em"]["value"] == 0.5


def test_nothing_scored_in_common_leaves_a_table_without_the_comparison(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, {"em": column(*row)}, member=member)
        for member, row in {"base": (1, None), "mi": (None, 1)}.items()
    ]
    [table] = metric_tables(runs, best=True)
    assert "mi: not compared, too little was scored there or in base" in table.notes


def test_a_small_suite_says_what_it_cannot_show(tmp_path: Path) -> None:
    one = made_run(tmp_path, {"em": drawn(1, 64, 1)})
    [alone] = metric_tables([one])
    assert [note for note in alone.notes if "cannot be seen" in note] == [
        "64 questions: differences below 0.23 cannot be seen, with figures alone (less in pairs)"
    ]  # 2.8 √(2 · 0.33 · 0.67 / 64)
    others = [
        made_run(tmp_path, {"em": drawn(1, 64, 1, better)}, member=f"m{at}")
        for at, better in enumerate((0.1, 0.6))
    ]
    [three] = metric_tables([one, *others])
    [note] = [note for note in three.notes if "cannot be seen" in note]
    low, high = sorted(f"{made.resolvable:.2f}" for made in three.comparisons)
    assert low < high
    said = f"64 questions: differences below {low} to {high} cannot be seen, question by question"
    assert note == said  # the bounds that the lines of the pairs give


def test_the_floor_stands_in_every_table_and_flags_what_it_explains(tmp_path: Path) -> None:
    """A policy that refuses everything scores 6 of 20: 0.30 with a model shows nothing."""
    refusing = column(*[1.0] * 6, *[0.0] * 14)
    floor = made_run(tmp_path, {"em": refusing}, member="refuse", backend="policy", dtype=None)
    weak = made_run(tmp_path, {"em": drawn(3, 20, 4)}, member="base")
    strong = made_run(tmp_path, {"em": [[1.0] * 4] * 18 + [[0.0] * 4] * 2}, member="r2e")
    other = made_run(tmp_path, {"em": refusing}, member="mi", dtype="float32")
    first, second = metric_tables([weak, floor, strong, other])
    assert [row.label for row in first.lines] == ["base", "r2e", "refuse (floor)"]
    assert [row.label for row in second.lines] == ["mi", "refuse (floor)"]
    assert [row.near_floor for row in first.lines] == [("em",), (), ()]
    assert first.rows[0][3].endswith(", holds the floor")
    assert "base: em cannot be told from the floor" in first.notes
    assert len([note for note in first.notes if "told from the floor" in note]) == 1


def test_failures_are_counted_and_both_conventions_given(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"em": column(1, 0, 1, None)})
    [table] = metric_tables([run])
    assert table.rows[0][2:] == ("0.667", table.rows[0][3], "3", "1")
    assert (
        "base: 1 of 4 samples failed (infrastructure 1); em 0.667 without them,"
        " 0.500 with them as 0" in table.notes
    )


def test_tiers_passes_and_what_is_missing_are_said(tmp_path: Path) -> None:
    scores = {"em": [[1.0, 1.0, 0.0, 0.0]] * 3}
    run = made_run(tmp_path, scores, tiers=[1, 2, 2], status="external", missing=["served model"])
    [table] = metric_tables([run])
    assert table.rows[0][0] == "base (external)"
    assert (
        "base (external): answers by the extractor's rung that found them: rung 1: 4, rung 2: 8"
        in (table.notes)
    )
    assert (
        "base (external): em pass@2 0.833, pass@4 1.000, pass^2 0.167, pass^4 0.000" in table.notes
    )
    assert "base (external): not recorded: served model" in table.notes


def test_sisters_are_compared_with_the_base_under_holm_and_the_best_is_disclosed(
    tmp_path: Path,
) -> None:
    runs = [
        made_run(tmp_path, {"em": drawn(seed, 60, 2, better)}, member=member)
        for seed, (member, better) in enumerate(
            {"mi": 0.0, "base": 0.0, "r2e": 0.4, "cot": 0.0}.items()
        )
    ]
    [table] = metric_tables(runs, best=True)
    assert [(made.a, made.b) for made in table.comparisons] == [
        ("mi", "base"),
        ("r2e", "base"),
        ("cot", "base"),
    ]
    mi, r2e, _ = table.comparisons
    assert not r2e.within_noise
    assert mi.within_noise
    assert r2e.p_holm == pytest.approx(3 * r2e.p)
    assert "p corrected by Holm for 3 comparisons with base on each metric" in table.notes
    assert table.selection is not None
    assert table.selection.of == 4
    [said] = [note for note in table.notes if note.startswith("best on")]
    assert said.startswith("best on em: r2e, picked from 4; it lies ")
    assert not [note for note in metric_tables(runs)[0].notes if note.startswith("best")]


def test_two_checkpoints_need_no_correction(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0)}, member=member) for member in ("base", "mi")]
    [table] = metric_tables(runs)
    assert [made.p_holm for made in table.comparisons] == [None]
    assert not [note for note in table.notes if "Holm" in note]


def test_json_and_markdown_say_the_same_as_the_terminal(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, {"em": drawn(1, 20, 4), "f1": drawn(2, 20, 4)}, member=member)
        for member in ("base", "a|b")
    ]
    [table] = metric_tables(runs, best=True)
    plain = json.loads(json.dumps(table.to_json(), allow_nan=False))
    [base, _] = plain["rows"]
    assert f"{base['figures']['all']['em']['value']:.3f}" == table.rows[0][2]
    assert base["figures"]["all"]["em"]["pass^4"]["value"] <= base["figures"]["all"]["em"]["value"]
    assert plain["notes"] == list(table.notes)
    assert plain["comparisons"][0]["metric"] == "em"
    lines = table.markdown().splitlines()
    assert lines[0].count("|") == lines[2].count("|") == len(table.columns) + 1
    assert lines[3].startswith("| a\\|b (best) | made |")
    assert f"- {table.caption}" in lines
    assert metric_json(runs[0])["em"] == base["figures"]["all"]["em"]


def test_reported_figures_stand_beside_measured_ones_and_are_named(tmp_path: Path) -> None:
    told = told_run(tmp_path, 5, 20, member="r2e")
    runs = [made_run(tmp_path, {"em": drawn(1, 20, 1)}), told]
    [table] = metric_tables(runs, best=True)
    assert table.rows[1][0] == "r2e (reported)"
    assert table.rows[1][2:] == ("0.250", "0.112–0.469", "20", "0")
    assert table.comparisons == ()
    assert table.selection is None
    assert "r2e (reported): figures alone, not compared" in table.notes
    [alone] = metric_tables([told])
    assert alone.metrics == ("em",)


def test_runs_of_other_questions_are_no_repeats_and_are_not_compared(tmp_path: Path) -> None:
    """A foreign harness may lose a question and still say the same of its protocol."""
    runs = [
        made_run(tmp_path, {"em": column(*[1.0] * count)}, member=member)
        for member, count in (("base", 4), ("base", 3), ("mi", 3))
    ]
    [table] = metric_tables(runs)
    assert [row[4] for row in table.rows] == ["4", "3", "3"]
    assert table.comparisons == ()
    assert table.baseline.startswith("base [")
    assert f"mi: other questions than {table.baseline}, not compared" in table.notes


def test_a_table_names_its_baseline_and_every_best(tmp_path: Path) -> None:
    rows = {"a": (1, 1, 0, 0), "b": (1, 0, 1, 0), "c": (0, 0, 0, 0)}
    runs = [made_run(tmp_path, {"em": column(*r)}, member=member) for member, r in rows.items()]
    [table] = metric_tables(runs, best=True)
    assert [row[0] for row in table.rows] == ["a (best)", "b (best)", "c"]
    assert [note for note in table.notes if "a and b (equal), picked from 3" in note]
    assert "compared with a, the first row (choose one with --baseline)" in table.notes
    [chosen] = metric_tables(runs, baseline="c")
    assert {made.b for made in chosen.comparisons} == {"c"}
    assert not [note for note in chosen.notes if "first row" in note]
    [told] = metric_tables([*runs, told_run(tmp_path, 20, 20, member="r")], best=True)
    assert told.best == ("a", "b")  # figures alone cannot be picked


def test_a_caption_says_all_seeds_and_what_only_some_rows_have(tmp_path: Path) -> None:
    base, tuned = (
        made_run(tmp_path, {"em": column(1, 0)}, member=member, seed=seed)
        for seed, member in enumerate(("base", "r2e"))
    )
    base = replace(base, engine={"backend": "transformers", "versions": {"torch": "2"}})
    more = {"backend": "transformers", "versions": {"torch": "2", "peft": "0.21"}}
    [table] = metric_tables([base, replace(tuned, engine=more)])
    assert table.caption == (
        f"protocol {base.protocol_id[:12]} · transformers · torch 2 · peft 0.21 (not for all)"
        " · seeds 0, 1"
    )


def test_several_tables_carry_their_protocol_in_every_row(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0)}, dtype=d) for d in ("bfloat16", "float32")]
    tables = metric_tables(runs)
    assert [table.columns[-1] for table in tables] == ["protocol"] * 2
    assert [table.rows[0][-1] for table in tables] == [run.protocol_id[:12] for run in runs]


def test_answers_that_were_cut_off_are_counted_under_the_table(tmp_path: Path) -> None:
    run = replace(made_run(tmp_path, {"em": column(1, 0, 0, 0)}), cut_off=3)
    [table] = metric_tables([run])
    assert "base: 3 of 4 answers were cut off (tokens, turns or context)" in table.notes


def test_a_category_with_a_line_end_stays_one_column(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"em": column(1, 0)}, categories=["a\n|b", "c\td"])
    [table] = metric_tables([run])
    assert table.columns[4:6] == ("a |b", "c d")
    heading = table.markdown().splitlines()[0]
    assert heading.replace("\\|", "").count("|") == len(table.columns) + 1


def test_a_wide_table_can_be_brief(tmp_path: Path) -> None:
    scores = {"em": column(1, 0), "f1": column(1, 0.5)}
    run = made_run(tmp_path, scores, categories=["a", "b"], average="macro")
    [table] = metric_tables([run])
    short = replace(table, brief=True)
    assert short.columns == (
        *("checkpoint", "suite", "macro em", "macro em 95%", "macro f1", "n", "failed"),
    )
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert short.rows == (tuple(cells[name] for name in short.columns),)
