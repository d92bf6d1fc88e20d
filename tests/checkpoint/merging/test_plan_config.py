"""config.json keeps every byte but those that have to change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.checkpoint.merging.config_edits import edited, effective, everywhere

CONFIG = """{
  "architectures": [
    "LlamaForCausalLM"
  ],
  "rope":{"theta" : 1e4,   "text": "a \\"quoted, { brace\\" é"},
  "text_config": {
    "vocab_size": 131
  },
  "vocab_size":   131 ,
  "last": null
}
"""


def test_a_value_is_exchanged_in_place() -> None:
    expected = CONFIG.replace('"vocab_size":   131 ,', '"vocab_size":   136 ,')
    assert edited(CONFIG.encode(), {"vocab_size": 136}).decode() == expected


def test_a_nested_value_is_exchanged_in_place() -> None:
    expected = CONFIG.replace('    "vocab_size": 131', '    "vocab_size": 136')
    assert edited(CONFIG.encode(), {"text_config.vocab_size": 136}).decode() == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_the_encoding_stays(encoding: str) -> None:
    expected = CONFIG.replace('"vocab_size":   131 ,', '"vocab_size":   136 ,')
    data = edited(CONFIG.encode(encoding), {"vocab_size": 136})
    assert data == expected.encode(encoding)
    assert json.loads(data)["vocab_size"] == 136


def test_a_new_key_comes_last_in_the_same_style() -> None:
    expected = CONFIG.replace("null\n}", 'null,\n  "tie_word_embeddings": false\n}')
    assert edited(CONFIG.encode(), {"tie_word_embeddings": False}).decode() == expected
    nested = CONFIG.replace('    "vocab_size": 131\n', '    "vocab_size": 131,\n    "x": 1\n')
    assert edited(CONFIG.encode(), {"text_config.x": 1}).decode() == nested


def test_a_list_is_laid_out_as_its_neighbours() -> None:
    new = edited(CONFIG.encode(), {"architectures": ["A", "B"]}).decode()
    assert new == CONFIG.replace('"LlamaForCausalLM"', '"A",\n    "B"')


def test_one_line_and_empty_objects() -> None:
    assert edited(b'{"a": 1, "b": {}}', {"a": 2}) == b'{"a": 2, "b": {}}'
    assert json.loads(edited(b'{"a": 1, "b": {}}', {"b.c": 2})) == {"a": 1, "b": {"c": 2}}
    assert json.loads(edited(b"{}", {"c": 2})) == {"c": 2}


def test_a_key_that_is_there_twice_is_written_once() -> None:
    new = edited(b'{"a": 1,\n "a": 2}', {"a": 3})
    assert json.loads(new) == {"a": 3}
    assert new.count(b'"a"') == 1


def test_only_what_differs_is_an_edit() -> None:
    edits = {"vocab_size": 131, "text_config.vocab_size": 136, "absent": None}
    assert effective(json.loads(CONFIG), edits) == {"text_config.vocab_size": 136}


def test_where_a_key_stands() -> None:
    config = json.loads(CONFIG)
    assert everywhere(config, "vocab_size") == {"vocab_size": 131, "text_config.vocab_size": 131}
    assert everywhere(config, "last") == {"last": None}
    assert everywhere({"text_config": 3}, "last") == {}


names = st.text(st.characters(exclude_characters="."), min_size=1)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(
    config=st.dictionaries(names, values, max_size=5),
    key=names,
    value=values.filter(lambda value: value is not None),
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_any_object_reads_back_with_the_edit(
    config: dict[str, Any], key: str, value: Any, indent: Any
) -> None:
    data = json.dumps(config, indent=indent, ensure_ascii=False).encode(errors="surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # lone surrogates: not UTF-8, hence not a config.json that was read before
    assert json.loads(edited(data, {key: value})) == {**config, key: value}


@pytest.mark.parametrize("key", ["a", "b"])
def test_removal(key: str) -> None:
    config = {"a": 1, "b": 2}
    del config[key]
    assert json.loads(edited(b'{\n "a": 1,\n "b": 2\n}', {key: None})) == config
