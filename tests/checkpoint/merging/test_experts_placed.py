"""Which stored rows a pair changes, from names and shapes alone; what has no place is said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.headers import TensorEntry
from hubtools.checkpoint.merging.experts import (
    Pair,
    Placement,
    placed_by_names,
    questions,
    through_names,
)
from hubtools.checkpoint.merging.recipe import LowRank, Stored
from hubtools.checkpoint.naming.names import NameMap, Part
from hubtools.errors import CheckError

Shape = tuple[int, ...]
EXPERTS = "layers.0.experts"


def adapter_config(**fields: Any) -> AdapterConfig:
    return AdapterConfig(
        path=Path("adapter_config.json"),
        peft_type="LORA",
        rank=2,
        alpha=4.0,
        rslora=bool(fields.get("use_rslora")),
        target_modules=(),
        base="",
        revision="",
        fields=fields,
    )


def stored(name: str, shape: Shape) -> Stored:
    return Stored(Path("file"), TensorEntry(name, "BF16", shape, 0, 0))


def pair(module: str, a: Shape, b: Shape) -> Pair:
    return Pair(module, stored(f"{module}.A", a), stored(f"{module}.B", b))


def names(
    shapes: dict[str, Shape],
    parts: dict[str, tuple[Part, ...]] | None = None,
    modules: dict[str, str] | None = None,
    **more: Any,
) -> NameMap:
    """By default stored as it lies in memory, and asked for by its own name."""
    whole = {name: (Part(name, None, (0, shape[-2])),) for name, shape in shapes.items()}
    owners = {name.rpartition(".")[0]: "Experts" for name in shapes}
    more.setdefault("asked", {f"{owner}.weight": f"{owner}.weight" for owner in owners})
    return NameMap(
        parameters=parts if parts is not None else whole,
        shapes=shapes,
        tied={},
        modules=modules or owners,
        **more,
    )


def placed(
    pairs: list[Pair], told: NameMap, disk: dict[str, Shape] | None = None, **fields: Any
) -> Placement:
    tensors = {name: stored(name, shape) for name, shape in (disk or told.shapes).items()}
    return placed_by_names(pairs, adapter_config(**fields), tensors, told)


def one(placement: Placement, disk: str) -> LowRank:
    (op,) = placement.ops[disk]
    return op


def test_factors_are_cut_expert_by_expert() -> None:
    shapes: dict[str, Shape] = {f"{EXPERTS}.down_proj": (3, 8, 5)}
    result = placed([pair(EXPERTS, (6, 5), (8, 6))], names(shapes))
    ops = result.ops[f"{EXPERTS}.down_proj"]
    assert [op.page for op in ops] == [0, 1, 2]
    assert [op.a.rows for op in ops] == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert [op.b.columns for op in ops] == [slice(page, None, 3) for page in range(3)]
    assert {(op.rounding, op.scaling, op.transposed, op.rows) for op in ops} == {
        ("twice", 2.0, False, None)
    }
    assert result.kinds == {f"{EXPERTS}.down_proj": "experts.down_proj"}
    assert result.origin == {f"{EXPERTS}.down_proj": (EXPERTS,) * 3}


def test_rows_of_a_joint_matrix() -> None:
    """In memory q and k; on disk one matrix, of which k takes the last rows."""
    shapes: dict[str, Shape] = {"q.weight": (12, 6), "k.weight": (4, 6)}
    parts = {
        "q.weight": (Part("qk.weight", None, (0, 12), False, (0, 12)),),
        "k.weight": (Part("qk.weight", None, (0, 4), False, (12, 16)),),
    }
    told = names(shapes, parts, {"q": "Linear", "k": "Linear"})
    result = placed([pair("k", (2, 6), (4, 2))], told, {"qk.weight": (16, 6)})
    op = one(result, "qk.weight")
    assert (op.rows, op.rounding, op.b.shape) == ((12, 16), "once", (4, 2))


def test_a_joint_matrix_in_memory_spreads_over_what_is_stored() -> None:
    shapes: dict[str, Shape] = {"qk.weight": (16, 6)}
    parts = {
        "qk.weight": (Part("q.weight", None, (0, 12)), Part("k.weight", None, (12, 16))),
    }
    told = names(shapes, parts, {"qk": "Linear"})
    disk: dict[str, Shape] = {"q.weight": (12, 6), "k.weight": (4, 6)}
    result = placed([pair("qk", (2, 6), (16, 2))], told, disk)
    assert one(result, "q.weight").b.rows == slice(0, 12)
    assert one(result, "k.weight").b.rows == slice(12, 16)
    assert one(result, "k.weight").rows is None


def test_a_conv1d_of_another_name() -> None:
    told = names(
        {"h.attn.weight": (6, 12)},
        {"h.attn.weight": (Part("attn.weight", None, (0, 6)),)},
        {"h.attn": "Conv1D"},
        asked={"attn.weight": "h.attn.weight"},
    )
    op = one(placed([pair("attn", (2, 6), (12, 2))], told, {"attn.weight": (6, 12)}), "attn.weight")
    assert op.transposed
    assert op.rounding == "once"


def test_nested_wrappers_that_fit_both_ways() -> None:
    """PEFT nests in the order of the module's own list: the first is the innermost."""
    shapes: dict[str, Shape] = {f"{EXPERTS}.{name}": (3, 8, 8) for name in ("up", "down", "x")}
    pairs = [pair(EXPERTS, (6, 8), (8, 6)), pair(f"{EXPERTS}.base_layer", (6, 8), (8, 6))]
    targets = [f"experts.{name}" for name in ("down", "up")]
    result = placed(pairs, names(shapes), target_parameters=targets)
    assert result.origin[f"{EXPERTS}.up"] == (f"{EXPERTS}.base_layer",) * 3
    assert result.origin[f"{EXPERTS}.down"] == (EXPERTS,) * 3
    assert f"{EXPERTS}.x" not in result.ops
    (note,) = result.notes
    assert "up inside down" in note


def test_nested_wrappers_that_fit_one_way_need_no_note() -> None:
    shapes: dict[str, Shape] = {f"{EXPERTS}.up": (3, 8, 5), f"{EXPERTS}.down": (3, 5, 8)}
    inner, outer = (6, 5), (8, 6)
    pairs = [pair(EXPERTS, inner, outer), pair(f"{EXPERTS}.base_layer", (6, 8), (5, 6))]
    result = placed(pairs, names(shapes), target_parameters=["up", "down"])
    assert result.origin[f"{EXPERTS}.up"] == (EXPERTS,) * 3
    assert result.notes == ()


def test_half_a_page_stored_fused() -> None:
    """An adapter of single experts, on a file that keeps gate and up together."""
    shapes: dict[str, Shape] = {f"{EXPERTS}.gate_up": (3, 8, 5)}
    asked = {f"{EXPERTS}.1.up.weight": f"{EXPERTS}.gate_up"}
    inside = {f"{EXPERTS}.1.up.weight": Part(f"{EXPERTS}.1.up.weight", 1, (4, 8))}
    told = names(shapes, asked=asked, asked_parts=inside)
    op = one(placed([pair(f"{EXPERTS}.1.up", (2, 5), (4, 2))], told), f"{EXPERTS}.gate_up")
    assert (op.page, op.rows, op.rounding) == (1, (4, 8), "twice")


def test_two_names_of_one_half() -> None:
    shapes: dict[str, Shape] = {f"{EXPERTS}.gate_up": (3, 8, 5)}
    rows = {"old.gate": (0, 4), "new.gate": (0, 4), "new.up": (4, 8)}
    asked = {f"{module}.weight": f"{EXPERTS}.gate_up" for module in rows}
    inside = {f"{module}.weight": Part(f"{module}.weight", 1, rows[module]) for module in rows}
    told = names(shapes, asked=asked, asked_parts=inside)
    pairs = {module: pair(module, (2, 5), (4, 2)) for module in rows}
    result = placed([pairs["new.gate"], pairs["new.up"]], told)
    assert [op.rows for op in result.ops[f"{EXPERTS}.gate_up"]] == [(0, 4), (4, 8)]
    with pytest.raises(CheckError) as caught:
        placed([pairs["old.gate"], pairs["new.gate"]], told)
    assert caught.value.id == "HT114"


def test_what_has_no_place_is_told() -> None:
    told = names({"q.weight": (4, 4)}, asked={}, modules={"q": "Linear"})
    result = placed([pair("k", (2, 4), (4, 2))], told)
    assert result.homeless == ("k",)
    assert not result.ops


def test_what_is_not_stored_is_told() -> None:
    told = names({"q.weight": (4, 4)}, {}, {"q": "Linear"})
    assert placed([pair("q", (2, 4), (4, 2))], told).homeless == ("q",)


@pytest.mark.parametrize(
    ("pairs", "more", "id"),
    [
        ([pair(EXPERTS, (6, 5), (9, 6))], {}, "HT113"),
        ([pair(EXPERTS, (5, 5), (8, 5))], {}, "HT113"),
        ([pair(EXPERTS, (9, 5), (8, 9))], {}, "HT114"),
        ([pair(EXPERTS, (6, 5), (8, 6))], {"alpha_pattern": {"down_proj": 0}}, "HT116"),
        ([pair(EXPERTS, (6, 5), (8, 6))] * 2, {}, "HT113"),
    ],
)
def test_what_does_not_fit(pairs: list[Pair], more: dict[str, Any], id: str) -> None:
    shapes: dict[str, Shape] = {f"{EXPERTS}.down_proj": (3, 8, 5)}
    with pytest.raises(CheckError) as caught:
        placed(pairs, names(shapes), **more)
    assert caught.value.id == id


def test_rows_that_cannot_be_followed() -> None:
    why = "its rows are mixed"
    told = names({"q.weight": (4, 4)}, {}, {"q": "Linear"}, unplaced={"q.weight": why})
    with pytest.raises(CheckError) as caught:
        placed([pair("q", (2, 4), (4, 2))], told)
    assert caught.value.id == "HT163"
    assert caught.value.detail[0] == why


def test_which_modules_need_names() -> None:
    disk = [
        "m.0.attn.q.weight",
        "m.0.mlp.gate.weight",
        "m.0.mlp.experts.0.up.weight",
        "m.0.mlp.shared.up.weight",
    ]
    modules = ["m.0.attn.q", "m.0.mlp.gate", "m.0.mlp.experts.0.up", "m.0.mlp.shared.up", "m.0.k"]
    assert through_names(modules, adapter_config(), disk) == {
        "m.0.mlp.gate",
        "m.0.mlp.experts.0.up",
        "m.0.k",
    }
    assert through_names(["m.0.attn.q"], adapter_config(), disk) == set()
    wanted = adapter_config(target_parameters=["attn.q.weight"])
    assert through_names(["m.0.attn.q"], wanted, disk) == {"m.0.attn.q"}


def test_questions_are_asked_once() -> None:
    nested = [EXPERTS, f"{EXPERTS}.base_layer", f"{EXPERTS}.base_layer.base_layer", "q"]
    assert questions(nested) == [f"{EXPERTS}.weight", "q.weight"]


def test_many_experts_take_little_time() -> None:
    layers, experts = 58, 256
    shapes = {f"layers.{n}.experts.gate_up": (experts, 8, 5) for n in range(layers)}
    parts = {
        name: tuple(
            Part(f"{name}.{e}.{half}", e, rows)
            for e in range(experts)
            for half, rows in (("gate", (0, 4)), ("up", (4, 8)))
        )
        for name in shapes
    }
    disk = {part.disk: (4, 5) for group in parts.values() for part in group}
    pairs = [pair(f"layers.{n}.experts", (512, 5), (8, 512)) for n in range(layers)]
    start = time.process_time()
    result = placed(pairs, names(shapes, parts), disk)
    assert len(result.ops) == 2 * layers * experts
    assert time.process_time() - start < 5
