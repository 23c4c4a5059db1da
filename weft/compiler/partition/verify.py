"""Verification of partitioned jaxprs: of the sharding of each value during partitioning, and of the local jaxpr.

The local jaxpr is analysed without knowledge of how it was made: along which axes may a value differ between devices?
Results of all-reduces and all-gathers are equal on all devices, and so is what is computed from equal values. A result
that is replicated along an axis but could differ along it is an error, as is a collective in a loop or a conditional
whose predicate could differ between the devices that take part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.partition.rules import Dims, ShardingRule, local_shape
from weft.compiler.partition.shard_states import SUM, NoStateError, StateAnalysis, describe, fits, get_state
from weft.compiler.partition.uneven import can_split
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs
from weft.ir.printer import equation_text
from weft.ir.types import ArrayType
from weft.ir.verifier import verify
from weft.primitives.control.shard_map import shard_map

Axes = frozenset[Any]
NOWHERE: Axes = frozenset()


def fail(what: str, equation: Equation | None = None) -> None:
    """Raise the error of a wrongly partitioned program."""
    where = "" if equation is None else f"\nfor {equation_text(equation)}"
    raise InternalError(f"The partitioned program is wrong. {what}{where}")


# ------------------------------------------------------------------------------------------ while the jaxpr is made


def check_axes(
    v: Var, dims: Dims, unreduced: Sequence[Any], sizes: Mapping[Any, int], equation: Equation | None = None
) -> None:
    """Raise unless a value uses axes of the mesh, each of them once: in one dimension, or unreduced."""
    used = [*(a for axes in dims for a in axes), *unreduced]
    for axis in used:
        if axis not in sizes:
            fail(f"{v.aval.short()} is split over {axis!r}, which the mesh does not have.", equation)
        if used.count(axis) > 1:
            fail(f"{v.aval.short()} uses the axis {axis!r} twice: it is {dims}, unreduced over {unreduced}.", equation)


def check_value(
    v: Var,
    dims: Dims,
    unreduced: Sequence[Any],
    local: Any,
    sizes: Mapping[Any, int],
    equation: Equation | None,
    pads: bool = True,
) -> None:
    """Raise unless a value is split in one dimension along each axis, or unreduced, or neither, and its local value has
    the shape of a shard."""
    if not isinstance(v.aval, ArrayType):
        return
    check_axes(v, dims, unreduced, sizes, equation)
    for size, axes in zip(v.aval.shape, dims, strict=True):
        if not can_split(size, axes, sizes, pads):
            fail(f"{v.aval.short()} cannot be split evenly: {dims}.", equation)
    expected = local_shape(v.aval.shape, dims, sizes)
    if local.shape != expected or local.dtype != v.aval.dtype:
        fail(f"A shard of {v.aval.short()}, split as {dims}, must have its shape; got {local.short()}.", equation)


def check_operation(
    equation: Equation, rule: ShardingRule, chosen: Mapping[str, tuple[Any, ...]], unreduced: Sequence[Any]
) -> None:
    """Raise unless an operation is split over each axis once, along factors that it has, and over no axis over which an
    operand is unreduced."""
    used = [a for axes in chosen.values() for a in axes]
    for axis in used:
        if used.count(axis) > 1:
            fail(f"It is split over {axis!r} twice: {chosen}.", equation)
        if axis in unreduced:
            fail(f"It is split over {axis!r}, and an operand is unreduced over it.", equation)
    for factor in chosen:
        if factor not in rule.dims:
            fail(f"It is split along {factor}, which is no factor of it.", equation)


# ----------------------------------------------------------------------------------------------- the jaxpr of a device


def verify_local(
    jaxpr: Jaxpr,
    in_dims: Sequence[Dims],
    out_dims: Sequence[Dims],
    results: Sequence[Any],
    sizes: Mapping[Any, int],
    manual: Axes = NOWHERE,
    unreduced: Sequence[Axes] = (),
) -> None:
    """Raise unless the jaxpr of one device computes shards of the results.

    Args:
        jaxpr: the local jaxpr.
        in_dims: how its arguments are split.
        out_dims: how its results are split.
        results: the types of the whole results.
        sizes: sizes of the mesh axes.
        manual: axes along which the user is responsible for the results.
        unreduced: for each result, the axes along which devices have partial sums.
    """
    verify(jaxpr)
    axes_of = lambda dims: frozenset(a for axes in dims for a in axes)
    for axis in collective_axes(jaxpr):
        if axis not in sizes:
            fail(f"It communicates over {axis!r}, which the mesh {dict(sizes)} does not have.")
    found = differences(jaxpr, [axes_of(dims) for dims in in_dims], manual)
    for i, (own, dims) in enumerate(zip(found, out_dims, strict=True)):
        wrong = own - axes_of(dims) - manual
        if wrong:
            fail(f"Result {i} may differ between devices along {sorted(map(str, wrong))}, but is split as {dims}.")
    for axis in sizes:
        if axis not in manual:
            check_states(jaxpr, in_dims, out_dims, axis, [axis in own for own in unreduced])
    for i, (v, t, dims) in enumerate(zip(jaxpr.outvars, results, out_dims, strict=True)):
        local: Any = v.aval
        if isinstance(t, ArrayType) and local.shape != local_shape(t.shape, dims, sizes):
            fail(f"Result {i} must be a shard of {t.short()}, split as {dims}; got {local.short()}.")


def check_states(
    jaxpr: Jaxpr, in_dims: Sequence[Dims], out_dims: Sequence[Dims], axis: Any, unreduced: Sequence[bool] = ()
) -> None:
    """Raise unless all values have a state along an axis, and results that of their sharding; those marked in
    `unreduced` may be partial sums."""
    pairs = zip(jaxpr.invars, in_dims, strict=True)
    arguments = [frozenset({get_state(d, axis)}) if isinstance(v.aval, ArrayType) else None for v, d in pairs]
    try:
        found = StateAnalysis(axis).results(jaxpr, arguments)
    except NoStateError as error:
        fail(str(error), error.equation)
    for i, (states, dims) in enumerate(zip(found, out_dims, strict=True)):
        wanted = get_state(dims, axis)
        if not fits(states, wanted) and not (i < len(unreduced) and unreduced[i] and fits(states, SUM)):
            expected = describe(frozenset({wanted}))
            fail(f"Along {axis!r} result {i} must be {expected}; got {describe(states)}.")


def differences(jaxpr: Jaxpr, arguments: Sequence[Axes], manual: Axes = NOWHERE) -> list[Axes]:
    """Return the axes along which each result may differ between devices. Collectives over `manual` axes are not
    checked: the user is responsible for them."""
    known: dict[Var, Axes] = dict(zip(jaxpr.invars, arguments, strict=True))

    def of(atom: Atom) -> Axes:
        return known.get(atom, NOWHERE) if type(atom) is Var else NOWHERE

    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if primitive.higher_order and any(True for _ in subjaxprs(equation.params)):
            results = through_bodies(equation, [of(a) for a in equation.invars], manual)
        elif primitive.separate:
            results = [of(a) for a in equation.invars]
        else:
            own = primitive.varies(NOWHERE.union(*map(of, equation.invars)), equation.params)
            results = [own] * len(equation.outvars)
        known.update(zip(equation.outvars, results, strict=True))
    return [of(a) for a in jaxpr.outvars]


def through_bodies(equation: Equation, operands: Sequence[Axes], manual: Axes) -> list[Axes]:
    """Return `differences` of a loop or a conditional, by iterating over its carries until nothing changes."""
    primitive: Any = equation.primitive
    mapping = primitive.body_map(equation.params)
    arguments = [[NOWHERE if i is None else operands[i if i >= 0 else ~i] for i in own] for own in mapping.arguments]
    used = {i if i >= 0 else ~i for own in mapping.arguments for i in own if i is not None}
    decides = NOWHERE.union(*(axes for i, axes in enumerate(operands) if i not in used))
    while True:
        results = [differences(b, own, manual) for b, own in zip(mapping.bodies, arguments, strict=True)]
        before = [list(own) for own in arguments]
        for b, argument, result in mapping.carries:
            operand = mapping.arguments[b][argument]
            for k, own in enumerate(mapping.arguments):  # a carry is an argument of all bodies that have this operand
                if operand is None and k != b:
                    continue
                for j, i in enumerate(own):
                    if i == operand and (operand is not None or j == argument):
                        arguments[k][j] = arguments[k][j] | results[b][result]
        if arguments == before:
            break
    decides = decides.union(*(axes for b in mapping.predicates for axes in results[b]))
    meeting = {a for body in mapping.bodies for a in collective_axes(body) if a not in manual}
    if meeting & decides:
        fail(
            f"The predicate of {primitive.name} must be equal on all devices along"
            f" {sorted(map(str, meeting & decides))}: its body has collectives over them.",
            equation,
        )
    return [decides.union(*(results[b][i] for b, i, _ in sources)) for sources in mapping.results]


def collective_axes(jaxpr: Jaxpr) -> Iterator[Any]:
    """Yield the axes of collectives, in bodies too."""
    for equation in jaxpr.eqns:
        if equation.invars:  # `axis_index` has no operand and sends nothing
            yield from equation.primitive.named_axes(equation.params)
        for body in subjaxprs(equation.params):
            yield from collective_axes(body)


def manual_axes(jaxpr: Jaxpr) -> Axes:
    """Return the manual axes of all `shard_map`s in a jaxpr."""
    own = NOWHERE.union(*(e.params["manual_axes"] for e in jaxpr.eqns if e.primitive is shard_map))
    return own.union(*(manual_axes(body) for e in jaxpr.eqns for body in subjaxprs(e.params)))
