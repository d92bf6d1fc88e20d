"""The manifest's evaluations as cells: suites, their options, the engine and the seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target
from hubtools.family.manifest import Member
from hubtools.family.schema import EvaluationTable, SuiteTable
from hubtools.release.context import BASE, Release

NUDGES = {"off": (False,), "on": (True,), "both": (False, True)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run of a member that the manifest asks for.

    Args:
        suite: its name, or where it lies.
        options: what is changed of it.
        seed: of the run.
    """

    suite: str
    options: SuiteOptions
    seed: int

    @property
    def name(self) -> str:
        """As the run is published: `short_qa-seed0`, `sr1_7bench-nudge-seed1`."""
        known = (
            Path(self.suite).name if self.suite.startswith("/") else self.suite.partition("@")[0]
        )
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", known)
        return f"{plain}{'-nudge' if self.options.nudge else ''}-seed{self.seed}"


def wanted(release: Release) -> Iterator[Wanted]:
    """Every run that each member and the base get, in the order of the manifest."""
    table = release.family.manifest.evaluation
    for suite in release.family.manifest.family.suites:
        own = table.options.get(suite, SuiteTable())
        for nudge in NUDGES[own.nudge]:
            fields = own.model_dump(exclude={"nudge", "tool_template"})
            if own.tool_template:
                fields["tool_template"] = str(release.family.resolve(own.tool_template))
            for seed in table.seeds:
                options = SuiteOptions(nudge=nudge, **fields)
                yield Wanted(_located(release, suite), options, seed)


def _located(release: Release, suite: str) -> str:
    """Paths count from the manifest."""
    if suite.startswith(("./", "../", "/", "~")):
        return str(release.family.resolve(suite))
    name, at, folder = suite.partition("@")
    return f"{name}@{release.family.resolve(folder)}" if at else suite


def cell(release: Release, want: Wanted, target: Target, out: Path) -> Cell:
    """The cell of one run."""
    return Cell(target, want.suite, engine(release), want.seed, out, want.options)


def engine(release: Release) -> Engine:
    """`[evaluation]` as an engine."""
    table: EvaluationTable = release.family.manifest.evaluation
    python = release.family.resolve(table.engine_python) if table.engine_python else None
    return Engine(
        kind=table.engine,
        dtype=table.dtype,
        device=table.device,
        python=python,
        concurrency=table.concurrency,
        max_model_len=table.max_model_len,
        options=table.engine_options,
    )


def published_run(member: Member, name: str) -> str:
    """Where a run's record stands in the repos that show its numbers; its samples are beside it."""
    prefix = "base-" if member.id == BASE else ""
    return f".hubtools/evaluation/{prefix}{name}/run.json"


def published_repeats(member: Member, want: Wanted) -> str:
    """Where the record of several seeds stands."""
    name = want.name.removesuffix(f"-seed{want.seed}")
    return published_run(member, f"{name}-repeats").replace("/run.json", ".json")
