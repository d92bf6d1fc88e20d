"""The documents say what the code does: reference, error ids, JSON schemas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from cli_support import clean_env, walk
from jsonschema import Draft202012Validator

from hubtools.cli.failure import run
from hubtools.cli.main import cli
from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.errors import CheckError

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
OUTPUTS = [p for p in sorted(SCHEMAS.glob("*.schema.json")) if p.name != "family.schema.json"]
"""Schemas of `--json` outputs; family.schema.json is the manifest's, for editors."""


def sources(folder: str = "hubtools") -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.read_text(encoding="utf-8")


def json_shapes(folder: str) -> set[str]:
    return {n for text in sources(folder) for n in re.findall(r'"(hubtools\.[^"\s]+/\d+)"', text)}


def test_the_cli_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "docs/cli.md", "docs/manifest.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=clean_env(),
    )
    assert done.returncode == 0, f"run `make docs`\n{done.stdout}{done.stderr}"


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = [path for path, _ in walk(cli) if f"### {path}\n" not in text]
    assert missing == []


def test_every_error_id_is_documented_and_every_documented_id_exists() -> None:
    raised = {found for text in sources() for found in re.findall(r'"(HT\d{3})"', text)}
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (HT\d{3}) \|", text, re.MULTILINE)
    assert sorted(raised - set(documented)) == []
    assert sorted(set(documented) - raised) == []
    assert documented == sorted(set(documented)), "one row an id, in order"


def test_every_json_shape_is_described() -> None:
    described = {
        json.loads(path.read_text(encoding="utf-8"))["properties"]["schema"]["const"]
        for path in OUTPUTS
    }
    assert sorted(json_shapes("hubtools/cli") - described) == []
    assert sorted(described - json_shapes("hubtools")) == []
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert [name for name in sorted(json_shapes("hubtools")) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda p: p.name)
def test_schemas_are_schemas_and_carry_their_file_name(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    name = schema["properties"]["schema"]["const"].removeprefix("hubtools.").partition("/")[0]
    assert path.name == f"{name}.schema.json"
    assert schema["title"] == schema["properties"]["schema"]["const"]
    assert schema["required"][0] == "schema"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def test_a_failing_command_prints_what_the_error_schema_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command("go")
    @with_output
    def go(output: Output) -> None:
        raise CheckError("HT210", "wrong", where="a:1", detail=("why",), next="hubtools plan")

    run(go, ["--json"])
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    validator("error").validate(value)
    run(go, ["--json", "--wrong"])
    validator("error").validate(json.loads(capsys.readouterr().out))
    assert not validator("error").is_valid(value | {"error": {}})
