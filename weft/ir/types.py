"""Types of values in a program: an open union of array, tape and token types.

Array types are interned: the same shape, dtype and weak type give the same object, so signatures compare by identity
first.
A dimension is an int or a symbolic expression.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.base.memo import Memo
from weft.indexing.expression import Expression

Dimension = int | Expression
Shape = tuple[Dimension, ...]


class Type:
    """What is known of a value before it exists."""

    __slots__ = ("__weakref__",)

    def tangent(self) -> Type:
        """The type of a tangent (and cotangent) of such a value."""
        raise NotImplementedError(f"{type(self).__name__} has no tangent type")

    def strong(self) -> Type:
        """The same type without weakness."""
        return self

    def matches(self, other: Type) -> bool:
        """Equal up to weak type."""
        return self == other

    def short(self) -> str:
        """The text that programs and error messages show, `f32[3,4]`."""
        return repr(self)

    def str_short(self, short_dtypes: bool = True) -> str:
        return self.short()


class ArrayType(Type):
    """Shape, dtype, weak type, and the slots that sharding and memory placement fill."""

    __slots__ = (
        "_hash",
        "_short",
        "_strong",
        "_tangent",
        "dtype",
        "memory_space",
        "shape",
        "sharding",
        "varying",
        "weak_type",
    )

    shape: Shape
    dtype: Any
    weak_type: bool

    def __init__(
        self,
        shape: Shape,
        dtype: Any,
        weak_type: bool = False,
        sharding: Any = None,
        varying: frozenset[Any] = frozenset(),
        memory_space: Any = None,
    ):
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type
        self.sharding = sharding
        self.varying = varying
        self.memory_space = memory_space
        self._hash = hash((shape, dtype, weak_type, sharding, varying, memory_space))
        self._tangent: ArrayType | None = None
        self._strong: ArrayType | None = None
        self._short: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, ArrayType)
            and self._hash == other._hash
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.weak_type == other.weak_type
            and self.sharding == other.sharding
            and self.varying == other.varying
            and self.memory_space == other.memory_space
        )

    def __reduce__(self) -> Any:
        return ArrayType, (self.shape, self.dtype, self.weak_type, self.sharding, self.varying, self.memory_space)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        return math.prod(self.shape)

    def with_shape(self, shape: Any) -> ArrayType:
        return array_type(tuple(shape), self.dtype, self.weak_type)

    def with_dtype(self, dtype: Any, weak_type: bool = False) -> ArrayType:
        return array_type(self.shape, dtype, weak_type)

    def without(self, axes: tuple[int, ...]) -> ArrayType:
        """The type after `axes` are folded away."""
        return array_type(tuple(d for i, d in enumerate(self.shape) if i not in axes), self.dtype, self.weak_type)

    def strong(self) -> ArrayType:
        if not self.weak_type:
            return self
        if self._strong is None:
            self._strong = array_type(self.shape, self.dtype)
        return self._strong

    def tangent(self) -> ArrayType:
        if self._tangent is None:
            inexact = dtypes.issubdtype(self.dtype, np.inexact)
            self._tangent = self if inexact else array_type(self.shape, dtypes.float0)
        return self._tangent

    def matches(self, other: Type) -> bool:
        return self is other or self.strong() == other.strong()

    def short(self) -> str:
        if self._short is None:
            self._short = f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"
        return self._short

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.short()}{weak})"


# Identity is only the fast path of equality, so forgetting is safe.
_interned: Memo[tuple[Any, ...], ArrayType] = Memo(100_000, lasting=True)


def array_type(shape: Shape, dtype: Any, weak_type: bool = False) -> ArrayType:
    """The interned array type of a shape and a (canonical) dtype."""
    key = (shape, dtype, weak_type)
    known = _interned.get(key)
    if known is not None:
        return known
    exact = tuple(d if isinstance(d, Expression) else index(d) for d in shape)
    dtype = dtype if isinstance(dtype, dtypes.ExtendedDtype) else np.dtype(dtype)
    check_size(exact, dtype)
    made = ArrayType(exact, dtype, bool(weak_type))
    return _interned.keep((exact, made.dtype, made.weak_type), made)


MOST_BYTES = 2**63 - 1  # what a signed 64-bit integer counts


def check_size(shape: Shape, dtype: Any) -> None:
    """Refuse a shape whose bytes no address can count."""
    if any(isinstance(d, Expression) for d in shape):
        return
    # An empty array of absurd dimensions has strides that do not fit either.
    size = math.prod([max(d, 1) for d in shape]) * max(dtypes.storage(dtype).itemsize, 1)
    if size > MOST_BYTES:
        raise ArgumentError(
            f"An array of shape {shape} would have {size:.3g} bytes, more than can be addressed.",
            received=f"shape {shape} of {dtypes.name(dtype)}",
            fix="check the dimensions: a product of sizes may have been meant as a size",
        )


class TapeType(Type):
    """An unbounded sequence of values of one element type, zero where nothing was written: what a loop of unknown
    length records.

    The element may be a tape itself, for a loop in a loop.
    """

    __slots__ = ("element",)

    def __init__(self, element: Type):
        self.element = element

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TapeType) and self.element == other.element

    def __hash__(self) -> int:
        return hash(("tape", self.element))

    def tangent(self) -> TapeType:
        return TapeType(self.element.tangent())

    def strong(self) -> TapeType:
        return TapeType(self.element.strong())

    def matches(self, other: Type) -> bool:
        return isinstance(other, TapeType) and self.element.matches(other.element)

    def short(self) -> str:
        return f"tape<{self.element.short()}>"

    def __repr__(self) -> str:
        return f"TapeType({self.element.short()})"


class ShapeDtypeStruct:
    """A shape and a dtype without values: what `eval_shape` returns and what tracing accepts in place of an array."""

    __slots__ = ("dtype", "shape", "sharding", "weak_type")
    dtype: Any
    shape: tuple[Any, ...]
    sharding: Any
    weak_type: bool

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct needs a dtype, got None.")
        put = partial(object.__setattr__, self)
        put("shape", tuple(d if isinstance(d, Expression) else index(d) for d in shape))
        put("dtype", dtype if isinstance(dtype, dtypes.ExtendedDtype) else np.dtype(dtype))
        put("sharding", sharding)
        put("weak_type", weak_type)

    def __setattr__(self, name: str, value: Any) -> None:
        what = f"A ShapeDtypeStruct is immutable: its {name} cannot be set."
        raise RuntimeError(f"{what} update(...) returns another one with changes.")

    def __reduce__(self) -> Any:
        return partial(ShapeDtypeStruct, sharding=self.sharding, weak_type=self.weak_type), (self.shape, self.dtype)

    @property
    def is_ref(self) -> bool:
        """Whether it is the type of a reference to mutable memory: never, since there are none."""
        return False

    @property
    def aval(self) -> ArrayType:
        return array_type(self.shape, dtypes.canonicalize_dtype(self.dtype, allow_extended_dtype=True), self.weak_type)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        return math.prod(self.shape)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The struct of an array, a tracer, a number or a type."""
        aval = x if isinstance(x, ArrayType) else type_of(x)
        assert isinstance(aval, ArrayType)
        return cls(aval.shape, aval.dtype, sharding=getattr(x, "sharding", None), weak_type=aval.weak_type)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        parts = {"shape": self.shape, "dtype": self.dtype, "sharding": self.sharding, "weak_type": self.weak_type}
        return ShapeDtypeStruct(**{**parts, **changes})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct without dimensions")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (
            (self.shape, self.dtype, self.sharding, self.weak_type)
            == (other.shape, other.dtype, other.sharding, other.weak_type)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.sharding, self.weak_type))

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={dtypes.name(self.dtype)}{sharding}{weak})"


def type_of(x: Any) -> Type:
    """The type of any value that may enter a program: an array, a tracer, a NumPy value or a Python scalar."""
    try:
        return x.aval
    except AttributeError:
        pass
    kind = type(x)
    if kind is float or kind is int or kind is complex or kind is bool:
        return _scalar_type(kind)
    if isinstance(x, (np.ndarray, np.generic)):
        return array_type(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if isinstance(x, (int, float, complex)):
        return _scalar_type(next(k for k in (bool, int, float, complex) if isinstance(x, k)))
    raise TypeError(f"{x!r} of type {type(x).__name__} is not an array or a number, so it cannot enter a Weft program.")


def _scalar_type(kind: type) -> ArrayType:
    return array_type((), dtypes.scalar_dtype(kind), kind is not bool)


def is_value(x: Any) -> bool:
    """Whether `x` may enter a program as an array-like leaf."""
    return hasattr(x, "aval") or isinstance(x, (np.ndarray, np.generic, int, float, complex))
