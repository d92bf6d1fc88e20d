from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval_harness.suite import load_suite
from hubtools.evaluation.protocol import differing_fields, protocol_id, protocol_of


def made(**changes: Any) -> dict[str, Any]:
    how: dict[str, Any] = {
        "backend": "transformers",
        "engine": {"torch": "2.13.0", "transformers": "5.24.0"},
        "dtype": "float32",
        "device": "cpu",
        "batch_size": 16,
        "chat_template": "ab" * 32,
    }
    return protocol_of(load_suite("short_qa").identity(), **{**how, **changes})


def leaves(value: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, item in value.items():
        found += leaves(item, (*prefix, key)) if isinstance(item, dict) else [(*prefix, key)]
    return found


def test_equal_protocols_have_one_id_whatever_the_order() -> None:
    protocol = made()
    turned = dict(reversed(list(protocol.items())))
    assert protocol_id(protocol) == protocol_id(turned)
    assert differing_fields(protocol, turned) == []


@pytest.mark.parametrize("path", leaves(made()), ids=".".join)
def test_every_field_alone_makes_another_protocol_and_is_named(path: tuple[str, ...]) -> None:
    changed = copy.deepcopy(made())
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = "something else"
    assert protocol_id(changed) != protocol_id(made())
    assert differing_fields(made(), changed) == [".".join(path)]


def test_what_decides_a_figure_is_in_the_protocol() -> None:
    assert {".".join(path) for path in leaves(made())} == {
        *("version", "trials", "failures", "backend", "dtype", "device", "batch_size"),
        *("suite.id", "suite.version", "suite.items_sha256", "suite.n", "extractor", "scorers"),
        *("prompt.with_context", "prompt.without_context", "prompt.chat_template"),
        *("sampling.max_new_tokens", "sampling.temperature"),
        *("engine.torch", "engine.transformers"),
    }


def test_a_field_that_one_side_lacks_differs_even_from_none() -> None:
    assert differing_fields(made(chat_template=None), made()) == ["prompt.chat_template"]
    assert differing_fields({"a": None}, {}) == ["a"]


def test_planning_loads_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from hubtools.evaluation.bridge import planned_protocol;"
        "print(planned_protocol('short_qa', dtype='float32')['engine']['torch']);"
        "sys.exit(bool({'torch', 'transformers', 'peft', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout[0].isdigit()
