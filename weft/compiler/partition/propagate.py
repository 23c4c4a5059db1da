"""Propagation: from the shardings of some values to those of all, without weighing costs.

An axis is given to the dimensions of one factor of an equation where exactly one factor of its operands and results has
the axis already. Data goes before state: what is only stored split, as parameters and optimizer state are, says how
values are computed only where the data does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.compiler.partition.rules import Dims, Rule, all_rules, parts_of, whole
from weft.ir.jaxpr import Jaxpr, Var


@dataclass(frozen=True)
class Reason:
    """Why a dimension of a value is split over an axis: as `source` is; or, if that is None, as somebody `said`."""

    dim: int
    axis: Any
    source: Var | None
    said: str = ""


class Propagation:
    """The sharding of every value of a jaxpr, by what is known of some. `stored` are values whose shardings are those
    of memory: they are looked at last."""

    def __init__(self, jaxpr: Jaxpr, sizes: Mapping[Any, int]) -> None:
        self.jaxpr, self.sizes = jaxpr, sizes
        self.rules = list(all_rules(jaxpr))
        self.dims: dict[Var, Dims] = {}
        self.fixed: set[Var] = set()
        self.stored: set[Var] = set()
        self.reasons: dict[Var, list[Reason]] = {}
        self._users: dict[Var, list[int]] = {}
        for i, rule in enumerate(self.rules):
            for v in rule.values:
                if type(v) is Var:
                    self._users.setdefault(v, []).append(i)

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
        waiting = dict.fromkeys(i for i, rule in enumerate(self.rules) if rule.passes or not only_passing)
        while waiting:
            for i in [*waiting]:
                waiting.pop(i, None)
                for v in self._visit(self.rules[i], hidden):
                    waiting.update(dict.fromkeys(k for k in self._users[v] if self.rules[k].passes or not only_passing))

    def _visit(self, rule: Rule, hidden: set[Var]) -> Sequence[Var]:
        """Spread the axes of one rule; the values that changed."""
        changed: list[Var] = []
        values = [(v, names) for v, names in zip(rule.values, rule.names, strict=True) if type(v) is Var]
        for axis in self._axes_of(v for v, _ in values):
            if axis in rule.excluded:
                continue
            found = {
                name: v
                for v, names in reversed(values)
                if v not in hidden and v in self.dims
                for name, axes in zip(names, self.dims[v], strict=True)
                if axis in axes
            }
            found.pop(None, None)
            if len(found) > 1:  # what pays only by costs is no reason
                found = {name: v for name, v in found.items() if name not in rule.inside}
            if len(found) != 1:
                continue
            ((name, source),) = found.items()
            assert name is not None
            for v, names in values:
                if v not in self.fixed and name in names and self._give(v, names.index(name), axis, rule, name, source):
                    changed.append(v)
        return changed

    def _axes_of(self, values: Iterable[Var]) -> list[Any]:
        """The axes that some of the values are split over, in the order of the mesh."""
        used = {a for v in values for axes in self.dims.get(v, ()) for a in axes}
        return [a for a in self.sizes if a in used]

    def _give(self, v: Var, dim: int, axis: Any, rule: Rule, name: str, source: Var) -> bool:
        """Split a dimension of a value over one more axis, if that can be."""
        dims = self[v]
        if any(axis in axes for axes in dims):
            return False
        axes = (*dims[dim], axis)
        if rule.sizes.get(name, 0) % parts_of(axes, self.sizes) or v.aval.shape[dim] % parts_of(axes, self.sizes):  # type: ignore[attr-defined]
            return False
        self.dims[v] = (*dims[:dim], axes, *dims[dim + 1 :])
        self.reasons.setdefault(v, []).append(Reason(dim, axis, source))
        return True
