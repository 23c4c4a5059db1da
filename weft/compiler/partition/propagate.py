"""Sharding propagation: from the shardings of some values to those of all, without weighing costs.

An axis propagates to all dimensions of a factor if exactly one factor of the equation's operands and results has the
axis already. Data has priority over state: shardings of values that are only stored split, such as parameters and
optimizer state, propagate only after those of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.partition.halo import fits
from weft.compiler.partition.rules import Dims, Relation, ShardingRules, count_shards, sharding_relations, whole
from weft.compiler.partition.uneven import can_split
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import ArrayType
from weft.primitives.control.shard_map import shard_map
from weft.sharding.routes import sent_bytes


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
            self._resolve(hidden)

    def adopt(self, found: Mapping[Var, Dims]) -> None:
        """Take the shardings in which an earlier attempt computed its values, but for fixed ones; arguments of bodies
        are split as the operands are."""
        self.dims.update({v: dims for v, dims in found.items() if v not in self.fixed})
        for operand, argument, stacked in body_arguments(self.jaxpr):
            self.dims[argument] = self[operand][stacked:]

    def storage_flags(self) -> list[bool]:
        """Return for each argument whether it is only stored split."""
        return [v in self.stored for v in self.jaxpr.invars]

    def __getitem__(self, v: Any) -> Dims:
        found = self.dims.get(v)
        return whole(v.aval) if found is None else found

    def _resolve(self, hidden: set[Var]) -> None:
        """Decide conflicts, where an axis splits several factors of one operation and some of its values are not split:
        the factor is chosen that needs the fewest bytes, and propagates. Operations are visited in order, so that what
        is chosen for the first layer holds for those that follow."""
        for i, relation in enumerate(self.relations):
            for axis, factors in self._splits(i, hidden).items():
                factors = {n: v for n, v in factors.items() if n not in relation.rule.inside}
                if len(factors) < 2 or axis in relation.excluded:
                    continue
                name = min(factors, key=lambda n: self._conflict_bytes(relation, n, axis))
                changed: list[Var] = []
                self._give(relation, name, factors[name], axis, changed)
                if changed:
                    self._until_stable(hidden, False, changed)

    def _conflict_bytes(self, relation: Relation, name: str, axis: Any) -> float:
        """Return the bytes that a device sends if an operation is split over an axis along one factor only."""
        rule, count = relation.rule, 0.0
        for k, (v, names) in enumerate(zip(relation.values, rule.names, strict=True)):
            if not isinstance(v.aval, ArrayType):
                continue
            dims = self[v] if type(v) is Var else whole(v.aval)
            goal = [tuple(a for a in own if a != axis) for own in dims]
            summed = k >= rule.operands and name not in rule.results and rule.combine.get(name) == "sum"
            if name in names:
                goal[names.index(name)] += (axis,)
            before, after = (dims, tuple(goal)) if k < rule.operands else (tuple(goal), dims)
            shape: Any = v.aval.shape
            item = dtypes.storage(v.aval.dtype).itemsize
            if k < rule.operands and not any(axis in own for own in dims):
                continue
            count += sent_bytes(item, shape, before, (axis,) if summed else (), after, self.sizes)
        return count

    def _until_stable(self, hidden: set[Var], only_passing: bool, changed: Sequence[Var] | None = None) -> None:
        included = [r.rule.passes or not only_passing for r in self.relations]
        split = [v for v, dims in self.dims.items() if any(dims)] if changed is None else changed
        waiting = dict.fromkeys(sorted({i for v in split for i in self._users.get(v, ()) if included[i]}))
        while waiting:
            for i in [*waiting]:
                waiting.pop(i, None)
                for v in self._visit(i, hidden):
                    waiting.update((k, None) for k in self._users[v] if included[k])

    def _visit(self, i: int, hidden: set[Var]) -> Sequence[Var]:
        """Propagate the axes of one relation to all its values, and return those that changed."""
        found = self._splits(i, hidden)
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

    def _splits(self, i: int, hidden: set[Var]) -> dict[Any, dict[str, Var]]:
        """Return for each axis the factors of a relation that it splits, each with the first value split so."""
        found: dict[Any, dict[str, Var]] = {}
        for v, names in self._values[i]:
            dims = self.dims.get(v)
            if dims is None or v in hidden:
                continue
            for name, axes in zip(names, dims, strict=True):
                if axes and name is not None:
                    for axis in axes:
                        found.setdefault(axis, {}).setdefault(name, v)
        return found

    def _give(self, relation: Relation, name: str, source: Var, axis: Any, changed: list[Var]) -> None:
        """Split the dimensions of a factor over one more axis, as `source` is, if they can be."""
        for k, d in relation.rule.dims[name]:
            v = relation.values[k]
            if type(v) is not Var or v in self.fixed or (relation.forward and k < relation.rule.operands):
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


def body_arguments(jaxpr: Jaxpr) -> Iterator[tuple[Var, Var, bool]]:
    """Yield the operands of loops that are no carries, the arguments of bodies that they are, and whether these are
    slices of them."""
    for equation in jaxpr.eqns:
        primitive: Any = equation.primitive
        if primitive is shard_map or not primitive.higher_order:
            continue
        mapping = primitive.body_map(equation.params)
        carries = {(b, argument) for b, argument, _ in mapping.carries}
        for b, (body, arguments) in enumerate(zip(mapping.bodies, mapping.arguments, strict=True)):
            for k, (v, i) in enumerate(zip(body.invars, arguments, strict=True)):
                operand = None if i is None else equation.invars[i if i >= 0 else ~i]
                if type(operand) is Var and (b, k) not in carries and isinstance(v.aval, ArrayType):
                    yield operand, v, i < 0
            yield from body_arguments(body)
