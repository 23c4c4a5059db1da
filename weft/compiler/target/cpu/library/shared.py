"""Functions that routines share: transposing copies, and the largest magnitude of elements.

Each is a module of its own, compiled when a routine that calls it is first linked.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.target import llvm
from weft.compiler.target.llvm import (
    Function,
    Parameter,
    Type,
    Value,
    constant,
    double,
    float_,
    i32,
    i64,
    ptr,
    vector,
    void,
)
from weft.compiler.target.target import Target

# Elements by their size in bytes: the type they are copied as, its alignment, and the side of the squares that are
# transposed in registers.
ELEMENTS: dict[int, tuple[Type, int, int]] = {4: (i32, 4, 8), 8: (i64, 4, 8), 16: (vector(i64, 2), 8, 1)}
# Columns that are traversed for all rows before the next ones, so that the written lines stay in the cache.
PANEL = 64
# Elements whose maximum is computed together.
LANES = 32


def transpose_name(size: int) -> str:
    """Return the name of the function that transposes matrices with elements of this many bytes."""
    return f"weft_transpose_{size}"


def write_transpose(module: llvm.Module, size: int) -> None:
    """Write void (target, target_stride, source, source_stride, rows, columns): target[c, r] = source[r, c].

    The strides of rows are in elements.
    """
    names = {"target": ptr, "target_stride": i64, "source": ptr, "source_stride": i64, "rows": i64, "columns": i64}
    f = module.function(transpose_name(size), void, [Parameter(n, t) for n, t in names.items()])
    target, target_stride, source, source_stride, rows, columns = f.arguments
    element, align, side = ELEMENTS[size]

    def copy(row: Value, column: Value) -> None:
        read = f.offset(source, element, f.add(f.mul(row, source_stride), column))
        written = f.offset(target, element, f.add(f.mul(column, target_stride), row))
        f.store(f.load(element, read, align), written, align)

    def copy_square(row: Value, column: Value) -> None:
        indices = [constant(n, i64) for n in range(side)]
        read = [f.offset(source, element, f.add(f.mul(f.add(row, n), source_stride), column)) for n in indices]
        square = [f.load(vector(element, side), pointer, align) for pointer in read]
        for n, line in zip(indices, _transpose(f, square), strict=True):
            f.store(line, f.offset(target, element, f.add(f.mul(f.add(column, n), target_stride), row)), align)

    whole_rows, whole_columns = (f.sub(n, f.urem(n, constant(side, i64))) for n in (rows, columns))
    with f.loop(constant(0, i64), whole_columns, PANEL) as panel:
        edge = f.smin(f.add(panel, constant(PANEL, i64)), whole_columns)
        with f.loop(constant(0, i64), whole_rows, side) as row, f.loop(panel, edge, side) as column:
            (copy if side == 1 else copy_square)(row, column)
    with f.loop(whole_rows, rows) as row, f.loop(constant(0, i64), whole_columns) as column:
        copy(row, column)
    with f.loop(constant(0, i64), rows) as row, f.loop(whole_columns, columns) as column:
        copy(row, column)
    f.ret()


def _transpose(f: Function, lines: list[Value]) -> list[Value]:
    """Transpose a square of elements by interleaving the lines of its halves, once for each doubling of its side."""
    count = len(lines)
    order = [n // 2 + count * (n % 2) for n in range(2 * count)]
    for _ in range(count.bit_length() - 1):
        pairs = list(zip(lines[: count // 2], lines[count // 2 :], strict=True))
        lines = [f.shuffle(a, b, half) for a, b in pairs for half in (order[:count], order[count:])]
    return lines


def largest_name(bits: int) -> str:
    """Return the name of the function that finds the largest magnitude among floats of this many bits."""
    return f"weft_largest_{bits}"


def write_largest(module: llvm.Module, bits: int) -> None:
    """Write float (elements, count): the largest magnitude, nan if there is a nan, 0 if there are no elements.

    Without their signs, floats are ordered like their bits, with nan after all others.
    """
    float_type, element = (float_, i32) if bits == 32 else (double, i64)
    f = module.function(largest_name(bits), float_type, [Parameter("elements", ptr), Parameter("count", i64)])
    elements, count = f.arguments
    magnitude = constant((1 << (bits - 1)) - 1, element)
    wide = vector(element, LANES)
    whole = f.sub(count, f.urem(count, constant(LANES, i64)))
    with f.loop(constant(0, i64), whole, LANES, carried=[f.splat(constant(0, element), LANES)]) as n:
        bits_of_several = f.load(wide, f.offset(elements, element, n), bits // 8)
        n.give(f.smax(n.values[0], f.and_(bits_of_several, f.splat(magnitude, LANES))))
    with f.loop(whole, count, carried=[f.reduce("smax", n.results[0])]) as n:
        bits_of_one = f.load(element, f.offset(elements, element, n), bits // 8)
        n.give(f.smax(n.values[0], f.and_(bits_of_one, magnitude)))
    f.ret(f.bitcast(n.results[0], float_type))


def is_shared(symbol: str) -> bool:
    """Return whether a symbol names a shared function. These have loops that pay for optimisation; routines only call
    them."""
    return symbol in _NAMES


def write(symbol: str, target: Target) -> str:
    """Return the LLVM module of a shared function."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    function, size = _NAMES[symbol]
    function(module, size)
    return module.text()


_NAMES: dict[str, tuple[Callable[[llvm.Module, int], None], int]] = {
    **{transpose_name(size): (write_transpose, size) for size in ELEMENTS},
    **{largest_name(bits): (write_largest, bits) for bits in (32, 64)},
}
