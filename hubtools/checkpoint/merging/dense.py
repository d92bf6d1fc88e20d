"""What one adapter does to matrices and vectors that the base stores whole."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

from hubtools.checkpoint.adapter import Adapter, AdapterConfig
from hubtools.checkpoint.merging.drafts import Draft, kind_of
from hubtools.checkpoint.merging.places import Places
from hubtools.checkpoint.merging.recipe import AddVector, Factor, LowRank, SetRows, Stored
from hubtools.checkpoint.merging.refusals import (
    NOTHING,
    OTHER_BASE,
    incomplete,
    refuse,
    trained_on,
)
from hubtools.checkpoint.merging.tensors import FLOATS, Part
from hubtools.checkpoint.merging.vocabulary import named_vocabulary
from hubtools.errors import CheckError

Parts = Mapping[Part, Stored]


def require_float(draft: Draft) -> None:
    """Refuse a tensor that arithmetic cannot change.

    Raises:
        CheckError: HT115.
    """
    if draft.dtype not in FLOATS:
        why = f"{draft.name} is stored as {draft.dtype}"
        fix = "name a base in float32, bfloat16 or float16: --base DIR"
        raise refuse("HT115", why, draft.source.path, fix)


def scaling_of(adapter: Adapter, module: str, rank: int, *shapes: Stored) -> float:
    """The factor of B·A, once rank and alpha are believable.

    Raises:
        CheckError: HT114 the file has another rank than the configuration, HT116 alpha is 0.
    """
    config = adapter.config
    if config.rank_of(module) != rank:
        found = ", ".join(f"{_part_name(s)} {list(s.entry.shape)}" for s in shapes)
        what = f"{module}: rank {config.rank_of(module)} by adapter_config.json, {found}"
        raise incomplete(config.path, what)
    scaling = config.scaling_of(module)
    if scaling == 0:
        why = f"{module}: lora_alpha is 0, so the merge would change nothing"
        raise refuse("HT116", why, config.path, alpha_fix(config))
    return scaling


def alpha_fix(config: AdapterConfig) -> str:
    """Where the alpha of an adapter without one comes from; verl leaves 0 in its own."""
    folder = config.path.parent
    if folder.name != "lora_adapter":
        return "write the alpha used in training there"
    return f"hubtools ingest {shlex.quote(str(folder))} --lora-alpha ALPHA -o OUT, then merge OUT"


def add_linear(draft: Draft, module: str, parts: Parts, adapter: Adapter, places: Places) -> None:
    """W + scaling·(B·A), or DoRA, on a Linear or Conv1D.

    Raises:
        CheckError: HT113 another shape, HT114 ranks, HT115 not floating point, HT116 alpha is 0,
            HT140 rows of a resized vocabulary that are not in the adapter.
    """
    a, b = parts["A"], parts["B"]
    require_float(draft)
    rank, rows, columns = a.entry.shape[0], b.entry.shape[0], math.prod(a.entry.shape[1:])
    if b.entry.shape[1] != rank:
        what = f"lora_A {list(a.entry.shape)}, lora_B {list(b.entry.shape)}"
        raise incomplete(adapter.config.path, f"{module}: {what}")
    scaling = scaling_of(adapter, module, rank, a, b)
    transposed = _transposed(draft, (rows, columns), places)
    if transposed is None:
        raise _other_shape(draft, (rows, columns), adapter)
    magnitude = parts.get("magnitude")
    if magnitude is not None and magnitude.entry.elements != rows:
        what = f"{magnitude.entry.name} {list(magnitude.entry.shape)} for {rows} outputs"
        raise incomplete(adapter.weights, what)
    op = LowRank(
        Factor(a),
        Factor(b),
        scaling,
        rounding=adapter.config.rounding,
        transposed=transposed,
        magnitude=magnitude,
    )
    draft.ops.append(op)
    draft.kind = draft.kind or kind_of(f"{module}.weight")


def add_embedding(draft: Draft, module: str, parts: Parts, adapter: Adapter) -> None:
    """W + (scaling·(B·A))ᵀ on an Embedding; A is [rank, tokens], B [width, rank].

    Raises:
        CheckError: as `add_linear`.
    """
    a, b = parts["embedding_A"], parts["embedding_B"]
    require_float(draft)
    (rank, tokens), width = a.entry.shape, b.entry.shape[0]
    scaling = scaling_of(adapter, module, rank, a, b)
    if (tokens, width) != draft.shape:
        raise _other_shape(draft, (tokens, width), adapter, embedding=True)
    draft.ops.append(LowRank(Factor(a), Factor(b), scaling, rounding="twice", transposed=True))
    draft.kind = draft.kind or kind_of(f"{module}.weight")


def add_bias(draft: Draft, module: str, bias: Stored, adapter: Adapter) -> None:
    """The base's bias + scaling·bias: a LoRA with a bias of its own.

    Raises:
        CheckError: HT113 another length, HT116 alpha is 0.
    """
    require_float(draft)
    if bias.entry.shape != draft.shape:
        raise _other_shape(draft, bias.entry.shape, adapter)
    draft.ops.append(AddVector(bias, adapter.config.scaling_of(module)))
    draft.kind = draft.kind or kind_of(f"{module}.bias")


def set_tokens(draft: Draft, module: str, values: Stored, adapter: Adapter) -> None:
    """Give the trained token rows their values.

    Raises:
        CheckError: HT142 when adapter_config.json does not say which rows, or says others.
    """
    require_float(draft)
    rows = token_rows(adapter, module)
    found = list(values.entry.shape)
    if found != [len(rows), *draft.shape[1:]]:
        why = f"{len(rows)} token rows by adapter_config.json, values {found}"
    elif len(set(rows)) < len(rows) or not all(0 <= row < draft.shape[0] for row in rows):
        why = f"rows up to {max(rows)}, some twice or outside the {draft.shape[0]} of the base"
    else:
        draft.ops.append(SetRows(rows, values))
        draft.kind = draft.kind or kind_of(f"{module}.weight")
        return
    raise refuse(
        "HT142",
        f"the trained token rows do not fit {draft.name}: {why}",
        adapter.config.path,
        OTHER_BASE,
        trained_on(adapter.config),
    )


def token_rows(adapter: Adapter, module: str) -> tuple[int, ...]:
    """Which rows of an embedding were trained; empty when adapter_config.json does not say."""
    stated = adapter.config.fields.get("trainable_token_indices")
    if isinstance(stated, Mapping):
        keys = [key for key in stated if module == key or module.endswith(f".{key}")]
        stated = stated[keys[0]] if keys else None
    if not isinstance(stated, list) or not all(type(row) is int for row in stated):
        return ()
    return tuple(stated)


def _part_name(stored: Stored) -> str:
    return "lora_" + stored.entry.name.rpartition(".lora_")[2].removesuffix(".weight")


def _transposed(draft: Draft, shape: tuple[int, int], places: Places) -> bool | None:
    """Whether W [out, in] is stored as [in, out]; None when it has neither shape.

    Another base may have the two sizes the other way round: only a Conv1D is stored so.
    """
    if shape == draft.shape:
        square = shape[0] == shape[1]
        return square and places.class_of(draft.name) == "Conv1D"
    return True if shape[::-1] == draft.shape and places.is_conv1d(draft) else None


def _other_shape(
    draft: Draft, shape: tuple[int, ...], adapter: Adapter, *, embedding: bool = False
) -> CheckError:
    if (embedding or named_vocabulary(draft.name)) and shape[1:] == draft.shape[1:]:
        return refuse(
            "HT140",
            f"the adapter was trained on {shape[0]} rows of {draft.name}, the base has"
            f" {draft.shape[0]}, and the other rows are not in the adapter",
            adapter.weights,
            "save the adapter again with save_embedding_layers=True, or name the resized base:"
            " --base DIR",
            trained_on(adapter.config),
        )
    return CheckError(
        "HT113",
        f"wrong base: {draft.name} is {list(draft.shape)}, "
        f"the adapter was trained on {list(shape)}",
        where=str(draft.source.path),
        detail=(trained_on(adapter.config), NOTHING),
        next=OTHER_BASE,
    )
