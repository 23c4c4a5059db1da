"""How much memory the variables of a model from a file may take, so that a config cannot ask for any amount."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from weft.errors import FileFormatError

# A file may lack the state of its optimizer and of metrics, which are a few times the weights.
_FACTOR, _FREE = 8, 1 << 28


@dataclass
class _Budget:
    left: int
    file: str
    stored: int


_budget: ContextVar[_Budget | None] = ContextVar("weft_keras_budget", default=None)


@contextmanager
def limit_variables(stored_bytes: int, file: str) -> Iterator[None]:
    """Limit the variables that are created in a block to a few times the bytes that a file stores.

    Args:
        stored_bytes: the size of the file's weights.
        file: its name, for the error.
    """
    token = _budget.set(_Budget(_FACTOR * stored_bytes + _FREE, file, stored_bytes))
    try:
        yield
    finally:
        _budget.reset(token)


def take(shape: Sequence[int], dtype: str, path: str) -> None:
    """Count a variable that will be allocated; raise if the file has too few bytes for it."""
    budget = _budget.get()
    if budget is None:
        return
    size = math.prod(shape) * _itemsize(dtype)
    budget.left -= size
    if budget.left < 0:
        raise FileFormatError(
            f"{budget.file} must not declare a model with more weights than it stores.",
            received=f"{path} of shape {tuple(shape)} and dtype {dtype}; {budget.stored:,} bytes of weights are stored",
            fix="obtain a new copy of the file",
        )


def _itemsize(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:  # one that NumPy does not have
        return np.dtype(getattr(ml_dtypes, dtype, np.float32)).itemsize
