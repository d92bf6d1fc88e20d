from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import column, drawn, made_run, told_run

from hubtools.evaluation.compare import against, compare, compare_repeats, compared, explain


def test_two_protocols_are_explained_field_by_field_and_not_compared(tmp_path: Path) -> None:
    a = made_run(tmp_path, {"em": column(1, 0)}, dtype="bfloat16", trials=4)
    b = made_run(tmp_path, {"em": column(1, 0)}, member="r2e", dtype="float32", trials=10)
    found = explain(a, b)
    assert not found.comparable
    assert found.comparisons == ()
    assert [str(field) for field in found.differing] == [
        "dtype: bfloat16 against float32",
        "trials: 4 against 10",
    ]
    said = found.lines()
    assert said[0] == "base and r2e may not be compared"
    assert "  dtype: bfloat16 against float32" in said
    assert json.loads(json.dumps(found.to_json()))["comparable"] is False


def test_one_protocol_is_compared_with_all_that_bears_on_it(tmp_path: Path) -> None:
    a = made_run(tmp_path, {"em": drawn(1, 40, 1, 0.5)}, member="r2e", status="external")
    b = made_run(tmp_path, {"em": [[None], *drawn(2, 40, 1)[1:]]}, missing=["usage"])
    found = explain(a, b)
    assert found.comparable
    [made] = found.comparisons
    assert made == compare(a, b, "em")
    assert made.n == 39
    text = "\n".join(found.lines())
    assert text.startswith("r2e and base may be compared")
    for said in (
        *("40 questions in common, of 40 and 40", "r2e: external, weights r2er2er2er2e, seed 0"),
        *("base: not recorded: usage", "base: failed samples, not scored: 1"),
        "em: r2e - base = +0.",
    ):
        assert said in text


def test_runs_of_the_same_weights_differ_by_chance(tmp_path: Path) -> None:
    a, b = (made_run(tmp_path, {"em": drawn(s, 9, 1)}, seed=s) for s in (1, 2))
    assert explain(a, b).reasons[-1] == "the weights are the same: what differs is chance"
    other = made_run(tmp_path, {"em": drawn(1, 9, 1)}, dtype="float32")
    assert explain(a, other).reasons[-1].endswith("what differs is chance or the protocol")


def test_nothing_in_common_is_said_and_not_raised(tmp_path: Path) -> None:
    a = made_run(tmp_path, {"em": column(1, None)})
    b = made_run(tmp_path, {"em": column(None, 1)}, member="mi")
    found = explain(a, b)
    assert not found.comparable
    assert "em: base and mi have no scored question in common" in found.reasons


def test_trials_are_paired_item_by_item(tmp_path: Path) -> None:
    """The error of a difference is that over 20 items, not over 80 answers."""
    a = made_run(tmp_path, {"em": drawn(1, 20, 4, 0.2)}, member="r2e")
    b = made_run(tmp_path, {"em": drawn(2, 20, 4)})
    found = compare(a, b, "em")
    assert found.n == 20
    assert found.method.startswith("paired by item")
    assert compare(b, a, "em").diff == pytest.approx(-found.diff)


def test_repeats_sharpen_a_difference(tmp_path: Path) -> None:
    a = [made_run(tmp_path, {"em": drawn(s, 40, 1, 0.2)}, member="r2e", seed=s) for s in range(4)]
    b = [made_run(tmp_path, {"em": drawn(s + 9, 40, 1)}, seed=s) for s in range(4)]
    one, four = compare(a[0], b[0], "em"), compare_repeats(a, b, "em")
    assert four.high - four.low < one.high - one.low
    assert four.resolvable < one.resolvable


def test_a_macro_difference_weighs_categories_alike(tmp_path: Path) -> None:
    categories = ["large"] * 40 + ["small"] * 4
    a = made_run(
        *(tmp_path, {"em": column(*[0.0] * 40, *[1.0] * 4)}),
        **{"member": "r2e", "categories": categories, "average": "macro"},
    )
    b = made_run(tmp_path, {"em": column(*[0.0] * 44)}, categories=categories, average="macro")
    micro = compare(a, b, "em")
    macro = compare_repeats([a], [b], "em", part="macro")
    assert (micro.diff, macro.diff) == (pytest.approx(4 / 44), 0.5)
    assert macro.metric == "macro em"
    assert [made.metric for made in explain(a, b).comparisons] == ["macro em", "em"]
    assert macro.low < 0.5 < macro.high
    assert macro.p == pytest.approx(micro.p)  # the same four questions, each as heavy


def test_holm_can_take_back_what_one_interval_shows(tmp_path: Path) -> None:
    base = made_run(tmp_path, {"em": column(*[0.0] * 30)})
    lucky = made_run(tmp_path, {"em": column(*[1.0] * 6, *[0.0] * 24)}, member="lucky")
    alone = compare(lucky, base, "em")
    assert not alone.within_noise
    sisters = [[lucky]] + [
        [made_run(tmp_path, {"em": column(*[0.0] * 30)}, member=f"m{i}")] for i in range(6)
    ]
    together = against([base], sisters, "em")[0]
    assert together.p_holm == pytest.approx(7 * alone.p)
    assert together.within_noise
    assert "after Holm: within noise" in str(together)
    assert not math.isnan(together.p)


def test_all_metrics_and_the_macro_mean_are_corrected_each_for_itself(tmp_path: Path) -> None:
    how = {"categories": ["a", "a", "b", "b"], "average": "macro"}
    mine, *others = (
        [made_run(tmp_path, {m: column(*row) for m in ("em", "f1")}, member=name, **how)]
        for name, row in {"r2e": (1, 1, 1, 0), "base": (0, 0, 0, 0), "mi": (1, 1, 0, 0)}.items()
    )
    made = compared(mine, others)
    assert [(one.metric, one.b) for one in made] == [
        (f"{part}{metric}", b)
        for part in ("", "macro ")
        for metric in ("em", "f1")
        for b in ("base", "mi")
    ]
    assert made[0].p_holm == pytest.approx(min(1, 2 * made[0].p))
    assert [one.p_holm for one in compared(mine, others[:1])] == [None] * 4


def test_a_metric_of_one_side_is_left_out(tmp_path: Path) -> None:
    a = made_run(tmp_path, {"em": column(1, 0), "f1": column(1, 0)})
    b = made_run(tmp_path, {"em": column(1, 1)}, member="mi")
    assert [made.metric for made in explain(a, b).comparisons] == ["em"]
    assert explain(a, replace(b, metrics={}, grids={})).comparable is False


def test_figures_alone_are_compared_unpaired_and_never_tested(tmp_path: Path) -> None:
    measured = made_run(tmp_path, {"em": column(*[1.0] * 12, *[0.0] * 8)})
    told = told_run(tmp_path, 5, 20, member="r2e")
    found = explain(measured, told)
    assert not found.comparable
    assert "em: r2e: figures alone, no samples to pair" in found.reasons
    assert found.reasons[-1] == (
        "em: base - r2e = +0.350 (+0.044 to +0.578), unpaired:"
        " wider than pairs of the same questions would be"
    )


def test_equal_answers_are_said_to_be_equal_and_not_chance(tmp_path: Path) -> None:
    a, b = (made_run(tmp_path, {"em": drawn(1, 64, 1)}, seed=seed) for seed in (0, 1))
    assert explain(a, b).reasons[-1] == "all 64 answers that both have are equal"


def test_different_suites_are_one_line(tmp_path: Path) -> None:
    a = made_run(tmp_path, {"em": column(1, 0)})
    found = explain(a, replace(a, suite="other", protocol_id="ff"))
    assert not found.comparable
    assert found.lines() == [
        "base and base may not be compared",
        "  different suites: made and other",
    ]
