"""Types of values in a jaxpr: an open union of array, tape and token types.

Array types are interned: the same shape, dtype, weak type and placement are the same object, so signatures compare by
identity first. A dimension is an int or a symbolic expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import described, index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.memo import Memo
from weft.indexing.expression import Expression
from weft.indexing.guards import current
from weft.sharding.device import MemorySpace
from weft.sharding.manual import NONE, ManualAxisType
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding, Sharding, type_sharding
from weft.sharding.spec import PartitionSpec, entry_axes

Dimension = int | Expression
Shape = tuple[Dimension, ...]


class Type:
    """Abstract value: what is known about a value before it exists."""

    __slots__ = ("__weakref__",)

    is_plain: bool = True  # whether the type has no placement

    @property
    def plain(self) -> Type:
        """Type without its placement."""
        return self

    def tangent(self) -> Type:
        """Return the type of tangents of such a value."""
        raise NotImplementedError(f"{type(self).__name__} has no tangent type.")

    def cotangent(self) -> Type:
        """Return the type of cotangents: the tangent type with unreduced and reduced axes swapped."""
        return self.tangent()

    def to_tangent_aval(self) -> Type:
        """Return `tangent()`, under JAX's name."""
        return self.tangent()

    def to_cotangent_aval(self) -> Type:
        """Return `cotangent()`, under JAX's name."""
        return self.cotangent()

    def strong(self) -> Type:
        """Return the type without its weak-type flag."""
        return self

    def matches(self, other: Type) -> bool:
        """Return whether the types are equal up to weak type."""
        return self == other

    def accepts(self, other: Type) -> bool:
        """Return whether a value of type `other` can be passed for one of this type without communication."""
        return self.matches(other)

    def short(self) -> str:
        """Return the text that jaxprs and error messages show, such as `f32[3,4]`."""
        return repr(self)

    def str_short(self, short_dtypes: bool = False) -> str:
        """Return the text of the type, with full dtype names; with `short_dtypes` the text that jaxprs show."""
        return self.short()

    def as_seen(self, depth: int = 3) -> Type:
        """Return the type that the caller of a method that prints it sees; that caller is `depth` frames above."""
        return self


class _Interned(type):
    """Metaclass that makes a call of the class return the interned type, for any accepted form of shape and dtype."""

    def __call__(
        cls,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: Any = None,
        manual_axis_type: ManualAxisType = NONE,
        memory_space: MemorySpace | None = None,
    ) -> Any:
        return array_type(tuple(shape), dtype, weak_type, sharding, manual_axis_type, memory_space)

    def new(cls, *args: Any) -> Any:
        """Create a type object that is not interned."""
        return super().__call__(*args)


_NO_MESH = AbstractMesh((), ())


class ArrayType(Type, metaclass=_Interned):
    """Type of an array: shape, dtype, weak-type flag and placement.

    The placement is the sharding over Explicit mesh axes, the state along Manual axes and the memory space. A type
    without any of these is *plain*, as almost all types are. A sharding that splits nothing is dropped, so a replicated
    value has a plain type.
    """

    __slots__ = (
        "_cotangent",
        "_hash",
        "_short",
        "_strong",
        "_tangent",
        "dtype",
        "is_plain",
        "manual",
        "memory_space",
        "plain",
        "shape",
        "explicit_sharding",
        "weak_type",
    )

    shape: Shape
    dtype: Any
    weak_type: bool
    explicit_sharding: NamedSharding | None
    manual: ManualAxisType
    memory_space: MemorySpace | None
    plain: ArrayType

    def __init__(
        self,
        shape: Shape,
        dtype: Any,
        weak_type: bool = False,
        sharding: NamedSharding | None = None,
        manual: ManualAxisType = NONE,
        memory_space: MemorySpace | None = None,
        plain: ArrayType | None = None,
    ):
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type
        self.explicit_sharding = sharding
        self.manual = manual
        self.memory_space = memory_space
        self.is_plain = plain is None
        self.plain = self if plain is None else plain
        self._hash = hash((shape, dtype, weak_type, sharding, manual, memory_space))
        self._tangent: ArrayType | None = None
        self._cotangent: ArrayType | None = None
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
            and self.explicit_sharding == other.explicit_sharding
            and self.manual == other.manual
            and self.memory_space == other.memory_space
        )

    def __reduce__(self) -> Any:
        return array_type, (
            self.shape,
            self.dtype,
            self.weak_type,
            self.explicit_sharding,
            self.manual,
            self.memory_space,
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        return math.prod(self.shape)

    # -- placement ---------------------------------------------------------------------------------------------------

    @property
    def manual_axis_type(self) -> ManualAxisType:
        """State along manual axes, under JAX's name."""
        return self.manual

    mat = manual_axis_type

    @property
    def vma(self) -> frozenset[Any]:
        """Manual axes along which the value varies."""
        return self.manual.varying

    @property
    def sharding(self) -> NamedSharding:
        """Sharding over Explicit axes; by default one without splits, over a mesh without axes."""
        if self.explicit_sharding is not None:
            return self.explicit_sharding
        return NamedSharding(_NO_MESH, PartitionSpec(*[None] * len(self.shape)))

    @property
    def spec(self) -> PartitionSpec:
        """Sharding's spec, with one entry per dimension."""
        return (
            PartitionSpec(*[None] * len(self.shape)) if self.explicit_sharding is None else self.explicit_sharding.spec
        )

    def with_placement(self, **changes: Any) -> ArrayType:
        """Return the type with another `sharding`, `manual` state or `memory_space`."""
        own = {"sharding": self.explicit_sharding, "manual": self.manual, "memory_space": self.memory_space}
        return array_type(self.shape, self.dtype, self.weak_type, **{**own, **changes})

    def update(
        self,
        shape: Any = None,
        dtype: Any = None,
        weak_type: bool | None = None,
        sharding: Any = None,
        memory_space: MemorySpace | None = None,
    ) -> ArrayType:
        """Return the type with some attributes replaced. If the rank changes, the sharding is dropped unless a new one
        is given."""
        own = tuple(self.shape if shape is None else shape)
        if sharding is None and len(own) == len(self.shape):
            sharding = self.explicit_sharding
        return array_type(
            own,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            sharding,
            self.manual,
            self.memory_space if memory_space is None else memory_space,
        )

    def placement_text(self) -> str | None:
        """Return a text of the whole placement that is the same in every process; None for a plain type."""
        if self.is_plain:
            return None
        return self.short() if self.explicit_sharding is None else f"{self.short()} on {self.explicit_sharding.mesh!r}"

    # -- related types: all keep the placement, except those with `plain` in their names -------------------------------

    def plain_of_shape(self, shape: Any) -> ArrayType:
        """Return the plain type of another shape. The placement is dropped, because it does not follow from a shape."""
        return array_type(tuple(shape), self.dtype, self.weak_type)

    def with_dtype(self, dtype: Any, weak_type: bool = False) -> ArrayType:
        """Return the type with another dtype and weak-type flag."""
        if self.is_plain:
            return array_type(self.shape, dtype, weak_type)
        return array_type(self.shape, dtype, weak_type, self.explicit_sharding, self.manual, self.memory_space)

    def without(self, axes: tuple[int, ...]) -> ArrayType:
        """Return the type without the dimensions `axes`; the others are split as before."""
        shape = tuple([size for i, size in enumerate(self.shape) if i not in axes])
        if self.is_plain:
            return array_type(shape, self.dtype, self.weak_type)
        return self._split_as(shape, [entry for i, entry in enumerate(self.spec.partitions) if i not in axes])

    def without_dimension(self, dim: int) -> ArrayType:
        """Return the type without one dimension; the others are split as before."""
        shape = self.shape[:dim] + self.shape[dim + 1 :]
        if self.is_plain:
            return array_type(shape, self.dtype, self.weak_type)
        entries = self.spec.partitions
        return self._split_as(shape, entries[:dim] + entries[dim + 1 :])

    def with_dimension(self, dim: int, size: Dimension) -> ArrayType:
        """Return the type with an unsplit dimension inserted at `dim`; the others are split as before."""
        shape = (*self.shape[:dim], size, *self.shape[dim:])
        if self.is_plain:
            return array_type(shape, self.dtype, self.weak_type)
        entries = self.spec.partitions
        return self._split_as(shape, (*entries[:dim], None, *entries[dim:]))

    def _split_as(self, shape: Shape, entries: Sequence[Any]) -> ArrayType:
        """Return the type of another shape, with these spec entries over the same mesh."""
        sharding = self.explicit_sharding
        if sharding is not None:
            sharding = sharding.update(spec=sharding.spec.update(partitions=entries))
        return array_type(shape, self.dtype, self.weak_type, sharding, self.manual, self.memory_space)

    def strong(self) -> ArrayType:
        if not self.weak_type:
            return self
        if self._strong is None:
            self._strong = self.with_dtype(self.dtype)
        return self._strong

    def tangent(self) -> ArrayType:
        if self._tangent is None:
            inexact = dtypes.issubdtype(self.dtype, np.inexact)
            self._tangent = self if inexact else self.with_dtype(dtypes.float0)
        return self._tangent

    def cotangent(self) -> ArrayType:
        if self._cotangent is None:
            tangent = self.tangent()
            if not tangent.is_plain:
                sharding = tangent.explicit_sharding
                if sharding is not None:
                    sharding = sharding.update(spec=sharding.spec.to_ct_spec())
                tangent = tangent.with_placement(sharding=sharding, manual=tangent.manual.to_ct_mat())
            self._cotangent = tangent
        return self._cotangent

    def matches(self, other: Type) -> bool:
        return self is other or self.strong() == other.strong()

    def accepts(self, other: Type) -> bool:
        """Return whether a value of type `other` can be passed for one of this type without communication.

        True if the types are equal up to weak type, or if `other` is replicated where this type is split or varies:
        then each device takes its own part.
        """
        if self.matches(other):
            return True
        if self.is_plain or not isinstance(other, ArrayType) or not self.plain.matches(other.plain):
            return False
        whole = other.explicit_sharding is None and not (self.spec.unreduced or self.spec.reduced)
        invariant = other.manual is NONE and not (self.manual.unreduced or self.manual.reduced)
        return (
            self.memory_space == other.memory_space
            and (whole or self.explicit_sharding == other.explicit_sharding)
            and (invariant or self.manual is other.manual)
        )

    def short(self) -> str:
        if self._short is None:
            sizes = list(map(str, self.shape))
            states = ""
            if not self.is_plain:
                spec = self.spec
                sizes = [size + _entry_text(entry) for size, entry in zip(sizes, spec.partitions, strict=True)]
                states = _states_text(
                    self.manual.varying, self.manual.unreduced | spec.unreduced, self.manual.reduced | spec.reduced
                )
            memory = f"<{self.memory_space.name.lower()}>" if self.memory_space is not None else ""
            self._short = f"{dtypes.short_name(self.dtype)}{memory}[{','.join(sizes)}]{states}"
        return self._short

    def str_short(self, short_dtypes: bool = False) -> str:
        short = self.as_seen().short()
        return short if short_dtypes else dtypes.name(self.dtype) + short.removeprefix(dtypes.short_name(self.dtype))

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.as_seen().str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.as_seen().str_short()}{weak})"

    def as_seen(self, depth: int = 3) -> ArrayType:
        """Return the type that the caller of a method that prints it sees: with integers for sizes that became symbols
        by themselves, if that caller, `depth` frames above, is not Weft's."""
        answers = current.answers
        if answers is None or answers.declared:
            return self
        sizes = list(self.shape)
        for axis, size in enumerate(sizes):
            value = answers.seen_outside(size, depth) if isinstance(size, Expression) else None
            sizes[axis] = size if value is None else value
        return self.update(shape=sizes)


def _entry_text(entry: Any) -> str:
    """Format the mesh axes of one dimension: `@x`, or `@(x,y)`; "" if it is not split."""
    return f"@{_axes_text(entry_axes(entry))}" if entry is not None else ""


def _axes_text(axes: Sequence[Any]) -> str:
    return f"({','.join(map(str, axes))})" if len(axes) > 1 else str(axes[0])


def _states_text(varying: frozenset[Any], unreduced: frozenset[Any], reduced: frozenset[Any]) -> str:
    """Format the axes along which a value is not invariant: `{V:x, U:(y,z)}`."""
    named = (("V", varying), ("U", unreduced), ("R", reduced))
    states = [f"{letter}:{_axes_text(sorted(axes, key=str))}" for letter, axes in named if axes]
    return f"{{{', '.join(states)}}}" if states else ""


# Equality does not need identity, which is only its fast path, so entries can be evicted.
_interned: Memo[tuple[Any, ...], ArrayType] = Memo(100_000, lasting=True)
_placed: Memo[tuple[Any, ...], ArrayType] = Memo(100_000, lasting=True)


def array_type(
    shape: Shape,
    dtype: Any,
    weak_type: bool = False,
    sharding: Sharding | None = None,
    manual: ManualAxisType = NONE,
    memory_space: MemorySpace | None = None,
) -> ArrayType:
    """Return the interned array type of a shape, a (canonical) dtype and a placement."""
    if sharding is not None or manual is not NONE or memory_space is not None:
        return _with_placement(array_type(shape, dtype, weak_type), sharding, manual, memory_space)
    key = (shape, dtype, weak_type)
    known = _interned.get(key)
    if known is not None:
        return known
    exact = tuple(d if isinstance(d, Expression) else index(d) for d in shape)
    dtype = dtype if isinstance(dtype, dtypes.ExtendedDtype) else np.dtype(dtype)
    check_size(exact, dtype)
    aval = ArrayType.new(exact, dtype, bool(weak_type))
    return _interned.keep((exact, aval.dtype, aval.weak_type), aval)


def _with_placement(
    plain: ArrayType, sharding: Sharding | None, manual: ManualAxisType, memory_space: MemorySpace | None
) -> ArrayType:
    """Return the interned type with a placement; `plain` itself if the placement is trivial."""
    if sharding is not None:
        sharding.check_compatible_aval(plain.shape)
    known = type_sharding(sharding, len(plain.shape))
    space = None if memory_space is MemorySpace.Device else memory_space
    if known is None and manual is NONE and space is None:
        return plain
    if known is not None and not any(isinstance(d, Expression) for d in plain.shape):
        known.check_even(plain.shape)
    key = (plain, known, manual, space)
    found = _placed.get(key)
    if found is not None:
        return found
    aval = ArrayType.new(plain.shape, plain.dtype, plain.weak_type, known, manual, space, plain)
    return _placed.keep(key, aval)


MOST_BYTES = 2**63 - 1  # what a signed 64-bit integer counts


def check_size(shape: Shape, dtype: Any) -> None:
    """Raise for a shape with more bytes than 64-bit addresses can count."""
    if any(isinstance(d, Expression) for d in shape):
        return
    # Empty dimensions count as 1, because the strides of an empty array with huge dimensions overflow as well.
    size = math.prod([max(d, 1) for d in shape]) * max(dtypes.storage(dtype).itemsize, 1)
    if size > MOST_BYTES:
        raise ArgumentError(
            f"The size of an array must be less than 2**63 bytes; shape {shape} would have {size:.3g}.",
            received=f"shape {shape} of {dtypes.name(dtype)}",
            fix="check the dimensions: a product of sizes may have been meant as a size",
        )


class TapeType(Type):
    """Type of a tape: an unbounded sequence of values of one element type, zero where nothing was written.

    A loop of unknown length records its residuals on tapes. The element may be a tape itself, for nested loops.
    """

    __slots__ = ("element",)

    def __init__(self, element: Type):
        self.element = element

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TapeType) and self.element == other.element

    def __hash__(self) -> int:
        return hash(("tape", self.element))

    @property
    def is_plain(self) -> bool:  # type: ignore[override]
        return self.element.is_plain

    @property
    def plain(self) -> TapeType:
        return TapeType(self.element.plain)

    def tangent(self) -> TapeType:
        return TapeType(self.element.tangent())

    def cotangent(self) -> TapeType:
        return TapeType(self.element.cotangent())

    def strong(self) -> TapeType:
        return TapeType(self.element.strong())

    def matches(self, other: Type) -> bool:
        return isinstance(other, TapeType) and self.element.matches(other.element)

    def accepts(self, other: Type) -> bool:
        return isinstance(other, TapeType) and self.element.accepts(other.element)

    def short(self) -> str:
        return f"tape<{self.element.short()}>"

    def __repr__(self) -> str:
        return f"TapeType({self.element.short()})"


class RefType(Type):
    """Type of a mutable array. Only arguments of functions have it; in jaxprs, values take its place."""

    __slots__ = ("inner_aval", "kind", "memory_space")

    def __init__(self, inner_aval: ArrayType, memory_space: Any = None, kind: Any = None):
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    @property
    def shape(self) -> Shape:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.inner_aval.shape)

    @property
    def size(self) -> Dimension:
        return self.inner_aval.size

    @property
    def weak_type(self) -> bool:
        return self.inner_aval.weak_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefType) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash(("ref", self.inner_aval))

    def short(self) -> str:
        return f"Ref{{{self.inner_aval.short()}}}"

    def __repr__(self) -> str:
        return f"AbstractRef({self.inner_aval.short()})"


class ShapeDtypeStruct:
    """Shape and a dtype without values: `eval_shape` returns it, and tracing accepts it in place of an array.

    Args:
        shape: the sizes.
        dtype: the dtype.
        sharding: how it is split.
        weak_type: whether promotion prefers other dtypes to this one, as it does for Python numbers.
        manual_axis_type: the state along manual axes: where it varies between devices, inside of `shard_map`.
        is_ref: whether it is the struct of a mutable array.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.eval_shape(wnp.sum, weft.ShapeDtypeStruct((3,), "float32"))
    ShapeDtypeStruct(shape=(), dtype=float32)
    """

    __slots__ = ("dtype", "is_ref", "manual_axis_type", "shape", "sharding", "weak_type")
    dtype: Any
    shape: tuple[Any, ...]
    sharding: Sharding | None
    weak_type: bool
    manual_axis_type: ManualAxisType
    is_ref: bool

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        manual_axis_type: ManualAxisType | None = None,
        is_ref: bool = False,
    ):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        put = partial(object.__setattr__, self)
        put("shape", tuple(d if isinstance(d, Expression) else index(d) for d in shape))
        put("dtype", dtype if isinstance(dtype, dtypes.ExtendedDtype) else np.dtype(dtype))
        put("sharding", sharding)
        put("weak_type", weak_type)
        put("manual_axis_type", NONE if manual_axis_type is None else manual_axis_type)
        put("is_ref", bool(is_ref))
        if sharding is not None:
            if not isinstance(sharding, Sharding):
                what = "The sharding of a ShapeDtypeStruct must be a weft.sharding.Sharding."
                raise ArgumentTypeError(what, received=described(sharding), fix="NamedSharding(mesh, P('x'))")
            sharding.check_compatible_aval(self.shape)

    def __setattr__(self, name: str, value: Any) -> None:
        what = f"A ShapeDtypeStruct is immutable: its {name} cannot be set."
        raise RuntimeError(f"{what} Use update(...), which returns a changed copy.")

    def __reduce__(self) -> Any:
        shape, dtype, sharding, weak_type, manual, is_ref = self._parts()
        words = {"sharding": sharding, "weak_type": weak_type, "manual_axis_type": manual, "is_ref": is_ref}
        return partial(ShapeDtypeStruct, **words), (shape, dtype)

    @property
    def aval(self) -> ArrayType | RefType:
        dtype = dtypes.canonicalize_dtype(self.dtype, allow_extended_dtype=True)
        aval = array_type(self.shape, dtype, self.weak_type, self.sharding, self.manual_axis_type)
        return RefType(aval) if self.is_ref else aval

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        result: Dimension = math.prod(self.shape)
        return result

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """Return the struct of an array, a tracer, a number or a type."""
        aval = x if isinstance(x, ArrayType) else get_aval(x)
        assert isinstance(aval, ArrayType)
        sharding = getattr(x, "sharding", None) if x is not aval else aval.explicit_sharding
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, manual_axis_type=aval.manual)

    def _parts(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.sharding, self.weak_type, self.manual_axis_type, self.is_ref

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """Return the struct with some attributes replaced."""
        words = ("shape", "dtype", "sharding", "weak_type", "manual_axis_type", "is_ref")
        return ShapeDtypeStruct(**{**dict(zip(words, self._parts(), strict=True)), **changes})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object: a ShapeDtypeStruct must have a dimension.")
        result: int = self.shape[0]
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={dtypes.name(self.dtype)}{sharding}{weak}{ref})"


def get_aval(x: Any) -> Type:
    """Return the type of any value that may enter a program: an array, a tracer, a NumPy value or a Python scalar."""
    try:
        result: Type = x.aval
        return result
    except AttributeError:
        pass
    kind = type(x)
    if kind is float or kind is int or kind is complex or kind is bool:
        return _scalar_type(kind)
    if isinstance(x, (np.ndarray, np.generic)):
        dtypes.refuse_masked(x)
        return array_type(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if isinstance(x, (int, float, complex)):
        return _scalar_type(next(k for k in (bool, int, float, complex) if isinstance(x, k)))
    if isinstance(x, Expression):  # a symbolic size of the program that is being traced
        return _scalar_type(int)
    known = FOREIGN.get(kind)
    if known is not None:
        return known(x)
    raise TypeError(f"{x!r} of type {type(x).__name__} is not an array or a number, so it cannot enter a Weft program.")


# Classes of other libraries whose objects may enter programs (NumPy converts them), with functions that return their
# types.
FOREIGN: dict[type, Callable[[Any], Type]] = {}


def _scalar_type(kind: type) -> ArrayType:
    return array_type((), dtypes.scalar_dtype(kind), kind is not bool)


def is_value(x: Any) -> bool:
    """Return whether `x` may enter a program as an array-like leaf."""
    kinds = (np.ndarray, np.generic, int, float, complex, Expression)
    return hasattr(x, "aval") or isinstance(x, kinds) or type(x) in FOREIGN
