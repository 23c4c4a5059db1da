"""Kernels of fusions with symbolic sizes: emitted once for each class of sizes, and evaluated at concrete sizes.

An emitter that supports symbols is run under `deciding` for the sizes at hand. Its kernels depend on the comparisons
that it made: they serve all sizes for which these give the same answers. Other emitters are run at the concrete sizes.
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
from weft.indexing.guards import Guard, RuleGuard, checker, compile_with_sharing, deciding
from weft.ir.at_sizes import at_sizes, symbols_of_jaxpr
from weft.ir.jaxpr import Equation, Jaxpr

# Kinds of fusions whose emitters support symbolic sizes.
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
# Maximum of classes per fusion; and of emissions that needed a size as a constant, after which symbols are not tried.
MOST_CLASSES, MOST_CONSTANTS = 64, 4

Sizes = Mapping[Symbol, int]
_emissions: Memo[Any, Emission] = Memo(4096)
_families: Memo[Any, Emissions] = Memo(1024)


def get_emission(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int = 0) -> Emission:
    """Return the kernels of a fusion. Equal fusions, regardless of their literals, are emitted once."""
    structure = _structure(kind, jaxpr, hero, target)
    if structure is None:
        return emit(kind, jaxpr, hero, target, schedule)
    key = (structure, schedule)
    found = _emissions.get(key)
    if found is None:
        found = _emissions.keep(key, emit(kind, jaxpr, hero, target, schedule))
    return found


def _structure(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target) -> Hashable | None:
    """Return the key that fusions with the same kernels have in common. It is cached because it is needed twice."""
    return jaxpr.memoize(("fusion key", kind, hero, target), lambda: fusion_key(kind, jaxpr, hero, target))


def equal_fusions(jaxpr: Jaxpr, kinds: Collection[str], target: Target) -> dict[Equation, int]:
    """Return the number of equal fusions (itself included) for each fusion of `kinds` outside of loops."""
    keys: dict[Equation, Any] = {}
    for equation in jaxpr.eqns:
        params = equation.params
        if params.get("kind") in kinds:
            key = _structure(params["kind"], params["jaxpr"], params["hero"], target)
            keys[equation] = id(equation) if key is None else key
    counts = Counter(keys.values())
    return {equation: counts[key] for equation, key in keys.items()}


def emission_at(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int, sizes: Sizes) -> Emission:
    """Return the kernels of a fusion with symbolic sizes at concrete ones. Everything but the kernels then has
    integers.
    """
    return get_emissions(kind, jaxpr, hero, target, schedule).at(sizes)


def get_emissions(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int) -> Emissions:
    """Return all emissions of a fusion that may have symbolic sizes. Equal fusions share them."""
    key = ("emissions", kind, hero, target, schedule)
    return jaxpr.memoize(key, lambda: _emissions_for(kind, jaxpr, hero, target, schedule))


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
    """Return whether the emitter of a fusion supports symbolic sizes; contractions by tile registers do not."""
    if kind == "contraction" and target.tiles and hero is not None:
        return all(storage(operand).itemsize >= 4 for operand in jaxpr.eqns[hero].invars)
    return kind in SYMBOLIC_KINDS


@dataclass(frozen=True, eq=False)
class SizeClass:
    """A set of sizes for which an emitter takes the same decisions.

    `guards` define the set, `holds` evaluates them. `integers` computes all symbolic integers of the emission in one
    tuple: for each launch the values of its kernel's sizes, its trip count and its work, then the elements of scratch
    buffers.
    """

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
        # Equal fusions of one program look up the same sizes one after the other.
        self._latest: tuple[Any, Emission] | None = None
        self._latest_class: tuple[Any, SizeClass | None] | None = None

    def at(self, sizes: Sizes) -> Emission:
        """Return the emission at these sizes."""
        values = self.values(sizes)
        latest = self._latest
        if latest is None or latest[0] != values:
            latest = self._latest = (values, self._make(values, sizes))
        return latest[1]

    def values(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the values of the symbols in the fusion."""
        return tuple([sizes[symbol] for symbol in self.symbols])

    def class_at(self, sizes: Sizes) -> SizeClass | None:
        """Return the class of these sizes, emitted now if it is new; None if the fusion has to be emitted for each
        size.
        """
        values = self.values(sizes)
        latest = self._latest_class
        if latest is None or latest[0] != values:
            latest = self._latest_class = (values, self._class(values, sizes))
        return latest[1]

    def _class(self, values: Sequence[int], sizes: Sizes) -> SizeClass | None:
        for i, known in enumerate(self.classes):
            if known.holds(*values):
                if i:  # the next sizes are likely in the same class
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
        if answers.constants:  # the kernels would serve these sizes only
            self.needs_constants += 1
            return None
        return self._new_class(answers.guards, emission)

    def _new_class(self, guards: tuple[Guard | RuleGuard, ...], emission: Emission) -> SizeClass:
        new = SizeClass(guards, checker(guards, self.symbols), emission, self._integers(emission))
        self.classes = [new, *self.classes[: MOST_CLASSES - 1]]
        return new

    def _make(self, values: Sequence[int], sizes: Sizes) -> Emission:
        known = self.class_at(sizes) if self.symbols else None
        return self._concrete(sizes) if known is None else self._evaluate(known, values)

    def _concrete(self, sizes: Sizes) -> Emission:
        """Return the emission at these sizes without symbols, as a program built for them has it."""
        jaxpr = at_sizes(self.jaxpr, sizes) if self.symbols else self.jaxpr
        return get_emission(self.kind, jaxpr, self.hero, self.target, self.schedule)

    def _integers(self, emission: Emission) -> Callable[..., tuple[Any, ...]]:
        """Return the function for `SizeClass.integers`."""
        parts: list[str] = []
        lines: list[str] = []
        for i, launch in enumerate(emission.launches):
            parts += [*map(str, launch.kernel.sizes), str(launch.kernel.count)]
            before, work = work_text(launch.kernel, self.target.kernel, f"_runs{i}_")
            lines += before
            parts.append(work)
        parts += [str(s.size) for s in emission.scratch]
        return compile_with_sharing(f"({''.join(f'{part}, ' for part in parts)})", self.symbols, lines)

    def _evaluate(self, known: SizeClass, values: Sequence[int]) -> Emission:
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
