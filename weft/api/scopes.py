"""Scopes: names of operations, evaluation while tracing, running without jit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.api.flat import get_name, wraps
from weft.base.errors import ArgumentTypeError
from weft.base.settings import states
from weft.base.tracebacks import boundary
from weft.ir.context import EVALUATION, Trace, active, context, push_names
from weft.ir.primitive import Primitive
from weft.trace.tracer import Tracer


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Put a name on the stack of the equations inside (also a decorator).

    Args:
        name: a string. `weft.explain` and profiles show it; an equation has it in its `source_info.name_stack`.

    Returns:
        A context manager, or a decorator.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> def encode(x):
    ...     with weft.named_scope("encoder"):
    ...         return wnp.sin(x)
    >>> [str(equation.source_info.name_stack) for equation in weft.make_jaxpr(encode)(1.0).eqns]
    ['encoder']
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(
            "named_scope: name must be a string.", received=f"{name!r} of type {type(name).__name__}"
        )
    with push_names(name):
        yield


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Run `fun` in a `named_scope`, by default with its own name.

    Args:
        fun: a function.
        name: the name; that of the function by default.

    Returns:
        A function with the results of `fun`.

    >>> import weft
    >>> weft.named_call(lambda x: x + 1, name="increment")(1)
    2
    """
    scope = name or get_name(fun)

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        with push_names(scope):
            return fun(*args, **kwargs)

    return function


class KnownTrace(Trace):
    """Trace that evaluates operations on concrete values at once, and passes others to the outer trace."""

    __slots__ = ("outer",)

    def __init__(self, outer: Trace):
        self.outer = outer

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        traced = any(isinstance(a, Tracer) for a in args) or primitive.named_axes(params)
        return (self.outer if traced else EVALUATION).process(primitive, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Evaluate operations inside at once if their operands are concrete, even while a function is being traced.

    Returns:
        A context manager.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> @weft.jit
    ... def f(x):
    ...     with weft.ensure_compile_time_eval():
    ...         n = int(wnp.sum(wnp.arange(3)))
    ...     return x * n
    >>> f(2.0)
    Array(6., dtype=float32, weak_type=True)
    """
    with active(KnownTrace(context.trace)):
        yield


def disable_jit(disable: bool = True) -> Any:
    """Run jitted functions, loops and branches as plain Python inside, so that they can be stepped through.

    Args:
        disable: False to enable jit again inside of a block that disables it.

    Returns:
        A context manager.

    >>> import weft
    >>> with weft.disable_jit():
    ...     weft.jit(lambda x: print(x) or x)(3)
    3
    3
    """
    return states["disable_jit"](disable)


def checking_leaks() -> Any:
    """Check for leaked tracers after every trace inside."""
    return states["check_tracer_leaks"](True)
