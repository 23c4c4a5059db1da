"""Library calls as a program sees them: the routine, its parameters, scratch memory and aliasing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.ir.jaxpr import Atom
from weft.ir.types import ArrayType

# Routine of calls of Python functions.
HOST = "host"


@dataclass(frozen=True)
class LibraryCall:
    """Call of `routine`, which is looked up by `address`; or of the Python function `host` if `routine` is HOST.

    Its table has the addresses of operands, results and scratch buffers, in this order. A plain routine is `i64
    routine(ptr table, ptr parameters, ptr registers)` and returns 0. With `tiles` it is `void routine(ptr table, i64
    begin, i64 end)` instead, like a kernel: it computes the tiles in [begin, end), which are independent of each other,
    and the table ends with the address of the parameters, as 64-bit integers.

    Scratch buffers are aligned to 64 bytes; their contents are undefined before and after the call. A result may share
    the memory of an operand if `in_place` has the pair; at most one pair of each operand can be used. `permutations`
    are for operands that must be transposed first: None leaves an operand as it is.
    """

    routine: str
    parameters: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    host: Callable[..., None] | None = None
    tiles: int = 0
    permutations: tuple[tuple[int, ...] | None, ...] = ()


class DenseArray(NamedTuple):
    """Shape and dtype of a dense array; when calls are planned, all sizes are known."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def member(self, skipped: int) -> DenseArray:
        """Return the array type without the first `skipped` dimensions: one member of the batch that they span."""
        return DenseArray(self.shape[skipped:], self.dtype)


def get_arrays(atoms: Iterable[Atom]) -> list[DenseArray]:
    """Return the array types of operands or results; raise InternalError for anything but arrays of numbers."""
    found = []
    for atom in atoms:
        aval = atom.aval
        if not isinstance(aval, ArrayType) or not isinstance(aval.dtype, np.dtype):
            raise InternalError(f"A library can only read arrays of numbers; got {aval.short()}.", stage="library")
        shape: Any = aval.shape
        found.append(DenseArray(tuple(shape), aval.dtype))
    return found
