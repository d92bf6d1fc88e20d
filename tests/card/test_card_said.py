"""What a card says of settings, base, failures and sisters, each as far as it is known."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest
from card_builders import (
    SUITE,
    TEMPLATES,
    evaluation,
    measured,
)

from hubtools.card.blocks import find_blocks
from hubtools.card.front_matter import parse
from hubtools.card.model import CardInput, FileRow, Provenance
from hubtools.card.render import render_card
from hubtools.digests import weights_digest
from hubtools.facts import FactSet, Source


def text_of(card: CardInput) -> str:
    return render_card(card, (TEMPLATES,))


def block(text: str, name: str) -> str:
    return find_blocks(text)[name].text


BASE_IDENTITY = {
    "": "declared by the author; its files were not read for this card",
    "local": "declared by the author; a local copy was used, not compared with the Hub",
    "cache": (
        "declared by the author; the snapshot of this commit in the Hugging Face cache was used,"
        " with a Hub on the author's machine as its source: not compared with the public Hub"
    ),
    "hub": "weight files as on the Hub at this commit (fetched from there, or compared by digest)",
}


@pytest.mark.parametrize("base_files", BASE_IDENTITY)
def test_how_the_base_is_known_is_said(card: Callable[..., CardInput], base_files: str) -> None:
    said = block(text_of(card(base_files=base_files)), "identity")
    assert f"| Base identity | {BASE_IDENTITY[base_files]} |" in said


@pytest.mark.parametrize(
    ("base_files", "noted"), [("", True), ("local", True), ("cache", True), ("hub", False)]
)
def test_the_base_row_claims_no_more_than_was_compared(
    card: Callable[..., CardInput], base_files: str, noted: bool
) -> None:
    facts = [measured("em", "base", 20 / 64, k=20, weights="4" * 64)]
    facts += evaluation("plain/s4", 22, 0.43)
    text = text_of(card(facts=FactSet(tuple(facts)), base_files=base_files))
    note = (
        "- The base's row was measured on the author's copy (weights digest `44444444`); that it"
        " equals `demo/base` on the Hub was not checked."
    )
    assert (note in block(text, "results")) == noted
    assert "not read" not in text
    told = card(facts=FactSet(tuple(facts[1:])), base_files=base_files)
    assert "The base's row" not in text_of(told)


def test_training_settings_say_where_they_were_read(card: Callable[..., CardInput]) -> None:
    some = measured("em", "plain/s4", 0.0)
    facts = (
        replace(some, id="train.optimizer_steps", value=8, unit="steps"),
        replace(some, id="train.last_logged_loss", value=0.12345678901, unit=""),
        replace(some, id="train.time", value=90, unit="s"),
    )
    text = block(text_of(card(facts=FactSet(facts))), "training")
    assert "| optimizer steps | 8 | read from the run's files |" in text
    assert "| last logged loss | 0.123457 |" in text
    assert "| time | 90 s |" in text
    named = "`runs/plain/s4/short_qa/1/run.json` (sha256 `5e5e5e5e`)"
    assert f"- Source, files as the trainer wrote them: {named}." in text


def test_a_rewritten_adapter_config_does_not_look_tampered_with(
    card: Callable[..., CardInput],
) -> None:
    source = Source("run/adapter_config.json", "5e" * 32, "/r")
    fact = replace(measured("em", "plain/s4", 0.0), id="train.lora_r", value=8, source=source)
    words = "The published `adapter_config.json` names the base by its Hub id"

    def said(*published: str) -> str:
        files = tuple(FileRow("adapter_config.json", 9, sha256) for sha256 in published)
        return block(text_of(card(facts=FactSet((fact,)), files=files)), "training")

    assert words in said("6f" * 32)
    assert words not in said("5e" * 32)
    assert words not in said()


def test_the_weights_digest_can_be_followed_by_hand(card: Callable[..., CardInput]) -> None:
    one = (FileRow("model.safetensors", 9, "ab" * 32), FileRow("config.json", 9, "cd" * 32))
    digest = weights_digest({"model.safetensors": "ab" * 32})
    text = text_of(card(files=one, weights=digest))
    assert f"| Weights digest | `{digest}` (sha256 of the list of weight files" in text
    command = re.search(r"weights digest of this card: `(.*)`\.", block(text, "files"))
    assert command is not None
    shell = subprocess.run(command[1], shell=True, capture_output=True, check=True, text=True)
    assert shell.stdout.split()[0] == digest
    assert "`sha256sum FILE` gives the value in its row" in block(text, "files")
    two = (*one, FileRow("other.safetensors", 9, "ef" * 32))
    both = weights_digest({row.path: row.sha256 for row in two if "safe" in row.path})
    shards = block(text_of(card(files=two, weights=both)), "files")
    assert "of all `*.safetensors` rows, sorted by name" in shards
    assert "weights digest" not in block(text_of(card(files=two, weights=digest)), "files")


def test_failed_items_are_said(card: Callable[..., CardInput]) -> None:
    failed = replace(measured("em", "plain/s4", 0.0), id="eval.short_qa.failures", value=3)
    facts = (*evaluation("plain/s4", 22, 0.43), failed)
    results = block(text_of(card(facts=FactSet(facts))), "results")
    assert "- 3 of 64 items failed on **this checkpoint** (`smol-plain-s4`)." in results
    stale = replace(failed, subject=replace(failed.subject, weights="f" * 64))
    assert "failed" not in text_of(card(facts=FactSet((*facts[:2], stale))))
    none = replace(failed, value=0)
    assert "failed" not in text_of(card(facts=FactSet((*facts[:2], none))))


def test_answers_that_reached_the_limit_are_said(card: Callable[..., CardInput]) -> None:
    own = replace(measured("em", "plain/s4", 0.0), id="eval.short_qa.cut_off", value=26)
    base = replace(measured("em", "base", 0.0), id="eval.short_qa.cut_off", value=40)
    facts = (*evaluation("plain/s4", 22, 0.43), own, base)
    limited = replace(SUITE, protocol={"sampling": {"max_new_tokens": 16}})
    mine = card(facts=FactSet(facts), suites=(limited,))
    results = block(text_of(mine), "results")
    assert (
        "- Answers that reached the limit of 16 tokens: 40 of 64 of base (`demo/base`);"
        " 26 of 64 of **this checkpoint** (`smol-plain-s4`)." in results
    )
    assert "| cut off |" not in results
    assert "cut_off" not in str(parse(text_of(mine))[0])
    none = (*facts[:2], replace(own, value=0), replace(base, value=0))
    assert "reached the limit" not in text_of(card(facts=FactSet(none)))


def test_what_the_logs_carry_is_placed_as_it_is_worded(card: Callable[..., CardInput]) -> None:
    verdict = {
        "verdict": "MIXED",
        "created": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-03T00:00:00Z"},
        "roles": {"agent": {"n": 3, "k": 2, "requested": {}, "reported": {"a|b": 2, "c": 1}}},
        "bad_total": 2,
        "notes": ["one <note>"],
    }
    mine = Provenance("logs", verdict=verdict, paragraph="Of 3, `x` in\n\n2.", label="a (b*)")
    text = block(text_of(card(provenance=mine)), "teacher")
    assert "**Teacher:** a (b\\*)." in text
    assert "Of 3, `x` in 2." in text
    assert "| agent | not recorded | `a\\|b` × 2, `c` × 1 | 2/3 |" in text
    assert "- 2 lines could not be read" in text
    assert "- One &lt;note&gt;." in text
    named = replace(mine, verdict={**verdict, "notes": ["a.jsonl is short."]})
    assert "- a.jsonl is short.\n" in text_of(card(provenance=named))
    short = block(text_of(card(provenance=replace(mine, paragraph=""))), "teacher")
    assert "created from 2026-11-01 to 2026-11-03." in short


def test_unreleased_sisters_are_named_without_a_link(card: Callable[..., CardInput]) -> None:
    text = text_of(card(facts=FactSet(evaluation("terse/s4", 21, 0.41))))
    assert "huggingface.co/demo/smol-plain-s8" in text
    assert "huggingface.co/demo/smol-terse-s4" not in text
    assert "`smol-terse-s4`" in text


def test_markup_in_values_is_shown_and_not_run(card: Callable[..., CardInput]) -> None:
    evil = "<script>alert(1)</script>|\n# x"
    mine = card(title=evil, license_name=evil)
    mine = replace(mine, members=tuple(replace(m, label=evil) for m in mine.members))
    _, body = parse(text_of(mine))
    assert "<script" not in body
    assert "\n# x" not in body
    assert body.startswith("\n# &lt;script&gt;alert(1)&lt;/script&gt;\\| # x\n")
