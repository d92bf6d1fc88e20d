"""Whole cards, one reviewable file a case. Delete a file to have it written anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from card_builders import (
    LORA,
    OTHER_PROTOCOL,
    SUITE,
    TEMPLATES,
    WEIGHTS,
    comparison,
    evaluation,
    make_card,
    measured,
    reported,
    trained,
)
from card_families import agent_family, airline_adapter

from hubtools.card.lint import lint_card
from hubtools.card.model import Base, CardInput, Provenance, Suite, Usage
from hubtools.card.render import render_card
from hubtools.facts import Fact, FactSet, Source, Subject

GOLDEN = Path(__file__).parent / "golden"
VERDICT = {
    "verdict": "NAME-ONLY",
    "grade": "C",
    "created": {"from": 1764460800, "to": 1764547199},
    "roles": {
        "assistant": {
            "n": 48,
            "k": 48,
            "requested": {"smollm2": 48},
            "reported": {"smollm2-135m": 48},
            "verdict": "NAME-ONLY",
        }
    },
    "files": [{"path": "logs/teacher.jsonl.zst", "sha256": "ef" * 32}],
    "bad_lines": [],
    "notes": [],
}
EVERYONE = (
    *evaluation("base", 20, 0.4),
    *evaluation("plain/s4", 22, 0.43),
    *evaluation("plain/s8", 23, 0.44),
    *evaluation("terse/s4", 21, 0.41),
)


def full_within_noise() -> CardInput:
    return make_card(
        facts=FactSet(EVERYONE),
        comparisons=(
            comparison("em", "plain/s4", "base", 2 / 64),
            comparison("em", "plain/s8", "plain/s4", 1 / 64),
            comparison("f1", "plain/s4", "terse/s4", 0.02),
            comparison("em", "plain/s8", "terse/s4", 2 / 64, noise=False),
        ),
    )


def full_not_evaluated() -> CardInput:
    return make_card(facts=FactSet(evaluation("plain/s8", 23, 0.44)), prose={}, files=())


def merged_with_teacher() -> CardInput:
    return make_card(
        kind="merged",
        facts=FactSet((*EVERYONE[:4], *LORA)),
        comparisons=(comparison("em", "base", "plain/s4", -0.2, noise=False),),
        provenance=Provenance(
            "logs",
            verdict=VERDICT,
            paragraph="The server's operator chose the reported name, so it identifies nothing.",
            label="smollm2-135m",
        ),
        usage=Usage("bfloat16", 2048, ("--enforce-eager",), tool_parser="hermes"),
    )


def adapter_two_protocols() -> CardInput:
    sampled = Suite(
        "short_qa", "Short-answer QA, sampled", "", {"dtype": "float32"}, OTHER_PROTOCOL, ("em",)
    )
    more = (
        measured("em", "plain/s4", 0.25, k=16, protocol=OTHER_PROTOCOL),
        reported("em", "plain/s8", 0.5, "the paper: “EM 0.50”", protocol="7" * 64, n=100),
    )
    facts = FactSet((*EVERYONE, *more, *LORA))
    return make_card(kind="adapter", facts=facts, suites=(SUITE, sampled), title="A <b>card</b>")


def adapter_reported_only() -> CardInput:
    facts = (
        reported("em", "plain/s4", [0.30, 0.35], "the paper: “0.30 and 0.35”", n=100, repeats=2),
        reported("em", "plain/s8", 0.41, "the paper: “0.41 after more steps”", n=100),
        reported("em", "base", 0.2, "a blog: “about 0.20”", protocol=OTHER_PROTOCOL),
        replace(reported("", "family", 16, "the paper: “r=16”", protocol=""), id="train.lora_r"),
        replace(
            reported("", "family", "m-1", "the paper: “m-1, 9/9 turns”", protocol="", n=9, k=9),
            id="teacher.agent.reported",
        ),
    )
    return make_card(
        kind="adapter",
        facts=FactSet(facts),
        suites=(),
        weights="",
        base=Base("demo/base", ""),
        provenance=Provenance("reported", "the logs are not published"),
        prose={"summary": "Published before.", "citation": "Cite the commit.", "ethics": "None."},
    )


def merged_from_shards() -> CardInput:
    def fact(id: str, value: object) -> Fact:
        source = Source(".hubtools/weights.json", "8d" * 32, f"/{id.replace('.', '/')}")
        subject = Subject("plain/s4", weights=WEIGHTS["plain/s4"])
        return Fact(id, value, "measured", source, subject)

    note = "lm_head.weight and embed_tokens.weight are two tensors now"
    values = {
        "ingest.source": "verl-fsdp", "ingest.world_size": 8, "ingest.elements": 9216,
        "ingest.rounded_elements": 8841, "ingest.dtypes_in": ["float32"],
        "ingest.dtypes_out": ["bfloat16"],
        "merge.tensors": 290, "merge.changed_tensors": 57, "merge.note.0": note,
        "merge.arithmetic": "float32, rounded once to the dtype of the base",
        "merge.kinds.q_proj.tensors": 28, "merge.kinds.q_proj.relative_change": 0.00512341,
        "merge.kinds.q_proj.unmoved_share": 0.3217,
        "merge.kinds.lm_head.tensors": 1, "merge.kinds.lm_head.unmoved_share": 0.0,
    }  # fmt: skip
    made = tuple(fact(id, value) for id, value in values.items())
    return make_card(kind="merged", facts=FactSet((*made, *LORA)), suites=(), prose={})


def adapter_no_lora() -> CardInput:
    facts = trained(adapter_type="IA3", adapter_targets="down_proj, k_proj, v_proj")
    return make_card(kind="adapter", facts=FactSet(facts), suites=(), prose={})


CASES: dict[str, Callable[[], CardInput]] = {
    "full-within-noise": full_within_noise,
    "full-not-evaluated": full_not_evaluated,
    "merged-with-teacher": merged_with_teacher,
    "adapter-two-protocols": adapter_two_protocols,
    "adapter-reported-only": adapter_reported_only,
    "merged-from-shards": merged_from_shards,
    "adapter-no-lora": adapter_no_lora,
}
PUBLISHED: dict[str, Callable[[], CardInput]] = {
    "agent-s50": lambda: agent_family("r2e/s50"),
    "agent-s100": lambda: agent_family("r2e/s100"),
    "airline": airline_adapter,
}


@pytest.mark.parametrize("case", CASES)
def test_card_is_unchanged(case: str) -> None:
    text = render_card(CASES[case](), (TEMPLATES,))
    golden = GOLDEN / f"{case}.md"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
        pytest.fail(f"{golden.name} was written: read it, then run again")
    assert text == golden.read_text(encoding="utf-8")


def test_every_golden_file_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.md")} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_rendering_again_gives_the_same_bytes(case: str) -> None:
    assert render_card(CASES[case](), (TEMPLATES,)) == render_card(CASES[case](), (TEMPLATES,))


@pytest.mark.parametrize("case", [*CASES, *PUBLISHED])
def test_our_own_cards_pass_their_lint(case: str) -> None:
    """Only what a family really lacks is found: a pinned base revision, a licence, n."""
    card = (CASES | PUBLISHED)[case]()
    found = {f.id for f in lint_card(render_card(card, (TEMPLATES,)), card)}
    lacking = {"HT040", "HT060", "HT061"} if case in PUBLISHED or "reported" in case else set()
    assert found <= lacking
