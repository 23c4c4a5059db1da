"""Random kernels of exact operations: loops of all kinds, affine and computed indices, conditions, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.promotion import DTYPES as ALL
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, Kernel, LoopKind, Value, Variable

SIZES = (0, 1, 2, 3, 7, 8, 16, 17, 31, 33, 64, 70)
WIDTHS = (1, 2, 4, 8, 16, 32)
NAMES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 int4 uint4 float16 bfloat16 float8_e4m3fn float8_e5m2
    float32 float64 complex64"""
DTYPES = tuple(ALL[name] for name in NAMES.split())
FLOAT_OPS = ("add", "sub", "mul", "max", "min")
INTEGER_OPS = (*FLOAT_OPS, "and", "or", "xor")
BOOL_OPS = ("and", "or", "xor")
REDUCTIONS = {
    "f": ("add", "max", "min", "mul"),
    "i": ("add", "mul", "max", "min", "and", "or", "xor"),
    "b": ("and", "or", "xor"),
    "c": ("add", "mul"),
}


class RandomKernel:
    """One random kernel: `kernel` is the result, its buffers have the dtypes and sizes that it needs."""

    def __init__(self, seed: int, dtypes_used: tuple[np.dtype[Any], ...] = DTYPES) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtypes = dtypes_used
        self.k = KernelBuilder(f"random{seed}")
        self.ranges: dict[Variable, int] = {}
        self.inputs: list[Buffer] = []
        self.kernel = self.make()

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    # -- loops -----------------------------------------------------------------------------------------------------

    def make(self) -> Kernel:
        sizes = [int(self.pick(SIZES[:9] if n else SIZES)) for n in range(int(self.rng.integers(1, 4)))][::-1]
        self.lanes_at = int(self.rng.integers(len(sizes)))
        self.threads = self.chance(0.5) and self.lanes_at > 0
        self.width = int(self.pick(WIDTHS))
        self.reduced = self.chance(0.4) and len(sizes) > 1
        out_sizes = sizes[:-1] if self.reduced else sizes
        self.result = self.pick(self.dtypes)
        self.output = self.k.buffer("y", self.result, int(np.prod(out_sizes, dtype=np.int64)), written=True)
        self.nest(sizes, 0, Index())
        return self.k.finish()

    def loop(self, sizes: list[int], depth: int, carries: tuple[Value, ...] = ()) -> Any:
        if depth == self.lanes_at:
            return self.k.loop(sizes[depth], kind=LoopKind.LANES, width=self.width, carries=carries)
        kind = LoopKind.THREADS if self.threads and not depth else LoopKind.SERIAL
        return self.k.loop(sizes[depth], kind=kind, carries=carries)

    def nest(self, sizes: list[int], depth: int, at: Index) -> None:
        last = depth == len(sizes) - 1
        if last and self.reduced:
            self.reduction(sizes, depth, at)
            return
        if depth == len(sizes):
            self.k.store(self.output, at, self.value(3, self.result))
            return
        with self.loop(sizes, depth) as variable:
            self.ranges[variable] = sizes[depth]
            self.nest(sizes, depth + 1, at * sizes[depth] + variable)
            del self.ranges[variable]

    def reduction(self, sizes: list[int], depth: int, at: Index) -> None:
        kind = {"u": "i"}.get(dtypes.kind(self.result), dtypes.kind(self.result))
        op = self.pick(REDUCTIONS[kind])
        first = self.k.constant(int(self.rng.integers(0, 2)), self.result)
        with self.loop(sizes, depth, (first,)) as (variable, (total,)):
            self.ranges[variable] = sizes[depth]
            (result,) = self.k.carry(self.k.compute(op, total, self.unsigned_zero(op, self.value(2, self.result))))
            del self.ranges[variable]
        if depth == self.lanes_at:
            result = self.k.reduce_lanes(op, result, self.width)
        self.k.store(self.output, at, result)

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, depth: int, dtype: np.dtype[Any]) -> Value:
        """An expression of a dtype."""
        if not depth or self.chance(0.15):
            return self.leaf(dtype)
        choice = self.rng.random()
        if choice < 0.2:
            other = self.pick(self.dtypes)
            if not (dtypes.kind(other) in "fc" and dtypes.kind(dtype) in "iu"):
                return self.k.scalars.convert(self.value(depth - 1, other), dtype)
        if choice < 0.3:
            condition = self.condition(depth - 1)
            return self.k.scalars.select_n(condition, self.value(depth - 1, dtype), self.value(depth - 1, dtype))
        if dtype == np.bool_:
            if choice < 0.5:
                return self.condition(depth - 1)
            if choice < 0.6:
                return getattr(self.k.scalars, "not")(self.value(depth - 1, dtype))
            ops: Any = BOOL_OPS
        else:
            ops = {"f": FLOAT_OPS, "c": FLOAT_OPS[:3]}.get(dtypes.kind(dtype), INTEGER_OPS)
        op = self.pick(ops)
        return self.k.compute(op, *(self.unsigned_zero(op, self.value(depth - 1, dtype)) for _ in range(2)))

    def unsigned_zero(self, op: str, value: Value) -> Value:
        """-0 made 0 where that matters: NumPy does not say which of the two is the greater."""
        if op in ("max", "min") and dtypes.kind(value.dtype) == "f":
            return self.k.scalars.add(value, self.k.constant(0, value.dtype))
        return value

    def condition(self, depth: int) -> Value:
        compared = self.pick(self.dtypes)
        ops = ("eq", "ne") if dtypes.kind(compared) == "c" else ("eq", "ne", "lt", "ge")
        return self.k.compute(self.pick(ops), self.value(depth, compared), self.value(depth, compared))

    def leaf(self, dtype: np.dtype[Any]) -> Value:
        choice = self.rng.random()
        if choice < 0.1:
            return self.k.constant(int(self.rng.integers(0, 4)), dtype)
        if choice < 0.2:
            index, _, _ = self.index()
            position = self.k.position(index, self.pick((np.dtype(np.int32), np.dtype(np.int64))))
            return self.k.scalars.convert(position, dtype)
        if choice < 0.35:
            return self.guarded_load(dtype)
        if choice < 0.45:
            return self.computed_load(dtype)
        index, low, high = self.index()
        buffer = self.buffer(dtype, high - low + 1)
        return self.k.load(buffer, index - low)

    def index(self) -> tuple[Index, int, int]:
        """An affine index of the loop variables, and the numbers it lies between."""
        index, low, high = Index(), 0, 0
        for variable, size in self.ranges.items():
            coefficient = int(self.pick((0, 1, 1, 1, -1, 2, 3, 5)))
            index = index + Index.of(variable) * coefficient
            edges = (0, coefficient * max(0, size - 1))
            low, high = low + min(edges), high + max(edges)
        return index, low, high

    def buffer(self, dtype: np.dtype[Any], size: int) -> Buffer:
        same = [b for b in self.inputs if b.dtype == dtype and b.size >= size]
        if same and self.chance(0.5):
            return self.pick(same)
        self.inputs.append(self.k.buffer(f"x{len(self.inputs)}", dtype, size + int(self.rng.integers(0, 3))))
        return self.inputs[-1]

    def guarded_load(self, dtype: np.dtype[Any]) -> Value:
        """A load whose index leaves the buffer, where a condition holds it back."""
        index, low, high = self.index()
        buffer = self.buffer(dtype, max(1, (high - low) // 2))
        index = index - int(self.rng.integers(low - 3, high + 1))
        s, position = self.k.scalars, self.k.position(index)
        zero, size = self.k.constant(0, np.int64), self.k.constant(buffer.size, np.int64)
        inside = getattr(s, "and")(s.ge(position, zero), s.lt(position, size))
        return self.k.load(buffer, index, inside, self.k.constant(int(self.rng.integers(0, 4)), dtype))

    def computed_load(self, dtype: np.dtype[Any]) -> Value:
        """A load whose index is a number that was loaded."""
        index, low, high = self.index()
        whole = self.pick([d for d in self.dtypes if d.kind == "i"] or [np.dtype(np.int32)])
        where = self.k.load(self.buffer(whole, high - low + 1), index - low)
        buffer = self.buffer(dtype, int(self.rng.integers(1, 9)))
        last = min(buffer.size - 1, 100)
        where = self.k.scalars.clamp(self.k.constant(0, whole), where, self.k.constant(last, whole))
        return self.k.load(buffer, where)
