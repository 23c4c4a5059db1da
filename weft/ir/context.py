"""The active-trace context: which trace receives operations on this thread.

It is in `ir` because a call of a primitive reads it; tracing, transformations and the runtime set it. Tracing and
evaluation also read the settings of the thread (`base/state.py`); the compiler gets those that it depends on as a value
(`base/compile_options.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from weft.base.source import Location, user_location

if TYPE_CHECKING:
    from weft.ir.primitive import Primitive


class Trace:
    """Receiver of operations while it is active: it performs or records them and returns values or tracers."""

    __slots__ = ("__weakref__",)
    maps: ClassVar[bool] = False  # whether operations are traced for one element of a batch

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Perform or record one operation; return the list of its results."""
        raise NotImplementedError(f"{type(self).__name__} must implement `process`.")

    def describe(self) -> str:
        return type(self).__name__

    @property
    def main(self) -> Trace:
        """The trace itself, for JAX programs that compare values' traces by this attribute."""
        return self


class EvaluationTrace(Trace):
    """Bottom of every stack of traces: runs operations on concrete arrays. The runtime sets `evaluate`, and `lift`,
    which converts a NumPy value or a number to a concrete array."""

    __slots__ = ("evaluate", "lift")

    evaluate: Callable[[Primitive, Sequence[Any], dict[str, Any]], list[Any]]
    lift: Callable[..., Any]

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        return self.evaluate(primitive, args, params)


EVALUATION = EvaluationTrace()


class Context(threading.local):
    """State of one thread: the active trace, the source line and name stack of new equations, and the named axes in
    scope.

    `axes` maps names to sizes. `device_axes` are those that belong to a mesh (of a `shard_map` or a `pmap`), `manual`
    those along which types track whether a value varies.
    """

    def __init__(self) -> None:
        self.trace: Trace = EVALUATION
        self.source: Location | None = None
        self.stack: tuple[str, ...] = ()
        self.axes: dict[Any, Any] = {}
        self.manual: frozenset[Any] = frozenset()
        self.device_axes: frozenset[Any] = frozenset()
        # Mesh axes over which the `vmap`s in progress split their batches (spmd_axis_name).
        self.batch_axes: frozenset[Any] = frozenset()
        # Performs the collective steps while a device interprets a program with `eval` rules.
        self.meet: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None

    def axes_key(self) -> Any:
        """Return a key of the named axes in scope, for caches of what is traced under them."""
        own = (tuple(self.axes.items()), self.manual, self.device_axes) if self.axes else ()
        return (*own, self.batch_axes) if self.batch_axes else own


context = Context()


def with_aval(value: Any) -> Any:
    """Return the value as an object with an `aval`, so that rules can query any operand's shape and dtype."""
    return value if hasattr(value, "aval") else EVALUATION.lift(value)


def current_source() -> Location | None:
    """Return the source line to record on a new equation: that of the equation being replayed, else the user's."""
    return context.source or user_location()


def current_line() -> str | None:
    """Return the current source line as text for an error, or None."""
    source = current_source()
    return None if source is None else source.describe()


@contextmanager
def active(trace: Trace) -> Iterator[Trace]:
    """Make `trace` the one that receives operations."""
    before = context.trace
    context.trace = trace
    try:
        yield trace
    finally:
        context.trace = before


def join_stacks(around: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Put the name stack `own` of an equation inside the stack `around`, unless it starts with it because it was staged
    in that scope."""
    return own if own[: len(around)] == around else around + own


@contextmanager
def push_names(*names: str) -> Iterator[None]:
    """Push names (a scope, or a transformation) on the name stack that new equations record."""
    before = context.stack
    context.stack = (*before, *names)
    try:
        yield
    finally:
        context.stack = before


@contextmanager
def manual_axes(sizes: dict[Any, int], checked: bool) -> Iterator[None]:
    """Bring the manual axes of a `shard_map` into scope; if `checked`, types track what varies along them."""
    before = context.axes, context.manual, context.device_axes
    context.axes = {**context.axes, **sizes}
    context.manual = context.manual | frozenset(sizes) if checked else context.manual - frozenset(sizes)
    context.device_axes = context.device_axes | frozenset(sizes)
    try:
        yield
    finally:
        context.axes, context.manual, context.device_axes = before


@contextmanager
def batch_over(axes: tuple[Any, ...]) -> Iterator[None]:
    """Record the mesh axes over which a `vmap` splits its batch, which a `shard_map` inside does not sum over."""
    before = context.batch_axes
    context.batch_axes = before.union(axes)
    try:
        yield
    finally:
        context.batch_axes = before


@contextmanager
def bind_axis(name: Any, size: Any) -> Iterator[None]:
    """Bring a named axis into scope; collectives check their axis names against those in scope."""
    before = context.axes, context.manual, context.device_axes
    context.axes = {**context.axes, name: size}
    if name in context.device_axes:  # the name shadows a mesh axis
        context.manual, context.device_axes = context.manual - {name}, context.device_axes - {name}
    try:
        yield
    finally:
        context.axes, context.manual, context.device_axes = before
