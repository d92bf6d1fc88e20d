"""Low-rank pairs whose place only the model knows: experts, routers, wrapped or renamed ones.

A pair changes a region of an in-memory parameter (one page, some outputs); what is stored of that
region follows from the NameMap. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.merging.recipe import Factor, LowRank, Stored
from hubtools.checkpoint.merging.refusals import OTHER_BASE, incomplete, refuse, trained_on
from hubtools.checkpoint.merging.regions import Region, cut, overlap
from hubtools.checkpoint.naming.names import NameMap, Part
from hubtools.errors import CheckError

_LAYERS = ("Linear", "Conv1D", "Conv1d", "Conv2d", "Conv3d", "Embedding")
_WRAPPER = ".base_layer"


@dataclass(frozen=True, slots=True)
class Pair:
    """lora_A and lora_B of one adapter module.

    Args:
        module: path in the adapter, without `base_model.model.`; where PEFT wraps a module more
            than once, the inner wrappers end in `.base_layer`.
        a, b: A [rank, in] and B [out, rank]; for stacked parameters of E pages A [rank·E, in] with
            whole ranks after each other, and B [out, rank·E] with whole pages after each other.
    """

    module: str
    a: Stored
    b: Stored


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pairs go.

    Args:
        ops: stored tensor → what is done to it, in order.
        origin: stored tensor → the adapter module each of its ops comes from.
        kinds: stored tensor → what the report sums it up under.
        notes: what a reader should know about a choice that was made.
        homeless: adapter modules without a place in this model.
    """

    ops: Mapping[str, tuple[LowRank, ...]]
    origin: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    notes: tuple[str, ...] = ()
    homeless: tuple[str, ...] = ()


def through_names(
    modules: Collection[str], config: AdapterConfig, disk: Collection[str]
) -> frozenset[str]:
    """Which adapter modules need a NameMap, and go to `placed_by_names`.

    Those without a stored `<module>.weight`, expert modules, targets of `target_parameters`, and
    neighbours of experts (PEFT merges a router that is no Linear differently).
    """
    blocks = {name.partition(".experts.")[0] for name in disk if ".experts." in name}
    owners = [target.rpartition(".")[0] for target in _targets(config)]
    return frozenset(
        module
        for module in modules
        if f"{module}.weight" not in disk
        or "experts" in module.split(".")
        or module.rpartition(".")[0] in blocks
        or any(owner and _ends_with(module, owner) for owner in owners)
    )


def _targets(config: AdapterConfig) -> list[str]:
    stated = config.fields.get("target_parameters")
    return [str(target) for target in stated] if isinstance(stated, list) else []


def questions(modules: Iterable[str]) -> list[str]:
    """The names to ask `name_map` for."""
    return sorted({f"{_unwrapped(module)}.weight" for module in modules})


def placed_by_names(
    pairs: Sequence[Pair], config: AdapterConfig, disk: Mapping[str, Stored], names: NameMap
) -> Placement:
    """What each pair does to which stored tensors.

    Args:
        pairs: of one adapter.
        config: of that adapter: ranks, scalings, target_parameters.
        disk: every stored tensor of the base.
        names: of the base, asked for `questions` of these modules.

    Raises:
        CheckError: HT113 a pair of another shape, HT114 of another rank, HT116 an alpha of 0,
            HT163 a parameter whose stored tensors cannot be told apart.
    """
    placer = _Placer(config, disk, names)
    chains: dict[str, list[Pair]] = {}
    for pair in pairs:
        chains.setdefault(_unwrapped(pair.module), []).append(pair)
    for module, chain in chains.items():
        placer.place(module, sorted(chain, key=lambda pair: -len(pair.module)))
    return placer.placement()


@dataclass
class _Placer:
    config: AdapterConfig
    disk: Mapping[str, Stored]
    names: NameMap
    _ops: dict[str, list[tuple[str, LowRank]]] = field(default_factory=dict)
    _notes: dict[str, None] = field(default_factory=dict)
    _homeless: list[str] = field(default_factory=list)
    _by_page: dict[str, dict[int | None, list[Part]]] = field(default_factory=dict)

    def placement(self) -> Placement:
        """All that was placed."""
        return Placement(
            ops={name: tuple(op for _, op in ops) for name, ops in self._ops.items()},
            origin={name: tuple(module for module, _ in ops) for name, ops in self._ops.items()},
            kinds={name: kind_of(name) for name in self._ops},
            notes=tuple(self._notes),
            homeless=tuple(self._homeless),
        )

    def place(self, module: str, chain: list[Pair]) -> None:
        """Place the pairs of one module, innermost first."""
        name = f"{module}.weight"
        target = self.names.asked.get(name)
        if target is None:
            self._homeless += [pair.module for pair in chain]
        elif target not in self.names.shapes:
            self._wrapped(target.rpartition(".")[0], chain)
        elif len(chain) > 1 or not self._stored(target):
            self._homeless += [pair.module for pair in chain]
        elif name in self.names.asked_parts:
            self._inside(chain[0], target, self.names.asked_parts[name])
        else:
            self._whole(chain[0], target, module)

    def _inside(self, pair: Pair, target: str, part: Part) -> None:
        """A matrix of its own in older releases, now some rows of a page."""
        outputs = part.rows
        wanted = (outputs[1] - outputs[0], self.names.shapes[target][-1])
        if part.transposed or part.disk_rows is not None:
            raise self._mixed(target, "the older layout was turned over")
        if (pair.b.entry.shape[0], pair.a.entry.shape[1]) != wanted:
            raise self._wrong(pair, f"{part.disk} is {list(wanted)}")
        if self.config.rslora and outputs != (0, self.names.shapes[target][-2]):
            self._notes[
                "rsLoRA on experts is scaled as it was trained, alpha/√r; PEFT 0.21 joins gate and "
                "up to twice the rank when it loads such an adapter, and scales them by √2 more"
            ] = None
        scaling = self._scaling(pair, pair.module, 1)
        region = Region(target, part.page, outputs, False, self._rounding(target, pair.module))
        self._emit(pair, region, Factor(pair.a), Factor(pair.b), scaling)

    def _whole(self, pair: Pair, target: str, module: str) -> None:
        """A pair for one parameter that still is what it was."""
        owner = target.rpartition(".")[0]
        in_out = self.names.modules.get(owner) == "Conv1D"
        if not self._fits(pair, target, in_out):
            raise self._wrong(pair, f"{target} is {list(self.names.shapes[target])}")
        wrapped = self._targeted(target) or self._targeted(f"{module}.weight")
        self._pages(pair, target, f"{module}.weight" if wrapped else module, in_out)

    def _wrapped(self, module: str, chain: list[Pair]) -> None:
        """Pairs for parameters of one module; the adapter does not say which is for which."""
        owned = [name for name in self.names.shapes if name.rpartition(".")[0] == module]
        targeted = [name for name in owned if self._targeted(name)]
        candidates = targeted if len(targeted) == len(chain) else owned
        choices = [
            choice
            for choice in itertools.permutations(candidates, len(chain))
            if all(
                self._fits(pair, name, self._in_out(name))
                for pair, name in zip(chain, choice, strict=True)
            )
        ]
        if not choices:
            shapes = ", ".join(f"{n} {list(self.names.shapes[n])}" for n in candidates)
            raise self._wrong(chain[0], f"parameters of {module}: {shapes}")
        if len(choices) > 1:
            # PEFT wraps in the order in which the module lists its parameters: permutations of
            # that order come first.
            leaves = " inside ".join(name.rpartition(".")[2] for name in choices[0])
            self._notes[
                f"the adapter does not say which parameter of {module} is which, and "
                f"the shapes fit both ways: taken as PEFT nests them, {leaves}"
            ] = None
        for pair, target in zip(chain, choices[0], strict=True):
            if not self._stored(target):
                self._homeless.append(pair.module)
                continue
            leaf = target.rpartition(".")[2]
            key = f"{_unwrapped(pair.module)}.{leaf}"
            self._pages(pair, target, key, self._in_out(target))

    def _in_out(self, target: str) -> bool:
        # Vectors of all experts, stored as rows, are never turned over.
        stacked = len(self.names.shapes[target]) == 3
        return stacked and target.rpartition(".")[0] in self.names.in_out

    def _pages(self, pair: Pair, target: str, key: str, in_out: bool) -> None:
        """Cut the factors into one pair a page."""
        shape = self.names.shapes[target]
        outputs, rounding = (0, pair.b.entry.shape[0]), self._rounding(target, pair.module)
        if len(shape) != 3:
            scaling = self._scaling(pair, key, 1)
            region = Region(target, None, outputs, in_out, rounding)
            self._emit(pair, region, Factor(pair.a), Factor(pair.b), scaling)
            return
        pages = shape[0]
        scaling, rank = self._scaling(pair, key, pages), pair.a.entry.shape[0] // pages
        for page in range(pages):
            a = Factor(pair.a, rows=slice(page * rank, (page + 1) * rank))
            b = Factor(pair.b, columns=slice(page, None, pages))
            region = Region(target, page, outputs, in_out, rounding)
            self._emit(pair, region, a, b, scaling)

    def _emit(self, pair: Pair, region: Region, a: Factor, b: Factor, scaling: float) -> None:
        """One op for each stored tensor that holds some of the region."""
        for part in self._parts(region):
            inputs = (0, self.names.shapes[region.parameter][-2])
            if region.in_out and (part.rows != inputs or part.disk_rows is not None):
                raise self._mixed(region.parameter, f"{part.disk} holds some of its inputs")
            held = cut(part, region, a, b)
            if held is None:
                continue
            some_a, some_b, rows = held
            transposed = region.in_out != part.transposed
            shape = self.disk[part.disk].entry.shape
            if not _holds(shape, part, self.names.shapes[region.parameter]):
                raise self._wrong(pair, f"{part.disk} is {list(shape)}")
            outputs = shape[-1] if transposed else shape[-2 if len(shape) == 3 else 0]
            op = LowRank(
                some_a,
                some_b,
                scaling,
                region.rounding,
                transposed,
                page=region.page if part.page is None else None,
                rows=None if rows == (0, outputs) else rows,
            )
            others = self._ops.setdefault(part.disk, [])
            for module, other in others:
                if module != pair.module and overlap(op, other):
                    what = f"{module} and {pair.module} are two names of one place"
                    raise incomplete(pair.a.path, what)
            others.append((pair.module, op))

    def _parts(self, region: Region) -> list[Part]:
        """The stored tensors that have some of a page; looked up once for all pages."""
        by_page = self._by_page.get(region.parameter)
        if by_page is None:
            by_page = self._by_page[region.parameter] = {}
            for part in self.names.parameters[region.parameter]:
                by_page.setdefault(part.page, []).append(part)
        return [part for page in {None, region.page} for part in by_page.get(page, ())]

    def _rounding(self, target: str, module: str) -> Literal["once", "twice"]:
        layer = self.names.modules.get(target.rpartition(".")[0]) in _LAYERS
        wrapped = self._targeted(target) or self._targeted(f"{module}.weight")
        return self.config.rounding if layer and not wrapped else "twice"

    def _targeted(self, target: str) -> bool:
        return any(_ends_with(target, name) for name in _targets(self.config))

    def _fits(self, pair: Pair, target: str, in_out: bool) -> bool:
        shape = self.names.shapes[target]
        rank, inner = pair.a.entry.shape
        outer, other = pair.b.entry.shape
        if rank != other or len(shape) not in (2, 3) or (len(shape) == 3 and rank % shape[0]):
            return False
        matrix = shape[-2:]
        return matrix == ((inner, outer) if in_out else (outer, inner))

    def _scaling(self, pair: Pair, key: str, pages: int) -> float:
        rank, found = self.config.rank_of(key), pair.a.entry.shape[0] // pages
        if rank != found or pair.b.entry.shape[1] != pair.a.entry.shape[0]:
            what = f"{key}: rank {rank} by adapter_config.json, {_shapes(pair)}"
            raise incomplete(self.config.path, what)
        scaling = self.config.scaling_of(key)
        if scaling == 0:
            why = f"{key}: lora_alpha is 0, so the merge would change nothing"
            raise refuse("HT116", why, self.config.path, "write the alpha used in training there")
        return scaling

    def _stored(self, target: str) -> bool:
        if target in self.names.unplaced:
            raise self._mixed(target, self.names.unplaced[target])
        return target in self.names.parameters

    def _mixed(self, target: str, why: str) -> CheckError:
        fix = "merge with PEFT itself: run the same command with --engine peft"
        what = f"how {target} is stored cannot be followed"
        return refuse("HT163", what, self.config.path, fix, why)

    def _wrong(self, pair: Pair, what: str) -> CheckError:
        trained = f"wrong base: {pair.module} was trained for another shape ({_shapes(pair)})"
        return refuse("HT113", trained, pair.a.path, OTHER_BASE, what, trained_on(self.config))


def _holds(stored: tuple[int, ...], part: Part, parameter: tuple[int, ...]) -> bool:
    """Whether a stored tensor has the shape that its part of the parameter needs."""
    matrix = part.rows[1] - part.rows[0], parameter[-1]
    if part.disk_rows is not None:
        return len(stored) > 1 and stored[-1] == matrix[1] and stored[-2] >= part.disk_rows[1]
    pages = parameter[:-2] if part.page is None else ()
    return stored == (*pages, *(matrix[::-1] if part.transposed else matrix))


def kind_of(disk: str) -> str:
    """What the report sums a stored tensor up under: `q_proj`, `experts.gate_proj`."""
    words = disk.removesuffix(".weight").split(".")
    if "experts" in words:
        inside = words[words.index("experts") :]
        return ".".join(word for word in inside if not word.isdigit())
    return words[-1]


def _unwrapped(module: str) -> str:
    while module.endswith(_WRAPPER):
        module = module.removesuffix(_WRAPPER)
    return module


def _shapes(pair: Pair) -> str:
    return f"lora_A {list(pair.a.entry.shape)}, lora_B {list(pair.b.entry.shape)}"


def _ends_with(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")
