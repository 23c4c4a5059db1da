"""What libraries above Weft need to know of tracing and of jaxprs: in which traced function the present operation would
be; the text of a jaxpr, the jaxpr of a text, and whether it is well formed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from weft.base.publish import publish as _publish
from weft.ir import parser, printer, verifier
from weft.ir.context import EVALUATION, Trace, context
from weft.ir.jaxpr import Jaxpr
from weft.trace.stage import StagingTrace

__all__ = ["OpaqueTraceState", "check_jaxpr", "get_opaque_trace_state", "jaxpr_to_text", "parse_jaxpr"]


class OpaqueTraceState:
    """The traced function that operations go to; two states are equal when it is the same one.

    A library that stores values between calls compares the state from when it began with that of now: where they
    differ, a value stored now would not be valid there.
    """

    __slots__ = ("_reference",)

    def __init__(self, trace: Trace):
        self._reference = weakref.ref(trace)  # holding the state does not keep what was traced alive

    @property
    def _trace(self) -> Trace | None:
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


def _around(trace: Trace) -> Trace | None:
    """The trace around one; None for the one that runs operations."""
    return getattr(trace, "parent", None) or getattr(trace, "outer", None)


def _recorder(trace: Trace | None) -> Trace | None:
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
