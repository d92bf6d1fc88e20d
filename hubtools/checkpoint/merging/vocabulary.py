"""Matrices with a row per token, and what follows when their number of rows changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.checkpoint.merging.config_edits import everywhere
from hubtools.checkpoint.merging.drafts import Draft, Sketch, module_of
from hubtools.checkpoint.merging.refusals import refuse

# Last part of the module's name: a hint for what is not stored, or has no number of rows to go by.
_MODULES = frozenset({
    "embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "shared",
    "lm_head", "embed_out", "output",
})  # fmt: skip


def named_vocabulary(name: str) -> bool:
    """Whether a parameter looks like an input or output embedding by its name."""
    return module_of(name).rpartition(".")[2] in _MODULES


def is_vocabulary(sketch: Sketch, name: str) -> bool:
    """Whether a parameter looks like an embedding by its name, or has a row per token.

    Only a hint which tensors to look at: what is tied to what comes from transformers.
    """
    if named_vocabulary(name):
        return True
    draft = sketch.drafts.get(name)
    # What lies inside a numbered layer is no vocabulary, however many rows it has.
    if draft is None or any(word.isdigit() for word in module_of(name).split(".")[:-1]):
        return False
    stored = draft.base or draft.source
    return bool(stored.entry.shape) and stored.entry.shape[0] in _row_counts(sketch)


def _row_counts(sketch: Sketch) -> set[Any]:
    """How many tokens there are, by config.json and by matrices that are embeddings by name."""
    said = {
        value
        for key in ("vocab_size", "n_words")
        for value in everywhere(sketch.config, key).values()
    }
    named = {
        draft.base.entry.shape[0]
        for name, draft in sketch.drafts.items()
        if draft.base is not None and draft.base.entry.shape and named_vocabulary(name)
    }
    return {count for count in said | named if type(count) is int and count > 1}


def may_be_tied(sketch: Sketch) -> bool:
    """Whether the base's configuration leaves it possible that the two embeddings are one."""
    said = everywhere(sketch.config, "tie_word_embeddings")
    return any(said.values()) or False not in said.values()


def follow_rows(sketch: Sketch, adapter: Path) -> None:
    """Let the configuration follow a vocabulary that was resized, when all of it was.

    Raises:
        CheckError: HT140 when a matrix or bias keeps the old number of rows.
    """
    resized = {
        name: draft
        for name, draft in sketch.drafts.items()
        if draft.resized and is_vocabulary(sketch, name)  # a head may have other labels
    }
    if not resized:
        return
    rows = {draft.shape[0] for draft in resized.values()}
    old = {draft.base.entry.shape[0] for draft in resized.values() if draft.base is not None}
    biases = {f"{module_of(name)}.bias" for name in resized}
    left = [
        draft
        for name, draft in sketch.drafts.items()
        if name not in resized
        and draft.shape  # a scalar has no rows
        and draft.shape[0] in old
        and (name in biases or (len(draft.shape) == 2 and is_vocabulary(sketch, name)))
    ]
    if len(rows) > 1 or left:
        raise _uneven(resized | {draft.name: draft for draft in left}, adapter)
    (count,) = rows
    said = everywhere(sketch.config, "vocab_size") or {"vocab_size": None}
    sketch.edits.update(dict.fromkeys(said, count))
    sketch.note(f"the vocabulary was resized from {max(old)} to {count} rows: vocab_size follows")


def _uneven(drafts: dict[str, Draft], adapter: Path) -> Exception:
    sizes = ", ".join(f"{name} {list(draft.shape)}" for name, draft in sorted(drafts.items()))
    return refuse(
        "HT140",
        "the vocabulary was resized in part: its matrices have different numbers of rows",
        adapter,
        "save the adapter again with save_embedding_layers=True, or name the resized base:"
        " --base DIR",
        sizes,
    )
