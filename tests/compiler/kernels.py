"""Hand-written kernels, like those of the emitters, for the tests of the levels below."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.promotion import DTYPES
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kernel, LoopKind

LANES, THREADS = LoopKind.LANES, LoopKind.THREADS


def fused_map(size: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """y = (a * b + a) * a, in tiles that threads share out."""
    k = KernelBuilder("fused_map")
    a, b = k.buffer("a", dtype, size), k.buffer("b", dtype, size)
    y = k.buffer("y", dtype, size, written=True)
    tile = 64 * width
    with k.loop(size, step=tile, kind=THREADS) as t:
        with k.loop(tile, kind=LANES, width=width, limit=Index(size) - t) as i:
            x = k.load(a, t + i)
            s = k.scalars
            k.store(y, t + i, s.mul(s.add(s.mul(x, k.load(b, t + i)), x), k.load(a, t + i)))
    return k.finish()


def flat_map(op: str, dtypes: tuple[Any, ...], result: Any, size: int, width: int, **params: Any) -> Kernel:
    """One operation on whole buffers."""
    k = KernelBuilder(op)
    args = [k.buffer(f"x{n}", dtype, size) for n, dtype in enumerate(dtypes)]
    y = k.buffer("y", result, size, written=True)
    with k.loop(size, kind=LANES, width=width) as i:
        k.store(y, i, getattr(k.scalars, op)(*(k.load(x, i) for x in args), **params))
    return k.finish()


def row_reduction(
    rows: int, columns: int, op: str = "add", initial: Any = 0, dtype: Any = np.float32, width: int = 16
) -> Kernel:
    """Reduce each row to a scalar: lanes along the row, rows over threads."""
    k = KernelBuilder(f"row_{op}")
    x = k.buffer("x", dtype, rows * columns)
    y = k.buffer("y", dtype, rows, written=True)
    with k.loop(rows, kind=THREADS) as r:
        with k.loop(columns, kind=LANES, width=width, carries=[k.constant(initial, dtype)]) as (c, (total,)):
            (lanes,) = k.carry(getattr(k.scalars, op)(total, k.load(x, r * columns + c)))
        k.store(y, r, k.reduce_lanes(op, lanes, width))
    return k.finish()


def column_reduction(rows: int, columns: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """Each column summed: lanes across columns, down the rows in order."""
    k = KernelBuilder("column_sum")
    x = k.buffer("x", dtype, rows * columns)
    y = k.buffer("y", dtype, columns, written=True)
    with k.loop(columns, kind=LANES, width=width) as c:
        with k.loop(rows, carries=[k.constant(0, dtype)]) as (r, (total,)):
            (result,) = k.carry(k.scalars.add(total, k.load(x, r * columns + c)))
        k.store(y, c, result)
    return k.finish()


def whole_reduction(rows: int, columns: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """A matrix summed to one number; the lanes of the accumulator live through the loop over rows."""
    k = KernelBuilder("sum")
    x = k.buffer("x", dtype, rows * columns)
    y = k.buffer("y", dtype, 1, written=True)
    with k.loop(rows, carries=[k.constant(0, dtype)]) as (r, (above,)):
        with k.loop(columns, kind=LANES, width=width, carries=[above]) as (c, (total,)):
            (row,) = k.carry(k.scalars.add(total, k.load(x, r * columns + c)))
        (lanes,) = k.carry(row)
    # The lanes of a loop that never runs are all one number.
    k.store(y, 0, k.reduce_lanes("add", lanes, width))
    return k.finish()


def transposed(rows: int, columns: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """The transpose: stores are contiguous, loads are gathers."""
    k = KernelBuilder("transposed")
    x = k.buffer("x", dtype, rows * columns)
    y = k.buffer("y", dtype, rows * columns, written=True)
    with k.loop(columns, kind=THREADS) as c:
        with k.loop(rows, kind=LANES, width=width) as r:
            k.store(y, c * rows + r, k.load(x, r * columns + c))
    return k.finish()


def scattered(rows: int, columns: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """The transpose the other way: loads are contiguous, stores are scattered."""
    k = KernelBuilder("scattered")
    x = k.buffer("x", dtype, rows * columns)
    y = k.buffer("y", dtype, rows * columns, written=True)
    with k.loop(rows) as r:
        with k.loop(columns, kind=LANES, width=width) as c:
            k.store(y, c * rows + r, k.load(x, r * columns + c))
    return k.finish()


def padded(size: int, low: int, high: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """x with elements of 7 put before and after; what is outside of x is never read."""
    k = KernelBuilder("padded")
    x = k.buffer("x", dtype, size)
    y = k.buffer("y", dtype, low + size + high, written=True)
    with k.loop(low + size + high, kind=LANES, width=width) as i:
        at = k.position(i - low, np.int32)
        s = k.scalars
        inside = getattr(s, "and")(s.ge(at, k.constant(0, np.int32)), s.lt(at, k.constant(size, np.int32)))
        k.store(y, i, k.load(x, i - low, inside, k.constant(7, dtype)))
    return k.finish()


def reversed_copy(size: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """The elements in the other order."""
    k = KernelBuilder("reversed")
    x = k.buffer("x", dtype, size)
    y = k.buffer("y", dtype, size, written=True)
    with k.loop(size, kind=LANES, width=width) as i:
        k.store(y, i, k.load(x, Index(size - 1) - i))
    return k.finish()


def taken(size: int, source: int, dtype: Any = np.float32, width: int = 16) -> Kernel:
    """y[i] = x[clamp(where[i])]: an index that is known only at run time."""
    k = KernelBuilder("taken")
    x = k.buffer("x", dtype, source)
    where = k.buffer("where", np.int32, size)
    y = k.buffer("y", dtype, size, written=True)
    with k.loop(size, kind=LANES, width=width) as i:
        zero, last = k.constant(0, np.int32), k.constant(source - 1, np.int32)
        k.store(y, i, k.load(x, k.scalars.clamp(zero, k.load(where, i), last)))
    return k.finish()


def softmax(rows: int, columns: int, width: int = 16) -> Kernel:
    """Each row through softmax in three passes over cache: several loops over lanes, and values between them."""
    k = KernelBuilder("softmax")
    x = k.buffer("x", np.float32, rows * columns)
    y = k.buffer("y", np.float32, rows * columns, written=True)
    s = k.scalars
    with k.loop(rows, kind=THREADS) as r:
        with k.loop(columns, kind=LANES, width=width, carries=[k.constant(-np.inf, np.float32)]) as (c, (most,)):
            (mosts,) = k.carry(s.max(most, k.load(x, r * columns + c)))
        greatest = k.reduce_lanes("max", mosts, width)
        with k.loop(columns, kind=LANES, width=width, carries=[k.constant(0, np.float32)]) as (c, (total,)):
            part = s.exp(s.sub(k.load(x, r * columns + c), greatest))
            k.store(y, r * columns + c, part)
            (totals,) = k.carry(s.add(total, part))
        whole = k.reduce_lanes("add", totals, width)
        with k.loop(columns, kind=LANES, width=width) as c:
            k.store(y, r * columns + c, s.div(k.load(y, r * columns + c), whole))
    return k.finish()


def dtype(name: str) -> np.dtype[Any]:
    """A dtype by name, those of ml_dtypes too."""
    return DTYPES[name]
