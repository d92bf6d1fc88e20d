"""Whatever is broken in a results file, it is refused in words or read whole; never half."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tau2_files import KEYS, recorded, save

from hubtools.errors import CheckError
from hubtools.evaluation.records import read_run
from hubtools.evaluation.tau2.importing import import_tau2

_odd = st.sampled_from([None, True, -1, 0.5, 1e308, "", "x", "\ud800", [], {}, [[]], [{"a": 1}]])


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inner:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += _places(item, (*path, key))
    return found


DATA = recorded()
PLACES = _places(DATA)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), _odd), min_size=1, max_size=2))
def test_one_or_two_odd_values(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = json.loads(json.dumps(DATA))
    for (*path, last), value in changes:
        place = data
        try:
            for key in path:
                place = place[key]
            place[last] = value
        except (KeyError, IndexError, TypeError):
            continue  # the first change took it away
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        try:
            record = import_tau2(save(data, Path(folder, "r.json")), out, member="m")
        except CheckError:
            assert not list(out.rglob("run.json"))
            return
        run = read_run(Path(record["path"]))
        assert run.samples == run.items * run.trials
        assert not any(key in path.read_text() for path in out.rglob("*.json*") for key in KEYS)
