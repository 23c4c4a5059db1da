"""Emitter of jaxprs: rules by primitive, the environment of values, keys as arrays of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError
from weft.base.source import Location
from weft.compiler.target.stablehlo.types import UINT32
from weft.compiler.target.stablehlo.writer import Shape, Value, Writer
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.ir.primitive import Params, Primitive, lookup
from weft.ir.registry import is_builtin
from weft.ir.types import ArrayType, Type, array_type
from weft.primitives.control.callback import Callback
from weft.primitives.control.check import Check

# A random key is an array for each of its words, every other value is one array.
Parts = tuple[Value, ...]


class Site(NamedTuple):
    """Facts of the equation that a rule writes: parameters, types of its results, and its line."""

    primitive: Primitive
    params: Params
    results: tuple[tuple[Shape, Any], ...]
    source: Location | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the first result."""
        return self.results[0][0]

    @property
    def dtype(self) -> Any:
        """Dtype of the first result."""
        return self.results[0][1]


Rule = Callable[..., Any]
# Rules take the emitter, the site and the values of the operands, and return the value of the result, or several.
RULES: dict[str, Rule] = {}
# Rules of operations on keys and of control flow: they take and return tuples of values for each operand and result.
PART_RULES: dict[str, Rule] = {}
# Which equations of a primitive a rule is for, where it is not for all; the others have a definition.
CONDITIONS: dict[str, Callable[[Equation], bool]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives of these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def part_rule(*names: str, when: Callable[[Equation], bool] | None = None) -> Callable[[Rule], Rule]:
    """Register a rule that takes and returns the parts of every value, for the equations that `when` accepts."""

    def register(function: Rule) -> Rule:
        PART_RULES.update(dict.fromkeys(names, function))
        if when is not None:
            CONDITIONS.update(dict.fromkeys(names, when))
        return function

    return register


def has_rule(equation: Equation) -> bool:
    """Return whether an equation is written as it is; any other needs a definition."""
    name = equation.primitive.name
    if not (name in RULES or name in PART_RULES) or not is_builtin(equation.primitive):
        return False
    condition = CONDITIONS.get(name)
    return condition is None or condition(equation)


def reason_and_fix(site: Site) -> tuple[str, str]:
    """Return why a primitive has no equivalent in StableHLO, and the way around it."""
    primitive = site.primitive
    if isinstance(primitive, Callback):
        return "it calls back into Python", "return the values, and pass them to the callback outside of the program"
    if isinstance(primitive, Check):
        return "it stops the program", "weft.checkify.checkify(f), which returns the error as a value"
    return "it is neither an operation there nor defined by some", "compute it outside of the program"


TAPES = (
    "reverse mode through a loop without a bound has a record of unknown size",
    "lax.scan, or lax.fori_loop with a constant number of steps, whose derivative is a scan",
)


def support_error(what: str, reason: str, fix: str, source: Location | None) -> NotSupportedError:
    """Create the error for an operation that StableHLO cannot say; the caller raises it."""
    return NotSupportedError(
        f"Every operation of a program in StableHLO must have an equivalent there; `{what}` has none: {reason}.",
        received=what,
        fix=fix,
        at=None if source is None else source.describe(),
    )


def count_key_data(dtype: Any) -> int | None:
    """Return the number of 32-bit words of a key, or None for numbers."""
    return dtype.key_shape[0] if dtypes.kind(dtype) == "k" else None


def static_shape(aval: Type, source: Location | None = None) -> Shape:
    """Return the shape of an array type, whose sizes must be known."""
    if not isinstance(aval, ArrayType):
        raise support_error(aval.short(), *TAPES, source)
    sizes = tuple(size for size in aval.shape if isinstance(size, int))
    if len(sizes) != len(aval.shape):
        raise support_error(aval.short(), "its sizes are symbols", "emit one module for each size", source)
    return sizes


def part_types(aval: Type, source: Location | None = None) -> list[tuple[Shape, Any]]:
    """Return the shape and dtype of each part of a value."""
    shape = static_shape(aval, source)
    count = count_key_data(aval.dtype)  # type: ignore[attr-defined]
    return [(shape, aval.dtype)] if count is None else [(shape, UINT32)] * count  # type: ignore[attr-defined]


class Emitter(Writer):
    """Writer of the equations of a jaxpr. `device_count` devices run the program, on which the named axes `axes`
    are laid out in this order."""

    def __init__(self, device_count: int = 1, axes: Mapping[Any, int] | None = None) -> None:
        super().__init__()
        self.device_count = device_count
        self.axes = dict(axes or {})
        self._values: dict[Any, Parts] = {}

    # -- equations -------------------------------------------------------------------------------------------------

    def read(self, atom: Atom, shape: Shape = ()) -> Parts:
        """Return the parts of a variable, or a literal as an array of a shape."""
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return (self.full(np.asarray(atom.val, aval.dtype), shape, aval.dtype),)
        return self._values[atom]

    def body(self, jaxpr: Jaxpr, arguments: Sequence[Parts]) -> list[Parts]:
        """Write the equations of a jaxpr and return its results."""
        values = self._values
        values.update(zip(jaxpr.constvars, map(self.constant_parts, jaxpr.constvars, jaxpr.consts), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            self.equation(equation)
        return [self.read(a) for a in jaxpr.outvars]

    def constant_parts(self, var: Any, value: Any) -> Parts:
        """Return a constant of a jaxpr: for a key, its words."""
        array = np.asarray(getattr(value, "_value", value))
        count = count_key_data(var.aval.dtype)
        if count is None:
            return (self.constant(array.astype(var.aval.dtype, copy=False)),)
        data = var.aval.dtype.physical(array)
        return tuple(self.constant(np.ascontiguousarray(data[..., i])) for i in range(count))

    def equation(self, equation: Equation) -> None:
        """Write one equation."""
        primitive, name, source = equation.primitive, equation.primitive.name, equation.source
        results = [part_types(v.aval, source) for v in equation.outvars]
        # A number beside arrays is written as an array.
        shape = results[0][0][0] if primitive.pointwise and results else ()
        operands = [self.read(a, shape) for a in equation.invars]
        found = PART_RULES.get(name)
        if found is not None:
            site = Site(primitive, equation.params, tuple(r for parts in results for r in parts), source)
            outs: list[Parts] = list(found(self, site, equation, *operands))
        else:
            # An operation that moves keys moves each of their words.
            count = max([len(parts) for parts in (*operands, *results)], default=1)
            columns = []
            for i in range(count):
                site = Site(primitive, equation.params, tuple(r[i] if len(r) > 1 else r[0] for r in results), source)
                columns.append(self.apply_rule(site, [p[i] if len(p) > 1 else p[0] for p in operands]))
            outs = [tuple(column[k] for column in columns[: len(parts)]) for k, parts in enumerate(results)]
        self._values.update(zip(equation.outvars, outs, strict=True))

    def apply_rule(self, site: Site, operands: Sequence[Value]) -> list[Value]:
        """Write an operation by the rule of its primitive; broadcast scalars if it is pointwise."""
        found = RULES.get(site.primitive.name)
        if found is None:
            raise support_error(site.primitive.name, *reason_and_fix(site), site.source)
        if site.primitive.pointwise and site.results:
            operands = [self.broadcast(x, site.shape) if not x.shape else x for x in operands]
        result = found(self, site, *operands)
        return [result] if isinstance(result, Value) else list(result)

    def apply(self, name: str, *operands: Value, **params: Any) -> Value:
        """Write the primitive of a name applied to values."""
        primitive = lookup(name)
        aval = primitive.type(*(array_type(x.shape, x.dtype) for x in operands), **params)
        return self.apply_rule(Site(primitive, params, ((aval.shape, aval.dtype),)), operands)[0]


def flatten(parts: Sequence[Parts]) -> list[Value]:
    """Return the arrays of several values in order."""
    return [value for each in parts for value in each]


def regroup(values: Sequence[Value], like: Sequence[Sequence[Any]]) -> list[Parts]:
    """Return arrays as values with as many parts as those of `like`."""
    rest = iter(values)
    return [tuple(next(rest) for _ in each) for each in like]
