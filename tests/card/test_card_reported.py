from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from hubtools.card.reported import read_reported
from hubtools.errors import UsageError

GOOD = """schema = 1
source = "the model card of a/b"
date = "2026-09-22"

[protocols.p]
title = "A benchmark"
quote = "N=500"
items = "500"

[[fact]]
id = "eval.s.em"
member = "x/s1"
value = 0.30
unit = "proportion"
n = 500
protocol = "p"
quote = "EM 0.30"

[[fact]]
id = "train.steps"
value = [50, 100]
quote = "50 and 100"
status = "unverified"
source = "a note"
"""


def read(tmp_path: Path, text: str) -> list[object]:
    file = tmp_path / "reported.toml"
    file.write_text(text, encoding="utf-8")
    return list(read_reported(file))


def refusal(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert caught.value.id == "HT085"
    return caught.value


def test_facts_carry_their_words_and_their_place(tmp_path: Path) -> None:
    file = tmp_path / "reported.toml"
    file.write_text(GOOD, encoding="utf-8")
    facts = read_reported(file)
    em = facts.get("eval.s.em", "x/s1")
    assert em is not None
    assert (em.status, em.value, em.n, em.date) == ("reported", 0.3, 500, "2026-09-22")
    assert (em.source.path, em.source.pointer) == ("reported.toml", "/fact/0")
    assert em.source.quote == "the model card of a/b: “EM 0.30”"
    steps = facts.get("train.steps", "family")
    assert steps is not None
    assert (steps.status, steps.source.quote) == ("unverified", "a note: “50 and 100”")
    described = facts.get("protocol.p.items")
    assert described is not None
    assert described.protocol == em.protocol != ""


def test_the_protocol_is_its_fields_and_not_its_title(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = read(tmp_path / "a", GOOD)[0]
    retitled = read(tmp_path / "b", GOOD.replace("A benchmark", "Another title"))[0]
    changed = read(tmp_path / "b", GOOD.replace('items = "500"', 'items = "501"'))[0]
    assert before.protocol == retitled.protocol != changed.protocol  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("value = 0.30", "value = 0.31", 10, "0.31 does not stand in its quote: 'EM 0.30'"),
        ("value = [50, 100]", "value = [50, 101]", 19, "101 does not stand in its quote"),
        ('protocol = "p"', 'protocol = "q"', 10, "no [protocols.q]"),
        ('quote = "EM 0.30"\n', "", 10, "the entry needs quote"),
        ("n = 500", "n = -1", 10, "n must be a whole number"),
        ("n = 500", "m = 500", 10, "unknown key 'm'"),
        ("n = 500", "n = 5\nk = 6", 10, "k is larger than n"),
        ('status = "unverified"', 'status = "measured"', 19, "cannot be measured"),
        ('status = "unverified"', 'status = "rumour"', 19, "unknown status 'rumour'"),
        ('member = "x/s1"', "member = 1", 10, "member must be text"),
        ("schema = 1", "schema = 2", 1, "schema must be 1"),
        ('date = "2026-09-22"', 'dates = "x"', 3, "unknown key 'dates'"),
        ('quote = "N=500"\n', "", 5, "needs a quote"),
        ("value = 0.30", "value = ", 13, "not TOML"),
        ("value = 0.30", "value = { a = 1 }", 10, "value must be text, a number"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    error = refusal(tmp_path, GOOD.replace(old, new))
    assert error.where.endswith(f"reported.toml:{line}")
    assert words in error.message


def test_one_figure_twice_is_refused(tmp_path: Path) -> None:
    again = GOOD[GOOD.index("[[fact]]") :].split("[[fact]]")[1]
    assert "there twice" in refusal(tmp_path, f"{GOOD}\n[[fact]]{again}").message


def test_no_source_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace('source = "the model card of a/b"\n', ""))
    assert "which published text" in error.message


def test_what_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_reported(tmp_path / "absent.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_reported(tmp_path / "x.toml")


@given(st.binary(max_size=60), st.integers(0, len(GOOD)), st.integers(0, 20))
def test_damage_is_read_or_refused(junk: bytes, at: int, drop: int) -> None:
    raw = GOOD.encode()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reported.toml"
        file.write_bytes(raw[:at] + junk + raw[at + drop :])
        with suppress(UsageError):
            read_reported(file)


def test_message_in_full(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("value = 0.30", "value = 0.3344"))
    assert error.message == snapshot(
        "reported figures: 0.3344 does not stand in its quote: 'EM 0.30'"
    )
    assert error.detail == snapshot(("No card was written.",))
