"""The one active-trace context: which trace receives operations now, on this thread.

Everything else in Weft is passed as an argument; this is the single piece of implicit state. It is in `ir` because a
primitive's call reads it; tracing, transformations and the runtime set it.
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
    """Receives every operation while it is the active one, and returns values (or its own tracers)."""

    __slots__ = ("__weakref__",)
    maps: ClassVar[bool] = False  # what it traces is done for each element of a batch

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Perform or record one operation; always returns the list of results."""
        raise NotImplementedError(f"{type(self).__name__} is an abstract trace")

    def describe(self) -> str:
        return type(self).__name__

    @property
    def main(self) -> Trace:
        """The trace itself, for programs that compare the traces of values by this attribute."""
        return self


class EvaluationTrace(Trace):
    """The bottom of every stack: operations run on concrete arrays. The runtime fills in `evaluate`, and `lift`, which
    turns a NumPy value or a number into a concrete array."""

    __slots__ = ("evaluate", "lift")

    evaluate: Callable[[Primitive, Sequence[Any], dict[str, Any]], list[Any]]
    lift: Callable[..., Any]

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        return self.evaluate(primitive, args, params)


EVALUATION = EvaluationTrace()


class Context(threading.local):
    """Per thread: the active trace, the line and the name stack given to new equations, the named axes in scope, and
    those of them that are axes of a mesh, of a `shard_map` or a `pmap`, and along which types say whether a value
    varies."""

    def __init__(self) -> None:
        self.trace: Trace = EVALUATION
        self.source: Location | None = None
        self.stack: tuple[str, ...] = ()
        self.axes: dict[Any, Any] = {}
        self.manual: frozenset[Any] = frozenset()
        self.device_axes: frozenset[Any] = frozenset()
        # What does collectives where a device runs a program by the meaning of its operations.
        self.meet: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None

    def axes_key(self) -> Any:
        """The named axes in scope, for keys of what is traced under them."""
        return (tuple(self.axes.items()), self.manual, self.device_axes) if self.axes else ()


context = Context()


def lifted(value: Any) -> Any:
    """The value as something with a type of its own, so that rules may ask any operand for its shape and dtype."""
    return value if hasattr(value, "aval") else EVALUATION.lift(value)


def current_source() -> Location | None:
    """The line to record on a new equation: that of the equation being replayed, else the user's."""
    return context.source or user_location()


def current_line() -> str | None:
    """The same line as text for an error."""
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


def merged_stack(around: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """The name stack of an equation put into a scope: the names around it, then its own. What was staged inside of the
    scope has them already."""
    return own if own[: len(around)] == around else around + own


@contextmanager
def named(*names: str) -> Iterator[None]:
    """Push names (a scope, or a transformation) on the stack that new equations record."""
    before = context.stack
    context.stack = (*before, *names)
    try:
        yield
    finally:
        context.stack = before


@contextmanager
def manual_axes(sizes: dict[Any, int], checked: bool) -> Iterator[None]:
    """Bring the manual axes of a `shard_map` into scope, along which types say what varies if they are `checked`."""
    before = context.axes, context.manual, context.device_axes
    context.axes = {**context.axes, **sizes}
    context.manual = context.manual | frozenset(sizes) if checked else context.manual - frozenset(sizes)
    context.device_axes = context.device_axes | frozenset(sizes)
    try:
        yield
    finally:
        context.axes, context.manual, context.device_axes = before


@contextmanager
def named_axis(name: Any, size: Any) -> Iterator[None]:
    """Bring a named axis into scope; collectives check their axis names against what is in scope."""
    before = context.axes, context.manual, context.device_axes
    context.axes = {**context.axes, name: size}
    if name in context.device_axes:  # it hides an axis of a mesh
        context.manual, context.device_axes = context.manual - {name}, context.device_axes - {name}
    try:
        yield
    finally:
        context.axes, context.manual, context.device_axes = before
