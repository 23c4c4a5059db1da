"""Scopes: names for what happens inside, evaluation while tracing, running without jit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.api.flat import name_of, wraps
from weft.base.errors import ArgumentTypeError
from weft.base.settings import states
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, Trace, active, context, named
from weft.ir.primitive import Primitive
from weft.trace.tracer import Tracer


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Give everything inside a name, which its equations carry on their stack (also a decorator)."""
    if not isinstance(name, str):
        raise ArgumentTypeError("named_scope takes a string.", received=f"{name!r} of type {type(name).__name__}")
    with named(name):
        yield


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`fun`, with everything it does under a name: its own by default."""
    scope = name or name_of(fun)

    @boundary
    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with named(scope):
            return fun(*args, **kwargs)

    return wrapped


class KnownTrace(Trace):
    """Runs operations on known values at once and hands those on traced values to the trace around."""

    __slots__ = ("outer",)

    def __init__(self, outer: Trace):
        self.outer = outer

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        traced = any(isinstance(a, Tracer) for a in args) or primitive.named_axes(params)
        return (self.outer if traced else EVALUATION).process(primitive, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Run operations inside at once where their operands are known, even while a function is being traced."""
    with active(KnownTrace(context.trace)):
        yield


def disable_jit(disable: bool = True) -> Any:
    """Run jitted functions, loops and branches as plain Python inside, so that they can be stepped through."""
    return states["disable_jit"](disable)


def checking_leaks() -> Any:
    """Look for leaked tracers after every trace inside."""
    return states["check_tracer_leaks"](True)
