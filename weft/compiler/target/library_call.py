"""What a program needs to know of a library call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.ir.jaxpr import Atom
from weft.ir.types import ArrayType

# The routine of calls that are Python functions.
HOST = "host"


@dataclass(frozen=True)
class LibraryCall:
    """A call of `routine`, to be looked up by `address`; or of the Python function `host`, if that is its name.

    Its table has the addresses of operands, results and scratch buffers, in this order. A plain routine is `i64
    routine(ptr table, ptr parameters, ptr registers)` and returns 0. If there are `tiles`, it is `void routine(ptr
    table, i64 begin, i64 end)` instead, like a kernel: it works on the tiles from begin to end, which are independent
    of each other, and the table ends with the address of the parameters, as 64-bit integers.

    Scratch buffers are aligned to 64 bytes, and their contents mean nothing before and after the call. A result may
    have the memory of an operand if `in_place` has the pair; of one operand's pairs only one can be used.
    `permutations` are for operands that must be transposed first: None leaves an operand as it is.
    """

    routine: str
    parameters: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    host: Callable[..., None] | None = None
    tiles: int = 0
    permutations: tuple[tuple[int, ...] | None, ...] = ()


class Array(NamedTuple):
    """The shape and dtype of a dense array; when calls are planned, all sizes are known."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its memory."""
        return self.size * self.dtype.itemsize

    def member(self, skipped: int) -> Array:
        """What the leading dimensions that are `skipped` count."""
        return Array(self.shape[skipped:], self.dtype)


def arrays_of(atoms: Iterable[Atom]) -> list[Array]:
    """The types of operands or results."""
    found = []
    for atom in atoms:
        aval = atom.aval
        if not isinstance(aval, ArrayType) or not isinstance(aval.dtype, np.dtype):
            raise InternalError(f"A library cannot read {aval.short()}: it is no array of numbers.", stage="library")
        shape: Any = aval.shape
        found.append(Array(tuple(shape), aval.dtype))
    return found
