"""How the values of a local jaxpr can be read as parts of whole ones: an abstract interpretation of it, one mesh axis
at a time, that knows nothing of how the jaxpr was made.

Along an axis, what a device has may be the whole value, or its part along a dimension, or a term of a sum (or of
another reduction). A value can have several *readings*: what was broadcast is its own part along the new dimension too.
An operation has the readings that its axis factors give it for those of its operands, a collective turns one into
another, and what depends on the position of the device in a way that is not known can be anything (None). A value
without any reading is an error: somebody forgot to communicate, or communicated along another dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.partition.carries import is_zero
from weft.compiler.partition.rules import COMBINED, Dims, Rule, Rules
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.kinds import ManualCast
from weft.ir.types import ArrayType
from weft.primitives.elementwise.rounding import reduce_precision


class Reading(NamedTuple):
    """`kind` is "whole", "part", or the reduction that is still to be done. A part is along `dim`; the axes in `minor`
    split the same dimension further (None: whichever do)."""

    kind: str
    dim: int = -1
    minor: frozenset[Any] | None = frozenset()


WHOLE = Reading("whole")
SUM = Reading("sum")
Readings = frozenset[Reading] | None  # None: anything
ONLY_WHOLE: Readings = frozenset({WHOLE})
ZERO: Readings = frozenset({WHOLE, SUM})  # zeros are the terms of zero too
NOTHING: frozenset[Reading] = frozenset()


class UnreadableError(Exception):
    """An equation whose results are parts of nothing."""

    def __init__(self, equation: Equation | None, text: str) -> None:
        super().__init__(text)
        self.equation = equation


def reading_of(dims: Dims, axis: Any) -> Reading:
    """What a value is along an axis that is split as `dims`."""
    for d, axes in enumerate(dims):
        if axis in axes:
            return Reading("part", d, frozenset(axes[axes.index(axis) + 1 :]))
    return WHOLE


def fits(readings: Readings, wanted: Reading) -> bool:
    """Whether one of the readings is the one that is wanted."""
    return readings is None or any(merged(r, wanted) is not None for r in readings)


def merged(one: Reading, other: Reading) -> Reading | None:
    """The reading that two have in common, if there is one."""
    if one[:2] != other[:2]:
        return None
    if one.minor is None or other.minor is None or one.minor == other.minor:
        return one if other.minor is None else other
    return None


def common(one: Readings, other: Readings) -> Readings:
    """The readings that two values have in common."""
    if one is None or other is None:
        return None
    return frozenset(m for a in one for b in other if (m := merged(a, b)) is not None)


def own_part(equation: Equation, defined: Mapping[Var, Equation]) -> tuple[Any, int] | None:
    """The axis and the dimension of a slice that is the own part of a device along it."""
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
    """The axis along which an equation selects a value on the first device and zeros elsewhere, if it does."""
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


class Reader:
    """The readings of all values of a jaxpr along one axis."""

    def __init__(self, axis: Any) -> None:
        self.axis = axis
        self.rules = Rules()

    def results(self, jaxpr: Jaxpr, arguments: Sequence[Readings]) -> list[Readings]:
        """The readings of results for those of arguments."""
        known: dict[Var, Readings] = dict(zip(jaxpr.invars, arguments, strict=True))
        known.update(dict.fromkeys(jaxpr.constvars, ONLY_WHOLE))
        defined: dict[Var, Equation] = {}

        def of(atom: Atom) -> Readings:
            if type(atom) is Var:
                return known[atom]
            return ONLY_WHOLE if type(atom) is not Literal or np.any(np.asarray(atom.val)) else ZERO

        for equation in jaxpr.eqns:
            operands = [of(a) for a in equation.invars]
            found = self.equation(equation, operands, defined)
            for v, readings in zip(equation.outvars, found, strict=True):
                if readings is not None and not readings and isinstance(v.aval, ArrayType):
                    told = ", ".join(map(described, operands))
                    raise UnreadableError(equation, f"Along {self.axis!r} its operands are {told}.")
                known[v] = readings if isinstance(v.aval, ArrayType) else None
            defined.update(dict.fromkeys(equation.outvars, equation))
        return [of(a) for a in jaxpr.outvars]

    def equation(
        self, equation: Equation, operands: Sequence[Readings], defined: Mapping[Var, Equation]
    ) -> list[Readings]:
        primitive = equation.primitive
        count = len(equation.outvars)
        if primitive.higher_order and any(True for _ in subjaxprs(equation.params)):
            begun = [self.begun(a, r, defined) for a, r in zip(equation.invars, operands, strict=True)]
            return self.control(equation, begun)
        part = own_part(equation, defined)
        if part is not None and operands[0] is not None:
            return [self.sliced(operands[0], *part)]
        if any(r is None for r in operands) or isinstance(primitive, ManualCast):
            return [None] * count
        sets = [r for r in operands if r is not None]
        named = primitive.named_axes(equation.params)
        if named and not equation.invars:
            return [None if self.axis in named else ONLY_WHOLE] * count
        if named:
            return [self.collective(equation, named, sets[0])] * count
        return self.operation(equation, sets)

    def sliced(self, operand: frozenset[Reading], axis: Any, dim: int) -> Readings:
        """The own part of a device along an axis: what is sliced is whole along it."""
        if axis == self.axis:
            return only(Reading("part", dim), WHOLE in operand)
        return frozenset(with_minor(r, dim, axis) for r in operand)

    # -- operations ---------------------------------------------------------------------------------------------------

    def operation(self, equation: Equation, operands: Sequence[frozenset[Reading]]) -> list[Readings]:
        primitive, rule, count = equation.primitive, self.rules[equation], len(equation.outvars)
        if primitive.name == "reshape":
            return [frozenset(reshaped(equation, operands[0]))]
        for a, readings, names in zip(equation.invars, operands, rule.operand_names, strict=True):
            sizes: Any = getattr(a.aval, "shape", ())
            for r in readings:
                # The operation on parts handles that by itself, or data movement is a piece of one that does. One
                # element, of a window say, is as good as a dimension of which nobody would know the factor.
                if r.kind == "part" and (
                    names[r.dim] in rule.inside or (names[r.dim] is None and (primitive.copies or sizes[r.dim] == 1))
                ):
                    return [None] * count
        found: list[set[Reading]] = [set() for _ in range(count)]
        if all(WHOLE in r for r in operands):
            for own in found:
                own.add(WHOLE)
            if count:
                found[0].update(Reading("part", d, None) for d in constant_dims(equation))
        if is_sum(equation, operands):
            for own in found:
                own.add(SUM)
        for factor in rule.dims:
            if factor not in rule.inside:
                self.along(factor, rule, operands, found)
        return [frozenset(own) for own in found]

    def along(
        self, factor: str, rule: Rule, operands: Sequence[frozenset[Reading]], found: Sequence[set[Reading]]
    ) -> None:
        """Add the readings of results that follow from those of operands as parts along a factor."""
        minors: list[Reading] = [Reading("part", 0, None)]
        for readings, names in zip(operands, rule.operand_names, strict=True):
            if factor not in names:
                if WHOLE not in readings:
                    return
                continue
            dim = names.index(factor)
            own = [Reading("part", 0, r.minor) for r in readings if r.kind == "part" and r.dim == dim]
            minors = [m for a in minors for b in own if (m := merged(a, b)) is not None]
        if not any(factor in names for names in rule.operand_names):
            return
        for part in minors:
            for names, own_results in zip(rule.result_names, found, strict=True):
                if factor in names:
                    own_results.add(Reading("part", names.index(factor), part.minor))
                elif rule.combine.get(factor) in COMBINED:
                    own_results.add(Reading(rule.combine[factor]))

    # -- collectives --------------------------------------------------------------------------------------------------

    def collective(self, equation: Equation, named: Iterable[Any], operand: frozenset[Reading]) -> Readings:
        name, params = equation.primitive.name, equation.params
        own = self.axis in named
        if params.get("axis_index_groups") is not None:
            return NOTHING if own else None  # groups are the user's, along manual axes
        if name in ("psum", "pmax", "pmin"):
            return only(WHOLE, Reading(name[1:]) in operand) if own else operand
        if name == "all_gather" and params["tiled"]:
            dim = params["all_gather_dimension"]
            if own:
                return only(WHOLE, fits(operand, Reading("part", dim)))
            return frozenset(r for s in operand if (r := without_minor(s, dim, params["axis_name"])) is not None)
        if name == "reduce_scatter" and params["tiled"]:
            dim = params["scatter_dimension"]
            if own:
                return only(Reading("part", dim), SUM in operand)
            return frozenset(with_minor(r, dim, params["axis_name"]) for r in operand)
        if name == "all_to_all":
            return self.exchanged(operand, own, params["split_axis"], params["concat_axis"])
        return None

    def exchanged(self, operand: frozenset[Reading], own: bool, split: int, concat: int) -> Readings:
        """The dimension that is split goes to the devices; what arrives is in front of the one that was split."""
        after = lambda d: d - (d > split)
        if own:
            wanted = concat + (concat >= split)
            return only(Reading("part", split + (split >= concat)), fits(operand, Reading("part", wanted)))
        found: set[Reading] = set()
        for r in operand:
            if r.kind != "part":
                found.add(r)
            elif r.dim == split or after(r.dim) == concat:
                return None  # split over this axis too: which part it is now depends on the order of the axes
            else:
                found.add(r._replace(dim=after(r.dim) + (after(r.dim) >= concat)))
        return frozenset(found)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def begun(self, a: Atom, readings: Readings, defined: Mapping[Var, Equation]) -> Readings:
        """What an operand of a loop is: a value on the first device and zeros elsewhere are the terms of a sum."""
        equation = defined.get(a) if type(a) is Var else None
        return frozenset({SUM}) if equation is not None and self.axis in on_first(equation, defined) else readings

    def control(self, equation: Equation, operands: Sequence[Readings]) -> list[Readings]:
        """A loop or a branch: carries have the readings that they have before and after every iteration."""
        primitive: Any = equation.primitive
        carried = primitive.body_map(equation.params)
        arguments = [
            [ONLY_WHOLE if i is None else operands[i] if i >= 0 else shifted(operands[~i], -1) for i in own]
            for own in carried.arguments
        ]
        used = {i if i >= 0 else ~i for own in carried.arguments for i in own if i is not None}
        decides = [r for i, r in enumerate(operands) if i not in used]
        while True:
            results = [self.results(b, own) for b, own in zip(carried.bodies, arguments, strict=True)]
            before = [list(own) for own in arguments]
            for b, argument, result in carried.carries:
                operand = carried.arguments[b][argument]
                for k, own in enumerate(carried.arguments):  # a carry is an argument of all bodies with this operand
                    for j, i in enumerate(own):
                        if (k, j) == (b, argument) or (operand is not None and i == operand):
                            arguments[k][j] = common(arguments[k][j], results[b][result])
            if arguments == before:
                break
        for readings in (*decides, *(r for b in carried.predicates for r in results[b])):
            if not fits(readings, WHOLE):
                raise UnreadableError(equation, f"Along {self.axis!r} what decides is {described(readings)}.")
        if any(r is None for r in (*decides, *(r for b in carried.predicates for r in results[b]))):
            return [None] * len(equation.outvars)
        outs: list[Readings] = []
        for sources in carried.results:
            found: Readings = None
            for k, (b, i, stacked) in enumerate(sources):
                one = shifted(results[b][i], 1) if stacked else results[b][i]
                found = one if k == 0 else common(found, one)
            outs.append(found)
        return outs


def constant_dims(equation: Equation) -> list[int]:
    """The dimensions along which a result is the same by what the operation is: new ones of a broadcast, and those that
    do not count. So each of its parts along them is like any other."""
    params = equation.params
    if equation.primitive.name == "iota":
        return [d for d in range(len(params["shape"])) if d != params["dimension"]]
    if equation.primitive.name != "broadcast_in_dim":
        return []
    operand: Any = equation.invars[0].aval
    sizes = dict(zip(params["broadcast_dimensions"], operand.shape, strict=True))
    return [d for d, size in enumerate(params["shape"]) if d not in sizes or sizes[d] != size]


def reshaped(equation: Equation, operand: frozenset[Reading]) -> Iterator[Reading]:
    """A part along a dimension is one along the dimension that begins where it does."""
    before = lambda v: [math.prod(v.aval.shape[:d]) for d in range(len(v.aval.shape))]
    starts, ends = before(equation.invars[0]), before(equation.outvars[0])
    for r in operand:
        if r.kind != "part":
            yield r
        elif equation.params.get("dimensions") is None:
            yield from (r._replace(dim=d) for d, start in enumerate(ends) if start == starts[r.dim])


def is_sum(equation: Equation, operands: Sequence[frozenset[Reading]]) -> bool:
    """Whether results are terms of a sum: the operation is linear in operands that are, jointly or in one of them."""
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
    if not linear or not all(WHOLE in r for r in others):
        return False
    terms = [i for i in linear if SUM in operands[i]]
    if primitive.multilinear:
        return any(all(WHOLE in operands[k] for k in linear if k != i) for i in terms)
    return len(terms) == len(linear)


def only(reading: Reading, holds: bool) -> Readings:
    return frozenset({reading}) if holds else NOTHING


def with_minor(reading: Reading, dim: int, axis: Any) -> Reading:
    """A reading of a value that is split further along a dimension."""
    if reading.kind != "part" or reading.dim != dim or reading.minor is None:
        return reading
    return reading._replace(minor=reading.minor | {axis})


def without_minor(reading: Reading, dim: int, axis: Any) -> Reading | None:
    """A reading of a value that is gathered along a dimension: the axis must have been the minor one."""
    if reading.kind != "part" or reading.dim != dim or reading.minor is None:
        return reading
    return reading._replace(minor=reading.minor - {axis}) if axis in reading.minor else None


def shifted(readings: Readings, by: int) -> Readings:
    """The readings of a slice along the first dimension (-1), or of what is stacked along a new one (1)."""
    if readings is None:
        return None
    return frozenset(
        r._replace(dim=r.dim + by) if r.kind == "part" else r for r in readings if r.kind != "part" or r.dim + by >= 0
    )


def described(readings: Readings) -> str:
    """Readings in words."""
    if readings is None:
        return "anything"
    texts = {"whole": "whole", "part": "a part of dimension {}"}
    told = {texts.get(r.kind, f"a term of a {r.kind}").format(r.dim) for r in readings}
    return " or ".join(sorted(told)) or "nothing"
