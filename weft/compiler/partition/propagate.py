"""Propagation: from the shardings of some values to those of all, without weighing costs.

An axis is given to the dimensions of one factor of an equation where exactly one factor of its operands and results has
the axis already. Data goes before state: what is only stored split, as parameters and optimizer state are, says how
values are computed only where the data does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.partition.halo import fits
from weft.compiler.partition.rules import Dims, Rules, Tie, all_ties, parts_of, whole
from weft.compiler.partition.uneven import can_split
from weft.ir.jaxpr import Jaxpr, Var


@dataclass(frozen=True)
class Reason:
    """Why a dimension of a value is split over an axis: as `source` is; or, if that is None, as somebody `said`."""

    dim: int
    axis: Any
    source: Var | None
    said: str = ""


class Ties:
    """What ties the values of a jaxpr, whatever they are split over: the rules of its equations, its ties with the
    values of each that may be split, and by value the ties that it is in."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.rules = Rules()
        self.all = list(all_ties(jaxpr, self.rules))
        self.values = [
            [(v, n) for v, n in zip(t.values, t.rule.names, strict=True) if type(v) is Var] for t in self.all
        ]
        self.users: dict[Var, list[int]] = {}
        for i, values in enumerate(self.values):
            for v, _ in values:
                self.users.setdefault(v, []).append(i)


class Propagation:
    """The sharding of every value of a jaxpr, by what is known of some. `stored` are values whose shardings are those
    of memory: they are looked at last."""

    def __init__(self, jaxpr: Jaxpr, sizes: Mapping[Any, int]) -> None:
        self.jaxpr, self.sizes = jaxpr, sizes
        found: Ties = jaxpr.memoize("ties", lambda: Ties(jaxpr))  # the same for all that is tried in a search
        self.rules, self.ties, self._values, self._users = found.rules, found.all, found.values, found.users
        self.dims: dict[Var, Dims] = {}
        self.fixed: set[Var] = set()
        self.stored: set[Var] = set()
        self.reasons: dict[Var, list[Reason]] = {}

    def fix(self, v: Var, dims: Dims, stored: bool = False, said: str = "argument") -> None:
        """Say how a value is split, and who says so."""
        self.dims[v] = dims
        self.fixed.add(v)
        if stored:
            self.stored.add(v)
        self.reasons[v] = [Reason(d, a, None, said) for d, axes in enumerate(dims) for a in axes]

    def begin(self, v: Var, dims: Dims, said: str = "shard_map") -> None:
        """How a value is split at least, unless somebody has said it already."""
        if v not in self.dims and any(dims):
            self.dims[v] = dims
            self.reasons[v] = [Reason(d, a, None, said) for d, axes in enumerate(dims) for a in axes]

    def run(self) -> None:
        """Give axes to values until nothing changes: first where dimensions only pass through, then everywhere; first
        from data, then from what is stored too."""
        for hidden in (self.stored, set()) if self.stored else (set(),):
            for only_passing in (True, False):
                self._until_stable(hidden, only_passing)

    def __getitem__(self, v: Any) -> Dims:
        found = self.dims.get(v)
        return whole(v.aval) if found is None else found

    def _until_stable(self, hidden: set[Var], only_passing: bool) -> None:
        included = [t.rule.passes or not only_passing for t in self.ties]
        split = [v for v, dims in self.dims.items() if any(dims)]
        waiting = dict.fromkeys(sorted({i for v in split for i in self._users.get(v, ()) if included[i]}))
        while waiting:
            for i in [*waiting]:
                waiting.pop(i, None)
                for v in self._visit(i, hidden):
                    waiting.update((k, None) for k in self._users[v] if included[k])

    def _visit(self, i: int, hidden: set[Var]) -> Sequence[Var]:
        """Give the axes of one tie to all its values; those that changed."""
        found: dict[Any, dict[str, Var]] = {}
        for v, names in self._values[i]:
            dims = self.dims.get(v)
            if dims is None or v in hidden:
                continue
            for name, axes in zip(names, dims, strict=True):
                if axes and name is not None:
                    for axis in axes:
                        found.setdefault(axis, {}).setdefault(name, v)
        changed: list[Var] = []
        if found:
            tie = self.ties[i]
            for axis in self.sizes:
                factors = [*found.get(axis, {}).items()]
                if len(factors) > 1:  # what pays only by costs is no reason
                    factors = [(name, v) for name, v in factors if name not in tie.rule.inside]
                if len(factors) == 1 and axis not in tie.excluded:
                    self._give(tie, *factors[0], axis, changed)
        return changed

    def _give(self, tie: Tie, name: str, source: Var, axis: Any, changed: list[Var]) -> None:
        """Split the dimensions of a factor over one more axis, as `source` is, where that can be."""
        for k, d in tie.rule.dims[name]:
            v = tie.values[k]
            if type(v) is not Var or v in self.fixed:
                continue
            shape: Any = v.aval.shape  # type: ignore[attr-defined]
            dims = self[v]
            if any(axis in axes for axes in dims):
                continue
            axes = (*dims[d], axis)
            if len(axes) > 1:  # in the order that the source has
                theirs = next((own for own in self[source] if axis in own), ())
                axes = tuple(a for a in theirs if a in axes) if set(axes) <= set(theirs) else axes
            size = tie.rule.sizes[name]
            if name in tie.rule.reach:
                if not fits(tie.rule, name, axes, self.sizes):
                    continue
            elif size % parts_of(axes, self.sizes) and (
                name in tie.rule.even or size != shape[d] or not can_split(size, axes, self.sizes)
            ):
                continue
            self.dims[v] = (*dims[:d], axes, *dims[d + 1 :])
            self.reasons.setdefault(v, []).append(Reason(d, axis, source))
            changed.append(v)
