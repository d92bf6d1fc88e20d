"""What can be known before the first question: does the suite fit the model, and the model itself?

All findings come at once. An error means that figures would be wrong or a run would break midway.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_harness.backends.transformers import tokenizer_folder
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError
from hubtools.errors import CheckError, Finding
from hubtools.evaluation.identity import other_base
from hubtools.evaluation.kv_cache import bytes_per_token
from hubtools.evaluation.spec import Engine, Target
from hubtools.sizes import size_words

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_STRETCHED = ("linear", "dynamic", "yarn")


@dataclass(frozen=True, slots=True)
class Wants:
    """What a suite asks of a model.

    Args:
        max_tokens: of one answer.
        max_context: tokens of prompt and answers together; None when the suite does not say.
        tools: function schemas that the chat template must show to the model.
        stop: strings at which an answer ends.
        markup: whether the agent reads tags out of the text, so that stop strings must end a turn.
        tool_template: file to use in place of the checkpoint's chat template.
        concurrency: samples in flight.
    """

    max_tokens: int
    max_context: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    stop: tuple[str, ...] = ()
    markup: bool = False
    tool_template: Path | None = None
    concurrency: int = 1


def preflight(
    target: Target,
    engine: Engine,
    wants: Wants,
    *,
    max_model_len: int | None = None,
    memory: int | None = None,
) -> list[Finding]:
    """Findings about `target` on `engine` under `wants`.

    Args:
        target: of an endpoint there is no folder; then only what the server says is checked.
        engine: its dtype and length count.
        wants: of the suite.
        max_model_len: what a running server says, in tokens.
        memory: bytes of main memory that are free; None: not checked.

    Returns:
        HT403 files of the model, HT440 context, HT441 memory, HT442 tools, HT443 stop strings,
        HT444 what the template adds, HT446 another base; errors first.
    """
    found = list(_stops(wants))
    config: Mapping[str, Any] = {}
    if target.model is not None:
        config = _object(target.model / "config.json")
        found += _files(target, config)
        found += _template(target, wants)
        found += other_base(target)
    found += _length(config, engine, wants, max_model_len)
    found += _memory(config, engine, wants, memory)
    named = [replace(finding, member=target.member) for finding in found]
    return sorted(named, key=lambda finding: finding.level != "error")


def require(findings: Sequence[Finding]) -> None:
    """Refuse to ask when there are errors.

    Raises:
        CheckError: the first error, with the others.
    """
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        first, *others = errors
        raise CheckError(
            first.id,
            first.message,
            where=first.where,
            detail=(*(f"{other.id} {other.message}" for other in others), "Nothing was asked."),
            next=first.next,
        )


def free_memory() -> int | None:
    """Bytes of main memory that are free now; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (OSError, ValueError):
        return None


def _stops(wants: Wants) -> Iterator[Finding]:
    if "\n\n" in wants.stop:
        yield Finding(
            "HT443",
            "warning",
            "answers end at the first empty line: chat models write several paragraphs",
            next="set stop in the suite to what really ends an answer",
        )
    if wants.markup and not wants.stop:
        yield Finding(
            "HT443",
            "warning",
            "no stop strings: the model goes on after its tag and invents what comes back",
            next='set stop in the suite, for example ["</search>", "</answer>"]',
        )


def _files(target: Target, config: Mapping[str, Any]) -> Iterator[Finding]:
    assert target.model is not None
    if not config:
        yield _broken("config.json is missing or cannot be read", target.model / "config.json")
    source = tokenizer_folder(target.model, target.adapter)
    if not any((source / name).is_file() for name in _TOKENIZERS):
        yield _broken("there is no tokenizer", source)
        return
    known, rows = _vocabulary(source / "tokenizer.json"), _number(_text_part(config), "vocab_size")
    if known and rows and known > rows:
        yield _broken(
            f"the tokenizer writes ids up to {known - 1}, the model has {rows} rows for them",
            source / "tokenizer.json",
        )


def _template(target: Target, wants: Wants) -> Iterator[Finding]:
    assert target.model is not None
    source = tokenizer_folder(target.model, target.adapter)
    asked = [{"role": "user", "content": "What is asked?"}]
    try:
        template = ChatTemplate.load(source, wants.tool_template)
        plain = template.render(asked)
        with_tools = template.render(asked, wants.tools) if wants.tools else plain
    except HarnessError as error:
        yield Finding("HT403", "error", error.message, error.where, error.next)
        return
    if wants.tools and with_tools == plain:
        yield Finding(
            "HT442",
            "error",
            "the chat template says nothing of tools: the model would not know that it has any",
            where=str(wants.tool_template or source),
            next="declare a template that shows them: --tool-template FILE.jinja",
        )
    if plain.rstrip().endswith("<think>"):
        yield Finding(
            "HT444",
            "info",
            "the chat template opens a think block: what comes after the last </think> counts",
            where=str(source),
        )
    if template.dated:
        yield Finding(
            "HT444",
            "warning",
            "the chat template writes today's date: tomorrow other questions are asked",
            where=str(source),
            next="declare a template with a fixed date: --tool-template FILE.jinja",
        )


def _length(
    config: Mapping[str, Any], engine: Engine, wants: Wants, served: int | None
) -> Iterator[Finding]:
    limits = {
        "the model": _positions(config),
        "--max-model-len": engine.max_model_len,
        "the server": served,
    }
    wanted = wants.max_context or wants.max_tokens
    for who, limit in limits.items():
        if limit is not None and limit < wanted:
            yield Finding(
                "HT440",
                "error",
                f"the suite wants {wanted} tokens of context, {who} allows {limit}",
                next=f"hubtools evaluate … --max-context {limit}: another protocol, and it says so",
            )
    if wants.max_context is not None and wants.max_tokens >= wants.max_context:
        yield Finding(
            "HT440",
            "error",
            f"one answer of {wants.max_tokens} tokens fills the context of {wants.max_context}",
            next="raise --max-context, or lower max_new_tokens in the suite",
        )


def _memory(
    config: Mapping[str, Any], engine: Engine, wants: Wants, memory: int | None
) -> Iterator[Finding]:
    if not engine.device.startswith("cpu"):
        return  # a server on a GPU measures for itself, and lets samples wait
    tokens = wants.max_context or _positions(config) or 0
    need = bytes_per_token(config, engine.dtype) * tokens * wants.concurrency
    if memory is not None and need > memory:
        yield Finding(
            "HT441",
            "warning",
            f"{wants.concurrency} samples of {tokens} tokens keep {size_words(need)} of keys and"
            f" values, {size_words(memory)} are free",
            next="lower --concurrency or --max-context",
        )


def _positions(config: Mapping[str, Any]) -> int | None:
    """Tokens that the model can place, where config.json says it."""
    part = _text_part(config)
    whole = _number(part, "max_position_embeddings")
    scaling = part.get("rope_parameters") or part.get("rope_scaling")
    if whole and isinstance(scaling, dict):
        kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
        if kind in _STRETCHED and isinstance(factor, int | float) and factor > 1:
            return int((_number(scaling, "original_max_position_embeddings") or whole) * factor)
    return whole


def _vocabulary(path: Path) -> int:
    """One more than the largest id in tokenizer.json; 0 when it does not tell."""
    data = _object(path)
    model, added = data.get("model"), data.get("added_tokens")
    words = model.get("vocab") if isinstance(model, dict) else None
    ids = list(words.values()) if isinstance(words, dict) else []
    ids += range(len(words)) if isinstance(words, list) else ()
    ids += [token.get("id") for token in added or () if isinstance(token, dict)]
    return max((number for number in ids if isinstance(number, int)), default=-1) + 1


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a model with several parts, the one that writes."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _broken(message: str, where: Path) -> Finding:
    return Finding("HT403", "error", message, str(where), "save the checkpoint again, whole")
