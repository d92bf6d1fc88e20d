"""What to evaluate and with what: a cell is one checkpoint, one suite, one seed, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

EngineKind = Literal["transformers", "vllm", "endpoint"]
ENGINES: tuple[EngineKind, ...] = ("transformers", "vllm", "endpoint")


@dataclass(frozen=True, slots=True)
class Target:
    """Whom the figures are about.

    Args:
        member: name of the checkpoint in tables.
        weights: digest of what is measured; empty where a server cannot prove it.
        model: checkpoint folder; None with an endpoint.
        adapter: PEFT adapter folder on top of it.
    """

    member: str
    weights: str = ""
    model: Path | None = None
    adapter: Path | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """What computes the answers.

    Args:
        kind: `transformers` in a child process, `vllm` as a server that we start, or an
            `endpoint` that somebody else runs.
        dtype: in which weights compute; an endpoint decides for itself.
        device: `cpu`, `cuda`, `cuda:0`.
        python: interpreter of the environment that holds vllm; None: our own.
        url: of an endpoint, up to `/v1`.
        served_name: the model's name there.
        api_key_env: environment variable with the key for it.
        concurrency: samples in flight; None: the kind's own default.
        max_model_len: context length in tokens; None: the suite's, or the model's.
        options: further arguments of the server.
        timeout: seconds that a server may take for one answer.
    """

    kind: EngineKind = "transformers"
    dtype: str = "float32"
    device: str = "cpu"
    python: Path | None = None
    url: str = ""
    served_name: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int | None = None
    max_model_len: int | None = None
    options: tuple[str, ...] = ()
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What may be changed of a suite; every one of them is part of the protocol.

    None leaves the suite's own value.

    Args:
        limit: questions per category, drawn with `sample_seed`; the ids are in the protocol.
        trials: answers per question.
        temperature: 0 is greedy.
        nudge: append the suite's prompt nudge.
        max_context: tokens of prompt and answer together.
        retriever_url: a service with the `/retrieve` contract, in place of the embedded one.
        accept_unpinned: take a benchmark's data although nobody has pinned them; figures are then
            named `(unpinned)`.
        user: OpenAI-compatible model that plays the user, `URL#NAME`; for suites that need one.
        max_steps: of a conversation, for suites that hold one.
        tool_template: Jinja file to use in place of the checkpoint's chat template, where that
            does not show tools to the model.
    """

    limit: int | None = None
    sample_seed: int = 0
    trials: int | None = None
    temperature: float | None = None
    nudge: bool = False
    max_context: int | None = None
    retriever_url: str = ""
    accept_unpinned: bool = False
    user: str = ""
    max_steps: int | None = None
    tool_template: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be made; `out` is the append-only folder of runs that it goes to."""

    target: Target
    suite: str
    engine: Engine
    seed: int
    out: Path
    options: SuiteOptions = field(default_factory=SuiteOptions)

    def to_json(self) -> dict[str, Any]:
        """JSON object; `cell_from_json` is the inverse."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """Inverse of `Cell.to_json`.

    Raises:
        KeyError, TypeError: fields are missing or unknown.
    """
    target, engine = dict(data["target"]), dict(data["engine"])
    for name in ("model", "adapter"):
        target[name] = _path(target.get(name))
    engine["python"] = _path(engine.get("python"))
    engine["options"] = tuple(engine.get("options", ()))
    return Cell(
        Target(**target),
        data["suite"],
        Engine(**engine),
        data["seed"],
        Path(data["out"]),
        SuiteOptions(**data.get("options", {})),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
