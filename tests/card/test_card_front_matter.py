from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from card_builders import OTHER_PROTOCOL, PROTOCOL, SUITE, evaluation, measured
from hypothesis import example, given
from hypothesis import strategies as st

from hubtools.card.front_matter import emit, metadata, model_index, parse
from hubtools.card.model import CardInput, Suite
from hubtools.errors import CheckError
from hubtools.facts import FactSet

scalars = st.one_of(
    st.text(max_size=30),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not math.isinf(x)),
)
keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
TRAPS = """no yes on off y n true False null ~ 3.10 0.30 0755 0o17 0x1f 1e5 1e-5 12:30:45 50:50
3_500 2026-11-30 0123456 =  << @x %x !x &x *x >x |x {x [x 'x #x -x ?x :x ,x x: NaN .inf τ²
""".split()


@given(st.dictionaries(keys, st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=4))
@example(
    {"language": "no", "tags": [*TRAPS, "", " ", "a: b", "a #b", "- a", "x\ny", "\u2028", "x "]}
)
@example(dict.fromkeys(TRAPS, 1))
def test_both_yaml_versions_read_what_was_written(fields: dict[str, Any]) -> None:
    text = emit(fields)
    as_yaml_11 = yaml.safe_load(text.removeprefix("---\n").removesuffix("---\n"))
    assert (as_yaml_11 or {}) == fields
    as_yaml_12, body = parse(text + "body\n")
    assert as_yaml_12 == fields
    assert body == "body\n"


def test_a_word_stays_a_word_in_what_people_wrote() -> None:
    text = "---\nlanguage: [no, on]\nsha: 0123456\nversion: 1e5\nday: 2026-11-30\nx: ~\n---\n"
    fields, _ = parse(text)
    assert fields == {
        "language": ["no", "on"],
        "sha": 123456,
        "version": 100000.0,
        "day": "2026-11-30",
        "x": None,
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("---\nlicense: mit\na:\n  b: 1\n  b: 2\n---\n", 5, "key 'b' is there twice"),
        ("---\nlicense: mit\nlicense: other\n---\n", 3, "key 'license' is there twice"),
        ("---\na: b: c\n---\n", 2, "mapping values are not allowed here"),
        ("---\n\tx: 1\n---\n", 2, "found character"),
        ("---\n- a\n---\n", 2, "not a mapping"),
        ("---\nx: !!python/object:os.system 1\n---\n", 2, "could not determine a constructor"),
        ("---\n[1, 2]: x\n---\n", 2, "a key is not plain text"),
    ],
)
def test_unreadable_front_matter_names_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse(text)
    assert caught.value.id == "HT084"
    assert caught.value.where == f"README.md:{line}"
    assert words in caught.value.message


@pytest.mark.parametrize(
    "value",
    ["!!bool maybe", "!!timestamp x", "!!int x", "!!float x", "9" * 5000, "[" * 3000, "!!set [a]"],
)
def test_values_that_cannot_be_are_refused(value: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse(f"---\nx: {value}\n---\n")
    assert caught.value.id == "HT084"


yaml_like = st.text(st.sampled_from("---\n:[]{}!&*#|>?'\"a1.e \t\\%@`,"), max_size=40)


@given(yaml_like)
def test_any_front_matter_is_read_or_refused(inner: str) -> None:
    with suppress(CheckError):
        parse(f"---\n{inner}\n---\nbody")


def test_no_front_matter_is_an_empty_one() -> None:
    assert parse("# Title\n") == ({}, "# Title\n")
    assert parse("---\n---\nx\n") == ({}, "x\n")


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(CheckError) as caught:
        emit({"path": Path("x")})
    assert caught.value.id == "HT087"


def test_metadata_names_base_and_relation(card: Callable[..., CardInput]) -> None:
    full = metadata(card(datasets=("demo/answers", "./data/x.jsonl", "https://x.org/d")))
    assert full["base_model_relation"] == "finetune"
    assert full["datasets"] == ["demo/answers"]
    assert "model-index" not in full
    assert "license_name" not in full
    adapter = metadata(card(kind="adapter"))
    assert (adapter["base_model_relation"], adapter["library_name"]) == ("adapter", "peft")
    assert metadata(card(kind="merged"))["library_name"] == "transformers"


def two_protocols(card: Callable[..., CardInput]) -> CardInput:
    other = Suite("short_qa", "Short-answer QA, sampled", "", {"t": 1}, OTHER_PROTOCOL, ("em",))
    facts = (
        *evaluation("plain/s4", 22, 0.43),
        measured("em", "plain/s4", 0.25, k=16, protocol=OTHER_PROTOCOL),
        *evaluation("plain/s8", 40, 0.7),
        *evaluation("base", 20, 0.4),
    )
    return card(facts=FactSet(facts), suites=(SUITE, other))


def test_model_index_keeps_protocols_apart(card: Callable[..., CardInput]) -> None:
    results = model_index(two_protocols(card))
    assert [
        (r["dataset"]["args"]["protocol"], [m["value"] for m in r["metrics"]]) for r in results
    ] == [(PROTOCOL, [0.344, 0.43]), (OTHER_PROTOCOL, [0.25])]


def test_protocols_stay_apart_when_huggingface_hub_loads_and_saves(
    card: Callable[..., CardInput], tmp_path: Path
) -> None:
    from huggingface_hub import ModelCard

    mine = two_protocols(card)
    file = tmp_path / "README.md"
    file.write_text(emit(metadata(mine)) + "# x\n", encoding="utf-8")
    ModelCard.load(file).save(file)
    fields, _ = parse(file.read_text(encoding="utf-8"))
    assert fields["model-index"] == [{"name": "smol-plain-s4", "results": model_index(mine)}]


def test_only_measured_values_of_these_weights_enter(card: Callable[..., CardInput]) -> None:
    stale = measured("em", "plain/s4", 0.5, k=32, weights="f" * 64)
    assert model_index(card(facts=FactSet((stale,)))) == []
    assert model_index(card(facts=FactSet((measured("em", "plain/s4", 0.5, k=32, n=None),)))) == []
    assert model_index(card(facts=FactSet(evaluation("plain/s8", 40, 0.7)))) == []
    assert model_index(card(facts=FactSet(evaluation("plain/s4", 22, 0.4)), weights="")) == []
