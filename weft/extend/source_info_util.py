"""Lines of the user and names of scopes, under the names of `jax.extend.source_info_util`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from weft.base.publish import publish as _publish
from weft.base.source import Location, mark_internal, user_location
from weft.ir.context import context
from weft.ir.equation_info import NameStack as NameStack, SourceInfo as SourceInfo


def current() -> SourceInfo:
    """Return the source information that an operation at this point would record."""
    return SourceInfo(context.source or user_location(), current_name_stack())


def new_source_info() -> SourceInfo:
    """Return source information without line and names."""
    return SourceInfo(None, NameStack())


def current_name_stack() -> NameStack:
    """Return the current stack of names around operations."""
    return NameStack(context.stack)


def new_name_stack(name: str = "") -> NameStack:
    """Make a stack of one name, or of none."""
    return NameStack((name,) if name else ())


def summarize(source_info: Any, num_frames: int = 1) -> str:
    """Format the line of a `SourceInfo` or a location as text, `file.py:3 (function)`."""
    location = getattr(source_info, "location", source_info)
    return "unknown" if location is None else repr(location)


def register_exclusion(path: str) -> None:
    """Say that a file, or the files of a folder, are not the user's: errors name the lines that called them."""
    mark_internal(path)


@contextlib.contextmanager
def set_name_stack(name_stack: NameStack) -> Iterator[None]:
    """Replace the name stack of the operations in a block."""
    before, context.stack = context.stack, name_stack.stack
    try:
        yield
    finally:
        context.stack = before


@contextlib.contextmanager
def extend_name_stack(name: str) -> Iterator[NameStack]:
    """Push one more scope on the name stack in a block, and yield the new stack."""
    stack = current_name_stack().extend(name) if name else current_name_stack()
    with set_name_stack(stack):
        yield stack


transform_name_stack = extend_name_stack


def reset_name_stack() -> contextlib.AbstractContextManager[None]:
    """Clear the name stack in a block."""
    return set_name_stack(NameStack())


@contextlib.contextmanager
def user_context(traceback: Location | None, *, name_stack: NameStack | None = None) -> Iterator[None]:
    """Replace the line, and the name stack, that operations in a block record."""
    line, stack = context.source, context.stack
    context.source = line if traceback is None else traceback
    context.stack = stack if name_stack is None else name_stack.stack
    try:
        yield
    finally:
        context.source, context.stack = line, stack


_publish(__name__)
