"""The state of calls: the module being called, and interceptors of method calls."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.linen.module import Module


@dataclass
class State:
    """The state of a bound module: whether it may create submodules now, and the counters of automatic names."""

    in_compact: bool = False
    in_setup: bool = False
    setup_done: bool = False
    ready: bool = False  # true after the constructor: attributes are fixed
    cursors: dict[str, int] = field(default_factory=dict)
    children: dict[str, Any] = field(default_factory=dict)
    fixed_names: dict[str, set[str | None]] = field(default_factory=dict)

    @property
    def may_initialize(self) -> bool:
        """Whether submodules and variables may be created now."""
        return not self.ready or self.in_setup or self.in_compact


class Context(threading.local):
    """State of a thread: the modules whose methods run, innermost last, and the interceptors, outermost first."""

    def __init__(self) -> None:
        self.modules: list[Module | None] = [None]
        self.interceptors: list[Callable[..., Any]] = []


CONTEXT = Context()


@dataclass(frozen=True)
class InterceptorContext:
    """The call that an interceptor receives: the module, the name of the method and the bound method."""

    module: Module
    method_name: str
    orig_method: Callable[..., Any]


@contextlib.contextmanager
def intercept_methods(interceptor: Callable[..., Any]) -> Iterator[None]:
    """Return a context in which method calls go through `interceptor(next_function, args, kwargs, context)`.

    Calls of `setup` are included. The first of several interceptors is the outermost: it sees the result last.

    Args:
        interceptor: a function of the next function, positional and keyword arguments and a context.

    Returns:
        A context manager.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> def show(next_function, args, kwargs, context):
    ...     print(type(context.module).__name__, context.method_name)
    ...     return next_function(*args, **kwargs)
    >>> layer = linen.Dense(2)
    >>> variables = layer.init(random.key(0), wnp.ones((1, 3)))
    >>> with linen.intercept_methods(show):
    ...     _ = layer.apply(variables, wnp.ones((1, 3)))
    Dense __call__
    """
    CONTEXT.interceptors.append(interceptor)
    try:
        yield
    finally:
        CONTEXT.interceptors.remove(interceptor)


@contextlib.contextmanager
def calling(module: Module | None) -> Iterator[None]:
    """Return a context in which new modules become submodules of `module`, or unbound for None."""
    CONTEXT.modules.append(module)
    try:
        yield
    finally:
        CONTEXT.modules.pop()


def run_interceptors(method: Callable[..., Any], module: Module, args: Any, kwargs: Any) -> Any:
    """Call a method through the interceptors, the outermost first."""
    context = InterceptorContext(module, method.__name__, method.__get__(module))
    call = functools.partial(method, module)
    for interceptor in reversed(CONTEXT.interceptors):
        call = functools.partial(_through, interceptor, call, context)
    return call(*args, **kwargs)


def _through(
    interceptor: Callable[..., Any], call: Any, context: InterceptorContext, /, *args: Any, **kwargs: Any
) -> Any:
    return interceptor(call, args, kwargs, context)
