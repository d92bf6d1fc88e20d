"""The commands that messages and documents tell people to run exist, with those options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hubtools.cli.evaluate import DefaultGroup
from hubtools.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"(?:^|[`:,(]\s?|then |# ?|\$ )hubtools ([a-z][^`,;()#\n|]*)")
PROSE = {"has", "is", "keeps", "needs", "does", "itself"}


def wrong(text: str) -> list[str]:
    """What is not right about the hubtools commands in `text`."""
    found = []
    for call in CALL.findall(text):
        words = call.split()
        if words[0] in PROSE:
            continue
        command: click.Command = cli
        context = click.Context(cli)
        while words and isinstance(command, click.Group):
            if words[0].startswith("["):
                break
            below = command.get_command(context, words[0])
            if below is None and isinstance(command, DefaultGroup):
                command = command.commands["run"]
                continue
            if below is None:
                found.append(f"no command {words[0]!r}: hubtools {call}")
                break
            command, words = below, words[1:]
        known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        known |= {"--help", "-h"}
        options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        found += [f"no option {o}: hubtools {call}" for o in options if o not in known]
    return found


def strings(path: Path) -> Iterator[str]:
    """Texts of a source file, f-strings with `{}` for their values."""

    def text(node: ast.AST) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(text(part) for part in node.values)
        if isinstance(node, ast.BinOp):
            return text(node.left) + text(node.right)
        return node.value if isinstance(node, ast.Constant) and type(node.value) is str else "{}"

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            yield text(node)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("hubtools plan --exit-code", 0),
        ("hubtools plan --nope", 1),
        ("hubtools evaluate MODEL --seed 1", 0),
        ("hubtools evaluate MODEL --sed 1", 1),
        ("run it again, then `hubtools card shw x`", 1),
        ("correct it, then: hubtools provenance verify 'a b' --claim NAME (or not)", 0),
        ("hubtools has a bug", 0),
    ],
)
def test_the_check_itself(text: str, count: int) -> None:
    assert len(wrong(text)) == count


def test_messages_name_commands_that_exist() -> None:
    problems = [
        f"{path.relative_to(ROOT)}: {problem}"
        for folder in ("hubtools", "eval_harness")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in strings(path)
        for problem in wrong(text)
    ]
    assert problems == []


def test_documents_name_commands_that_exist() -> None:
    problems = [
        f"{path.name}: {problem}"
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for line in path.read_text(encoding="utf-8").splitlines()
        for problem in wrong(line)
    ]
    assert problems == []
