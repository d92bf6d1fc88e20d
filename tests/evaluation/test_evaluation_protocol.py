from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval_harness.suite import load_suite
from hubtools.evaluation.protocol import (
    KEYS,
    build_protocol,
    differences,
    differing_fields,
    protocol_id,
    protocol_of,
)


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
        *("harness.name", "harness.version", "reducer"),
        *("suite.id", "suite.version", "suite.items_sha256", "suite.ids_sha256", "suite.n"),
        *(f"suite.categories.{c}" for c in ("closed", "country", "element", "exception", "http")),
        *("extractor.em", "extractor.f1", "scorers.em", "scorers.f1", "agent.kind"),
        *("prompt.with_context", "prompt.without_context", "prompt.chat_template"),
        *("sampling.max_new_tokens", "sampling.temperature", "sampling.top_p", "sampling.stop"),
        *("engine.torch", "engine.transformers"),
    }


def test_a_field_that_one_side_lacks_differs_even_from_none() -> None:
    assert differing_fields(made(chat_template=None), made()) == ["prompt.chat_template"]
    assert differing_fields({"a": None}, {}) == ["a"]


def test_a_difference_is_said_with_both_values() -> None:
    a = made(engine={"torch": "2.13.0"})
    b = made(engine={"torch": "2.12.1"}, dtype="bfloat16", chat_template="cd" * 32)
    assert [str(found) for found in differences(a, b)] == [
        "dtype: float32 against bfloat16",
        "engine.torch: 2.13.0 against 2.12.1",
        f"prompt.chat_template: {'ab' * 6} against {'cd' * 6}",
    ]
    [absent] = differences(a, made(engine={"torch": "2.13.0"}, max_context=8192))
    assert str(absent) == "max_context: not stated against 8192"


def test_values_that_look_alike_are_told_apart() -> None:
    [found] = differences({"prompt": "x " * 100 + "yes"}, {"prompt": "x " * 100 + "no"})
    assert found.a != found.b
    [found] = differences({"trials": 1}, {"trials": "1"})
    assert found.a != found.b


def test_other_harnesses_use_the_same_keys() -> None:
    theirs = build_protocol(harness={"name": "lm-eval", "version": "0.4.13"}, dtype=None)
    assert theirs.keys() == {"version", "harness"}
    assert made().keys() <= KEYS.keys()
    with pytest.raises(ValueError, match="no field of a protocol: 'tempreature'"):
        build_protocol(tempreature=1)


def test_a_suite_with_metrics_agent_and_sampling_fills_the_keys() -> None:
    suite = {
        **{"id": "s", "version": "1", "items_sha256": "00", "n": 4, "ids_sha256": "11"},
        **{"prompt": {"user": "{question}"}, "nudge": "Final answer:", "average": "macro"},
        "agent": {"kind": "search", "max_turns": 4},
        "sampling": {"max_new_tokens": 9, "temperature": 0.7, "top_p": 1.0, "stop": []},
        "metrics": [
            {"name": "em", "extractor": "answer_cascade/1", "scorer": "em/1"},
            {"name": "em_strict", "extractor": "answer_cascade/1", "scorer": "em/1",
             "tiers": [1, 2]},
        ],
        **{"trials": 4, "max_context": 8192},
    }  # fmt: skip
    found = protocol_of(
        suite, backend="openai", engine={}, dtype="server", device="server", batch_size=4
    )
    assert found["suite"] == {
        **{"id": "s", "version": "1", "items_sha256": "00", "n": 4, "ids_sha256": "11"}
    }
    assert found["prompt"]["nudge"] == "Final answer:"
    assert found["scorers"] == {"em": "em/1", "em_strict": "em/1 of tiers 1, 2"}
    assert found["sampling"]["seeds"] == "of run seed, item and trial"
    assert (found["trials"], found["reducer"], found["max_context"]) == (4, "mean, macro", 8192)
    assert found["agent"]["max_turns"] == 4


def test_planning_loads_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from hubtools.evaluation.bridge import planned_protocol;"
        "from hubtools.evaluation.spec import Cell, Engine, Target;"
        "cell = Cell(Target('m', model=Path('.')), 'short_qa', Engine(), 0, Path('.'));"
        "print(planned_protocol(cell)['engine']['torch']);"
        "sys.exit(bool({'torch', 'transformers', 'peft', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout[0].isdigit()
