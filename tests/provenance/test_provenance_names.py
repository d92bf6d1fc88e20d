"""Model names and the alias table."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdict_support import APRIL_2025, JUNE_2026, TABLE

from hubtools.errors import UsageError
from hubtools.provenance.aliases import AliasTable, load_aliases, parse_aliases
from hubtools.provenance.names import canonical, is_path, pinned, same, shown, snapshot_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("DeepSeek V4 Flash", "deepseek-v4-flash"),
        ("Claude Sonnet 4.5", "claude-sonnet-4-5"),
        ("grok-4", "x-ai/grok-4"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google/gemini-2.0-flash-exp:free", "gemini-2.0-flash-exp"),
        ("meta-llama/Llama-3.3-70B-Instruct", "together_ai/meta-llama/Llama-3.3-70B-Instruct"),
        ("Org/Model@main", "org/model"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet-20240620"),
    ],
)
def test_one_model_in_two_spellings(one: str, other: str) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpt-4", "gpt-4o"),
        ("my-gpt-4", "gpt-4"),
        ("a/model", "b/model"),
        ("grok-4", "grok-4-fast"),
        ("", ""),
        ("x", ""),
    ],
)
def test_two_models_stay_two(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"),
        ("claude-sonnet-4-5-20250929", "Claude Sonnet 4.5"),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
        ("gpt-4-1106-preview", "gpt-4"),
        ("gemini-2.5-pro-preview-03-25", "gemini-2.5-pro"),
        ("gemini-1.5-pro-002", "gemini-1.5-pro"),
    ],
)
def test_a_dated_name_is_a_snapshot(snapshot: str, name: str) -> None:
    assert snapshot_of(snapshot, name)
    assert not snapshot_of(name, snapshot)
    assert pinned(snapshot)
    assert not pinned(name)


def test_a_size_is_no_date_and_two_dates_are_two_models() -> None:
    assert not pinned("llama-3-70b")
    assert not pinned("deepseek-v3.2")
    assert not snapshot_of("gpt-4o-2024-08-06", "gpt-4o-2024-05-13")
    assert not snapshot_of("gpt-4o-mini-2024-07-18", "gpt-4o")


@given(st.text(max_size=40))
def test_canonical_is_idempotent_on_plain_names(name: str) -> None:
    plain = name.replace("@", "").replace(":", "").removeprefix("models/")
    assert canonical(canonical(plain)) == canonical(plain) or canonical(plain).startswith("models/")


def test_a_path_is_published_by_its_last_part() -> None:
    assert shown("/home/somebody/weights/base/") == "…/base"
    assert shown(r"C:\models\base") == "…/base"
    assert shown("../.cache/base@main") == "…/base@main"
    assert not is_path("org/model")
    assert shown("org/model") == "org/model"


def test_the_table_has_dates_sources_and_no_gaps_for_a_name() -> None:
    assert {row.name for row in TABLE.aliases} >= {"deepseek-chat", "deepseek-reasoner"}
    for row in TABLE.aliases:
        assert row.source.startswith("https://")
        assert row.retrieved
        official = ("https://api-docs.deepseek.com/", "https://huggingface.co/deepseek-ai/")
        assert (row.kind == "provider") == row.source.startswith(official)
    assert all(row.kind == "provider" for row in TABLE.introduced)
    for name in {row.name for row in TABLE.aliases}:
        rows = TABLE.rows(name)
        for earlier, later in pairwise(rows):
            assert earlier.until == later.since, f"{name}: {earlier.target} to {later.target}"


def test_an_alias_is_looked_up_by_time() -> None:
    def targets(name: str, since: float | None, until: float | None) -> list[str]:
        return [row.target for row in TABLE.within(name, since, until)]

    assert targets("deepseek-chat", JUNE_2026, JUNE_2026) == ["deepseek-v4-flash"]
    assert targets("deepseek-reasoner", APRIL_2025, APRIL_2025) == ["DeepSeek-R1"]
    new_year = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert targets("deepseek-chat", new_year, JUNE_2026) == ["DeepSeek-V3.2", "deepseek-v4-flash"]
    assert len(targets("deepseek-reasoner", None, None)) == len(TABLE.rows("deepseek-reasoner")) > 5
    assert targets("unknown-model", JUNE_2026, JUNE_2026) == []
    switch = datetime(2026, 7, 31, tzinfo=UTC).timestamp()
    assert targets("deepseek-v4-flash", switch, switch) == ["DeepSeek-V4-Flash-0731"]


OWN = """schema = 1
[[alias]]
name = "deepseek-chat"
target = "Own-Model"
source = "https://example.com/alias"
retrieved = 2026-01-01
"""


def test_a_project_replaces_the_rows_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "aliases.toml"
    path.write_text(OWN)
    table = load_aliases(path)
    assert [row.target for row in table.rows("deepseek-chat")] == ["Own-Model"]
    assert table.rows("deepseek-reasoner") == TABLE.rows("deepseek-reasoner")
    assert table.introduced == TABLE.introduced
    assert table.rows("deepseek-chat")[0].kind == "third party"
    assert AliasTable().within("deepseek-chat", 0, 1) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1\nbroken\n", "t.toml:2"),
        ("schema = 2", "schema = 1"),
        (OWN + "[[allias]]\n", "only [[alias]]"),
        (OWN.replace('target = "Own-Model"\n', ""), "lacks target"),
        (OWN + 'kind = "rumour"\n', 'kind = "provider" or "third party"'),
        (OWN + "form = 1\n", "unknown keys: form"),
        (OWN + "from = 2026-01-01\n", "needs times like"),
        ("schema = 1\nalias = 3", "needs [[alias]] tables"),
    ],
)
def test_a_wrong_table_is_told_where(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_aliases(text, "t.toml")
    assert error.value.id == "HT205"
    assert said in str(error.value)
    assert error.value.message.endswith("; nothing was verified")
    assert error.value.detail == ()


def test_a_missing_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read") as error:
        load_aliases(tmp_path / "none.toml")
    assert error.value.id == "HT205"
