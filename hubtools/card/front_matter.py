"""Front matter: written so that YAML 1.1 and 1.2 read the same, read so that nothing is lost. Pure.

The Hub reads YAML 1.2 in JavaScript, huggingface_hub reads 1.1 in Python. What either would turn
into something else (`no`, `3.10`, `0755`, `1e5`, `12:30`) is quoted here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from hubtools.card.model import CardInput
from hubtools.card.rules import is_repo_id, own_metrics, suite_metric
from hubtools.card.tables import metric_title
from hubtools.card.text import shown_values
from hubtools.errors import CheckError
from hubtools.facts import Fact

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 _./@+-]*[A-Za-z0-9_./+]|[A-Za-z]")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
_FENCE = re.compile(r"\A(?:\ufeff)?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)


def metadata(card: CardInput) -> dict[str, Any]:
    """The front matter of a card as plain values, in the order in which it is written."""
    relation = "adapter" if card.kind == "adapter" else "finetune"
    fields: dict[str, Any] = {
        "license": card.license,
        "license_name": card.license_name,
        "license_link": card.license_link,
        "language": list(dict.fromkeys(card.languages)),
        "library_name": "peft" if card.kind == "adapter" else "transformers",
        "pipeline_tag": card.pipeline_tag,
        "base_model": card.base.repo,
        "base_model_relation": relation if card.base.repo else "",
        "datasets": [name for name in dict.fromkeys(card.datasets) if is_repo_id(name)],
        "tags": list(dict.fromkeys(card.tags)),
    }
    results = model_index(card)
    if results:
        name = card.repo.rpartition("/")[2]
        fields["model-index"] = [{"name": name, "results": results}]
    return {key: value for key, value in fields.items() if value}


def model_index(card: CardInput) -> list[dict[str, Any]]:
    """One result a protocol, of this checkpoint's own measured values only.

    huggingface_hub merges results that share task, dataset, config, split and revision; the
    protocol therefore stands in `config` too, so that a reload keeps two of them apart.
    """
    grouped: dict[tuple[str, str], list[Fact]] = {}
    for fact in own_metrics(card):
        name = suite_metric(fact)
        if name is not None:
            grouped.setdefault((name[0], fact.protocol), []).append(fact)
    titles = {suite.protocol_id: suite.title for suite in card.suites}
    return [
        {
            "task": {"type": card.pipeline_tag or "text-generation"},
            "dataset": {
                "type": suite,
                "name": titles.get(protocol, suite),
                "config": f"protocol-{protocol[:12]}",
                "args": {"protocol": protocol, "n": facts[0].n},
            },
            "metrics": [_metric(fact) for fact in facts],
        }
        for (suite, protocol), facts in grouped.items()
    ]


def _metric(fact: Fact) -> dict[str, Any]:
    _, metric, variant = suite_metric(fact) or ("", fact.id, "")
    name = metric_title(metric) + (f" ({variant})" if variant else "")
    shown = [float(value) for value in shown_values(fact)]
    return {"type": metric, "name": name, "value": shown[0] if len(shown) == 1 else shown}


def emit(fields: Mapping[str, Any]) -> str:
    """YAML between `---` lines.

    Raises:
        CheckError: HT087 when a value is none of text, number, truth, list, mapping.
    """
    try:
        body = yaml.dump(
            dict(fields), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9
        )
    except yaml.YAMLError as error:
        raise CheckError(
            "HT087",
            f"a value cannot be written as front matter: {error}",
            next="use text, numbers and lists in the manifest",
        ) from error
    return f"---\n{body}---\n"


def parse(text: str, where: str = "README.md") -> tuple[dict[str, Any], str]:
    """Front matter (read as YAML 1.2 does: `no` is a word) and the body after it.

    Raises:
        CheckError: HT084 when it is not YAML, not a mapping, or says a key twice.
    """
    found = _FENCE.match(text)
    if found is None:
        return {}, text
    try:
        fields = yaml.load(found[1], Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark is not None else 1
        problem = getattr(error, "problem", None) or str(error)
        raise _unreadable(problem, f"{where}:{line}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # A value that an explicit tag (`!!bool maybe`) promises and does not keep.
        raise _unreadable(f"a value is not what its tag says ({error})", where) from error
    if fields is not None and not isinstance(fields, dict):
        raise _unreadable("it is not a mapping of keys to values", f"{where}:2")
    return fields or {}, text[found.end() :]


def _unreadable(problem: str, where: str) -> CheckError:
    return CheckError(
        "HT084",
        f"front matter cannot be read: {problem}",
        where=where,
        detail=("The card was not written.",),
        next=f"correct {where}, then run the same command again",
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    style = None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core words only, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not plain text", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        """`0755` is 755 in YAML 1.2; 1.1 reads it as octal."""
        return int(self.construct_scalar(node))


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"null|Null|NULL|~|", ("n", "N", "~", "")),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [*_first]
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)
