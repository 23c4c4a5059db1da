"""Shard states: an abstract interpretation of a local jaxpr, one mesh axis at a time, that verifies it without
knowledge of how it was made.

Along an axis, the local value of a device is replicated, or a shard along a dimension, or a partial sum (or a partial
result of another reduction). A value can have several states: a broadcast value is a shard along the new dimension too.
The states of an operation's results follow from those of its operands by its axis factors; a collective changes one
state into another; and values that depend on the device's position in an unknown way can be anything (None). A value
without any state is an error: a collective is missing, or is along another dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.partition.carries import is_zero
from weft.compiler.partition.rules import COMBINED, Dims, ShardingRule, ShardingRules
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.kinds import ManualCast
from weft.ir.types import ArrayType
from weft.primitives.elementwise.rounding import reduce_precision


class ShardState(NamedTuple):
    """One way to see a local value: its `kind` is "replicated", "shard", or the reduction that is still to be done. A
    shard is along `dim`; the axes in `minor` split the same dimension further (None: any)."""

    kind: str
    dim: int = -1
    minor: frozenset[Any] | None = frozenset()


REPLICATED = ShardState("replicated")
SUM = ShardState("sum")
ShardStates = frozenset[ShardState] | None  # None: anything
ONLY_REPLICATED: ShardStates = frozenset({REPLICATED})
ZERO: ShardStates = frozenset({REPLICATED, SUM})  # zeros are partial sums of zero too
NOTHING: frozenset[ShardState] = frozenset()


class NoStateError(Exception):
    """Raised for an equation whose results have no state."""

    def __init__(self, equation: Equation | None, text: str) -> None:
        super().__init__(text)
        self.equation = equation


def get_state(dims: Dims, axis: Any) -> ShardState:
    """Return the state along an axis of a value that is split as `dims`."""
    for d, axes in enumerate(dims):
        if axis in axes:
            return ShardState("shard", d, frozenset(axes[axes.index(axis) + 1 :]))
    return REPLICATED


def fits(states: ShardStates, wanted: ShardState) -> bool:
    """Return whether one of the states agrees with `wanted`."""
    return states is None or any(merge(r, wanted) is not None for r in states)


def merge(one: ShardState, other: ShardState) -> ShardState | None:
    """Return the state that two agree on, or None."""
    if one[:2] != other[:2]:
        return None
    if one.minor is None or other.minor is None or one.minor == other.minor:
        return one if other.minor is None else other
    return None


def common(one: ShardStates, other: ShardStates) -> ShardStates:
    """Return the states that two values have in common."""
    if one is None or other is None:
        return None
    return frozenset(m for a in one for b in other if (m := merge(a, b)) is not None)


def find_own_shard(equation: Equation, defined: Mapping[Var, Equation]) -> tuple[Any, int] | None:
    """Return (axis, dimension) if an equation slices a device's own shard along an axis, or None."""
    if equation.primitive.name != "dynamic_slice":
        return None
    found: tuple[Any, int] | None = None
    for d, start in enumerate(equation.invars[1:]):
        if type(start) is Literal and not start.val:
            continue
        times = defined.get(start) if type(start) is Var else None
        if found or times is None or times.primitive.name != "mul":
            return None
        index, size = times.invars
        position = defined.get(index) if type(index) is Var else None
        if position is None or position.primitive.name != "axis_index" or type(size) is not Literal:
            return None
        if int(size.val) != equation.params["slice_sizes"][d]:
            return None
        found = position.params["axis_name"], d
    return found


def on_first(equation: Equation, defined: Mapping[Var, Equation]) -> tuple[Any, ...]:
    """Return the axis (as a tuple) along which an equation selects a value on the first device and zeros elsewhere; ()
    if it does not."""
    if equation.primitive.name != "select_n" or len(equation.invars) != 3:
        return ()
    first, zero, _ = equation.invars
    test = defined.get(first) if type(first) is Var else None
    if test is None or not is_zero(zero, defined):
        return ()
    if test.primitive.name != "eq" or type(test.invars[1]) is not Literal or test.invars[1].val:
        return ()
    index = defined.get(test.invars[0]) if type(test.invars[0]) is Var else None
    return (index.params["axis_name"],) if index is not None and index.primitive.name == "axis_index" else ()


class StateAnalysis:
    """Computes the states of all values of a jaxpr along one axis."""

    def __init__(self, axis: Any) -> None:
        self.axis = axis
        self.rules = ShardingRules()

    def results(self, jaxpr: Jaxpr, arguments: Sequence[ShardStates]) -> list[ShardStates]:
        """Return the states of results for those of arguments."""
        known: dict[Var, ShardStates] = dict(zip(jaxpr.invars, arguments, strict=True))
        known.update(dict.fromkeys(jaxpr.constvars, ONLY_REPLICATED))
        defined: dict[Var, Equation] = {}

        def of(atom: Atom) -> ShardStates:
            if type(atom) is Var:
                return known[atom]
            return ONLY_REPLICATED if type(atom) is not Literal or np.any(np.asarray(atom.val)) else ZERO

        for equation in jaxpr.eqns:
            operands = [of(a) for a in equation.invars]
            found = self.equation(equation, operands, defined)
            for v, states in zip(equation.outvars, found, strict=True):
                if states is not None and not states and isinstance(v.aval, ArrayType):
                    found_states = ", ".join(map(describe, operands))
                    raise NoStateError(equation, f"Along {self.axis!r} its operands are {found_states}.")
                known[v] = states if isinstance(v.aval, ArrayType) else None
            defined.update(dict.fromkeys(equation.outvars, equation))
        return [of(a) for a in jaxpr.outvars]

    def equation(
        self, equation: Equation, operands: Sequence[ShardStates], defined: Mapping[Var, Equation]
    ) -> list[ShardStates]:
        """Return the states of the results of any equation."""
        primitive = equation.primitive
        count = len(equation.outvars)
        if primitive.higher_order and any(True for _ in subjaxprs(equation.params)):
            starts = [self.start_state(a, r, defined) for a, r in zip(equation.invars, operands, strict=True)]
            return self.control(equation, starts)
        if primitive.separate:
            return list(operands)
        part = find_own_shard(equation, defined)
        if part is not None and operands[0] is not None:
            return [self.slice_own(operands[0], *part)]
        if any(r is None for r in operands) or isinstance(primitive, ManualCast):
            return [None] * count
        sets = [r for r in operands if r is not None]
        named = primitive.named_axes(equation.params)
        if named and not equation.invars:
            return [None if self.axis in named else ONLY_REPLICATED] * count
        if named:
            return [self.collective(equation, named, sets[0])] * count
        return self.operation(equation, sets)

    def slice_own(self, operand: frozenset[ShardState], axis: Any, dim: int) -> ShardStates:
        """Return the states of a device's own shard along an axis, sliced from a value that is replicated along it."""
        if axis == self.axis:
            return only(ShardState("shard", dim), REPLICATED in operand)
        return frozenset(with_minor(r, dim, axis) for r in operand)

    # -- operations ---------------------------------------------------------------------------------------------------

    def operation(self, equation: Equation, operands: Sequence[frozenset[ShardState]]) -> list[ShardStates]:
        """Return the states of the results of an operation, by its axis factors."""
        primitive, rule, count = equation.primitive, self.rules[equation], len(equation.outvars)
        if primitive.name == "reshape":
            return [frozenset(reshape_states(equation, operands[0]))]
        for a, states, names in zip(equation.invars, operands, rule.operand_names, strict=True):
            sizes: Any = getattr(a.aval, "shape", ())
            for r in states:
                # The local operation communicates along this factor by itself, or this is data movement that belongs
                # to one which does. A dimension of one element, say of a window, is like one without a factor.
                if r.kind == "shard" and (
                    names[r.dim] in rule.inside or (names[r.dim] is None and (primitive.copies or sizes[r.dim] == 1))
                ):
                    return [None] * count
        found: list[set[ShardState]] = [set() for _ in range(count)]
        if all(REPLICATED in r for r in operands):
            for own in found:
                own.add(REPLICATED)
            if count:
                found[0].update(ShardState("shard", d, None) for d in constant_dims(equation))
        if is_sum(equation, operands):
            for own in found:
                own.add(SUM)
        for factor in rule.dims:
            if factor not in rule.inside:
                self.along(factor, rule, operands, found)
        return [frozenset(own) for own in found]

    def along(
        self,
        factor: str,
        rule: ShardingRule,
        operands: Sequence[frozenset[ShardState]],
        found: Sequence[set[ShardState]],
    ) -> None:
        """Add the states of results for operands that are shards along a factor."""
        minors: list[ShardState] = [ShardState("shard", 0, None)]
        for states, names in zip(operands, rule.operand_names, strict=True):
            if factor not in names:
                if REPLICATED not in states:
                    return
                continue
            dim = names.index(factor)
            own = [ShardState("shard", 0, r.minor) for r in states if r.kind == "shard" and r.dim == dim]
            minors = [m for a in minors for b in own if (m := merge(a, b)) is not None]
        if not any(factor in names for names in rule.operand_names):
            return
        for part in minors:
            for names, own_results in zip(rule.result_names, found, strict=True):
                if factor in names:
                    own_results.add(ShardState("shard", names.index(factor), part.minor))
                elif rule.combine.get(factor) in COMBINED:
                    own_results.add(ShardState(rule.combine[factor]))

    # -- collectives --------------------------------------------------------------------------------------------------

    def collective(self, equation: Equation, named: Iterable[Any], operand: frozenset[ShardState]) -> ShardStates:
        """Return the states of the results of a collective over `named` axes."""
        name, params = equation.primitive.name, equation.params
        own = self.axis in named
        if params.get("axis_index_groups") is not None:
            return NOTHING if own else None  # groups are the user's, along manual axes
        if name in ("psum", "pmax", "pmin"):
            return only(REPLICATED, ShardState(name[1:]) in operand) if own else operand
        if name == "all_gather" and params["tiled"]:
            dim = params["all_gather_dimension"]
            if own:
                return only(REPLICATED, fits(operand, ShardState("shard", dim)))
            return frozenset(r for s in operand if (r := without_minor(s, dim, params["axis_name"])) is not None)
        if name == "reduce_scatter" and params["tiled"]:
            dim = params["scatter_dimension"]
            if own:
                return only(ShardState("shard", dim), SUM in operand)
            return frozenset(with_minor(r, dim, params["axis_name"]) for r in operand)
        if name == "all_to_all":
            return self.exchange(operand, own, params["split_axis"], params["concat_axis"])
        return None

    def exchange(self, operand: frozenset[ShardState], own: bool, split: int, concat: int) -> ShardStates:
        """Return the states after an all-to-all, which splits dimension `split` over the devices and inserts a new
        dimension at `concat`, before the one that was split."""
        after = lambda d: d - (d > split)
        if own:
            wanted = concat + (concat >= split)
            return only(ShardState("shard", split + (split >= concat)), fits(operand, ShardState("shard", wanted)))
        found: set[ShardState] = set()
        for r in operand:
            if r.kind != "shard":
                found.add(r)
            elif r.dim == split or after(r.dim) == concat:
                return None  # split over this axis too: which shard it is now depends on the order of the axes
            else:
                found.add(r._replace(dim=after(r.dim) + (after(r.dim) >= concat)))
        return frozenset(found)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def start_state(self, a: Atom, states: ShardStates, defined: Mapping[Var, Equation]) -> ShardStates:
        """Return the states of an operand of a loop: a value on the first device and zeros elsewhere is partial."""
        equation = defined.get(a) if type(a) is Var else None
        return frozenset({SUM}) if equation is not None and self.axis in on_first(equation, defined) else states

    def control(self, equation: Equation, operands: Sequence[ShardStates]) -> list[ShardStates]:
        """Return the states of the results of a loop or a conditional: carries have the states that hold before and
        after every iteration."""
        primitive: Any = equation.primitive
        mapping = primitive.body_map(equation.params)
        arguments = [
            [ONLY_REPLICATED if i is None else operands[i] if i >= 0 else shift(operands[~i], -1) for i in own]
            for own in mapping.arguments
        ]
        used = {i if i >= 0 else ~i for own in mapping.arguments for i in own if i is not None}
        decides = [r for i, r in enumerate(operands) if i not in used]
        while True:
            results = [self.results(b, own) for b, own in zip(mapping.bodies, arguments, strict=True)]
            before = [list(own) for own in arguments]
            for b, argument, result in mapping.carries:
                operand = mapping.arguments[b][argument]
                for k, own in enumerate(mapping.arguments):  # a carry is an argument of all bodies with this operand
                    for j, i in enumerate(own):
                        if (k, j) == (b, argument) or (operand is not None and i == operand):
                            arguments[k][j] = common(arguments[k][j], results[b][result])
            if arguments == before:
                break
        for states in (*decides, *(r for b in mapping.predicates for r in results[b])):
            if not fits(states, REPLICATED):
                raise NoStateError(
                    equation, f"Along {self.axis!r} the predicate must be replicated; got {describe(states)}."
                )
        if any(r is None for r in (*decides, *(r for b in mapping.predicates for r in results[b]))):
            return [None] * len(equation.outvars)
        outs: list[ShardStates] = []
        for sources in mapping.results:
            found: ShardStates = None
            for k, (b, i, stacked) in enumerate(sources):
                one = shift(results[b][i], 1) if stacked else results[b][i]
                found = one if k == 0 else common(found, one)
            outs.append(found)
        return outs


def constant_dims(equation: Equation) -> list[int]:
    """Return the dimensions along which a result is constant: new ones of a broadcast, and all of an iota but its own.
    All shards along them are equal."""
    params = equation.params
    if equation.primitive.name == "iota":
        return [d for d in range(len(params["shape"])) if d != params["dimension"]]
    if equation.primitive.name != "broadcast_in_dim":
        return []
    operand: Any = equation.invars[0].aval
    sizes = dict(zip(params["broadcast_dimensions"], operand.shape, strict=True))
    return [d for d, size in enumerate(params["shape"]) if d not in sizes or sizes[d] != size]


def reshape_states(equation: Equation, operand: frozenset[ShardState]) -> Iterator[ShardState]:
    """Yield the states after a reshape: a shard along a dimension becomes one along the dimension with the same major
    dimensions before it."""
    before = lambda v: [math.prod(v.aval.shape[:d]) for d in range(len(v.aval.shape))]
    starts, ends = before(equation.invars[0]), before(equation.outvars[0])
    for r in operand:
        if r.kind != "shard":
            yield r
        elif equation.params.get("dimensions") is None:
            yield from (r._replace(dim=d) for d, start in enumerate(ends) if start == starts[r.dim])


def is_sum(equation: Equation, operands: Sequence[frozenset[ShardState]]) -> bool:
    """Return whether results are partial sums: the operation is linear in the operands that are, jointly or in one."""
    primitive = equation.primitive
    if primitive is reduce_precision or primitive.higher_order:
        return False
    indices = range(len(operands))
    linear = (
        list(indices)
        if "all" in (primitive.linear, primitive.copies)
        else [i for i in indices if i in primitive.linear]
    )
    others = [r for i, r in enumerate(operands) if i not in linear]
    if not linear or not all(REPLICATED in r for r in others):
        return False
    partial = [i for i in linear if SUM in operands[i]]
    if primitive.multilinear:
        return any(all(REPLICATED in operands[k] for k in linear if k != i) for i in partial)
    return len(partial) == len(linear)


def only(state: ShardState, holds: bool) -> ShardStates:
    """Return the set of this state if `holds`, else no state."""
    return frozenset({state}) if holds else NOTHING


def with_minor(state: ShardState, dim: int, axis: Any) -> ShardState:
    """Return the state of a value after it is split further along a dimension."""
    if state.kind != "shard" or state.dim != dim or state.minor is None:
        return state
    return state._replace(minor=state.minor | {axis})


def without_minor(state: ShardState, dim: int, axis: Any) -> ShardState | None:
    """Return the state of a value after it is gathered along a dimension, or None: the axis must be the minor one."""
    if state.kind != "shard" or state.dim != dim or state.minor is None:
        return state
    return state._replace(minor=state.minor - {axis}) if axis in state.minor else None


def shift(states: ShardStates, by: int) -> ShardStates:
    """Return the states of a slice along the first dimension (-1), or of values stacked along a new one (1)."""
    if states is None:
        return None
    return frozenset(
        r._replace(dim=r.dim + by) if r.kind == "shard" else r for r in states if r.kind != "shard" or r.dim + by >= 0
    )


def describe(states: ShardStates) -> str:
    """Format states for an error message."""
    if states is None:
        return "anything"
    texts = {"replicated": "replicated", "shard": "a shard of dimension {}"}
    found = {texts.get(r.kind, f"a partial {r.kind}").format(r.dim) for r in states}
    return " or ".join(sorted(found)) or "nothing"
