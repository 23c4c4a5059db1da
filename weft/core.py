"""Tracing and jaxprs for libraries above Weft: types, traces and tracers; the traced function that receives operations;
running a jaxpr, its text, the jaxpr of a text, and its verification."""

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
# NumPy's objects and Python's numbers are always valid operands; entries for other classes usually copy one of these.
pytype_aval_mappings.update(dict.fromkeys((np.ndarray, np.generic, bool, int, float, complex), get_aval))


class Trace(_Trace):
    """Base of traces that libraries define: a subclass has `process_primitive(primitive, tracers, params)`, which
    returns the result of an operation, or the list of its results. `weft.extend.core.set_current_trace` makes it the
    one that receives operations. Calls of jitted functions and custom derivative rules are primitives too."""

    def process_primitive(self, primitive: Primitive, tracers: Sequence[Any], params: dict[str, Any]) -> Any:
        """Perform one operation."""
        raise NotImplementedError(f"{type(self).__name__} must have process_primitive")

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        out = self.process_primitive(primitive, args, params)
        return list(out) if primitive.multiple_results else [out]

    def invalidate(self) -> None:
        """Do nothing; called when the trace ends."""


@contextlib.contextmanager
def eval_context() -> Iterator[None]:
    """Return a context in which operations run on concrete arrays, even while tracing."""
    with active(EVALUATION):
        yield


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """Evaluate a jaxpr equation by equation under the active transformation. `consts` are the values of its
    `constvars`; errors have the lines of the equations.

    >>> import weft
    >>> jaxpr = weft.make_jaxpr(lambda x: x * 2 + 1)(0.0)
    >>> print(weft.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, 3.0)[0])
    7.0
    """
    if len(consts) != len(jaxpr.constvars):
        raise TypeError(f"The jaxpr needs {len(jaxpr.constvars)} constants, got {len(consts)}.")
    if any(a is not b for a, b in zip(consts, jaxpr.consts, strict=False)) or len(jaxpr.consts) != len(consts):
        jaxpr = jaxpr.replace(consts=consts)
    return replay(jaxpr, *args)


class OpaqueTraceState:
    """Traced function that receives operations; states are equal if it is the same one.

    A library that stores values between calls compares the state at its beginning with the current one: if they differ,
    a value that is stored now would be invalid there.
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
        """Describe the traced function (a loop body, a jitted function, one element of vmap), with its line."""
        trace = self._trace
        if isinstance(trace, StagingTrace):
            return trace.where
        return "no traced function" if trace is None or trace is EVALUATION else trace.describe()

    def is_same_program(self, other: OpaqueTraceState) -> bool:
        """Return whether operations are evaluated, or recorded into one jaxpr, in both states.

        `grad` and `vmap` change what an operation does, `jit`, loops and branches also where it goes.
        """
        recorder = _recorder(self._trace)
        return recorder is not None and recorder is _recorder(other._trace)

    def is_repeated_since(self, start: OpaqueTraceState) -> bool:
        """Return whether a loop was entered after `start`, so that a value made now differs between iterations."""
        trace, first = self._trace, start._trace
        while trace is not None and trace is not first:
            if isinstance(trace, StagingTrace) and trace.repeats:
                return True
            trace = _around(trace)
        return False


def _around(trace: _Trace) -> _Trace | None:
    """Return the outer trace; None for the one that evaluates."""
    return getattr(trace, "parent", None) or getattr(trace, "outer", None)


def _recorder(trace: _Trace | None) -> _Trace | None:
    """Return the innermost trace that records, or the one that evaluates."""
    while trace is not None and not isinstance(trace, StagingTrace) and trace is not EVALUATION:
        trace = _around(trace)
    return trace


def get_opaque_trace_state(convention: object = None) -> OpaqueTraceState:
    """Return the traced function that receives operations now. `convention` is ignored; JAX's callers pass one."""
    return OpaqueTraceState(context.trace)


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Raise `JaxprTypeError` unless a jaxpr is well formed: every variable is defined once and before its use, and each
    equation has the result types and effects of its primitive, in sub-jaxprs too.

    The compiler's forms of a jaxpr are checked by `jit(f).lower(x).compile().verify()`, and everywhere with the
    setting `enable_checks`.
    """
    verifier.verify(jaxpr)


def jaxpr_to_text(jaxpr: Jaxpr, table: list[Any] | None = None) -> str:
    """Return the full text of a jaxpr, which `parse_jaxpr` reads; `str(jaxpr)` is shorter. Arrays, functions and other
    values without a text are appended to `table`."""
    return printer.to_text(jaxpr, full=True, table=table)


def parse_jaxpr(text: str, table: Sequence[Any] = ()) -> Jaxpr:
    """Parse a jaxpr from the text that `jaxpr_to_text` returns, with the same `table`; a short text works if it is
    complete."""
    return parser.parse(text, table)


_publish(__name__)
