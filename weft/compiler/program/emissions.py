"""The kernels of fusions with symbolic sizes: emitted once for each class of sizes, and evaluated at given ones.

An emitter that takes symbols is run under `deciding` for the sizes at hand. What it asked is what its kernels depend
on: they serve all sizes for which the answers are the same. Other emitters are run at the sizes themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.memo import Memo
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission, KernelLaunch, storage
from weft.compiler.emit.key import fusion_key
from weft.compiler.kernel.cost import grain_for, work_text
from weft.compiler.target.target import Target
from weft.indexing.expression import Symbol
from weft.indexing.guards import Guard, RuleGuard, checker, deciding, evaluated_once
from weft.ir.at_sizes import at_sizes, symbols_of_jaxpr
from weft.ir.jaxpr import Equation, Jaxpr

# Kinds of fusions whose emitters take symbolic sizes.
SYMBOLIC_KINDS = frozenset(
    {
        "loop",
        "row",
        "column",
        "all",
        "contraction",
        "transpose",
        "concatenate",
        "slices",
        "gather",
        "dynamic_update_slice",
        "argmax",
        "cumulative",
        "scatter",
        "sort",
        "window",
        "convolution",
    }
)
# Classes that a fusion has at most; and how often its emitter may ask for a size before it gets constants at once.
MOST_CLASSES, MOST_CONSTANTS = 64, 4

Sizes = Mapping[Symbol, int]
_emissions: Memo[Any, Emission] = Memo(4096)
_families: Memo[Any, Emissions] = Memo(1024)


def emission_of(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int = 0) -> Emission:
    """The kernels of a fusion; equal fusions, whatever their literals, are emitted once."""
    structure = _structure(kind, jaxpr, hero, target)
    if structure is None:
        return emit(kind, jaxpr, hero, target, schedule)
    key = (structure, schedule)
    found = _emissions.get(key)
    if found is None:
        found = _emissions.keep(key, emit(kind, jaxpr, hero, target, schedule))
    return found


def _structure(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target) -> Hashable | None:
    """What fusions with the same kernels have in common; it is asked for twice."""
    return jaxpr.cached(("fusion key", kind, hero, target), lambda: fusion_key(kind, jaxpr, hero, target))


def equal_fusions(jaxpr: Jaxpr, kinds: Collection[str], target: Target) -> dict[Equation, int]:
    """For each fusion of some kinds that a jaxpr has, outside of loops: how many are equal to it, with itself."""
    keys: dict[Equation, Any] = {}
    for equation in jaxpr.eqns:
        params = equation.params
        if params.get("kind") in kinds:
            key = _structure(params["kind"], params["jaxpr"], params["hero"], target)
            keys[equation] = id(equation) if key is None else key
    counts = Counter(keys.values())
    return {equation: counts[key] for equation, key in keys.items()}


def emission_at(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int, sizes: Sizes) -> Emission:
    """The kernels of a fusion that may have symbolic sizes, at given ones: all of it but the kernels is integers."""
    return emissions_of(kind, jaxpr, hero, target, schedule).at(sizes)


def emissions_of(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int) -> Emissions:
    """All emissions of a fusion that may have symbolic sizes; equal fusions share them."""
    key = ("emissions", kind, hero, target, schedule)
    return jaxpr.cached(key, lambda: _emissions_for(kind, jaxpr, hero, target, schedule))


def _emissions_for(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int) -> Emissions:
    structure = fusion_key(kind, jaxpr, hero, target)
    if structure is None:
        return Emissions(kind, jaxpr, hero, target, schedule)
    key: Hashable = (structure, schedule)
    found = _families.get(key)
    if found is None:
        found = _families.keep(key, Emissions(kind, jaxpr, hero, target, schedule))
    return found


def takes_symbols(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target) -> bool:
    """Whether the emitter of a fusion takes symbolic sizes; contractions by tile registers do not."""
    if kind == "contraction" and target.tiles and hero is not None:
        return all(storage(operand).itemsize >= 4 for operand in jaxpr.eqns[hero].invars)
    return kind in SYMBOLIC_KINDS


@dataclass(frozen=True, eq=False)
class SizeClass:
    """Sizes for which an emitter does the same: `guards` say which, `holds` checks them. `integers` computes what is
    symbolic in the emission: for each launch the values of its kernel's sizes, its iterations and its work, and then
    the elements of scratch buffers, all in one tuple."""

    guards: tuple[Guard | RuleGuard, ...]
    holds: Callable[..., bool]
    emission: Emission
    integers: Callable[..., tuple[Any, ...]]


class Emissions:
    """All emissions of one fusion."""

    def __init__(self, kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int) -> None:
        self.kind, self.jaxpr, self.hero, self.target, self.schedule = kind, jaxpr, hero, target, schedule
        self.symbols = symbols_of_jaxpr(jaxpr)
        self.classes: list[SizeClass] = []
        self.needs_constants = 0
        # Equal fusions of one program ask one after the other.
        self._latest: tuple[Any, Emission] | None = None
        self._latest_class: tuple[Any, SizeClass | None] | None = None

    def at(self, sizes: Sizes) -> Emission:
        """The emission at these sizes."""
        values = self.values(sizes)
        latest = self._latest
        if latest is None or latest[0] != values:
            latest = self._latest = (values, self._make(values, sizes))
        return latest[1]

    def values(self, sizes: Sizes) -> tuple[int, ...]:
        """The values of the symbols that the fusion has."""
        return tuple([sizes[symbol] for symbol in self.symbols])

    def class_at(self, sizes: Sizes) -> SizeClass | None:
        """The class that sizes are of, emitted now if it is new; None if the fusion is emitted for each size."""
        values = self.values(sizes)
        latest = self._latest_class
        if latest is None or latest[0] != values:
            latest = self._latest_class = (values, self._class(values, sizes))
        return latest[1]

    def _class(self, values: Sequence[int], sizes: Sizes) -> SizeClass | None:
        for i, known in enumerate(self.classes):
            if known.holds(*values):
                if i:  # the next size is likely of the same class
                    self.classes = [known, *self.classes[:i], *self.classes[i + 1 :]]
                return known
        if not self.symbols:
            return self._new_class((), self._concrete(sizes))
        if self.needs_constants >= MOST_CONSTANTS:
            return None
        if not takes_symbols(self.kind, self.jaxpr, self.hero, self.target):
            return None
        with deciding({s: sizes[s] for s in self.symbols}, user_code=False) as answers:
            emission = emit(self.kind, self.jaxpr, self.hero, self.target, self.schedule)
        if answers.constants:  # it would serve this size only
            self.needs_constants += 1
            return None
        return self._new_class(answers.guards, emission)

    def _new_class(self, guards: tuple[Guard | RuleGuard, ...], emission: Emission) -> SizeClass:
        new = SizeClass(guards, checker(guards, self.symbols), emission, self._integers(emission))
        self.classes = [new, *self.classes[: MOST_CLASSES - 1]]
        return new

    def _make(self, values: Sequence[int], sizes: Sizes) -> Emission:
        known = self.class_at(sizes) if self.symbols else None
        return self._concrete(sizes) if known is None else self._evaluated(known, values)

    def _concrete(self, sizes: Sizes) -> Emission:
        """The emission of the fusion at these sizes, as it is in a program for them."""
        jaxpr = at_sizes(self.jaxpr, sizes) if self.symbols else self.jaxpr
        return emission_of(self.kind, jaxpr, self.hero, self.target, self.schedule)

    def _integers(self, emission: Emission) -> Callable[..., tuple[Any, ...]]:
        """The `integers` of a class."""
        parts: list[str] = []
        lines: list[str] = []
        for i, launch in enumerate(emission.launches):
            parts += [*map(str, launch.kernel.sizes), str(launch.kernel.count)]
            before, work = work_text(launch.kernel, self.target.kernel, f"_runs{i}_")
            lines += before
            parts.append(work)
        parts += [str(s.size) for s in emission.scratch]
        return evaluated_once(f"({''.join(f'{part}, ' for part in parts)})", self.symbols, lines)

    def _evaluated(self, known: SizeClass, values: Sequence[int]) -> Emission:
        integers = known.integers(*values)
        launches: list[KernelLaunch] = []
        start = 0
        for launch in known.emission.launches:
            end = start + len(launch.kernel.sizes)
            count, work = integers[end : end + 2]
            grain = grain_for(count, work, self.target.kernel)
            launches.append(KernelLaunch(launch.kernel, launch.operands, integers[start:end], count, grain, work))
            start = end + 2
        buffers = tuple(replace(s, size=n) for s, n in zip(known.emission.scratch, integers[start:], strict=True))
        return replace(known.emission, launches=tuple(launches), scratch=buffers)
