from __future__ import annotations

from collections.abc import Callable

from card_builders import TEMPLATES, evaluation
from rich.console import Console

from hubtools.card.lock import card_lock, is_ours
from hubtools.card.model import CardInput
from hubtools.card.render import render_card
from hubtools.card.show import NOTE, plain_markdown, terminal_card
from hubtools.digests import canonical_json, sha256_bytes
from hubtools.facts import FactSet


def test_the_lock_knows_exactly_the_bytes_that_were_written(
    card: Callable[..., CardInput],
) -> None:
    mine = card(facts=FactSet(evaluation("plain/s4", 22, 0.43)))
    text = render_card(mine, (TEMPLATES,))
    lock = card_lock(text, mine, templates="ab" * 32)
    canonical_json(lock)
    assert is_ours(lock, text.encode())
    assert not is_ours(lock, text.encode() + b" ")
    assert not is_ours({**lock, "schema": "hubtools.card-lock/2"}, text.encode())
    block = lock["blocks"]["results"]
    assert "0.344 (22/64)" in block["text"]
    assert block["sha256"] == sha256_bytes(block["text"].encode())
    assert [(f["id"], f["value"]) for f in lock["facts"]] == [
        ("eval.short_qa.em", 22 / 64),
        ("eval.short_qa.f1", 0.43),
    ]
    assert lock["front_matter"]["license"] == "apache-2.0"


def test_a_card_on_the_terminal(card: Callable[..., CardInput]) -> None:
    mine = card(facts=FactSet(evaluation("plain/s4", 22, 0.43)))
    text = render_card(mine, (TEMPLATES,))
    console = Console(width=200, record=True, file=open("/dev/null", "w"))
    with console.file:
        console.print(terminal_card(text))
        shown = console.export_text()
    assert NOTE in shown
    assert "base_model" in shown
    assert "0.344 (22/64)" in shown
    assert "hubtools:begin" not in shown
    assert "<details>" not in shown


def test_front_matter_and_markers_are_not_text(card: Callable[..., CardInput]) -> None:
    plain = plain_markdown(render_card(card(), (TEMPLATES,)))
    assert plain.startswith("# smol-plain-s4\n")
    assert "<!--" not in plain
