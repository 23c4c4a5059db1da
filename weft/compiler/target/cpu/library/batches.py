"""Plans of routines over batches of matrices: their parameters, scratch memory and tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.target.cpu.library import capsules
from weft.compiler.target.cpu.library.writer import LETTERS, RoutineFamily, symbol
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.ir.jaxpr import Equation

# Least operations, about a hundred microseconds, for which a tile is worth another thread.
LEAST_WORK = 1 << 19
# Operations added for the overhead of a call, and for one that iterates to find eigenvalues, however small the matrix.
CALL_WORK, ITERATION_WORK = 1000, 20_000
# Upper bound, larger than the number of threads so that none waits long for the last tile.
MOST_TILES = 64
# Each tile has scratch memory of its own; several tiles are used only if all of it together is at most this large.
MOST_SCRATCH = 1 << 28
ALIGNMENT = 64
# LAPACK's integers have 32 bits.
MOST = (1 << 31) - 1


class TooLarge(Exception):
    """Raised for a size beyond LAPACK's 32-bit integers; NumPy uses another library for these."""


def plan_batched(
    family: RoutineFamily,
    equation: Equation,
    fields: Mapping[str, int],
    scratch: Mapping[str, int] | None = None,
    *,
    work: float,
    core: int = 2,
    parts: int = 1,
    in_place: Sequence[tuple[int, int]] = (),
    dtype: Any = None,
) -> LibraryCall:
    """Plan a routine for every matrix of a batch.

    The last `core` dimensions of the first operand are the matrix, those before it the batch. `scratch` has bytes and
    `work` operations for one item; a matrix is computed in `parts` items. The routine is the one for `dtype`, by
    default that of the first operand.
    """
    types = [*get_arrays(equation.invars), *get_arrays(equation.outvars)]
    lead = len(types[0].shape) - core
    matrices = math.prod(types[0].shape[:lead])
    # Buffers are never empty, and each begins on a cache line of its own.
    sizes = [max(1, -(-(scratch or {})[name] // ALIGNMENT)) * ALIGNMENT for name in family.scratch]
    check_sizes(*fields.values(), *(s for t in types for s in t.shape))
    items = matrices * parts
    wanted = min(items, MOST_TILES, int(items * (work + CALL_WORK)) // LEAST_WORK, MOST_SCRATCH // max(sum(sizes), 1))
    per_tile = -(-items // max(wanted, 1))
    tiles = -(-items // per_tile)
    strides = [t.member(lead).bytes for t in types]
    parameters = (matrices, tiles, per_tile, parts, *strides, *sizes, *(fields[name] for name in family.fields))
    return LibraryCall(
        routine=family.routine(dtype or types[0].dtype, tiles > 1),
        parameters=parameters,
        scratch=tuple(size * tiles for size in sizes),
        in_place=tuple(in_place),
        tiles=tiles if tiles > 1 else 0,
    )


def check_sizes(*sizes: int) -> None:
    """Raise TooLarge unless all sizes fit LAPACK's integers."""
    if max(sizes) > MOST:
        raise TooLarge


class Work:
    """Query for the work space of a function of LAPACK: a call with a size of -1."""

    def __init__(self, dtype: Any, name: str) -> None:
        self.dtype = np.dtype(dtype)
        self.real = np.dtype(np.float32 if self.dtype in (np.float32, np.complex64) else np.float64)
        self.symbol = symbol("lapack", name, LETTERS[self.dtype])
        self.some = np.zeros(4, self.dtype)

    def ask(self, *arguments: str | int | np.ndarray | None, answers: Sequence[np.ndarray]) -> list[int]:
        """Query with these arguments, without the status; return the sizes that LAPACK stores in `answers`, which are
        among the arguments."""
        check_sizes(*(a for a in arguments if isinstance(a, int)))
        sizes = capsules.query(self.symbol, *arguments, np.zeros(1, np.int32), answers=answers)
        check_sizes(*sizes)
        return sizes

    def elements(self) -> np.ndarray:
        """Return an answer array of the dtype."""
        return np.zeros(1, self.dtype)

    def reals(self) -> np.ndarray:
        """Return an answer array of the dtype's real type."""
        return np.zeros(1, self.real)

    def integers(self) -> np.ndarray:
        """Return an answer array of 32-bit integers."""
        return np.zeros(1, np.int32)
