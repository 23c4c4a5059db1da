"""Matmuls of tiles in the tile registers of x86 (AMX), as LLVM: `TileMatmul` of the kernel language.

The registers are configured once in a function: eight tiles of 16 rows of 64 bytes. Tiles 0 to 3 are sums, 4 and 5 come
from the lhs, 6 and 7 from the rhs.
"""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.compiler.kernel.ir import (
    TILE_BYTES,
    TILE_ROW_BYTES,
    TILE_ROWS,
    Buffer,
    Kernel,
    Store,
    TileMatmul,
    inside,
)
from weft.compiler.kernel.tiles import INT8, UINT8
from weft.compiler.target import llvm
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import constant, i8, i64, void
from weft.compiler.target.math import formats
from weft.compiler.target.math.term import Term

_LEFT, _RIGHT = 4, 6
_PRODUCTS = {
    (dtypes.bfloat16, dtypes.bfloat16): "tdpbf16ps",
    (INT8, INT8): "tdpbssd",
    (INT8, UINT8): "tdpbsud",
    (UINT8, INT8): "tdpbusd",
    (UINT8, UINT8): "tdpbuud",
}


def sums(kernel: Kernel) -> frozenset[Buffer]:
    """Return the buffers that only contain sums of bfloat16 tiles: none of these is denormal."""
    accumulated, others = set(), set()
    for statement in inside(kernel.body):
        match statement:
            case TileMatmul(out=out, dtypes=(dtypes.bfloat16, _)):
                accumulated.add(out)
            case Store(buffer=buffer) | TileMatmul(out=buffer):
                others.add(buffer)
    return frozenset(accumulated - others)


def round_to_bfloat16(f: llvm.Function, x: Lane) -> Lane:
    """Round float32 that is not denormal to bfloat16, by the instruction that flushes denormals. Machines with tile
    registers have it; other machines, and other numbers, need nine instructions (`formats.round_to`)."""
    value = x.re.value
    short = f.bitcast(f.fptrunc(value, x.re.vector_type(llvm.bfloat)), x.re.vector_type(llvm.i16))
    return Lane(dtypes.bfloat16, formats.from_bits(Term(f, short), "bfloat16"))


def configure(f: llvm.Function) -> None:
    """Configure the tile registers of this thread."""
    # Palette 1; from byte 16 on the bytes per row of each tile, as two-byte integers; from byte 48 on the numbers of
    # rows.
    table = [1] + [0] * 15 + [TILE_ROW_BYTES, 0] * 8 + [0] * 16 + [TILE_ROWS] * 8 + [0] * 8
    f.call("llvm.x86.ldtilecfg", void, f.module.table("tile_configuration", i8, table))


def release(f: llvm.Function) -> None:
    """Release the tile registers."""
    f.call("llvm.x86.tilerelease", void)


def write(f: llvm.Function, s: TileMatmul, out: llvm.Value, left: llvm.Value, right: llvm.Value) -> None:
    """Write the sums of one statement, with its buffers at these addresses."""
    line = constant(TILE_ROW_BYTES, i64)
    sums = [(row, column) for row in range(s.rows) for column in range(s.columns)]
    size = s.out.dtype.itemsize
    corners = [(row * TILE_ROWS * s.stride + column * TILE_ROWS) * size for row, column in sums]
    addresses = [f.offset(out, i8, constant(corner, i64)) for corner in corners]
    apart = constant(s.stride * size, i64)
    for i, corner_address in enumerate(addresses):
        if s.accumulate:
            f.call("llvm.x86.tileloadd64", void, constant(i, i8), corner_address, apart)
        else:
            f.call("llvm.x86.tilezero", void, constant(i, i8))
    left_size = s.left.dtype.itemsize
    left_line, step_bytes = constant(s.left_row * left_size, i64), constant(s.left_step * left_size, i64)
    with f.loop(constant(0, i64), constant(s.steps, i64), 1) as step:
        offset = f.mul(step, step_bytes)
        for i in range(s.rows):
            address = _offset(f, left, offset, i * s.left_stride * left_size)
            f.call("llvm.x86.tileloadd64", void, constant(_LEFT + i, i8), address, left_line)
        offset = f.mul(step, constant(TILE_BYTES, i64))
        for i in range(s.columns):
            address = _offset(f, right, offset, i * s.right_stride * s.right.dtype.itemsize)
            f.call("llvm.x86.tileloadd64", void, constant(_RIGHT + i, i8), address, line)
        for i, (row, column) in enumerate(sums):
            chosen = (i, _LEFT + row, _RIGHT + column)
            f.call(f"llvm.x86.{_PRODUCTS[s.dtypes]}", void, *(constant(n, i8) for n in chosen))
        step.give()
    for i, corner_address in enumerate(addresses):
        f.call("llvm.x86.tilestored64", void, constant(i, i8), corner_address, apart)


def _offset(f: llvm.Function, base: llvm.Value, offset: Any, besides: int) -> llvm.Value:
    return f.offset(base, i8, f.add(offset, constant(besides, i64)))
