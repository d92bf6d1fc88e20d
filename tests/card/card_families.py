"""The two published families, as the release would hand them to the card room."""

from __future__ import annotations

from pathlib import Path

from card_builders import TEMPLATES

from hubtools.card.model import Base, CardInput, MemberRow, Provenance, Usage
from hubtools.card.reported import read_reported

CARDS = TEMPLATES.parent / "cards"
ARMS = {"r2e": ("s50", "s100", "ep1"), "search": ("s50", "s100"), "mixed": ("s50", "s100")}


def prose(folder: Path) -> dict[str, str]:
    return {p.stem: p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.md"))}


def agent_family(member: str) -> CardInput:
    root = CARDS / "dt-4bT"
    members = tuple(
        MemberRow(
            member=f"{arm}/{step}",
            label={"r2e": "code"}.get(arm, arm),
            repo=f"wenyii/dt-4bT-{arm}-{step}",
            step=step,
            optimizer_step=218 if step == "ep1" else int(step[1:]),
            released=True,
        )
        for arm, steps in ARMS.items()
        for step in steps
    )
    return CardInput(
        repo=next(row.repo for row in members if row.member == member),
        family="dt-4bT",
        title="",
        member=member,
        kind="full",
        base=Base("Qwen/Qwen3-4B-Thinking-2507", "", "apache-2.0"),
        license="",
        license_name="",
        license_link="",
        languages=("en",),
        tags=("agent",),
        pipeline_tag="text-generation",
        datasets=(),
        weights="",
        facts=read_reported(root / "reported.toml"),
        members=members,
        suites=(),
        comparisons=(),
        provenance=Provenance("none", "the authors name no teacher and publish no logs"),
        usage=Usage("bfloat16", 16384),
        prose=prose(root / "prose"),
    )


def airline_adapter() -> CardInput:
    root = CARDS / "tau2-airline"
    repo = "yuyu0529nya/qwen2.5-7b-tau2-airline-sft-lora"
    return CardInput(
        repo=repo,
        family="tau2-airline",
        title="",
        member="sft/final",
        kind="adapter",
        base=Base("Qwen/Qwen2.5-7B-Instruct", "", "apache-2.0"),
        license="apache-2.0",
        license_name="",
        license_link="",
        languages=("en",),
        tags=("lora", "tool-use"),
        pipeline_tag="text-generation",
        datasets=("yuyu0529nya/tau2-airline-deepseek-distill",),
        weights="",
        facts=read_reported(root / "reported.toml"),
        members=(MemberRow("sft/final", "behaviour cloning", repo, "final", None, True),),
        suites=(),
        comparisons=(),
        provenance=Provenance("reported", "the raw logs are not published"),
        usage=Usage("bfloat16"),
        prose=prose(root / "prose"),
    )
