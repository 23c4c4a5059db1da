"""Batches of small matrices, factored and solved with one matrix per lane. Heroes: `lu`, `cholesky`, `triangular_solve`
and `linear_solve` of batches.

A library is called for one matrix at a time, which takes longer than the work for a small one. Here each lane of a
vector has its own matrix, and loops run over rows and columns as for one matrix. Matrices are in scratch memory,
interleaved by lanes. Differences between lanes, such as the row of a pivot, are handled by selects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.kernel.builder import AnyIndex
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.primitives.linalg.cholesky import cholesky
from weft.primitives.linalg.lu import linear_solve, lu
from weft.primitives.linalg.triangular import triangular_solve

INT32 = dtypes.int32
# Limit on the iterations of the loop over threads, each with its own scratch memory.
MOST_TILES = 64

# An element of a matrix by its row and its column.
Entry = Callable[[AnyIndex, AnyIndex], Value]


class Systems:
    """Kernel of a hero under construction: the batch, its lanes, and the matrix of a lane."""

    tile: Index
    lane: Index
    system: Index

    def __init__(self, fusion: Fusion) -> None:
        hero = fusion.hero
        assert hero is not None
        self.fusion, self.hero = fusion, hero
        self.dtype = storage(hero.invars[0])
        *lead, self.rows, self.columns = hero.invars[0].aval.shape  # type: ignore[attr-defined]
        self.lead, self.count = len(lead), math.prod(lead)
        self.width = max(1, fusion.target.vector_bytes // self.dtype.itemsize)
        self.pieces = -(-self.count // self.width)
        self.in_tile = -(-self.pieces // MOST_TILES)
        self.tiles = -(-self.pieces // self.in_tile)
        self.writer: KernelWriter = fusion.writer("matrices", final=True)
        self.k, self.s = self.writer.k, self.writer.k.scalars

    @contextmanager
    def each(self) -> Iterator[None]:
        """Open loops over tiles, vectors of matrices, and lanes."""
        k = self.k
        with k.loop(self.tiles, kind=LoopKind.THREADS) as tile:
            even = self.tiles * self.in_tile == self.pieces
            limit = None if even else Index(self.pieces) - tile * self.in_tile
            with k.loop(self.in_tile, limit=limit) as i:
                first = (tile * self.in_tile + i) * self.width
                left = None if self.count % self.width == 0 else Index(self.count) - first
                with k.loop(self.width, kind=LoopKind.LANES, width=self.width, limit=left) as lane:
                    self.tile, self.lane, self.system = Index.of(tile), Index.of(lane), first + lane
                    yield

    def element(self, atom: Any, row: AnyIndex, column: AnyIndex = 0) -> Value:
        """Load an element of an operand's matrix (or vector)."""
        return self.k.load(self.writer.argument(atom), self._offset(atom, row, column))

    def store_result(self, v: Any, row: AnyIndex, column: AnyIndex, value: Value) -> None:
        """Write an element of a result, if it is wanted."""
        if v in self.fusion.results:
            self.k.store(self.writer.result(v), self._offset(v, row, column), value)

    def _offset(self, atom: Any, row: AnyIndex, column: AnyIndex) -> Index:
        core = atom.aval.shape[self.lead :]
        columns = core[1] if len(core) == 2 else 1
        result: Index = self.system * math.prod(core) + Index.of(row) * columns + column
        return result

    def multiply_subtract(self, value: Value, a: Value, b: Value) -> Value:
        """Return value - a * b, rounded twice."""
        return self.s.sub(value, self.s.mul(a, b))


class LaneMatrix:
    """Matrix of each lane in scratch memory."""

    def __init__(self, systems: Systems, dtype: Any, rows: int, columns: int = 1) -> None:
        self.systems, self.rows, self.columns = systems, rows, columns
        self.scratch = systems.fusion.new_scratch(dtype, systems.tiles * rows * columns * systems.width)

    def load(self, row: AnyIndex, column: AnyIndex = 0) -> Value:
        return self.systems.k.load(self.systems.writer.scratch(self.scratch), self._offset(row, column))

    def store(self, row: AnyIndex, column: AnyIndex, value: Value) -> None:
        self.systems.k.store(self.systems.writer.scratch(self.scratch), self._offset(row, column), value)

    def _offset(self, row: AnyIndex, column: AnyIndex) -> Index:
        here = self.systems
        element = Index.of(row) * self.columns + column
        return here.tile * (self.rows * self.columns * here.width) + element * here.width + here.lane


def emit_matrices(fusion: Fusion) -> Emission:
    """Emit one kernel over a batch of small matrices. The result may reuse the memory of the operand that it
    replaces, because each matrix is read completely before it is written.
    """
    systems = Systems(fusion)
    found = EMITTERS.get(systems.hero.primitive)
    if found is None:
        raise InternalError(f"`{systems.hero.primitive.name}` has no kernel that works in lanes.", stage="emit")
    emit, becomes = found
    emit(systems)
    operand: Any = systems.hero.invars[becomes]
    result = systems.hero.outvars[0]
    if result not in fusion.results or systems.hero.invars.count(operand) > 1:
        return fusion.finish()
    return fusion.finish(in_place=[(fusion.arguments[operand], fusion.results[result] - len(fusion.arguments))])


# ------------------------------------------------------------------------------------------------------ factorisations


def _emit_lu(systems: Systems) -> None:
    """Emit LU elimination with row exchanges, in the order of operations that the primitive defines for a batch."""
    k, s, (x,) = systems.k, systems.s, systems.hero.invars
    lu_out, pivots, permutation = systems.hero.outvars
    rows, columns = systems.rows, systems.columns
    a, order = LaneMatrix(systems, systems.dtype, rows, columns), LaneMatrix(systems, INT32, rows)
    with systems.each():
        with k.loop(rows) as i:
            order.store(i, 0, k.position(i, INT32))
            with k.loop(columns) as j:
                a.store(i, j, systems.element(x, i, j))
        with k.loop(min(rows, columns)) as j:
            chosen = _pivot(systems, a, j)
            systems.store_result(pivots, j, 0, chosen)
            with _after(systems, rows, j) as i:
                hit = s.eq(chosen, k.position(i, INT32))
                _exchange(systems, order, (j, i), 0, hit)
                with k.loop(columns) as c:
                    _exchange(systems, a, (j, i), c, hit)
            pivot = a.load(j, j)
            singular = s.eq(pivot, k.constant(0, systems.dtype))
            with _after(systems, rows, j) as i:
                value = a.load(i, j)
                multiplier = s.select_n(singular, s.div(value, pivot), value)
                a.store(i, j, multiplier)
                with _after(systems, columns, j) as c:
                    a.store(i, c, systems.multiply_subtract(a.load(i, c), multiplier, a.load(j, c)))
        with k.loop(rows) as i:
            systems.store_result(permutation, i, 0, order.load(i))
            with k.loop(columns) as j:
                systems.store_result(lu_out, i, j, a.load(i, j))


@contextmanager
def _after(systems: Systems, size: int, first: Any) -> Iterator[Index]:
    """Open a loop over the indices from `first + 1` to `size - 1`."""
    with systems.k.loop(size - 1, limit=Index(size - 1) - first) as n:
        yield first + 1 + n


def _pivot(systems: Systems, a: LaneMatrix, j: Any) -> Value:
    """Find the row, from the diagonal on, of the element of column `j` with the largest magnitude. The first of equal
    ones wins, and the first NaN beats all numbers.
    """
    k, s, rows = systems.k, systems.s, systems.rows
    start = (s.abs(a.load(j, j)), k.position(j, INT32))
    with k.loop(rows - 1, limit=Index(rows - 1) - j, carries=start) as (n, (best, at)):
        size = s.abs(a.load(j + 1 + n, j))
        # Not (a <= b), so that NaN wins, and nothing exceeds NaN.
        takes = getattr(s, "and")(getattr(s, "not")(s.le(size, best)), s.eq(best, best))
        _, chosen = k.carry(s.select_n(takes, best, size), s.select_n(takes, at, k.position(j + 1 + n, INT32)))
    return chosen


def _exchange(
    systems: Systems, grid: LaneMatrix, rows: tuple[AnyIndex, AnyIndex], column: AnyIndex, hit: Value
) -> None:
    """Exchange an element of two rows in the lanes where `hit` holds."""
    first, second = (grid.load(row, column) for row in rows)
    grid.store(rows[0], column, systems.s.select_n(hit, first, second))
    grid.store(rows[1], column, systems.s.select_n(hit, second, first))


def _emit_cholesky(systems: Systems) -> None:
    """Emit a Cholesky factorization column by column; a matrix that is not positive definite becomes NaN."""
    k, s, (x,), (out,) = systems.k, systems.s, systems.hero.invars, systems.hero.outvars
    size, dtype = systems.rows, systems.dtype
    zero, nan = k.constant(0, dtype), k.constant(float("nan"), dtype)
    a = LaneMatrix(systems, dtype, size, size)

    def rest(i: AnyIndex, j: Any) -> Value:
        """Subtract the contributions of the columns before `j` from an element."""
        with k.loop(size - 1, limit=Index.of(j), carries=[a.load(i, j)]) as (n, (value,)):
            (value,) = k.carry(systems.multiply_subtract(value, a.load(i, n), a.load(j, n)))
        return value

    with systems.each():
        with k.loop(size) as i, k.loop(size, limit=i + 1) as j:
            a.store(i, j, systems.element(x, i, j))
        with k.loop(size, carries=[k.constant(False, dtypes.bool_)]) as (j, (failed,)):
            square = rest(j, j)
            root = s.sqrt(square)
            a.store(j, j, root)
            with _after(systems, size, j) as i:
                a.store(i, j, s.div(rest(i, j), root))
            (failed,) = k.carry(getattr(s, "or")(failed, getattr(s, "not")(s.gt(square, zero))))
        with k.loop(size) as i:
            with k.loop(size, limit=i + 1) as j:
                systems.store_result(out, i, j, s.select_n(failed, a.load(i, j), nan))
            with _after(systems, size, i) as j:
                systems.store_result(out, i, j, zero)


# -------------------------------------------------------------------------------------------------------------- solves


def _substitute(systems: Systems, entry: Entry, x: LaneMatrix, lower: bool, unit: bool) -> None:
    """Replace x by the solution of a triangular system; each element from those that are known."""
    k, size = systems.k, x.rows
    with k.loop(size) as step:
        i = Index.of(step) if lower else Index(size - 1) - step
        with k.loop(size - 1, limit=Index.of(step), carries=[x.load(i)]) as (n, (value,)):
            known = Index.of(n) if lower else Index(size - 1) - n
            (value,) = k.carry(systems.multiply_subtract(value, entry(i, known), x.load(known)))
        x.store(i, 0, value if unit else systems.s.div(value, entry(i, i)))


def _entry_reader(systems: Systems, atom: Any, swapped: bool, columns: int) -> tuple[Entry, Callable[[], None]]:
    """Return a reader of a square operand (transposed if `swapped`), and a function that first copies it to scratch
    where several columns read it again.
    """

    def direct(row: AnyIndex, column: AnyIndex) -> Value:
        return systems.element(atom, column, row) if swapped else systems.element(atom, row, column)

    if columns == 1:
        return direct, lambda: None
    size, k = systems.rows, systems.k
    copy = LaneMatrix(systems, systems.dtype, size, size)

    def fill() -> None:
        with k.loop(size) as i, k.loop(size) as j:
            copy.store(i, j, direct(i, j))

    return copy.load, fill


def _emit_triangular(systems: Systems) -> None:
    """Emit a triangular solve. x op(a) = b is solved as its transpose, op(a)ᵀ xᵀ = bᵀ."""
    k, (a, b), (out,), params = systems.k, systems.hero.invars, systems.hero.outvars, systems.hero.params
    left, size = params["left_side"], systems.rows
    swapped = params["transpose_a"] == left
    others = b.aval.shape[-1 if left else -2]  # type: ignore[attr-defined]
    entry, fill = _entry_reader(systems, a, swapped, others)
    x = LaneMatrix(systems, systems.dtype, size)
    with systems.each():
        fill()
        with k.loop(others) as column:
            with k.loop(size) as i:
                x.store(i, 0, systems.element(b, *((i, column) if left else (column, i))))
            _substitute(systems, entry, x, params["lower"] != swapped, params["unit_diagonal"])
            with k.loop(size) as i:
                systems.store_result(out, *((i, column) if left else (column, i)), x.load(i))


def _emit_lu_solve(systems: Systems) -> None:
    """Solve a x = b from an LU factorization: permute rows, then substitute with L and U. For aᵀ x = b substitute
    with Uᵀ and Lᵀ, then permute rows back.
    """
    k, (_, lu_operand, permutation, b), (out,) = systems.k, systems.hero.invars, systems.hero.outvars
    size, transposed = systems.rows, systems.hero.params["transposed"]
    others = b.aval.shape[-1]  # type: ignore[attr-defined]
    entry, fill = _entry_reader(systems, lu_operand, transposed, others)
    x = LaneMatrix(systems, systems.dtype, size)

    def source_row(i: Any) -> Index:
        return Index.of(_clamp_row(systems, systems.element(permutation, i)))

    with systems.each():
        fill()
        with k.loop(others) as column:
            with k.loop(size) as i:
                x.store(i, 0, systems.element(b, i if transposed else source_row(i), column))
            _substitute(systems, entry, x, lower=True, unit=not transposed)
            _substitute(systems, entry, x, lower=False, unit=transposed)
            with k.loop(size) as i:
                systems.store_result(out, source_row(i) if transposed else i, column, x.load(i))


def _clamp_row(systems: Systems, index: Value) -> Value:
    """Convert an entry of a permutation to a row, clamped to the matrix."""
    k, s, size = systems.k, systems.s, systems.rows
    zero = k.constant(0, INT32)
    whole = s.select_n(s.lt(index, zero), index, s.add(index, k.constant(size, INT32)))
    return s.min(s.max(whole, zero), k.constant(size - 1, INT32))


# Emitter of each hero, and the operand whose memory its first result may reuse.
EMITTERS: dict[Any, tuple[Callable[[Systems], None], int]] = {
    lu: (_emit_lu, 0),
    cholesky: (_emit_cholesky, 0),
    triangular_solve: (_emit_triangular, 1),
    linear_solve: (_emit_lu_solve, 3),
}
