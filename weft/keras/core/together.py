"""Models that several processes train together: what they agree on, and files, which one of them writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError
from weft.experimental import multihost_utils
from weft.keras.core.layouts import current_distribution, distribution_scope
from weft.keras.core.scope import StatelessScope

# The bytes of an error's text that are sent to the other processes.
_TOLD = 2000


def train_together() -> bool:
    """Return whether the current distribution has devices of several processes, so that all must run the same steps."""
    distribution = current_distribution()
    return distribution is not None and distribution.spans_processes


def agree(value: int) -> int:
    """Return the first process's value of an integer in all processes of the current distribution."""
    return int(multihost_utils.broadcast_one_to_all(np.int64(value))) if train_together() else value


def agree_array(value: np.ndarray) -> np.ndarray:
    """Return the array of the first process of the current distribution, in all of them."""
    return np.asarray(multihost_utils.broadcast_one_to_all(value)) if train_together() else value


def any_process(value: bool) -> bool:
    """Return whether a condition holds in any process of the current distribution."""
    return bool(multihost_utils.process_allgather(np.asarray(value)).any()) if train_together() else value


def is_shared(variables: Iterable[Any]) -> bool:
    """Return whether variables are arrays that several processes share."""
    return any(not variable._value.is_fully_addressable for variable in variables)


def is_writer(variables: Iterable[Any]) -> bool:
    """Return whether this process writes a model's files: only the first does if processes share the variables."""
    return weft.process_index() == 0 or not is_shared(variables)


def whole_value(variable: Any) -> np.ndarray:
    """Copy the whole value of a variable to the host. If processes share it, all of them must call this."""
    value = variable._value
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


@contextmanager
def whole_values(variables: Iterable[Any], here: bool = True) -> Iterator[None]:
    """Read variables that processes share as whole arrays within the block. All of these processes must enter it.

    Args:
        variables: those that are read.
        here: whether this process reads them; one that does not takes part, and stores nothing.
    """
    values: list[tuple[Any, Any]] = []
    for variable in variables:
        if not variable._value.is_fully_addressable:
            value = whole_value(variable)
            if here:
                values.append((variable, value))
    # The values are arrays of one process, to which no layout of the mesh applies.
    with distribution_scope(None if values else current_distribution()), StatelessScope(values):
        yield


def write_once(what: str, variables: Iterable[Any], write: Callable[[], None]) -> None:
    """Call `write`, which writes files with the values of variables.

    If processes have the variables together, all of them call this: the first one writes, with the whole values, and
    the others wait until it has. What it raises the others raise too, in their words.

    Args:
        what: what is written, for messages.
        variables: those that `write` reads.
        write: writes files; it calls nothing that needs other processes.
    """
    variables = list(variables)
    if not is_shared(variables):
        write()
        return
    failure: Exception | None = None
    first = weft.process_index() == 0
    with whole_values(variables, first):
        if first:
            try:
                write()
            except Exception as error:
                failure = error
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    told = np.frombuffer(text.encode()[:_TOLD].ljust(_TOLD, b"\0"), np.uint8)
    text = bytes(multihost_utils.broadcast_one_to_all(told)).rstrip(b"\0").decode(errors="replace")
    if failure is not None:
        raise failure
    if text:
        raise ArgumentError(f"The first process has not written {what}.", received=text)
