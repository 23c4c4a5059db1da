"""Blocks of the Householder reflectors of a reduction, and their application to vectors.

LAPACK has `larft` and `larfb` for this, but each of their many small steps takes a lock of OpenBLAS: with 14 threads
`larft` took a hundred times as long. So a block is written as I - UVᴴ, and applying it takes two matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.compiler.target.cpu.library.merges import load, store
from weft.compiler.target.cpu.library.writer import RoutineOperations
from weft.compiler.target.llvm import Value, constant, i64

# Reflectors applied together, and vectors that they are applied to at once.
REFLECTORS, VECTORS = 32, 32
# Buffers of the blocks, each with room for a number of elements per reflector.
BUFFERS = ("inner", "triangles", "adjoints", "products")


def count_blocks(size: int, below: int) -> int:
    """Return the number of blocks for the reflectors of a square matrix."""
    return -(-(size - below) // REFLECTORS)


def scratch_of_blocks(size: int, below: int, bytes: int) -> dict[str, int]:
    """Return the bytes of each buffer, for elements of `bytes` bytes."""
    reflectors = count_blocks(size, below) * REFLECTORS * bytes
    rooms = (REFLECTORS, REFLECTORS, size, size)
    return {name: reflectors * room for name, room in zip(BUFFERS, rooms, strict=True)}


@dataclass(frozen=True)
class Reflectors:
    """Reflectors of a square matrix. Each is a column, starting `below` elements under the diagonal, with an implicit
    leading one."""

    p: RoutineOperations
    matrix: Value
    taus: Value
    size: Value
    below: int
    buffers: Mapping[str, Value]

    def block(self, index: Value) -> tuple[Value, Value, Value]:
        """Return a block: its first reflector, their number, and the elements of the first one."""
        f = self.p.f
        first = f.mul(index, constant(REFLECTORS, i64))
        rows = f.sub(f.sub(self.size, constant(self.below, i64)), first)
        return first, f.smin(rows, constant(REFLECTORS, i64)), rows

    def write_block(self, index: Value) -> None:
        """Write Vᴴ, whose rows are the reflectors of a block, and U."""
        p, f, size, none = self.p, self.p.f, self.size, constant(0, i64)
        first, count, rows = self.block(index)
        stride, real = constant(REFLECTORS, i64), p.element.float
        begin, panel = f.mul(index, constant(REFLECTORS**2, i64)), f.mul(first, size)
        inner, triangle = (p.at(self.buffers[name], begin) for name in ("inner", "triangles"))
        adjoint, product = (p.at(self.buffers[name], panel) for name in ("adjoints", "products"))
        reflectors = p.at(self.matrix, f.add(panel, f.add(first, constant(self.below, i64))))
        with f.loop(none, count) as column:
            top = p.at(reflectors, f.mul(column, size))
            p.clear(top, column)
            _store_element(p, [constant(1.0, real), constant(0.0, real)], top, column)
        p.transpose(adjoint, stride, reflectors, size, count, rows)
        if p.element.is_complex:
            with f.loop(none, rows) as row, f.loop(none, count) as column:
                imaginary = f.add(f.mul(f.add(f.mul(row, stride), column), constant(2, i64)), constant(1, i64))
                store(p, f.fneg(load(p, adjoint, imaginary)), adjoint, imaginary)
        unit, nothing = p.scalar("unit", 1.0), p.scalar("zero", 0.0)
        p.blas("gemm", "N", "N", count, count, rows, unit, adjoint, stride, reflectors, size, nothing, inner, stride)
        _write_triangle(p, count, p.at(self.taus, first), inner, triangle)
        p.blas("gemm", "N", "N", rows, count, count, unit, reflectors, size, triangle, stride, nothing, product, size)

    def apply(self, blocks: Value, vectors: Value, width: Value, work: Value) -> None:
        """Apply all blocks, the last one first, to `width` vectors. `work` has room for REFLECTORS elements of each
        vector."""
        p, f = self.p, self.p.f
        unit, nothing, minus = p.scalar("unit", 1.0), p.scalar("zero", 0.0), p.scalar("minus", -1.0)
        with f.loop(constant(0, i64), blocks) as n:
            first, count, rows = self.block(f.sub(f.sub(blocks, constant(1, i64)), n))
            adjoint, product = (p.at(self.buffers[name], f.mul(first, self.size)) for name in ("adjoints", "products"))
            target = p.at(vectors, f.add(first, constant(self.below, i64)))
            p.blas(
                "gemm", "N", "N", count, width, rows, unit, adjoint, REFLECTORS, target, self.size,
                nothing, work, REFLECTORS,
            )  # fmt: skip
            p.blas(
                "gemm", "N", "N", rows, width, count, minus, product, self.size, work, REFLECTORS,
                unit, target, self.size,
            )  # fmt: skip


def _write_triangle(p: RoutineOperations, count: Value, taus: Value, inner: Value, triangle: Value) -> None:
    """Write the matrix T of a block of reflectors (as in LAPACK's `larft`) from their inner products and scales. A
    column is that of the next reflector, transformed by those before it."""
    f, none, one = p.f, constant(0, i64), constant(1, i64)
    at = lambda row, column: f.add(f.mul(column, constant(REFLECTORS, i64)), row)
    zero = constant(0.0, p.element.float)
    with f.loop(none, count) as column:
        scale = _load_element(p, taus, column)
        with f.loop(none, column) as row:
            with f.loop(row, column, carried=[zero] * p.element.parts) as n:
                term = _times(p, _load_element(p, triangle, at(row, n)), _load_element(p, inner, at(n, column)))
                n.give(*(f.fadd(a, b) for a, b in zip(n.values, term, strict=True)))
            found = [f.fneg(part) for part in _times(p, scale, n.results)]
            _store_element(p, found, triangle, at(row, column))
        _store_element(p, scale, triangle, at(column, column))
        p.clear(p.at(triangle, at(f.add(column, one), column)), f.sub(f.sub(count, column), one))


def _load_element(p: RoutineOperations, elements: Value, index: Value) -> list[Value]:
    """Load the parts of an element."""
    first = p.f.mul(index, constant(p.element.parts, i64))
    return [load(p, elements, p.f.add(first, constant(n, i64))) for n in range(p.element.parts)]


def _store_element(p: RoutineOperations, parts: Sequence[Value], elements: Value, index: Value) -> None:
    """Store an element of the dtype; a real dtype takes the first part only."""
    first = p.f.mul(index, constant(p.element.parts, i64))
    for n in range(p.element.parts):
        store(p, parts[n], elements, p.f.add(first, constant(n, i64)))


def _times(p: RoutineOperations, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
    """Multiply two elements."""
    f = p.f
    if not p.element.is_complex:
        return [f.fmul(a[0], b[0])]
    return [
        f.fsub(f.fmul(a[0], b[0]), f.fmul(a[1], b[1])),
        f.fadd(f.fmul(a[0], b[1]), f.fmul(a[1], b[0])),
    ]
