"""A child process that is started before its job is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubtools.children import Child, run_child
from hubtools.errors import EnvironmentFailure

_CHILD = """
import sys
from hubtools.children import child_main
def work(job, progress):
    return {"early": "early_module" in sys.modules, **job}
child_main(work)
"""


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_child.py").write_text(_CHILD)
    (tmp_path / "early_module.py").write_text("import sys; print('was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_it_imports_early_what_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child("a_child", log=log, early=["no_such_module", "early_module"]) as child:
        told = child.run({"number": 1}, what="a test")
    assert told == {"early": True, "number": 1}
    assert log.read_text() == "was imported\n"  # not mistaken for the result
    assert run_child("a_child", {}, log=log, what="a test") == {"early": False}


def test_without_a_job_it_ends_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child("a_child", log=log) as child:
        assert log.exists()
    assert child._process.returncode is not None
    assert not log.exists()


@pytest.mark.parametrize("others", ["before", "meanwhile"])
def test_a_log_that_tells_something_stays(tmp_path: Path, others: str) -> None:
    log = tmp_path / "log"
    if others == "before":
        log.write_text("")
    with Child("a_child", log=log):
        if others == "meanwhile":
            log.write_text("another child's story")
    assert log.exists()


def test_one_that_died_before_its_job_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child("a_child", log=log) as child:
        child._process.kill()
        child._process.wait()
        with pytest.raises(EnvironmentFailure) as caught:
            child.run({"long": "x" * 100_000}, what="a test")
    assert caught.value.id == "HT904"
    assert caught.value.where == str(log)
