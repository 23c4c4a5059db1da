"""What holds for every partitioned jaxpr: of the state of each value while it is made, and of the local jaxpr itself.

The local jaxpr is looked at without a word of how it was made: along which axes may a value differ between devices?
What all devices get from a collective is the same for them; what is computed from values that are the same is the same.
So a result that is whole along an axis and could differ along it is an error, as is a collective in a loop or a branch
whose predicate could differ between the devices that would have to meet there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.partition.readings import SUM, Reader, UnreadableError, described, fits, reading_of
from weft.compiler.partition.rules import Dims, Rule, local_shape
from weft.compiler.partition.uneven import can_split
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs
from weft.ir.printer import equation_text
from weft.ir.types import ArrayType
from weft.ir.verifier import verify
from weft.primitives.control.shard_map import shard_map

Axes = frozenset[Any]
NOWHERE: Axes = frozenset()


def fail(what: str, equation: Equation | None = None) -> None:
    """An error in what the partitioner made."""
    where = "" if equation is None else f"\nfor {equation_text(equation)}"
    raise InternalError(f"The partitioned program is wrong. {what}{where}")


# ------------------------------------------------------------------------------------------ while the jaxpr is made


def check_axes(
    v: Var, dims: Dims, unreduced: Sequence[Any], sizes: Mapping[Any, int], equation: Equation | None = None
) -> None:
    """A value uses axes of the mesh, each of them once: in one dimension, or unreduced."""
    used = [*(a for axes in dims for a in axes), *unreduced]
    for axis in used:
        if axis not in sizes:
            fail(f"{v.aval.short()} is split over {axis!r}, which the mesh does not have.", equation)
        if used.count(axis) > 1:
            fail(f"{v.aval.short()} uses the axis {axis!r} twice: it is {dims}, unreduced over {unreduced}.", equation)


def check_value(
    v: Var, dims: Dims, unreduced: Sequence[Any], local: Any, sizes: Mapping[Any, int], equation: Equation | None
) -> None:
    """Along an axis a value is split in one dimension, or unreduced, or neither; its part has the shape of a part."""
    if not isinstance(v.aval, ArrayType):
        return
    check_axes(v, dims, unreduced, sizes, equation)
    for size, axes in zip(v.aval.shape, dims, strict=True):
        if not can_split(size, axes, sizes):
            fail(f"{v.aval.short()} cannot be split evenly: {dims}.", equation)
    expected = local_shape(v.aval.shape, dims, sizes)
    if local.shape != expected or local.dtype != v.aval.dtype:
        fail(f"A part of {v.aval.short()}, which is split as {dims}, is {local.short()}.", equation)


def check_operation(
    equation: Equation, rule: Rule, chosen: Mapping[str, tuple[Any, ...]], unreduced: Sequence[Any]
) -> None:
    """An operation is split along each axis once, along factors that it has, and over no axis that an operand is
    unreduced over."""
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
    terms: Sequence[Axes] = (),
) -> None:
    """Check the jaxpr of one device, whose arguments and results are split so. `results` are the types of the whole.
    Along `manual` axes results are as the user says they are. `terms` are the axes along which the parts of a result
    are the terms of a sum."""
    verify(jaxpr)
    axes_of = lambda dims: frozenset(a for axes in dims for a in axes)
    for axis in named_axes(jaxpr):
        if axis not in sizes:
            fail(f"It communicates over {axis!r}, which the mesh {dict(sizes)} does not have.")
    found = differences(jaxpr, [axes_of(dims) for dims in in_dims], manual)
    for i, (own, dims) in enumerate(zip(found, out_dims, strict=True)):
        wrong = own - axes_of(dims) - manual
        if wrong:
            fail(f"Result {i} may differ between devices along {sorted(map(str, wrong))}, but is split as {dims}.")
    for axis in sizes:
        if axis not in manual:
            check_readings(jaxpr, in_dims, out_dims, axis, [axis in own for own in terms])
    for i, (v, t, dims) in enumerate(zip(jaxpr.outvars, results, out_dims, strict=True)):
        local: Any = v.aval
        if isinstance(t, ArrayType) and local.shape != local_shape(t.shape, dims, sizes):
            fail(f"Result {i} is {local.short()}, where a part of {t.short()}, split as {dims}, is wanted.")


def check_readings(
    jaxpr: Jaxpr, in_dims: Sequence[Dims], out_dims: Sequence[Dims], axis: Any, terms: Sequence[bool] = ()
) -> None:
    """Check that along an axis all values are parts of something, and results those that are wanted; those marked in
    `terms` are terms of a sum."""
    pairs = zip(jaxpr.invars, in_dims, strict=True)
    arguments = [frozenset({reading_of(d, axis)}) if isinstance(v.aval, ArrayType) else None for v, d in pairs]
    try:
        found = Reader(axis).results(jaxpr, arguments)
    except UnreadableError as error:
        fail(str(error), error.equation)
    for i, (readings, dims) in enumerate(zip(found, out_dims, strict=True)):
        wanted = reading_of(dims, axis)
        if not fits(readings, wanted) and not (i < len(terms) and terms[i] and fits(readings, SUM)):
            told = described(frozenset({wanted}))
            fail(f"Along {axis!r} result {i} is {described(readings)}, where {told} is wanted.")


def differences(jaxpr: Jaxpr, arguments: Sequence[Axes], manual: Axes = NOWHERE) -> list[Axes]:
    """The axes along which each result may differ between devices. Where devices meet along `manual` axes is the user's
    affair."""
    known: dict[Var, Axes] = dict(zip(jaxpr.invars, arguments, strict=True))

    def of(atom: Atom) -> Axes:
        return known.get(atom, NOWHERE) if type(atom) is Var else NOWHERE

    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if primitive.higher_order and any(True for _ in subjaxprs(equation.params)):
            results = through_bodies(equation, [of(a) for a in equation.invars], manual)
        else:
            own = primitive.varies(NOWHERE.union(*map(of, equation.invars)), equation.params)
            results = [own] * len(equation.outvars)
        known.update(zip(equation.outvars, results, strict=True))
    return [of(a) for a in jaxpr.outvars]


def through_bodies(equation: Equation, operands: Sequence[Axes], manual: Axes) -> list[Axes]:
    """The same for a loop or a branch: carries are looked at until nothing changes."""
    primitive: Any = equation.primitive
    carried = primitive.body_map(equation.params)
    arguments = [[NOWHERE if i is None else operands[i if i >= 0 else ~i] for i in own] for own in carried.arguments]
    used = {i if i >= 0 else ~i for own in carried.arguments for i in own if i is not None}
    decides = NOWHERE.union(*(axes for i, axes in enumerate(operands) if i not in used))
    while True:
        results = [differences(b, own, manual) for b, own in zip(carried.bodies, arguments, strict=True)]
        before = [list(own) for own in arguments]
        for b, argument, result in carried.carries:
            operand = carried.arguments[b][argument]
            for k, own in enumerate(carried.arguments):  # a carry is an argument of all bodies that have this operand
                if operand is None and k != b:
                    continue
                for j, i in enumerate(own):
                    if i == operand and (operand is not None or j == argument):
                        arguments[k][j] = arguments[k][j] | results[b][result]
        if arguments == before:
            break
    decides = decides.union(*(axes for b in carried.predicates for axes in results[b]))
    meeting = {a for body in carried.bodies for a in named_axes(body) if a not in manual}
    if meeting & decides:
        fail(
            f"Devices meet along {sorted(map(str, meeting & decides))} in {primitive.name}, whose predicate may differ"
            " between them: some would wait for ever.",
            equation,
        )
    return [decides.union(*(results[b][i] for b, i, _ in sources)) for sources in carried.results]


def named_axes(jaxpr: Jaxpr) -> Iterator[Any]:
    """The axes that devices meet along, in bodies too."""
    for equation in jaxpr.eqns:
        if equation.invars:  # to know the own position nobody is needed
            yield from equation.primitive.named_axes(equation.params)
        for body in subjaxprs(equation.params):
            yield from named_axes(body)


def manual_axes(jaxpr: Jaxpr) -> Axes:
    """The axes that `shard_map`s of a jaxpr are over."""
    own = NOWHERE.union(*(e.params["manual_axes"] for e in jaxpr.eqns if e.primitive is shard_map))
    return own.union(*(manual_axes(body) for e in jaxpr.eqns for body in subjaxprs(e.params)))
