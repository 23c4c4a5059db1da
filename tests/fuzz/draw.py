"""State of the generator of a random program: choices from a seed, values to choose from, and the text.

A program is Python source over the names of a `namespace`, drawn line by line: each line is evaluated on Weft's tracers
as it is written, so that the next choice knows shapes and dtypes. The finished text runs with the modules of Weft or,
in `tests/peer`, with those of JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.numbers import SHORT, SMALL, most_of
from weft.base import dtypes

# The modules that a program's text names, by what they are called in either library.
MODULES = {"np": "numpy", "lax": "lax", "random": "random", "linalg": "lax.linalg", "fft": "numpy.fft", "nn": "nn"}
# Every kind of number; "k" are random keys.
ALL = "fiubc"
# Factors for the elements of a result of some shape, by which a total of them has different cotangents.
WEIGHTS = "onp.resize(onp.array([1, 2, 0, 3, -1], onp.float32), {})"


def namespace(library: str) -> dict[str, Any]:
    """Return the meaning of the names in a program's text for one library."""
    lib = importlib.import_module(library)
    modules = {short: importlib.import_module(f"{library}.{long}") for short, long in MODULES.items()}
    # JAX has this one elsewhere.
    calls_back = lib.io_callback if hasattr(lib, "io_callback") else lib.experimental.io_callback
    return {**modules, "lib": lib, "onp": np, "ml_dtypes": ml_dtypes, "io_callback": calls_back}


class Skip(Exception):
    """Raised by an operation without suitable operands."""


class Text(str):
    """Expression that is written unchanged, not as a string."""


@dataclass
class Value:
    """Name in the program, its tracer, and the largest magnitude that it can have in a program of small integers."""

    name: str
    array: Any
    bound: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        return len(self.array.shape)

    @property
    def size(self) -> int:
        return math.prod(self.array.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def kind(self) -> str:
        return dtypes.kind(self.dtype)

    @property
    def bits(self) -> int:
        return dtypes.itemsize_bits(self.dtype)


def literal(x: Any) -> str:
    """Format an operand or parameter as Python source."""
    match x:
        case Value():
            return x.name
        case Text():
            return str(x)
        case tuple():
            return f"({', '.join(map(literal, x))}{',' if len(x) == 1 else ''})"
        case list():
            return f"[{', '.join(map(literal, x))}]"
        case dict():
            return f"{{{', '.join(f'{k!r}: {literal(v)}' for k, v in x.items())}}}"
        case np.dtype() | type():
            name = dtypes.name(np.dtype(x))
            return f"onp.{'bool_' if name == 'bool' else name}" if hasattr(np, name) else f"ml_dtypes.{name}"
        case np.ndarray() | np.generic():
            if not x.size:
                return f"onp.zeros({x.shape}, {literal(x.dtype)})"
            return f"onp.array({scalar_text(np.asarray(x).tolist())}, {literal(x.dtype)})"
        case _:
            return scalar_text(x)


def scalar_text(x: Any) -> str:
    """Numbers and lists of them; infinities and nan by name."""
    if isinstance(x, list):
        return f"[{', '.join(map(scalar_text, x))}]"
    if isinstance(x, float) and not math.isfinite(x):
        return "onp.nan" if math.isnan(x) else "onp.inf" if x > 0 else "-onp.inf"
    if isinstance(x, complex):
        return f"complex({scalar_text(x.real)}, {scalar_text(x.imag)})"
    return repr(x)


class Draw:
    """Random choices, the values that there are to choose from, and the lines written so far."""

    def __init__(
        self,
        rng: np.random.Generator,
        settings: Settings,
        names: dict[str, Any],
        depth: int = 0,
        counter: list[int] | None = None,
    ) -> None:
        self.rng, self.settings, self.names, self.depth = rng, settings, names, depth
        self.values: list[Value] = []
        self.arguments: list[Value] = []
        self.lines: list[str] = []
        self.counter = [0] if counter is None else counter
        # The value that the next operation must take, so that its producer and this operation become neighbours.
        self.focus: Value | None = None

    # -- choices ---------------------------------------------------------------------------------------------------

    @property
    def exact(self) -> bool:
        """True if values are small integers, so that every order of a sum returns the same bits."""
        return self.settings.exact

    def below(self, count: int) -> int:
        return int(self.rng.integers(count)) if count > 0 else 0

    def between(self, low: int, high: int) -> int:
        """Draw a number from low to high, both included."""
        return low + self.below(high - low + 1)

    def flag(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def one_of(self, things: Sequence[Any]) -> Any:
        if not things:
            raise Skip
        return things[self.below(len(things))]

    def permutation(self, count: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.permutation(count))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Draw a shape with few elements, often with a single element along an axis, sometimes with none."""
        rank = self.one_of((0, 1, 1, 2, 2, 2, 3, 4)) if rank is None else rank
        shape = [int(self.one_of(self.settings.sizes)) for _ in range(rank)]
        while math.prod(shape) > self.settings.most:
            shape[shape.index(max(shape))] = self.between(1, 3)
        return tuple(shape)

    def dtype(self, kinds: str = ALL) -> Any:
        found = [d for d in self.settings.dtypes if dtypes.kind(d) in kinds]
        return np.dtype(self.one_of(found))

    def axis(self, value: Value) -> int:
        if not value.rank:
            raise Skip
        return self.below(value.rank)

    def axes(self, rank: int, least: int = 0) -> tuple[int, ...]:
        """Draw some of the axes, in order."""
        if rank < least:
            raise Skip
        return tuple(sorted(self.permutation(rank)[: self.between(least, rank)]))

    # -- text ------------------------------------------------------------------------------------------------------

    def fresh(self, letter: str = "v") -> str:
        self.counter[0] += 1
        return f"{letter}{self.counter[0]}"

    def evaluate(self, expression: str) -> Any:
        return eval(expression, self.names)

    def statement(self, text: str) -> None:
        """Write and run a line without a result."""
        exec(text, self.names)
        self.lines += text.split("\n")

    def call(self, function: str, *args: Any, **params: Any) -> Any:
        """Write `names = function(...)` and run it: a Value, or a list of them where there are several results.

        The bounds are infinite until `keep` narrows them.
        """
        operands = [literal(a) for a in args] + [f"{k}={literal(v)}" for k, v in params.items()]
        return self.assign(f"{function}({', '.join(operands)})")

    def assign(self, expression: str) -> Any:
        found = self.evaluate(expression)
        several = isinstance(found, (tuple, list))
        result = [Value(self.fresh(), array, math.inf) for array in (found if several else [found])]
        for value in result:
            self.names[value.name] = value.array
        target = f"({''.join(f'{v.name}, ' for v in result)})" if several else result[0].name
        self.lines.append(f"{target} = {expression}")
        return result if several else result[0]

    def keep(self, value: Value, bound: float = math.inf) -> Value:
        """Let later operations choose a value. Integers wrap, so their bound is that of the dtype."""
        if value.size > 4 * self.settings.most:
            raise Skip
        value.bound = min(bound, most_of(value.dtype)) if value.kind in "iub" else bound
        self.values.append(value)
        return value

    # -- values ----------------------------------------------------------------------------------------------------

    def pick(
        self, kinds: str = ALL, rank: int = 0, most: int = 9, accepts: Callable[[Value], bool] | None = None
    ) -> Value:
        """Choose a value of some kinds and ranks: the one in focus, which must fit, else mostly a late one."""

        def fits(v: Value) -> bool:
            return v.kind in kinds and rank <= v.rank <= most and (accepts is None or accepts(v))

        focus, self.focus = self.focus, None
        if focus is not None:
            if not fits(focus):
                raise Skip
            return focus
        found = [v for v in self.values if fits(v)]
        if self.flag(0.6):
            found = found[-4:]
        return self.one_of(found)

    def within(self, value: Value, bound: float) -> Value:
        """In a program of small integers, a value cut to a magnitude."""
        return self.limited(value, bound) if self.exact else value

    def limited(self, value: Value, bound: float) -> Value:
        """Clamp a value to a magnitude, in any program."""
        if (self.exact and value.bound <= bound) or value.kind in "bk":
            return value
        if value.kind == "c":
            parts = [self.limited(self.call(f"lax.{p}", value), bound) for p in ("real", "imag")]
            return self.bounded(self.call("lax.complex", *parts), bound)
        bound = min(bound, float(most_of(value.dtype)))
        low = 0 if value.kind == "u" else -bound
        result = self.call("lax.clamp", np.array(low, value.dtype), value, np.array(bound, value.dtype))
        return self.bounded(result, bound)

    @staticmethod
    def bounded(value: Value, bound: float) -> Value:
        value.bound = bound
        return value

    def convert(self, value: Value, dtype: Any) -> Value:
        """Convert a value to another dtype, clamped to its range in a program of small integers."""
        dtype = np.dtype(dtype)
        if value.dtype == dtype:
            return value
        kind = dtypes.kind(dtype)
        if value.kind == "c" and kind != "c":
            value = self.bounded(self.call("lax.real", value), value.bound)
        if kind != "b":
            value = self.within(value, min(most_of(dtype), 2.0**20))
        if kind == "u" and value.kind in "fi" and self.exact:
            value = self.bounded(self.call("lax.abs", value), value.bound)
        result = self.call("lax.convert_element_type", value, dtype)
        return self.bounded(result, 1.0 if kind == "b" else value.bound)

    def like(self, shape: Sequence[int], dtype: Any, bound: float | None = None) -> Value:
        """Make a value of a shape and dtype from existing ones, of some magnitude in a program of small integers."""
        shape = tuple(shape)
        size = math.prod(shape)
        focus = self.focus
        if focus is not None and focus.shape == shape and focus.kind != "k" and focus.dtype == dtype:
            self.focus = None
            return focus if bound is None else self.within(focus, bound)
        numbers = [v for v in self.values if v.kind != "k"]
        same = [v for v in numbers if v.shape == shape]
        right = [v for v in same if v.dtype == dtype]
        larger = [v for v in numbers if v.size >= size]
        scalars = [v for v in numbers if not v.shape]
        if right and self.flag(0.7):
            value = self.one_of(right)
        elif same and self.flag(0.8):
            value = self.one_of(same)
        elif larger and self.flag(0.6):
            value = self.one_of(larger)
            bounds = value.bound
            flat = self.call("lax.reshape", value, (value.size,)) if value.rank != 1 else value
            cut = self.call("lax.slice", flat, (0,), (size,)) if value.size != size else flat
            value = self.bounded(self.call("lax.reshape", cut, shape), bounds) if len(shape) != 1 else cut
            value.bound = bounds
        elif scalars and shape and self.flag():
            scalar = self.one_of(scalars)
            value = self.bounded(self.call("lax.broadcast_in_dim", scalar, shape, ()), scalar.bound)
        elif shape and self.flag() and np.dtype(dtype) not in SHORT and dtypes.kind(dtype) != "b":
            axis = self.below(len(shape))
            value = self.call("lax.broadcasted_iota", np.dtype(dtype), shape, axis)
            value.bound = float(max(shape[axis], 1))
        else:
            whole = self.settings.array(self.rng, shape, dtype)
            if whole.size > 40:
                whole = whole.ravel()[:1].reshape(())
            value = (
                self.bounded(self.call("lax.full", shape, Text(literal(whole))), SMALL)
                if not whole.shape
                else (self.bounded(self.call("np.asarray", whole), SMALL))
            )
        value = self.convert(value, dtype)
        return value if bound is None else self.within(value, bound)

    def constant(self, value: Value) -> Value:
        """Stop derivatives of a value, for an operation without one."""
        asked = self.settings.derivatives or self.depth > 1
        return self.bounded(self.call("lax.stop_gradient", value), value.bound) if asked else value

    def index(self, dtype: Any = np.int32, most: float = 9) -> Value:
        """Draw a scalar integer, also one that is out of bounds."""
        value = self.like((), dtype)
        return self.limited(value, most) if self.exact or self.flag() else value

    # -- bodies ----------------------------------------------------------------------------------------------------

    def body(self, steps: int, finish: Callable[[Draw], str], closed: bool = False) -> Text:
        """Return the name of a function argument, drawn when it is first traced and run by its text from then on.

        `finish` writes the expression that the function returns. With `closed` it may read values from outside.
        """
        name, seed = self.fresh("f"), self.below(1 << 30)
        out: list[Callable[..., Any]] = []

        def function(*args: Any) -> Any:
            if out:
                return out[0](*args)
            rng = np.random.default_rng(seed)
            inner = Draw(rng, self.settings, dict(self.names), self.depth + 1, self.counter)
            inner.values = self.values[-3:] if closed else []
            pattern = inner.parameters(args)
            inner.steps(steps)
            text = finish(inner)
            result = inner.evaluate(text)
            head = f"def {name}(*args):"
            lines = [head, *(f"    {line}" for line in (f"{pattern} = args", *inner.lines, f"return {text}"))]
            self.statement("\n".join(lines))
            out.append(self.names[name])
            return result

        self.names[name] = function
        return Text(name)

    def parameters(self, args: Any) -> str:
        """Names for the arguments of a body, in tuples as they come."""
        if isinstance(args, (tuple, list)):
            return f"({''.join(f'{self.parameters(a)}, ' for a in args)})"
        value = Value(self.fresh("a"), args, SMALL)
        self.names[value.name] = args
        self.values.append(value)
        self.arguments.append(value)
        return value.name

    def steps(self, count: int) -> None:
        """Apply `count` operations: pairs of neighbours, and single ones, mostly to the previous result."""
        latest: list[Value] = []
        while count > 0:
            if self.flag():
                latest, count = self.pair(), count - 2
                continue
            count -= 1
            for _ in range(4):
                focus = self.one_of(latest) if latest and self.flag(0.85) else None
                found = self.attempt(self.settings.choose(self), focus)
                latest = found or []
                if found is not None:
                    break

    def pair(self) -> list[Value]:
        """Two operations, the second on a result of the first, which is drawn again until that result fits."""
        first, second = self.settings.choose(self, 0.0), self.settings.choose(self, 0.0)
        for _ in range(6):
            values, lines = len(self.values), len(self.lines)
            result = self.attempt(first, None) or []
            for n in self.permutation(len(result))[:3]:
                found = self.attempt(second, result[n])
                if found is not None:
                    return found
            del self.values[values:], self.lines[lines:]
        return []

    def attempt(self, entry: Any, focus: Value | None) -> list[Value] | None:
        """Return the new values of an operation on the value in focus; None, with nothing written, if it does not
        fit."""
        if self.depth > entry.depth:
            return None
        values, lines = len(self.values), len(self.lines)
        self.focus = focus
        try:
            entry.draw(self)
        except Skip:
            del self.values[values:], self.lines[lines:]
            return None
        finally:
            self.focus = None
        return self.values[values:]

    def unread(self) -> list[Value]:
        """Return the values that no line reads."""
        read = {n for line in self.lines for n in re.findall(r"\bv\d+\b", line.partition(" = ")[2] or line)}
        return [v for v in self.values if v.name not in read and v.kind != "k" and v.name[0] == "v"]

    def result(self, kinds: str = ALL) -> Value:
        """Choose a value to return, mostly one of the latest; a number if there is none."""
        with contextlib.suppress(Skip):
            return self.pick(kinds)
        return self.bounded(self.call("np.asarray", np.float32(1)), 1.0)


@dataclass(frozen=True)
class Settings:
    """Properties of a whole program: sizes of dimensions, dtypes, and the range of numbers."""

    sizes: tuple[int, ...]
    most: int
    dtypes: tuple[Any, ...]
    exact: bool
    wide: bool
    derivatives: bool
    array: Callable[[np.random.Generator, Sequence[int], Any], np.ndarray]
    choose: Callable[..., Any]
