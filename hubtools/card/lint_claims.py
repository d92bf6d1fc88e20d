"""Rules about facts and declarations: what must be true before any text is looked at. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from hubtools.card.licences import LICENCES, nearest
from hubtools.card.model import CardInput
from hubtools.card.rules import (
    MACRO,
    has_evidence,
    is_commit,
    is_repo_id,
    member_row,
    possible_fraction,
    suite_metric,
)
from hubtools.card.text import shown_values, values_of
from hubtools.errors import Finding
from hubtools.facts import Fact

_ALIAS = re.compile(r"(?:^|[-/])(?:latest|auto|chat|preview|default|stable)$", re.IGNORECASE)
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")  # the Hub refuses zh-CN and the like
_MEANS = {"f1", "rouge", "bleu"}


def fact_findings(card: CardInput) -> Iterator[Finding]:
    """HT013, HT016, HT018, HT030, HT040: evaluation facts that do not carry a claim.

    A defect stops the card that the fact is about; on the others it is a warning.
    """
    for fact in card.facts:
        if suite_metric(fact) is None:
            continue
        own = fact.subject.member == card.member
        for id, message, fix in _defects(card, fact):
            level: Literal["error", "warning"] = "error" if own else "warning"
            if id == "HT018" or (id == "HT040" and fact.status != "measured"):
                level = "warning"
            place = f"{fact.source.path}#{fact.source.pointer}"
            said = f"{fact.id} of {fact.subject.member}{message}"
            yield Finding(id, level, said, place, fix or f"correct {place}", card.member)
    yield from _epoch_findings(card)


def _defects(card: CardInput, fact: Fact) -> Iterator[tuple[str, str, str]]:
    """(id, what is wrong, what to do) about one evaluation fact."""
    own = fact.subject.member == card.member
    if fact.status == "measured" and not has_evidence(card, fact):
        known = "other weights" if fact.subject.weights else "weights that it does not name"
        yield "HT013", f" was measured on {known}; it is not shown", f"hubtools release {card.repo}"
    if (fact.n is None or not fact.protocol) and (own or fact.status == "measured"):
        lacking = "n" if fact.n is None else "protocol"
        yield "HT040", f" is given without {lacking}", f"record {lacking} with the value, if known"
    _, metric, variant = suite_metric(fact) or ("", "", "")
    if fact.n and fact.unit == "proportion" and metric not in _MEANS:
        count = fact.n * (fact.repeats or 1)
        if fact.k is None:
            # We always give k: without it, a measured value is a mean of graded scores.
            guess = fact.status != "measured" and variant != MACRO
            shown = [v for v in shown_values(fact) if possible_fraction(v, count) is False]
            yield from (("HT016", f": no k of {count} gives {v}", "") for v in shown if guess)
        elif isinstance(fact.value, int | float) and abs(fact.k / fact.n - fact.value) >= 5e-4:
            yield "HT016", f": {fact.value:.3f} is not {fact.k}/{fact.n}", ""
    if fact.spread is not None and fact.spread.kind in ("sd", "sem") and fact.spread.k == 2:
        yield "HT018", ": a spread of two values says little", "give both values"


def _epoch_findings(card: CardInput) -> Iterator[Finding]:
    """An epoch's last step must follow from data and batch size."""
    facts = {f.id: f.value for f in card.facts if f.id in ("data.trajectories", "train.batch_size")}
    rows, batch = facts.get("data.trajectories"), facts.get("train.batch_size")
    if not isinstance(rows, int) or not isinstance(batch, int) or batch < 1:
        return
    for row in card.members:
        found = re.fullmatch(r"ep(\d+)", row.step)
        if found is None or row.optimizer_step is None:
            continue
        epochs = int(found[1])
        possible = {epochs * (rows // batch), epochs * -(-rows // batch)}
        if row.optimizer_step not in possible:
            yield Finding(
                "HT030",
                "warning",
                f"{row.member} is declared at step {row.optimizer_step}, but {rows} trajectories in"
                f" batches of {batch} end epoch {epochs} at {sorted(possible)[0]}",
                "family.toml",
                "correct optimizer_step, the batch size or the number of trajectories",
                card.member,
            )


def teacher_findings(card: CardInput) -> Iterator[Finding]:
    """HT050, HT051: a teacher named without evidence, or by an alias."""
    provenance = card.provenance
    if not provenance.label:
        return
    if provenance.status != "logs" or provenance.verdict is None:
        yield Finding(
            "HT050",
            "error",
            f"the card would name {provenance.label!r} as teacher, but no logs were read",
            "family.toml",
            "hubtools provenance verify",
            card.member,
        )
        return
    roles = provenance.verdict.get("roles", {}).values()
    requested = {name for role in roles for name in role.get("requested", {})}
    reported = {name for role in roles for name in role.get("reported", {})}
    named = provenance.label.partition(" (")[0]
    echoed = provenance.verdict.get("verdict") == "ECHO" and named in requested
    if echoed or named in requested - reported or (_ALIAS.search(named) and named not in reported):
        yield Finding(
            "HT051",
            "error",
            f"{named!r} is the name that was requested, not the model that answered",
            "family.toml",
            f"name one of: {', '.join(sorted(reported))}" if reported else "claim no teacher",
            card.member,
        )


def declared_findings(card: CardInput) -> Iterator[Finding]:
    """HT060 to HT066: base, licence, data and languages as the manifest declares them."""
    for id, level, message, fix in (*_base(card), *_licence(card), *_lists(card)):
        yield Finding(id, level, message, "family.toml", fix, card.member)  # type: ignore[arg-type]


def _base(card: CardInput) -> Iterator[tuple[str, str, str, str]]:
    base = card.base
    if not is_repo_id(base.repo):
        yield (
            "HT062",
            "error",
            f"base model {base.repo!r} is not a Hub repo",
            'base.repo = "owner/name"',
        )
    if not is_commit(base.revision):
        said = f"{base.revision!r} is not a commit" if base.revision else "no revision is declared"
        level = "warning" if card.kind == "full" else "error"
        yield "HT060", level, f"base {base.repo}: {said}", 'base.revision = "<40 hex digits>"'
    own = member_row(card, card.member)
    if own is not None and own.repo != card.repo:
        yield "HT068", "error", f"{card.member} is released as {own.repo}, not {card.repo}", ""


def _licence(card: CardInput) -> Iterator[tuple[str, str, str, str]]:
    if not card.license:
        yield "HT061", "warning", "no licence is declared", 'license = "…" in [family]'
    elif card.license not in LICENCES:
        meant = nearest(card.license)
        yield (
            "HT061",
            "error",
            f"{card.license!r} is no licence id of the Hub",
            f'license = "{meant}"',
        )
    elif card.license == "other" and not (card.license_name and card.license_link):
        yield (
            "HT061",
            "error",
            'licence "other" needs a name and a link',
            "license_name, license_link",
        )
    if card.base.license and card.license and card.base.license != card.license:
        yield (
            "HT066",
            "warning",
            f"declared {card.license}, but the base {card.base.repo} is under {card.base.license}",
            "say in prose/licence.md why that is permitted, or declare the base's licence",
        )


def _lists(card: CardInput) -> Iterator[tuple[str, str, str, str]]:
    for name in card.datasets:
        if not is_repo_id(name):
            yield "HT063", "info", f"dataset {name!r} is not on the Hub; named in the text only", ""
    for code in card.languages:
        if not _LANGUAGE.fullmatch(code):
            yield "HT064", "error", f"{code!r} is not a language code", 'languages = ["en"]'


def known_values(card: CardInput) -> Iterator[tuple[Fact, str, float]]:
    """(fact, as shown, as number) of every evaluation value that some card shows."""
    for fact in card.facts:
        if suite_metric(fact) is None or (
            fact.status == "measured" and not has_evidence(card, fact)
        ):
            continue
        for shown, value in zip(shown_values(fact), values_of(fact), strict=True):
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield fact, shown, float(shown.replace(",", ""))
