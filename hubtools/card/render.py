"""View to text: our own Jinja environment, which makes safe whatever a template prints."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.card.blocks import find_blocks, has_marker
from hubtools.card.model import CardInput
from hubtools.card.text import Markdown, cell, code, escape
from hubtools.card.view import build_view, table_lines
from hubtools.errors import CheckError

if TYPE_CHECKING:
    from jinja2 import TemplateError
    from jinja2.sandbox import SandboxedEnvironment


def template_name(kind: str) -> str:
    """The template of a kind of checkpoint."""
    return "adapter.md.j2" if kind == "adapter" else "checkpoint.md.j2"


def render_card(card: CardInput, templates: Sequence[Path]) -> str:
    """The README of one member.

    Args:
        card: what it is made of.
        templates: folders in override order; the last one is the bundled one, which the others
            reach as `base/…` to extend it.

    Raises:
        CheckError: HT080 no such template, HT081 an error in a template (with its line), HT082
            markers that do not pair up, HT083 prose that holds our markers.
    """
    for section, text in card.prose.items():
        if has_marker(text):
            raise CheckError(
                "HT083",
                f"prose section {section!r} holds a hubtools marker",
                where=f"prose/{section}.md",
                detail=(
                    "Markers tell written text from generated text; the card was not written.",
                ),
                next=f"delete the marker lines from prose/{section}.md",
            )
    rendered = _render(template_name(card.kind), {"card": build_view(card)}, templates)
    text = rendered.rstrip() + "\n"
    find_blocks(text)
    return text


def environment(templates: Sequence[Path]) -> SandboxedEnvironment:
    """Sandboxed, strict about names, escaping by default; `base/…` is the last folder."""
    from jinja2 import ChoiceLoader, FileSystemLoader, PrefixLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    folders = [FileSystemLoader(folder) for folder in templates]
    environment = SandboxedEnvironment(
        loader=ChoiceLoader([PrefixLoader({"base": folders[-1]}), *folders]),
        undefined=StrictUndefined,
        finalize=_safe,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell, "code": code, "table": table_lines}
    return environment


def _safe(value: Any) -> Any:
    """Runs on everything a template prints."""
    from jinja2 import Undefined

    return value if isinstance(value, Markdown | Undefined) else escape(value)


def _render(name: str, context: dict[str, Any], templates: Sequence[Path]) -> str:
    from jinja2 import TemplateError, TemplateNotFound

    try:
        return environment(templates).get_template(name).render(context)
    except TemplateNotFound as error:
        folders = ", ".join(str(folder) for folder in templates)
        raise CheckError(
            "HT080",
            f"no template {error.name}",
            where=folders,
            detail=("The card was not written.",),
            next=f"add {error.name} to your templates folder, or stop naming it",
        ) from error
    except TemplateError as error:
        raise _template_error(error, name) from error
    except (
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        LookupError,
        RecursionError,
    ) as error:
        raise _template_error(error, name) from error


def _template_error(error: TemplateError | Exception, name: str) -> CheckError:
    """Name the template and the line: Jinja puts template frames into the traceback."""
    file = getattr(error, "filename", None) or getattr(error, "name", None)
    line = getattr(error, "lineno", None)
    if line is None:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")
        ]
        file, line = (frames[-1].filename, frames[-1].lineno) if frames else (name, None)
    place = f"{file or name}:{line}" if line else str(file or name)
    return CheckError(
        "HT081",
        f"a card template fails: {error}",
        where=place,
        detail=("The card was not written; weights and records are kept.",),
        next=f"correct {place}, then hubtools card render",
    )
