"""Sharding propagation: from the shardings of some values to those of all, without weighing costs.

An axis propagates to all dimensions of a factor if exactly one factor of the equation's operands and results has the
axis already. Data has priority over state: shardings of values that are only stored split, such as parameters and
optimizer state, propagate only after those of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.partition.halo import fits
from weft.compiler.partition.rules import Dims, Relation, ShardingRules, count_shards, sharding_relations, whole
from weft.compiler.partition.uneven import can_split
from weft.ir.jaxpr import Jaxpr, Var


@dataclass(frozen=True)
class ShardingReason:
    """Why a dimension of a value is split over an axis: because `source` is, or, without a source, because of an
    annotation of the kind `said` (argument, result, constraint, shard_map)."""

    dim: int
    axis: Any
    source: Var | None
    said: str = ""


class Relations:
    """Sharding relations of a jaxpr, which do not depend on its shardings: the rules of its equations, all relations
    with their values and factors, and for each value the indices of its relations."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.rules = ShardingRules()
        self.all = list(sharding_relations(jaxpr, self.rules))
        self.values = [
            [(v, n) for v, n in zip(t.values, t.rule.names, strict=True) if type(v) is Var] for t in self.all
        ]
        self.users: dict[Var, list[int]] = {}
        for i, values in enumerate(self.values):
            for v, _ in values:
                self.users.setdefault(v, []).append(i)


class Propagation:
    """The sharding of every value of a jaxpr, propagated from some. `stored` has the values that are only stored split:
    these propagate last."""

    def __init__(self, jaxpr: Jaxpr, sizes: Mapping[Any, int], pads: bool = True) -> None:
        self.jaxpr, self.sizes, self.pads = jaxpr, sizes, pads
        # Memoized because a search over shardings propagates many times over one jaxpr.
        found: Relations = jaxpr.memoize("sharding relations", lambda: Relations(jaxpr))
        self.rules, self.relations, self._values, self._users = found.rules, found.all, found.values, found.users
        self.dims: dict[Var, Dims] = {}
        self.fixed: set[Var] = set()
        self.stored: set[Var] = set()
        self.reasons: dict[Var, list[ShardingReason]] = {}

    def fix(self, v: Var, dims: Dims, stored: bool = False, said: str = "argument") -> None:
        """Fix the sharding of a value; `said` is the kind of annotation for explanations."""
        self.dims[v] = dims
        self.fixed.add(v)
        if stored:
            self.stored.add(v)
        self.reasons[v] = [ShardingReason(d, a, None, said) for d, axes in enumerate(dims) for a in axes]

    def begin(self, v: Var, dims: Dims, said: str = "shard_map") -> None:
        """Set the sharding from which propagation of a value starts, unless it has one."""
        if v not in self.dims and any(dims):
            self.dims[v] = dims
            self.reasons[v] = [ShardingReason(d, a, None, said) for d, axes in enumerate(dims) for a in axes]

    def run(self) -> None:
        """Propagate axes until nothing changes: first through operations whose dimensions only pass through, then
        through all; first from data, then from stored values too."""
        for hidden in (self.stored, set()) if self.stored else (set(),):
            for only_passing in (True, False):
                self._until_stable(hidden, only_passing)

    def __getitem__(self, v: Any) -> Dims:
        found = self.dims.get(v)
        return whole(v.aval) if found is None else found

    def _until_stable(self, hidden: set[Var], only_passing: bool) -> None:
        included = [r.rule.passes or not only_passing for r in self.relations]
        split = [v for v, dims in self.dims.items() if any(dims)]
        waiting = dict.fromkeys(sorted({i for v in split for i in self._users.get(v, ()) if included[i]}))
        while waiting:
            for i in [*waiting]:
                waiting.pop(i, None)
                for v in self._visit(i, hidden):
                    waiting.update((k, None) for k in self._users[v] if included[k])

    def _visit(self, i: int, hidden: set[Var]) -> Sequence[Var]:
        """Propagate the axes of one relation to all its values, and return those that changed."""
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
            relation = self.relations[i]
            for axis in self.sizes:
                factors = [*found.get(axis, {}).items()]
                if len(factors) > 1:  # whether to split a factor inside of an operation is a question of costs
                    factors = [(name, v) for name, v in factors if name not in relation.rule.inside]
                if len(factors) == 1 and axis not in relation.excluded:
                    self._give(relation, *factors[0], axis, changed)
        return changed

    def _give(self, relation: Relation, name: str, source: Var, axis: Any, changed: list[Var]) -> None:
        """Split the dimensions of a factor over one more axis, as `source` is, if they can be."""
        for k, d in relation.rule.dims[name]:
            v = relation.values[k]
            if type(v) is not Var or v in self.fixed:
                continue
            shape: Any = v.aval.shape  # type: ignore[attr-defined]
            dims = self[v]
            if any(axis in axes for axes in dims):
                continue
            axes = (*dims[d], axis)
            if len(axes) > 1:  # in the order of the source
                theirs = next((own for own in self[source] if axis in own), ())
                axes = tuple(a for a in theirs if a in axes) if set(axes) <= set(theirs) else axes
            size = relation.rule.sizes[name]
            if name in relation.rule.reach:
                if not fits(relation.rule, name, axes, self.sizes, self.pads):
                    continue
            elif size % count_shards(axes, self.sizes) and (
                name in relation.rule.even or size != shape[d] or not can_split(size, axes, self.sizes, self.pads)
            ):
                continue
            self.dims[v] = (*dims[:d], axes, *dims[d + 1 :])
            self.reasons.setdefault(v, []).append(ShardingReason(d, axis, source))
            changed.append(v)
