from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hubtools.card.model import (
    Base,
    CardInput,
    ComparisonRow,
    FileRow,
    MemberRow,
    Provenance,
    Suite,
    Usage,
)
from hubtools.facts import Fact, FactSet, Source, Spread, Subject

BASE_REVISION = "a" * 39 + "1"
PROTOCOL = "9f8e7d6c" * 8
OTHER_PROTOCOL = "0a1b2c3d" * 8
WEIGHTS = {"plain/s4": "1" * 64, "plain/s8": "2" * 64, "terse/s4": "3" * 64}
TEMPLATES = Path(__file__).parents[2] / "templates"


def measured(
    metric: str,
    member: str,
    value: float,
    *,
    k: int | None = None,
    n: int | None = 64,
    protocol: str = PROTOCOL,
    weights: str | None = None,
    low: float = 0.2,
    high: float = 0.5,
) -> Fact:
    wilson = k is not None
    return Fact(
        id=f"eval.short_qa.{metric}",
        value=value,
        status="measured",
        source=Source(f"runs/{member}/short_qa/1/run.json", "5e" * 32, f"/metrics/{metric}"),
        subject=Subject(member, weights=WEIGHTS.get(member, "") if weights is None else weights),
        unit="proportion",
        n=n,
        k=k,
        spread=Spread("ci", low, high, "Wilson" if wilson else "bootstrap", n or 1, 0.95),
        protocol=protocol,
        date="2026-11-30",
    )


def reported(
    metric: str, member: str, value: object, quote: str, *, protocol: str = PROTOCOL, **more: object
) -> Fact:
    return Fact(
        id=f"eval.short_qa.{metric}",
        value=value,
        status="reported",
        source=Source("reported.toml", "7c" * 32, "/fact/0", quote),
        subject=Subject(member),
        unit="proportion",
        protocol=protocol,
        **more,  # type: ignore[arg-type]
    )


SUITE = Suite(
    id="short_qa",
    title="Short-answer QA",
    description="64 questions with answers that can be looked up.",
    protocol={
        "suite": "short_qa",
        "version": 1,
        "decoding": {"temperature": 0},
        "dtype": "float32",
    },
    protocol_id=PROTOCOL,
    metrics=("em", "f1"),
)


def evaluation(member: str, k: int, f1: float) -> tuple[Fact, Fact]:
    return measured("em", member, k / 64, k=k), measured("f1", member, f1)


def comparison(metric: str, a: str, b: str, diff: float, *, noise: bool = True) -> ComparisonRow:
    low, high = (diff - 0.08, diff + 0.08) if noise else (diff - 0.01, diff + 0.01)
    return ComparisonRow(
        "short_qa", metric, a, b, diff, low, high, 0.95, 64, "paired bootstrap", noise, PROTOCOL
    )


def trained(member: str = "plain/s4", **values: object) -> tuple[Fact, ...]:
    """`train.*` facts as a release reads them from adapter_config.json."""
    return tuple(
        Fact(
            f"train.{name}",
            value,
            "measured",
            Source("runs/plain/s4/adapter_config.json", "4c" * 32, f"/{name}"),
            Subject(member, WEIGHTS[member]),
        )
        for name, value in values.items()
    )


LORA = trained(adapter_type="LORA", lora_r=8)


def make_card(**changes: object) -> CardInput:
    members = tuple(
        MemberRow(
            member=name,
            label=name.split("/")[0],
            repo=f"demo/smol-{name.replace('/', '-')}",
            step=name.split("/")[1],
            optimizer_step=int(name[-1]),
            released=name != "terse/s4",
            weights=digest,
        )
        for name, digest in WEIGHTS.items()
    )
    card = CardInput(
        repo="demo/smol-plain-s4",
        family="smol",
        title="",
        member="plain/s4",
        kind="full",
        base=Base("demo/base", BASE_REVISION, "apache-2.0"),
        license="apache-2.0",
        license_name="",
        license_link="",
        languages=("en",),
        tags=("demo",),
        pipeline_tag="text-generation",
        datasets=("demo/answers",),
        weights=WEIGHTS["plain/s4"],
        facts=FactSet(),
        members=members,
        suites=(SUITE,),
        comparisons=(),
        provenance=Provenance("none", reason="no teacher was called"),
        usage=Usage(dtype="float32"),
        prose={"summary": "A small model for a demonstration."},
        files=(
            FileRow("model.safetensors", 269_000_000, "ab" * 32),
            FileRow("README.md", 10, "cd" * 32),
        ),
    )
    return replace(card, **changes)  # type: ignore[arg-type]
