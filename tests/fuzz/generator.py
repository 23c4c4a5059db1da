"""Random programs from a seed: operations on small whole numbers, on which every order of a sum gives the same bits.

A program is a Python function that draws its operations while it runs, from the same seed every time, so that it can
be traced, differentiated and mapped like any other. `operations` and `moves` have what it may do to values, `control`
loops and branches.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.base import dtypes

FLOATS = (np.float32, np.float32, np.float32, ml_dtypes.bfloat16, np.float16)
INTEGERS = (np.int32, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32)
WIDE_FLOATS = (*FLOATS, np.float64, np.float64)
WIDE_INTEGERS = (*INTEGERS, np.int64, np.uint64)
# How large whole numbers may get, such that sums of many of them are exact.
MOST: dict[str, float] = {"bfloat16": 2.0**5, "float16": 2.0**7, "float32": 2.0**12, "float64": 2.0**24}
SMALL = 4.0
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 100)
LARGE_SIZES = (1, 2, 3, 8, 63, 64, 128, 200, 257, 1000, 3000)


class Skip(Exception):
    """An operation for which there are no operands."""


@dataclass
class Value:
    """A traced value and the largest magnitude that it can have."""

    array: Any
    bound: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def kind(self) -> str:
        return dtypes.kind(self.dtype)


def most_of(dtype: Any) -> float:
    """Up to where numbers of a dtype are kept."""
    dtype = np.dtype(dtype)
    if dtypes.kind(dtype) in "iu":
        return float(dtypes.iinfo(dtype).max)
    if dtypes.kind(dtype) == "b":
        return 1.0
    return MOST[dtypes.name(dtypes.to_real_dtype(dtype) if dtypes.kind(dtype) == "c" else dtype)]


class Draw:
    """Random choices, and the values that there are to choose from."""

    def __init__(self, rng: np.random.Generator, sizes: Sequence[int], wide: bool, most: int, depth: int = 0) -> None:
        self.rng, self.sizes, self.wide, self.most, self.depth = rng, sizes, wide, most, depth
        self.values: list[Value] = []

    # -- choices ---------------------------------------------------------------------------------------------------

    def below(self, count: int) -> int:
        return int(self.rng.integers(count)) if count > 0 else 0

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.below(high - low + 1)

    def flag(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def one_of(self, things: Sequence[Any]) -> Any:
        if not things:
            raise Skip
        return things[self.below(len(things))]

    def dimension(self) -> int:
        return int(self.one_of(self.sizes)) if self.flag(0.85) else self.one_of((1, 2, 3))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of not too many elements; rarely one of them is 0."""
        rank = self.one_of((0, 1, 1, 2, 2, 2, 3, 4)) if rank is None else rank
        shape = [self.dimension() for _ in range(rank)]
        while math.prod(shape) > self.most:
            shape[shape.index(max(shape))] = self.between(1, 3)
        if shape and self.flag(0.02):
            shape[self.below(rank)] = 0
        return tuple(shape)

    def float_dtype(self) -> Any:
        return self.one_of(WIDE_FLOATS if self.wide else FLOATS)

    def integer_dtype(self) -> Any:
        return self.one_of(WIDE_INTEGERS if self.wide else INTEGERS)

    def dtype(self) -> Any:
        chance = self.rng.random()
        if chance < 0.6:
            return self.float_dtype()
        if chance < 0.85:
            return self.integer_dtype()
        return np.bool_ if chance < 0.95 else np.complex64

    def axis(self, value: Value) -> int:
        if not value.shape:
            raise Skip
        return self.below(len(value.shape))

    def axes(self, rank: int, least: int = 0) -> tuple[int, ...]:
        """Some of the axes, in order."""
        if rank < least:
            raise Skip
        count = self.between(least, rank)
        return tuple(sorted(int(a) for a in self.rng.permutation(rank)[:count]))

    # -- values ----------------------------------------------------------------------------------------------------

    def pick(self, kinds: str = "fiubc", rank: int = 0) -> Value:
        """One of the values of some kinds; the latest are taken more often."""
        found = [v for v in self.values if v.kind in kinds and len(v.shape) >= rank]
        if not found:
            raise Skip
        if self.flag(0.6):
            found = found[-4:]
        return self.one_of(found)

    def keep(self, array: Any, bound: float) -> Value:
        """A new value to choose from; numbers that may have become too large are brought back."""
        value = Value(array, bound)
        if value.size > 4 * self.most:
            raise Skip
        value = self.within(value, most_of(value.dtype)) if value.kind in "fc" else value
        self.values.append(value)
        return value

    def within(self, value: Value, bound: float) -> Value:
        """A value cut to a magnitude."""
        if value.bound <= bound or value.kind == "b":
            return value
        if value.kind == "c":
            parts = [
                self.within(Value(part, value.bound), bound).array for part in (value.array.real, value.array.imag)
            ]
            return Value(lax.complex(*parts), bound)
        if value.kind in "iu":
            bound = min(bound, float(dtypes.iinfo(value.dtype).max))
        low = 0 if value.kind == "u" else -bound
        return Value(lax.clamp(np.array(low, value.dtype), value.array, np.array(bound, value.dtype)), bound)

    def convert(self, value: Value, dtype: Any) -> Value:
        """A value in another dtype, cut to what that can hold."""
        if value.dtype == dtype:
            return value
        kind = dtypes.kind(np.dtype(dtype))
        if value.kind == "c":
            value = Value(lax.real(value.array), value.bound)
        if kind != "b":
            value = self.within(value, min(most_of(dtype), 2.0**20))
        if kind == "u" and value.kind in "fi":
            value = Value(lax.abs(value.array), value.bound)
        if kind == "c":
            real = lax.convert_element_type(value.array, np.float32)
            return Value(lax.complex(real, lax.neg(real)), value.bound)
        return Value(lax.convert_element_type(value.array, dtype), 1.0 if kind == "b" else value.bound)

    def like(self, shape: Sequence[int], dtype: Any, bound: float | None = None) -> Value:
        """A value of a shape and dtype made of what there is, of at most some magnitude."""
        shape = tuple(shape)
        size = math.prod(shape)
        same = [v for v in self.values if v.shape == shape]
        larger = [v for v in self.values if v.size >= size]
        scalars = [v for v in self.values if not v.shape]
        if same and self.flag(0.9):
            value = self.one_of(same)
        elif larger and self.flag(0.7):
            value = self.one_of(larger)
            flat = lax.reshape(value.array, (value.size,))
            value = Value(lax.reshape(lax.slice(flat, (0,), (size,)), shape), value.bound)
        elif scalars and self.flag():
            value = self.one_of(scalars)
            value = Value(lax.broadcast_in_dim(value.array, shape, ()), value.bound)
        elif shape and self.flag():
            axis = self.below(len(shape))
            value = Value(lax.broadcasted_iota(np.int32, shape, axis), float(max(shape[axis], 1)))
        else:
            number = self.between(-3, 3)
            value = Value(lax.full(shape, number, np.int32), 3.0)
        value = self.convert(value, dtype)
        return value if bound is None else self.within(value, bound)

    def index(self, dtype: Any = np.int32) -> Value:
        """A scalar integer, of any kind; also one that is out of bounds."""
        return self.like((), dtype, 9)

    def seed(self) -> int:
        return self.below(1 << 30)

    def inside(self, values: Sequence[Value], closed_over: bool, seed: int) -> Draw:
        """Where the body of a loop or branch draws from: the same each time that it is traced."""
        inner = type(self)(np.random.default_rng(seed), self.sizes, self.wide, self.most, self.depth + 1)
        inner.values = [*(self.values[-3:] if closed_over else ()), *values]
        return inner

    def steps(self, count: int) -> None:
        """Apply so many operations."""
        from tests.fuzz import control, moves, operations

        table = (*operations.TABLE, *moves.TABLE, *(control.TABLE if self.depth < 2 else ()))
        chances = np.array([weight for weight, _ in table])
        for _ in range(count):
            _, operation = table[int(self.rng.choice(len(table), p=chances / chances.sum()))]
            with contextlib.suppress(Skip):
                operation(self)


TRANSFORMATIONS = ("plain", "plain", "plain", "grad", "jvp", "vmap", "vmap of grad", "grad of vmap", "jit of grad")


@dataclass
class Program:
    """A function, the arrays to call it with, and how it is to be run."""

    seed: int
    function: Callable[..., Any]
    arguments: list[np.ndarray]
    donated: tuple[bool, ...]
    wide: bool
    transformation: str
    notes: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        with weft.enable_x64(self.wide):
            yield


def whole_numbers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Small whole numbers of both signs, zeros of both signs among them."""
    kind = dtypes.kind(np.dtype(dtype))
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    numbers = np.asarray(rng.integers(0 if kind == "u" else -3, 4, shape), np.float64)
    if kind == "f":
        numbers = np.where((numbers == 0) & (rng.random(shape) < 0.3), -0.0, numbers)
    if kind == "c":
        numbers = numbers + 1j * np.asarray(rng.integers(-3, 4, shape))
    return np.asarray(numbers).astype(dtype)


def generate(seed: int, most: int | None = None) -> Program:
    """The program of a seed; with `most`, one whose sizes are at most that."""
    rng = np.random.default_rng(seed)
    large = rng.random() < 0.12
    wide = bool(rng.random() < 0.15)
    sizes = [int(s) for s in rng.choice(LARGE_SIZES if large else SIZES, 4)]
    if most is not None:
        sizes = [min(s, most) for s in sizes]
    elements = 200_000 if large else 3_000
    draw = Draw(rng, sizes, wide, elements)
    count, length = draw.between(1, 4), draw.one_of((2, 3, 5, 8, 12, 20))
    types = [(draw.shape(), np.float32 if n == 0 else draw.dtype()) for n in range(count)]
    donated = tuple(draw.flag(0.3) for _ in types)
    name = draw.one_of(TRANSFORMATIONS)
    body_seed, results = draw.seed(), draw.between(1, 4)

    def function(*arguments: Any) -> tuple[Any, ...]:
        inner = Draw(np.random.default_rng(body_seed), sizes, wide, elements)
        inner.values = [Value(a, 3.0) for a in arguments]
        inner.steps(length)
        # Results may be arguments, or the same twice; the last values are wanted most.
        wanted = [inner.pick() for _ in range(results)]
        return tuple(v.array for v in (*inner.values[-1:], *wanted))

    with weft.enable_x64(wide):
        arrays = [whole_numbers(rng, shape, dtype) for shape, dtype in types]
        made, arguments = transformed(name, function, arrays, rng)
    flags = donated + (False,) * (len(arguments) - len(donated))
    return Program(seed, made, arguments, flags[: len(arguments)], wide, name)


def transformed(
    name: str, function: Callable[..., Any], arrays: list[np.ndarray], rng: np.random.Generator
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A transformation of the function, and arguments for it."""
    smooth = tuple(n for n, a in enumerate(arrays) if dtypes.kind(a.dtype) == "f")
    axes = [int(rng.integers(0, a.ndim + 1)) if rng.random() < 0.7 else None for a in arrays]
    if all(a is None for a in axes):
        axes[0] = 0
    size = int(rng.integers(1, 4))
    out_axes = 0 if rng.random() < 0.8 else -1

    def total(*arguments: Any) -> Any:
        """The sum of all float results, as a float32."""
        leaves = [r for r in function(*arguments) if dtypes.kind(r.dtype) == "f"]
        return sum((wnp.sum(lax.convert_element_type(r, np.float32)) for r in leaves), np.float32(0))

    def many() -> list[np.ndarray]:
        return [
            a if axis is None else np.stack([a, *(whole_numbers(rng, a.shape, a.dtype) for _ in range(size - 1))], axis)
            for a, axis in zip(arrays, axes, strict=True)
        ]

    match name:
        case "grad":
            return weft.value_and_grad(total, smooth), arrays
        case "jit of grad":
            return weft.jit(weft.grad(total, smooth)), arrays
        case "jvp":
            tangents = [whole_numbers(rng, arrays[n].shape, arrays[n].dtype) for n in smooth]

            def derivative(*arguments: Any) -> Any:
                given, moved = arguments[: len(arrays)], arguments[len(arrays) :]

                def of_smooth(*moving: Any) -> Any:
                    whole = list(given)
                    for n, x in zip(smooth, moving, strict=True):
                        whole[n] = x
                    return [r for r in function(*whole) if dtypes.kind(r.dtype) in "fc"]

                return weft.jvp(of_smooth, tuple(given[n] for n in smooth), tuple(moved))

            return derivative, [*arrays, *tangents]
        case "vmap":
            return weft.vmap(function, tuple(axes), out_axes), many()
        case "vmap of grad":
            return weft.vmap(weft.grad(total, smooth), tuple(axes)), many()
        case "grad of vmap":
            return weft.grad(lambda *a: wnp.sum(weft.vmap(total, tuple(axes))(*a)), smooth), many()
        case _:
            return function, arrays
