"""A checkpoint's chat template, rendered here: the same text as transformers, without its weight.

What a server renders cannot be seen, and its parser of tool calls cuts answers up. Where the text
must be ours to the letter, the prompt is rendered from the checkpoint's own template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.chat import Message
from eval_harness.errors import HarnessError

if TYPE_CHECKING:
    from jinja2 import Template

DEFAULT, TOOL_USE = "default", "tool_use"
_MORE = "additional_chat_templates"
_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True)
class ChatTemplate:
    """Chat templates by name, with the special tokens that they may write.

    Args:
        texts: `default`, and `tool_use` where the checkpoint keeps one for tools.
        tokens: `bos_token`, `eos_token` and the like, as text.
    """

    texts: Mapping[str, str]
    tokens: Mapping[str, str]

    @classmethod
    def load(cls, folder: Path, override: Path | None = None) -> ChatTemplate:
        """The template that transformers would use for the checkpoint in `folder`.

        Args:
            folder: holds chat_template.jinja, tokenizer_config.json or chat_template.json; the
                first that has a template counts.
            override: a Jinja file to use in place of the checkpoint's templates.

        Raises:
            HarnessError: `bad_model` when there is no template or a file cannot be read.
        """
        config = _json(folder / "tokenizer_config.json")
        tokens = _tokens(_json(folder / "special_tokens_map.json")) | _tokens(config)
        if override is not None:
            return cls({DEFAULT: _text(override)}, tokens)
        texts = _files(folder)
        if not texts:
            texts = _named(config.get("chat_template"))
        if not texts:
            texts = _named(_json(folder / "chat_template.json").get("chat_template"))
        if not texts:
            raise HarnessError(
                "bad_model",
                "this checkpoint has no chat template",
                where=str(folder),
                next="save its tokenizer with a chat_template.jinja beside tokenizer_config.json",
            )
        return cls(texts, tokens)

    @property
    def sha256(self) -> str:
        """Of the text; of all of them as JSON where the checkpoint has several."""
        if set(self.texts) == {DEFAULT}:
            whole = self.texts[DEFAULT]
        else:
            whole = json.dumps(dict(self.texts), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def dated(self) -> bool:
        """Whether the prompt may hold today's date: the same question is asked once a day."""
        return any("strftime_now" in text for text in self.texts.values())

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt as text; its special tokens are in it, so the tokenizer adds none.

        Args:
            messages: `role` and `content`, maybe `tool_calls` and `reasoning_content`.
            tools: function schemas as in the chat-completions API.
            add_generation_prompt: end where the assistant begins to speak.

        Raises:
            HarnessError: `bad_model` when the template refuses the conversation or is broken.
        """
        from jinja2 import TemplateError

        try:
            return _compiled(self._text(bool(tools))).render(
                **self.tokens,
                messages=[_message(message) for message in messages],
                tools=json.loads(json.dumps(list(tools))) if tools else None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise HarnessError(
                "bad_model",
                f"the chat template refuses the conversation: {error}",
                next="look at chat_template.jinja, and at the roles that the suite uses",
            ) from error

    def _text(self, tools: bool) -> str:
        if tools and TOOL_USE in self.texts:
            return self.texts[TOOL_USE]
        if DEFAULT in self.texts:
            return self.texts[DEFAULT]
        raise HarnessError(
            "bad_model",
            f"no chat template is named {DEFAULT!r} (there are: {', '.join(sorted(self.texts))})",
            next="name one of them so in tokenizer_config.json",
        )


def _files(folder: Path) -> dict[str, str]:
    main, more = folder / "chat_template.jinja", folder / _MORE
    texts = {path.stem: _text(path) for path in sorted(more.glob("*.jinja"))}
    return texts | ({DEFAULT: _text(main)} if main.is_file() else {})


def _named(value: Any) -> dict[str, str]:
    """What a JSON file says: one text, or a list of named ones."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if not isinstance(value, list):
        return {}
    pairs = [(item.get("name"), item.get("template")) for item in value if isinstance(item, dict)]
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in (f"{token}_token" for token in _TOKENS):
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    return data if isinstance(data, dict) else {}


def _unreadable(path: Path, error: Exception) -> HarnessError:
    return HarnessError(
        "bad_model",
        f"{path.name} cannot be read: {error}",
        where=str(path),
        next="mend the file, or save the tokenizer again",
    )


def _message(message: Message) -> dict[str, Any]:
    """A copy in plain JSON values, without nulls, with the reasoning under the usual names."""
    plain: dict[str, Any] = json.loads(json.dumps(message))
    plain = {key: value for key, value in plain.items() if value is not None}
    thought = next((plain[key] for key in _REASONING if key in plain), None)
    if thought is not None:
        plain = {"thinking": thought, **plain, "reasoning_content": thought}
    return plain


@lru_cache(maxsize=16)
def _compiled(text: str) -> Template:
    """In a sandbox: a template is a program from a stranger."""
    from jinja2 import TemplateError, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """`{% generation %}` marks what the model wrote, for training; here it only encloses."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    class Guarded(Namespace):
        """Names with an underscore would lead out of the sandbox."""

        def __init__(*args: Any, **values: Any) -> None:
            self, *rest = args
            for name in dict(*rest, **values):
                _public(name)
            Namespace.__init__(self, *rest, **values)

        def __setitem__(self, name: str, value: Any) -> None:
            _public(name)
            super().__setitem__(name, value)

    def _public(name: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace may not hold {name!r}")

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    world = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    world.filters["tojson"] = tojson
    world.globals["raise_exception"] = refuse
    world.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    world.globals["namespace"] = Guarded
    world.globals["dict"] = lambda *args, **values: dict(*args, **values)
    return world.from_string(text)
