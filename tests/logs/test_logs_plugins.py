"""Log readers of other packages, found by their entry point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from hubtools.logs.exchange import Exchange, LogReader

READER = LogReader(
    "ACME",
    fits=lambda document: "acme_calls" in document,
    exchanges=lambda document: (
        Exchange(call["sent"], call["got"], role=call["who"], at=call)
        for call in document["acme_calls"]
    ),
)
"""


def install(site: Path, code: str) -> None:
    """A package as pip leaves it: the module, and metadata with the entry point."""
    info = site / "acme_logs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-logs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hubtools.log_readers]\nacme = acme_logs:READER\n")
    (site / "acme_logs.py").write_text(code)


def verify(tmp_path: Path, code: str, document: object) -> subprocess.CompletedProcess[str]:
    site = tmp_path / "site"
    install(site, code)
    (tmp_path / "log.json").write_text(json.dumps(document))
    program = "from hubtools.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "provenance", "verify", "log.json", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def document(**answer: object) -> dict[str, object]:
    got = {"object": "chat.completion", "id": "c-1", "model": "model-x-20260101", **answer}
    return {"acme_calls": [{"who": "agent", "sent": {"model": "model-x"}, "got": got}]}


def test_a_package_brings_its_own_format(tmp_path: Path) -> None:
    done = verify(tmp_path, GOOD, document())
    assert done.returncode == 0, done.stderr
    role = json.loads(done.stdout)["roles"]["agent"]
    assert (role["reported"], role["verdict"]) == ({"model-x-20260101": 1}, "RESOLVED")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (GOOD, "ACME: KeyError"),
        (GOOD + 'READER = LogReader("ACME", READER.fits, lambda document: [7])', "ACME: TypeError"),
        (GOOD.replace('"acme_calls" in document', "1 / 0"), "deciding the format: ZeroDivision"),
    ],
)
def test_a_reader_that_fails_makes_a_bad_document(tmp_path: Path, code: str, detail: str) -> None:
    done = verify(tmp_path, code, {"acme_calls": [{"who": "secret"}]})
    assert done.returncode == 3, done.stderr
    (bad,) = json.loads(done.stdout)["bad_lines"]
    assert bad["kind"] == "reader failed"
    assert bad["detail"].startswith(detail)
    assert "secret" not in done.stdout


@pytest.mark.parametrize("code", ["raise OSError('no disk')", "READER = 7"])
def test_a_package_that_does_not_load_is_named(tmp_path: Path, code: str) -> None:
    done = verify(tmp_path, code, document())
    error = json.loads(done.stdout)
    assert "HT213" in json.dumps(error)
    assert "acme_logs:READER" in json.dumps(error)
    assert "Traceback" not in done.stderr
