"""No key survives in a record, wherever it was put."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.evaluation.scrub import scrub

KEY = "k3y-Planted_0123456789"

_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_planted = st.sampled_from(
    [
        {"api_key": KEY},
        {"apiKey": KEY},
        {"OPENAI_API_KEY": [KEY]},
        {"Authorization": f"Token {KEY}"},
        {"password": {"value": KEY}},
        {"hf_token": KEY},
        {"token": KEY},
        {"extra_headers": {"X-Anything": KEY}},
        {"base_url": f"https://user:{KEY}@host/v1"},
        {"base_url": f"https://{KEY}@host/v1"},
        {"url": f"http://host/v1?api-key={KEY}&x=1"},
        {"note": f"sent Bearer {KEY} to http://host"},
        {"error": f'{{"api_key": "{KEY}", "model": "m"}}'},
        {"error": f"{{'api_key': '{KEY}'}}"},
        {"arguments": json.dumps(json.dumps({"authorization": KEY}))},
        {"line": f"api_key={KEY} base_url=x"},
    ]
)


@st.composite
def _holding(draw: st.DrawFn) -> Any:
    value = draw(_planted)
    for _ in range(draw(st.integers(0, 4))):
        value = (
            [draw(_plain), value]
            if draw(st.booleans())
            else {**draw(st.dictionaries(st.text(max_size=8), _plain, max_size=3)), "in": value}
        )
    return value


@given(_holding())
def test_a_planted_key_never_survives(value: Any) -> None:
    assert KEY not in json.dumps(scrub(value))


_keys = st.text("abcdef0123456789-", min_size=6).map("k".__add__)  # not a part of a number


@given(_plain, _keys, st.integers(0, 3))
def test_a_key_that_is_known_never_survives(value: Any, key: str, depth: int) -> None:
    nested: Any = [value, f"xx{key}yy", {key: 1}]
    for _ in range(depth):
        nested = {"in": nested}
    assert key not in json.dumps(scrub(nested, [key]), ensure_ascii=False)


@pytest.mark.parametrize(
    "kept",
    [
        {"max_tokens": 5, "tokens": {"prompt": 1}, "eos_token": "</s>", "token": 7},
        {"logprobs": {"content": [{"token": "Paris", "logprob": -0.1, "bytes": [80]}]}},
        {"content": "my user id is mia_li_3668, see https://example.com/a?b=c#d"},
        {"api_key": "", "password": None},
        ["keys", "password", "a secret: none", "user@example.com"],
    ],
)
def test_what_is_no_secret_stays(kept: Any) -> None:
    assert scrub(kept) == kept


def test_names_and_the_rest_of_a_url_stay() -> None:
    assert scrub({"base_url": "https://u:p@h:80/v1?key=K&x=1", "headers": {"A": "b"}}) == {
        "base_url": "https://***@h:80/v1?key=***&x=1",
        "headers": {"A": "***"},
    }
