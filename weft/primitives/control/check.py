"""Checks of values at run time, and their errors. `docs/design/checks.md` has the design.

User functions bind `check`, and the compiler replaces it by `trap`. Neither has results; both have an effect, so they
are not dead code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.compile_options import CompileOptions
from weft.base.errors import (
    FailedCheckError,
    IntegerDivisionError,
    NonFiniteValueError,
    OutOfBoundsIndexError,
    WeftError,
)
from weft.base.settings import config
from weft.base.source import Location
from weft.ir.context import EVALUATION, context, current_line, current_source
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.ir.primitive import Axis, Params, Primitive, primitive
from weft.ir.types import ArrayType, Type, get_aval
from weft.primitives.control.failures import Sites
from weft.primitives.movement.shape import move_batch_to_front

CHECK = "Check"
"""The effect of checks."""
_EFFECTS: frozenset[Any] = frozenset({CHECK})
# An iteration of a loop around a check: the name of the loop, and the number of the iteration.
Iteration = tuple[str, int]


class CheckedValue(NamedTuple):
    """Value that is tested for nan or inf: the kind, the operation and the index of its result, and the line; `lanes`
    name the mapped axes of its leading dimensions."""

    kind: str
    operation: str
    result: int
    source: Location | None
    lanes: tuple[str, ...]


class FlagRaised(Exception):
    """The flag for all checks of compiled code is set. The caller then runs the code with traps, which raises the
    user's error."""


class Flags(NamedTuple):
    """Encoding of a value and one of its elements as a number. Both are counted from the end, starting at 1: there are
    `values` values of `rows` rows with `size` elements. The greatest flag belongs to the first bad row, and there to
    the first bad value."""

    values: int
    rows: int
    size: int

    @property
    def row(self) -> int:
        """Upper bound of the flags within one row."""
        return (self.values + 1) * (self.size + 1)

    @property
    def most(self) -> int:
        """Upper bound of the flags."""
        return (self.rows + 1) * self.row

    def read(self, flag: int) -> tuple[int, int]:
        """Return the index of the value, and that of the element."""
        rows_left, flag = divmod(flag, self.row)
        back, left = divmod(flag, self.size + 1)
        return self.values - back, (self.rows - max(rows_left, 1)) * self.size + self.size - left


class MappedAxis(str):
    """Name of a mapped axis on the name stack of an equation, with its size."""

    __slots__ = ("size",)

    size: Any

    @staticmethod
    def of(name: str, size: Any) -> MappedAxis:
        axis = MappedAxis(name)
        axis.size = size
        return axis


# -------------------------------------------------------------------------------------------------------------- asking


def needs_checks() -> bool:
    """Return whether operations bound now are checked: always, or with the setting "eager" if they run at once."""
    if config.checks != "eager":
        return config.checks == "all"
    trace: Any = context.trace
    while trace is not EVALUATION:
        if trace is None or hasattr(trace, "equations"):  # it is recorded, to be compiled
            return False
        trace = getattr(trace, "parent", None)
    return True


def check_index(index: Any, axis: int, shape: Sequence[Any], low: int, high: int, window: int = 1) -> None:
    """Bind a check that an index into an axis of an array of `shape` is from `low` to `high`; `window` elements are
    read or written from there on."""
    if needs_checks() and type(high) is int and type(low) is int:
        about = (axis, tuple(shape), window)
        _bind(index, {"kind": "index", "low": low, "high": high, "about": about, "lanes": ()})


def check_divisor(divisor: Any) -> None:
    """Bind a check that no element of an integer divisor is 0, under "all". Otherwise a division by 0 has a documented
    result."""
    if config.checks == "all" and dtypes.kind(get_aval(divisor).dtype) in "iu":  # type: ignore[attr-defined]
        _bind(divisor, {"kind": "divisor", "low": 0, "high": 0, "about": (), "lanes": ()})


def check_failures(holds: Any, code: Any, values: Sequence[Any], sites: Sites, debug: bool = False) -> None:
    """Bind a check of a user's condition, whatever the settings are: where it does not hold, the error is that of the
    site with `code`. A check for debugging counts only where errors are functionalised."""
    kind = "debug" if debug else "user"
    check(holds, code, *values, kind=kind, low=0, high=0, about=sites, lanes=())


def split_operands(operands: Sequence[Any], params: Params) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """Split the operands of a check into the value, the values of the message (the code of a site, and values), and
    masks."""
    count = 1 + len(params["about"].types) if params["kind"] in ("user", "debug") else 0
    return operands[0], operands[1 : 1 + count], operands[1 + count :]


def _bind(value: Any, params: Params) -> None:
    if isinstance(value, (int, np.ndarray, np.generic)):  # known while tracing: the check is bound only if it fails
        array = np.asarray(value)
        if not find_bad(array, **params).any():
            return
        value = array
    if get_aval(value).size:  # type: ignore[attr-defined]
        check(value, **params)


def can_flag(jaxpr: Jaxpr, options: CompileOptions) -> bool:
    """Return whether a jaxpr may run with one flag for all its checks: it has checks and no other effects, so it can
    run a second time to find the failure. Infinities may vanish in later results, so checks for them test each
    value."""
    if options.debug_infs or not jaxpr.effects <= _EFFECTS:
        return False
    return options.tests_values or CHECK in jaxpr.effects


def writes_in_place(jaxpr: Jaxpr) -> bool:
    """Return whether a jaxpr updates parts of arrays: then the memory that it may write to matters."""
    return jaxpr.memoize("writes in place", lambda: _updates(jaxpr))


def _updates(jaxpr: Jaxpr) -> bool:
    names = (e.primitive.name for e in jaxpr.eqns)
    if any(name == "dynamic_update_slice" or name.startswith("scatter") for name in names):
        return True
    return any(writes_in_place(inner) for e in jaxpr.eqns for inner in subjaxprs(e.params))


# ---------------------------------------------------------------------------------------------------- the primitives


def find_bad(value: np.ndarray, *active: np.ndarray, kind: str, low: int, high: int, **params: Any) -> np.ndarray:
    """Return a mask of the elements that fail the check; `active` masks the lanes that count."""
    if kind in ("user", "debug"):
        outside = ~value & (kind == "user")
    else:
        outside = value == 0 if kind == "divisor" else (value < low) | (value > high)
    for mask in active:
        outside = outside & np.asarray(mask).reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
    return outside


class Check(Primitive):
    """Base of `check` and `trap`."""

    multiple_results = True
    types_placement = True  # they have no results

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return _EFFECTS

    def jvp(self, tangents: Any, out: Any, *args: Any, **params: Any) -> list[Any]:
        return []

    def samples(self) -> Any:
        return iter(())  # they have no results; the tests of checks cover them


@primitive
class check(Check):
    """Raise unless all elements of an integer array are from `low` to `high` (or, as divisors, not 0; or, as conditions
    of the user's, true).

    `lanes` are the names of the mapped axes of the leading dimensions, outermost first. After the value come, for a
    condition, the code of the site that reports it and the values that its message shows. A last operand says which
    lanes count; its shape is a prefix of that of the lanes.
    """

    def type(
        self, value: ArrayType, *others: ArrayType, kind: str, low: int, high: int, about: Any, lanes: Any
    ) -> list[Type]:
        return []

    def eval(self, value: Any, *others: Any, **params: Any) -> list[Any]:
        error = failure(np.asarray(value), *others, **params)
        if error is not None:
            raise error
        return []

    def batch(self, axis: Axis, args: Any, dims: Any, *, lanes: tuple[Any, ...], **params: Any) -> tuple[Any, Any]:
        value, shown, active = split_operands([*zip(args, dims, strict=True)], params)
        front = [move_batch_to_front(a, d, axis) for a, d in (value, *shown)]
        masks = [
            a if d is None and not get_aval(a).shape else move_batch_to_front(a, d, axis)  # type: ignore[attr-defined]
            for a, d in active
        ]
        name = None if axis.name is None else str(axis.name)
        return check(*front, *masks, lanes=(name, *lanes), **params), []


@primitive
class trap(Check):
    """End the run if the flag, a bool or an integer, is greater than 0.

    For a check, `recipe` computes its operands from the other operands. For the kind "number" the only operand is the
    flag, which encodes, by `flags`, the value of `shape` in `made` and the element of it that is nan or inf. For the
    kind "any" it is one flag for all checks of a jaxpr.
    """

    def type(self, flag: ArrayType, *operands: ArrayType, **params: Any) -> list[Type]:
        return []

    def eval(self, flag: Any, *operands: Any, **params: Any) -> list[Any]:
        error = make_error(flag, *operands, iterations=(), **params)
        if error is not None:
            raise error
        return []


# ---------------------------------------------------------------------------------------------------------- the errors


def make_error(flag: Any, *operands: Any, iterations: Sequence[Iteration], **params: Any) -> Exception | None:
    """Return the error with which a trap ends the run, or None if it does not."""
    if not flag:
        return None
    if params["kind"] == "any":
        return FlagRaised()
    if params["kind"] == "number":
        return make_nonfinite_error(int(flag), params["shape"], params["flags"], params["made"], iterations)
    values = params.pop("recipe")(*operands)
    return failure(*(np.asarray(a) for a in values), iterations=iterations, **params)


def failure(value: np.ndarray, *others: Any, iterations: Sequence[Iteration] = (), **params: Any) -> WeftError | None:
    """Return the error of a check of an array, or None if it holds."""
    _, shown, active = split_operands((value, *others), params)
    wrong = find_bad(value, *active, **params)
    if not wrong.any():
        return None
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), value.shape))
    lanes, inner = position[: len(params["lanes"])], position[len(params["lanes"]) :]
    context_lines = describe_context(list(zip(params["lanes"], lanes, strict=True)), iterations)
    if params["kind"] == "user":
        code, *values = (np.asarray(v)[lanes] for v in shown)
        sites: Sites = params["about"]
        received = "\n".join(context_lines) or None
        at = sites.sites[int(code) - 1].at or current_line()
        return FailedCheckError(sites.message(int(code), values), received=received, at=at)
    own = value.shape[len(lanes) :]
    many = f" at {list(inner)} of {dtypes.name(value.dtype)}{list(own)}" if own else ""
    if params["kind"] == "divisor":
        return IntegerDivisionError(
            "An integer is divided by zero.",
            received="\n".join([f"0 as the divisor{many}", *context_lines]),
            fix="where(d == 0, 1, d)   as the divisor, with the result chosen for 0 afterwards",
            at=current_line(),
        )
    axis, shape, window = params["about"]
    index, into = int(value[position]), f"axis {axis} of an array of shape {list(shape)}"
    if window == 1:
        what = f"Index {index} is out of bounds for {into}."
    else:
        what = f"Index {index} is out of bounds: {window} elements from there on do not fit into {into}."
    count = int(wrong.sum())
    more = f", the first of {count} that are out of bounds" if count > 1 else ""
    return OutOfBoundsIndexError(
        what,
        received="\n".join([f"index {index}{many}{more}", *context_lines]),
        fix="x.at[i].get(mode='clip') or mode='fill', x.at[i].set(v, mode='drop')   if it is meant",
        at=current_line(),
    )


def make_nonfinite_error(
    flag: int, shape: tuple[int, ...], flags: Flags, values: Sequence[CheckedValue], iterations: Sequence[Iteration]
) -> WeftError:
    """Return the error for the nan or infinity that a flag encodes."""
    which, element = flags.read(flag) if shape else (len(values) - flag, 0)
    value = values[which]
    position = tuple(int(i) for i in np.unravel_index(element, shape)) if shape else ()
    lines = describe_context(list(zip(value.lanes, position, strict=False)), iterations)
    where = f"in result {value.result} of " + (f"`{value.operation}`" if value.operation else "the program")
    first = f", the first at index {position} of shape {shape}" if shape else ""
    source = value.source or current_source()
    return NonFiniteValueError(
        f"{value.kind} {where}{first}.",
        received="\n".join(lines) or None,
        at=None if source is None else source.describe(),
    )


def describe_context(lanes: Sequence[tuple[str | None, int]], iterations: Sequence[Iteration]) -> list[str]:
    """Return lines that name the iterations of loops and the elements of batches in which a check failed."""
    lines = [f"in iteration {iteration} of {loop}" for loop, iteration in iterations]
    for name, lane in lanes:
        mapped = "vmap" if name is None else name if name.startswith("vmap") else f"vmap over {name!r}"
        lines.append(f"in lane {lane} of {mapped}")
    return lines


# ------------------------------------------------------------------------------------------------------ without checks


def without_checks(equation: Equation) -> Equation:
    """Remove the checks from the sub-jaxprs of an equation."""
    params = {name: _each_jaxpr(value, drop_checks) for name, value in equation.params.items()}
    effects = equation.primitive.effects([a.aval for a in equation.invars], params)
    return equation.replace(params=params, effects=effects)


def drop_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Remove the checks from a jaxpr."""
    if CHECK not in jaxpr.effects:
        return jaxpr
    remaining = [e for e in jaxpr.eqns if e.primitive is not check]
    return jaxpr.replace(eqns=[without_checks(e) if CHECK in e.effects else e for e in remaining])


def _each_jaxpr(value: Any, change: Callable[[Jaxpr], Jaxpr]) -> Any:
    if isinstance(value, Jaxpr):
        return change(value)
    if type(value) is tuple and any(isinstance(v, Jaxpr) for v in value):
        return tuple(change(v) if isinstance(v, Jaxpr) else v for v in value)
    return value
