"""What libraries above Weft need to know of tracing and of jaxprs: types, traces and tracers; in which traced function
the present operation would be; running a jaxpr, its text, the jaxpr of a text, and whether it is well formed."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.api.scopes import ensure_compile_time_eval as ensure_compile_time_eval
from weft.base.publish import publish as _publish
from weft.indexing.expression import maximum as _maximum, minimum as _minimum
from weft.ir import parser, printer, verifier
from weft.ir.context import EVALUATION, Trace as _Trace, active, context
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Atom as Atom, Jaxpr
from weft.ir.primitive import Primitive
from weft.ir.types import FOREIGN as _FOREIGN, ArrayType as _ArrayType, Type as _Type, get_aval as get_aval
from weft.trace.stage import StagingTrace
from weft.trace.tracer import Tracer as Tracer

max_dim = _maximum
min_dim = _minimum
pytype_aval_mappings = _FOREIGN
ShapedArray = _ArrayType
AbstractValue = _Type

ParamDict = dict[str, Any]
Value = Any
# Objects of NumPy and Python's numbers enter programs in any case; entries for other classes are usually one of these.
pytype_aval_mappings.update(dict.fromkeys((np.ndarray, np.generic, bool, int, float, complex), get_aval))


class Trace(_Trace):
    """The base of traces that libraries define: a subclass has `process_primitive(primitive, tracers, params)`, which
    returns the result of an operation, or the list of its results. `weft.extend.core.set_current_trace` makes it the
    one that operations go to. Calls of jitted functions and custom derivative rules come as primitives too."""

    def process_primitive(self, primitive: Primitive, tracers: Sequence[Any], params: dict[str, Any]) -> Any:
        """Perform one operation."""
        raise NotImplementedError(f"{type(self).__name__} must have process_primitive")

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        out = self.process_primitive(primitive, args, params)
        return list(out) if primitive.multiple_results else [out]

    def invalidate(self) -> None:
        """Called when the trace is done."""


@contextlib.contextmanager
def eval_context() -> Iterator[None]:
    """A block in which operations run on concrete arrays, whatever is being traced around it."""
    with active(EVALUATION):
        yield


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a jaxpr on arguments, by performing its equations one after the other under whatever
    transformation is active. `consts` are the values of its `constvars`; lines of errors are always those of the
    equations.

    >>> import weft
    >>> jaxpr = weft.make_jaxpr(lambda x: x * 2 + 1)(0.0)
    >>> print(weft.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, 3.0)[0])
    7.0
    """
    if len(consts) != len(jaxpr.constvars):
        raise TypeError(f"This jaxpr has {len(jaxpr.constvars)} constants, got {len(consts)}.")
    if any(a is not b for a, b in zip(consts, jaxpr.consts, strict=False)) or len(jaxpr.consts) != len(consts):
        jaxpr = jaxpr.replace(consts=consts)
    return replay(jaxpr, *args)


class OpaqueTraceState:
    """The traced function that operations go to; two states are equal when it is the same one.

    A library that stores values between calls compares the state from when it began with that of now: where they
    differ, a value stored now would not be valid there.
    """

    __slots__ = ("_reference",)

    def __init__(self, trace: _Trace):
        self._reference = weakref.ref(trace)  # holding the state does not keep what was traced alive

    @property
    def _trace(self) -> _Trace | None:
        return self._reference()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace is not None and self._trace is other._trace

    def __hash__(self) -> int:
        return hash(self._reference)

    def __repr__(self) -> str:
        return f"OpaqueTraceState({self.describe()})"

    def describe(self) -> str:
        """Where that is, in words: a loop body, a jitted function, one element of vmap, with the line of the call."""
        trace = self._trace
        if isinstance(trace, StagingTrace):
            return trace.where
        return "no traced function" if trace is None or trace is EVALUATION else trace.describe()

    def is_same_program(self, other: OpaqueTraceState) -> bool:
        """Whether operations are run, or recorded into one jaxpr, in both states.

        `grad` and `vmap` change what an operation does, `jit`, loops and branches also where it goes.
        """
        recorder = _recorder(self._trace)
        return recorder is not None and recorder is _recorder(other._trace)

    def is_repeated_since(self, start: OpaqueTraceState) -> bool:
        """Whether a loop was entered after `start`: one value here is then a value of each iteration."""
        trace, first = self._trace, start._trace
        while trace is not None and trace is not first:
            if isinstance(trace, StagingTrace) and trace.repeats:
                return True
            trace = _around(trace)
        return False


def _around(trace: _Trace) -> _Trace | None:
    """The trace around one; None for the one that runs operations."""
    return getattr(trace, "parent", None) or getattr(trace, "outer", None)


def _recorder(trace: _Trace | None) -> _Trace | None:
    """The innermost trace that records, or the one that runs operations."""
    while trace is not None and not isinstance(trace, StagingTrace) and trace is not EVALUATION:
        trace = _around(trace)
    return trace


def get_opaque_trace_state(convention: object = None) -> OpaqueTraceState:
    """The traced function that operations go to now. `convention` is ignored; JAX's callers pass one."""
    return OpaqueTraceState(context.trace)


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Raise `JaxprTypeError` unless a jaxpr is well formed: every variable is defined once and before its use, and each
    equation has the result types and effects that its primitive says, in sub-jaxprs too.

    What the compiler makes of a jaxpr is checked by `jit(f).lower(x).compile().verify()`, and everywhere with the
    setting `enable_checks`.
    """
    verifier.verify(jaxpr)


def jaxpr_to_text(jaxpr: Jaxpr, table: list[Any] | None = None) -> str:
    """The whole text of a jaxpr, which `parse_jaxpr` reads; `str(jaxpr)` is shorter. What has no text of its own, such
    as arrays and functions, is appended to `table`."""
    return printer.to_text(jaxpr, full=True, table=table)


def parse_jaxpr(text: str, table: Sequence[Any] = ()) -> Jaxpr:
    """The jaxpr that a text describes, as `jaxpr_to_text` writes it with the same `table`; a short text works where it
    says everything."""
    return parser.parse(text, table)


_publish(__name__)
