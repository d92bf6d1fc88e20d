"""What a suite is once it is read: questions, how they are asked, and how answers are scored."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from eval_harness.agents.making import agent_identity
from eval_harness.chat import Message
from eval_harness.errors import HarnessError

Average = Literal["micro", "macro"]


@dataclass(frozen=True, slots=True)
class Item:
    """One question.

    Args:
        id: unique in its suite.
        category: a slice of the suite.
        question, context: what the prompt template is filled with; context may be empty.
        answers: every accepted answer.
    """

    id: str
    category: str
    question: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a suite.

    Args:
        name: in tables.
        extractor, scorer: by name with version.
        tiers: rungs of the extractor whose answers count; empty for all.
    """

    name: str
    extractor: str
    scorer: str
    tiers: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object; `tiers` only where they are limited."""
        plain = {"name": self.name, "extractor": self.extractor, "scorer": self.scorer}
        return plain | ({"tiers": list(self.tiers)} if self.tiers else {})


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn; temperature 0 is greedy."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite as read from disk, maybe with options; `digest` names all that decides a figure.

    Args:
        items: in the order in which they are asked.
        items_sha256: of the whole data, also where only some items are asked.
        metrics: in the order of tables; the first is shown while a run is going on.
        average: whether the headline figure weighs samples or categories alike.
        trials: answers per item.
        agent: table `[agent]`: `kind` and its settings.
        prompt: `with_context`, `without_context` and maybe `system`.
        nudge: text that `nudged` appends to every question.
        sampling: of every call.
        max_context: tokens of prompt and answers together; None where the model decides.
        retriever: table `[retriever]`.
        dataset: what the parts of a dataset from the Hub are pinned to.
        sample: `limit`, `seed` and `ids` of a drawn part of the suite; empty for all of it.
        base: folder of the suite.
        sources: where the questions come from, for readers.
    """

    id: str
    version: str
    title: str
    description: str
    items: tuple[Item, ...]
    items_sha256: str
    metrics: tuple[Metric, ...]
    prompt: Mapping[str, str]
    sampling: Sampling
    base: Path
    average: Average = "micro"
    trials: int = 1
    agent: Mapping[str, Any] = field(default_factory=lambda: {"kind": "single"})
    nudge: str = ""
    nudged: bool = False
    max_context: int | None = None
    retriever: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    sample: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Mapping[str, str], ...] = ()

    def identity(self) -> dict[str, Any]:
        """What must be equal for two runs to be comparable; JSON values only."""
        ids = [item.id for item in self.items]
        whole = {
            "id": self.id,
            "version": self.version,
            "items_sha256": self.items_sha256,
            "n": len(ids),
            "ids_sha256": canonical_sha256(ids),
            "categories": dict(Counter(item.category for item in self.items)),
            "prompt": dict(self.prompt),
            "metrics": [metric.to_json() for metric in self.metrics],
            "average": self.average,
            "trials": self.trials,
            "agent": agent_identity(self.agent),
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
        }
        chosen = {
            "nudge": self.nudge if self.nudged else "",
            "max_context": self.max_context,
            "dataset": dict(self.dataset),
            "sample": dict(self.sample),
            "retriever": {k: v for k, v in self.retriever.items() if k != "corpus"},
        }
        return whole | {key: value for key, value in chosen.items() if value}

    @property
    def digest(self) -> str:
        """sha256 of `identity()` as canonical JSON."""
        return canonical_sha256(self.identity())

    @property
    def size(self) -> int:
        """Samples: items times trials."""
        return len(self.items) * self.trials

    def at(self, place: int) -> tuple[Item, int]:
        """Item and trial of the sample at `place`; trials of an item stand together."""
        return self.items[place // self.trials], place % self.trials

    def messages(self, item: Item) -> list[Message]:
        """The chat that asks `item`."""
        template = self.prompt["with_context" if item.context else "without_context"]
        text = template.format(context=item.context, question=item.question).strip()
        if self.nudged:
            text = f"{text}\n\n{self.nudge}"
        system = self.prompt.get("system", "")
        first = [{"role": "system", "content": system.strip()}] if system else []
        return [*first, {"role": "user", "content": text}]

    def with_options(
        self,
        *,
        limit: int | None = None,
        sample_seed: int = 0,
        trials: int | None = None,
        temperature: float | None = None,
        nudge: bool = False,
        max_context: int | None = None,
    ) -> Suite:
        """A changed suite with a changed identity; None leaves the suite's own value.

        Args:
            limit: items of each category at most, drawn with `sample_seed`.
            sample_seed: another one draws other items.
            trials: answers per item.
            temperature: 0 is greedy.
            nudge: append the suite's nudge to every question.
            max_context: tokens of prompt and answers together.

        Raises:
            HarnessError: `bad_suite` for a number out of range or a nudge that is not there.
        """
        for name, value, least in (
            ("limit", limit, 1),
            ("trials", trials, 1),
            ("temperature", temperature, 0),
            ("max_context", max_context, 1),
        ):
            if value is not None and not least <= value < 1e9:
                raise _refused(self, f"{name} cannot be {value}", f"name {least} or more")
        if nudge and not self.nudge:
            raise _refused(self, "has no nudge", "leave --nudge out")
        sampling = self.sampling
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        changed = replace(
            self,
            trials=trials or self.trials,
            sampling=sampling,
            nudged=nudge,
            max_context=max_context or self.max_context,
        )
        return changed if limit is None else changed._drawn(limit, sample_seed)

    def as_asked(self, identity: Mapping[str, Any]) -> Suite:
        """This suite with the options under which a run of that identity was made.

        Raises:
            HarnessError: `bad_suite` when it cannot have them.
        """
        sample = identity.get("sample", {})
        return self.with_options(
            limit=sample.get("limit"),
            sample_seed=sample.get("seed", 0),
            trials=identity["trials"],
            temperature=identity["sampling"]["temperature"],
            nudge=bool(identity.get("nudge")),
            max_context=identity.get("max_context"),
        )

    def _drawn(self, limit: int, seed: int) -> Suite:
        groups: dict[str, list[str]] = {}
        for item in self.items:
            groups.setdefault(item.category, []).append(item.id)
        kept = set[str]()
        for category, ids in groups.items():
            draw = random.Random(f"{seed}/{category}")
            kept.update(draw.sample(ids, min(limit, len(ids))))
        items = tuple(item for item in self.items if item.id in kept)
        sample = {"limit": limit, "seed": seed, "ids": [item.id for item in items]}
        return replace(self, items=items, sample=sample)


def canonical_sha256(value: Any) -> str:
    """Hex sha256 of `value` as JSON with sorted keys and no spaces; half a surrogate is kept."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _refused(suite: Suite, what: str, advice: str) -> HarnessError:
    return HarnessError("bad_suite", f"suite {suite.id}: {what}", next=advice)
