"""Documents whose objects know their line: JSON over several lines, and YAML."""

from __future__ import annotations

import re
from typing import Any

import yaml

from hubtools.logs.jsonline import BadJsonError, parse_line, parse_value, unique

_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\n]', re.DOTALL)
_MAX_NODES = 5_000_000


class Located(dict[str, Any]):
    """An object, and the line it begins on."""

    line: int = 0


def line_of(value: Any, default: int) -> int:
    """The line of a part of a document."""
    return value.line if isinstance(value, Located) else default


def parse_json(data: bytes, first_line: int) -> dict[str, Any]:
    """The object that `data` is; its objects are `Located` when it has several lines.

    Raises:
        BadJsonError: not one strict JSON object.
    """
    if b"\n" not in data.rstrip(b"\n"):
        return parse_line(data)
    parse_line(data)  # its refusals, before anything is placed
    text = data.decode("utf-8")
    lines = iter(_closing_order(text, first_line))

    def place(pairs: list[tuple[str, Any]]) -> Located:
        found = Located(unique(pairs))
        found.line = next(lines)
        return found

    value: dict[str, Any] = parse_value(text.removeprefix("\ufeff"), place)
    return value


def _closing_order(text: str, line: int) -> list[int]:
    """The first line of each object, in the order in which the objects end."""
    ended, open_at = list[int](), list[int]()
    for token in _TOKENS.findall(text):
        if token == "{":
            open_at.append(line)
        elif token == "}":
            ended.append(open_at.pop())
        elif token == "\n":
            line += 1
    return ended


def parse_yaml(data: bytes) -> dict[str, Any]:
    """The mapping that a YAML text is; no tags that make objects, no key twice, no expansion bombs.

    Raises:
        BadJsonError: not one such mapping.
    """
    loader = _loader()(data)
    try:
        node = loader.get_single_node()
        if node is None:
            raise BadJsonError("not an object", "empty")
        _size(node, {})
        value = loader.construct_document(node)
    except RecursionError as error:
        raise BadJsonError("too deep") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else "a value that YAML does not allow"
        raise BadJsonError("not YAML", where) from error
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise BadJsonError("not an object", f"a YAML {type(value).__name__}")
    return value


def _loader() -> Any:
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> Located:
        pairs = [
            (
                str(loader.construct_object(key, deep=True)),
                loader.construct_object(value, deep=True),
            )
            for key, value in node.value
        ]
        found = Located(unique(pairs))
        found.line = node.start_mark.line + 1
        return found

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return Loader


def _size(node: Any, known: dict[int, int]) -> int:
    """How many nodes a node has when its aliases are written out.

    Raises:
        BadJsonError: too many, or it holds itself.
    """
    if id(node) in known:
        if not known[id(node)]:
            raise BadJsonError("not YAML", "a value that holds itself")
        return known[id(node)]
    known[id(node)] = 0
    children = node.value if isinstance(node.value, list) else []
    parts = [
        part for child in children for part in (child if isinstance(child, tuple) else [child])
    ]
    size = 1 + sum(_size(part, known) for part in parts)
    if size > _MAX_NODES:
        raise BadJsonError("too long", f"more than {_MAX_NODES:,} values")
    known[id(node)] = size
    return size
