"""Jaxprs, traces and types as programs written for `jax.extend.core` take them apart and build them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.api.user_primitive import UserPrimitive
from weft.base import dtypes
from weft.base.errors import ConcretizationTypeError
from weft.base.source import Location, user_line
from weft.ir.context import EVALUATION, Trace, active, context
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs as _in_params
from weft.ir.primitive import NO_EFFECTS, Params, Primitive
from weft.ir.types import ArrayType, Type, is_value
from weft.trace.array import Array
from weft.trace.stage import StagingTrace
from weft.trace.tracer import Tracer
from weft.transforms.batch import BatchTrace

no_effects = NO_EFFECTS
Effects = frozenset[Any]
# The classes of what may enter a program, besides Python's numbers.
array_types: set[type] = {Array, np.ndarray, np.generic}


class Effect:
    """Base class of effects that programs define: something that an operation does besides its results. Operations
    whose effect is `ordered` run in the order of equations."""

    ordered = False


class Token:
    """Value without data that represents a side effect that has happened."""

    def __init__(self, buf: Any = None):
        self._buf = buf

    def block_until_ready(self) -> Token:
        """Wait for it."""
        if hasattr(self._buf, "block_until_ready"):
            self._buf.block_until_ready()
        return self


class AbstractToken(Type):
    """Type of a `Token`."""

    def short(self) -> str:
        return "Tok"


class TraceTag:
    """Identity of one run of an interpreter, which its traces share."""

    def __repr__(self) -> str:
        return f"TraceTag({id(self):#x})"


class DebugInfo(NamedTuple):
    """Description of a traced function for messages: transformation, and names of the function and its arguments."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None = None
    result_paths: Any = None

    @property
    def func_name(self) -> str:
        """Name of the function."""
        return self.func_src_info.split(" ")[0]


class DropVar(Var):
    """Variable without uses."""


class CallPrimitive(UserPrimitive):
    """Primitive that calls the function it is bound with, its first argument, with its operands."""

    call_primitive = True

    def __init__(self, name: str):
        super().__init__(name)
        self.multiple_results = True  # type: ignore[misc]

    def bind(self, *args: Any, **params: Any) -> Any:
        """Call the function on the operands."""
        fun, *operands = args
        return call_impl(fun, *operands, **params)


def call_impl(f: Any, *args: Any, **params: Any) -> Any:
    """Call a function of `linear_util` on its arguments."""
    return f.call_wrapped(*args)


class _Closed(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Jaxpr)

    def __call__(cls, jaxpr: Jaxpr, consts: Sequence[Any]) -> Any:
        if len(consts) != len(jaxpr.constvars):
            raise TypeError(f"This jaxpr has {len(jaxpr.constvars)} constants, got {len(consts)}.")
        return jaxpr.replace(consts=tuple(consts))


class ClosedJaxpr(metaclass=_Closed):
    """`ClosedJaxpr(jaxpr, consts)` is a jaxpr with other constants: they are always attached, so that all jaxprs are of
    one class, and `isinstance` holds for all of them."""


def jaxpr_as_fun(closed_jaxpr: Jaxpr, *args: Any) -> Any:
    """Return the function that evaluates a jaxpr, from its arguments to the list of its results; if arguments are
    given, call it."""

    def function(*operands: Any) -> list[Any]:
        return replay(closed_jaxpr, *operands)

    return function(*args) if args else function


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Yield the jaxprs in the parameters of a jaxpr's equations."""
    for equation in jaxpr.eqns:
        yield from jaxprs_in_params(equation.params)


def jaxprs_in_params(params: Params) -> Iterator[Jaxpr]:
    """Yield the jaxprs among parameters."""
    return iter(_in_params(params))


def gensym(suffix: str = "") -> Callable[[Any], Var]:
    """Return a function that makes a new variable of a type."""
    return Var


def new_jaxpr_eqn(
    invars: Sequence[Any],
    outvars: Sequence[Any],
    primitive: Primitive,
    params: Params,
    effects: Any = NO_EFFECTS,
    source_info: Any = None,
    ctx: Any = None,
) -> Equation:
    """Make an equation. `source_info` is that of another one, or None."""
    location = source_info if isinstance(source_info, Location) else getattr(source_info, "location", None)
    stack = getattr(getattr(source_info, "name_stack", None), "stack", ())
    return Equation(invars, outvars, primitive, params, frozenset(effects), location, tuple(map(str, stack)))


def mapped_aval(size: Any, axis: int | None, aval: Any) -> Any:
    """Remove the dimension `axis`, which must have this size, from a type."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise TypeError(f"Dimension {axis} of {aval.short()} does not have size {size}.")
    return aval.without_dimension(axis % aval.ndim)


def unmapped_aval(size: Any, axis: int | None, aval: Any, explicit_mesh_axis: Any = None) -> Any:
    """Insert a dimension of a size at `axis` into a type."""
    return aval if axis is None else aval.with_dimension(axis, size)


def valid_jaxtype(x: Any) -> bool:
    """Return whether a value may enter a program: an array, a traced value or a number."""
    return is_value(x) and not isinstance(x, (str, type))


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """Return `force(val)`, or `val` without `force`, for a known value; raise for a traced one, with `context`."""
    if isinstance(val, Tracer):
        known = val.known()
        if known is None:
            what = f"A known value is needed{f': {context}' if context else ''}, but it is traced."
            raise ConcretizationTypeError(what, received=f"{val.aval.short()}, {val.origin()}", at=user_line())
        val = known
    return val if force is None else force(val)


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """Return the dtype of tangents of arrays of a dtype: itself, or float0 for integers."""
    aval: Any = ArrayType((), dtypes.canonicalize_dtype(primal_dtype, allow_extended_dtype=True))
    return aval.tangent().dtype


@contextlib.contextmanager
def set_current_trace(trace: Trace | None, check_leaks: bool = False) -> Iterator[None]:
    """Send the operations of a block to a trace; with None they run on concrete arrays."""
    with active(EVALUATION if trace is None else trace):
        yield


@contextlib.contextmanager
def take_current_trace() -> Iterator[Trace]:
    """Run the operations of a block on concrete arrays, and yield the trace that was current before."""
    trace = context.trace
    with active(EVALUATION):
        yield trace


def find_top_trace(xs: Any = ()) -> Trace:
    """Return the current trace."""
    return context.trace


def _traces() -> Iterator[Trace]:
    trace: Trace | None = context.trace
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent", None) or getattr(trace, "outer", None)


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Return whether operations are being recorded."""
    return any(isinstance(trace, StagingTrace) for trace in _traces())


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Return whether operations are being batched."""
    return any(isinstance(trace, BatchTrace) for trace in _traces())


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """Return the named axes in scope."""
    return list(context.axes)


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Return whether a named axis is in scope."""
    return bool(context.axes)
