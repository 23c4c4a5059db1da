"""Random keys and bits: the hash threefry2x32, and the operations that make, split and use keys.

A key array has the dtype `key<fry>`; its elements are stored as pairs of 32-bit words, so every operation that moves
elements works on keys too. All operations here act on arrays of keys elementwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base import conversion, dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.expression import Expression
from weft.ir.element import Element
from weft.ir.fusing import AT_OTHER_INDEX, AT_SAME_INDEX, Machine, Properties
from weft.ir.keys import KeysThrough
from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, Shape, array_type
from weft.ir.zeros import Zero
from weft.primitives.families import fail
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, reshape
from weft.primitives.random import layouts
from weft.primitives.random.arrays import ARRAYS, RBG_WORDS, UNSAFE_WORDS, WORDS
from weft.primitives.random.definitions import PRIMITIVES
from weft.primitives.random.layouts import UNSIGNED
from weft.primitives.random.threefry import threefry_arrays
from weft.sharding.factors import AxisFactors, elementwise


class KeyDtype(dtypes.ExtendedDtype):
    """Dtype of random keys of one generator: `impl` is its name, `key_shape` the shape of a key's words. Keys of four
    words are two keys of the dtype `half`."""

    type = dtypes.prng_key

    def __init__(self, impl: str, tag: str, storage: np.dtype[Any], half: KeyDtype | None = None):
        self.impl = impl
        self.half = half
        self.tag = tag
        self.name = f"key<{tag}>"
        self.storage = storage
        self.key_shape = (storage.itemsize // 4,)

    def physical(self, array: np.ndarray) -> np.ndarray:
        """Return the words of a key array, along a new last axis."""
        return np.ascontiguousarray(array).reshape((*np.shape(array), 1)).view(np.uint32)

    def logical(self, words: np.ndarray) -> np.ndarray:
        """Return the key array with words along the last axis."""
        return np.ascontiguousarray(words).view(self.storage)[..., 0]

    def __reduce__(self) -> Any:
        return key_dtype, (self.impl,)


FRY = KeyDtype("threefry2x32", "fry", WORDS)
# Keys of four words. Bits come from Philox; keys of the safe generator are split by the hash.
RBG = KeyDtype("rbg", "rbg", RBG_WORDS, FRY)
UNSAFE_RBG = KeyDtype("unsafe_rbg", "urbg", UNSAFE_WORDS, FRY)
IMPLEMENTATIONS = {k.impl: k for k in (FRY, RBG, UNSAFE_RBG)}
BY_TAG = {k.tag: k for k in IMPLEMENTATIONS.values()}
BY_STORAGE = {k.storage: k for k in IMPLEMENTATIONS.values()}
for _dtype in IMPLEMENTATIONS.values():
    dtypes.register_extended_dtype(_dtype)


def key_dtype(impl: str) -> KeyDtype:
    """Return the key dtype of the generator of that name."""
    return IMPLEMENTATIONS[impl]


# ------------------------------------------------------------------------------------------------------ the primitives


def check_key(name: str, aval: Any) -> KeyDtype:
    """Return the dtype of a key operand; raise the user's error for anything else."""
    if not isinstance(aval.dtype, KeyDtype):
        raise ArgumentTypeError(
            f"{name} needs a random key, got {aval.short()}. "
            "Make one with weft.random.key(seed), or wrap raw words with weft.random.wrap_key_data."
        )
    return aval.dtype


def front(x: Any, dim: int) -> Any:
    return move_axis(x, dim, 0)


class KeyOperation(Primitive):
    """Operation on each key of an array, so a batch dimension is one more dimension of that array."""

    zero_derivative = True
    # Whether a key that this operation used should not be used again: the check for reused keys asks this.
    consumes_keys: ClassVar[bool] = False

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any, **params: Any) -> Any:
        return Zero.of(out.aval)

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        assert dim is not None
        return self(front(x, dim), **params), 0

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        if self.consumes_keys and operands[0] is not None:
            operands[0].use(through.at, self.name)
        return None

    def factors(self, *types: ArrayType, **params: Any) -> AxisFactors:
        """Match key dimensions; the words of a key and the results of one key are not split."""
        result = self.type(*types, **params)
        names = tuple(f"d{i}" for i in range(types[0].ndim))
        shared = names[: result.ndim]
        operand = tuple(n if n in shared else None for n in names)
        return AxisFactors((operand,), ((*shared, *(None,) * (result.ndim - len(shared))),))


@primitive
class threefry2x32(Primitive):
    """Hash on words: operands (key, key, count, count), of one shape up to dimensions of 1 or scalars."""

    multiple_results = True
    zero_derivative = True
    pointwise = True
    foldable = True
    weight = 60

    def type(self, *types: ArrayType) -> list[ArrayType]:
        if len(types) != 4 or any(t.dtype != dtypes.uint32 for t in types):
            received = " and ".join(t.short() for t in types)
            raise ArgumentTypeError(f"threefry2x32 takes four uint32 arrays, got {received}.")
        shape: Shape = ()
        for t in types:
            shape = broadcast_dimensions(shape, t.shape, types)
        result = array_type(shape, dtypes.uint32)
        return [result, result]

    def eval(self, key_first: Any, key_second: Any, first: Any, second: Any) -> Any:
        return threefry_arrays(key_first, key_second, first, second)

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any) -> Any:
        return [Zero.of(o.aval) for o in out]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, Any]:
        rank = max(len(np.shape(a)) - (d is not None) for a, d in zip(args, dims, strict=True))
        operands = []
        for x, d in zip(args, dims, strict=True):
            shape = tuple(np.shape(x))
            if d is not None:
                x = front(x, d)
                shape = tuple(x.shape)
                if len(shape) - 1 < rank:
                    x = reshape(x, new_sizes=(shape[0], *(1,) * rank), dimensions=None)
            elif shape:
                x = reshape(x, new_sizes=(1, *shape), dimensions=None)
            operands.append(x)
        return self(*operands), [0, 0]

    def factors(self, *types: ArrayType) -> AxisFactors | None:
        shape = self.type(*types)[0].shape
        if any(t.shape and t.shape != shape for t in types):
            return None
        found = elementwise([t.ndim for t in types])
        return AxisFactors(found.operands, found.results * 2)

    def value_at(self, element: Element) -> Any:
        return element.scalars.threefry2x32(*element.operands(), part=element.result)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_SAME_INDEX

    def samples(self) -> Any:
        word = np.uint32(0x12345678)
        some = np.arange(6, dtype=np.uint32).reshape(2, 3) * np.uint32(0x9E3779B9)
        yield Sample(some, some + word, some ^ word, some[::-1], differentiable=False)
        yield Sample(np.asarray(word), np.asarray(word), some, some, differentiable=False)
        yield Sample(some[:, :1], some[:1], some, some, differentiable=False)


def broadcast_dimensions(shape: Shape, other: Shape, types: Sequence[ArrayType]) -> Shape:
    """Return the common shape of equal sizes, or sizes of 1, in each dimension; a scalar fits everything."""
    if not shape or not other:
        return shape or other
    if len(shape) != len(other) or any(a != b and a != 1 and b != 1 for a, b in zip(shape, other, strict=True)):
        raise fail(
            "threefry2x32 got operands of incompatible shapes.",
            received=" and ".join(t.short() for t in types),
            fix="give operands of one shape, or with dimensions of 1",
        )
    return tuple(b if a == 1 else a for a, b in zip(shape, other, strict=True))


@primitive
class random_seed(KeyOperation):
    """Keys from integers: the seed is the key's 64 bits; 32-bit seeds fill the lower half."""

    definition = staticmethod(functools.partial(layouts.random_seed, PRIMITIVES))

    def type(self, seeds: ArrayType, *, impl: KeyDtype) -> ArrayType:
        if dtypes.kind(seeds.dtype) not in "biu":
            raise ArgumentTypeError(
                "A seed must be an integer.", received=seeds.short(), fix="weft.random.key(int(seed))"
            )
        return array_type(seeds.shape, impl)

    def eval(self, seeds: Any, *, impl: KeyDtype) -> Any:
        return layouts.random_seed(ARRAYS, np.asarray(seeds), impl=impl)

    def samples(self) -> Any:
        yield Sample(np.array([0, 1, -1, 2**31 - 1], np.int32), impl=FRY, differentiable=False)
        yield Sample(np.array(7, np.uint8), impl=FRY, differentiable=False)
        yield Sample(np.array([7, -1], np.int32), impl=RBG, differentiable=False)


@primitive
class random_wrap(KeyOperation):
    """Words along the last axis as keys."""

    def type(self, words: ArrayType, *, impl: KeyDtype) -> ArrayType:
        if words.dtype != dtypes.uint32 or words.shape[-1:] != impl.key_shape:
            raise ArgumentTypeError(
                f"A raw key of {impl.impl} must be an array of uint32 whose last dimension is {impl.key_shape[0]}, "
                f"got {words.short()}. Make one with weft.random.PRNGKey(seed)."
            )
        return array_type(words.shape[:-1], impl)

    def eval(self, words: Any, *, impl: KeyDtype) -> Any:
        return impl.logical(words)

    def value_at(self, element: Element, *, impl: KeyDtype) -> Any:
        (count,) = impl.key_shape
        return element.pack_key([element.operand(0, (*element.index, i)) for i in range(count)])

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_OTHER_INDEX

    def samples(self) -> Any:
        words = np.arange(12, dtype=np.uint32).reshape(2, 3, 2)
        yield Sample(words, impl=FRY, differentiable=False)
        yield Sample(words[0, 1], impl=FRY, differentiable=False)
        yield Sample(words.reshape(3, 4), impl=RBG, differentiable=False)


def key_of_words(word: Any, impl: KeyDtype) -> Any:
    """Return the key with all words equal to one integer."""
    return random_wrap(np.full(impl.key_shape, conversion.coerce_value(word, dtypes.uint32)), impl=impl)


@primitive
class random_unwrap(KeyOperation):
    """Words of keys along a new last axis."""

    def type(self, keys: ArrayType) -> ArrayType:
        return array_type((*keys.shape, *check_key(self.name, keys).key_shape), dtypes.uint32)

    def eval(self, keys: Any) -> Any:
        return BY_STORAGE[keys.dtype].physical(keys)

    def value_at(self, element: Element) -> Any:
        *index, word = element.index
        return element.key_word(element.operand(0, index), word)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_OTHER_INDEX

    def samples(self) -> Any:
        yield Sample(sample_keys(3), differentiable=False)
        yield Sample(sample_keys(), differentiable=False)
        yield Sample(sample_keys(2, impl=RBG), differentiable=False)


@primitive
class random_bits(KeyOperation):
    """`shape` unsigned integers of `bit_width` bits from each key."""

    consumes_keys = True
    definition = staticmethod(functools.partial(layouts.random_bits, PRIMITIVES))

    def type(self, keys: ArrayType, *, bit_width: int, shape: Shape) -> ArrayType:
        check_key(self.name, keys)
        if bit_width not in UNSIGNED:
            raise ArgumentTypeError(f"random_bits makes 8, 16, 32 or 64 bits at a time, not {bit_width}.")
        check_shape(self.name, shape)
        return array_type((*keys.shape, *shape), UNSIGNED[bit_width])

    def eval(self, keys: Any, *, bit_width: int, shape: Any) -> Any:
        return layouts.random_bits(ARRAYS, keys, bit_width=bit_width, shape=shape)

    def samples(self) -> Any:
        for bit_width in (8, 16, 32):
            yield Sample(sample_keys(), bit_width=bit_width, shape=(2, 3), differentiable=False)
        yield Sample(sample_keys(3), bit_width=32, shape=(), differentiable=False)
        yield Sample(sample_keys(2, 1), bit_width=32, shape=(3,), differentiable=False)
        yield Sample(sample_keys(2), bit_width=32, shape=(0, 3), differentiable=False)
        yield Sample(sample_keys(2, impl=RBG), bit_width=32, shape=(2, 3), differentiable=False)
        yield Sample(sample_keys(impl=UNSAFE_RBG), bit_width=8, shape=(5,), differentiable=False)


@primitive
class random_split(KeyOperation):
    """`shape` new keys from each key."""

    consumes_keys = True
    definition = staticmethod(functools.partial(layouts.random_split, PRIMITIVES))

    def type(self, keys: ArrayType, *, shape: Shape) -> ArrayType:
        check_key(self.name, keys)
        check_shape(self.name, shape)
        return array_type((*keys.shape, *shape), keys.dtype)

    def eval(self, keys: Any, *, shape: Any) -> Any:
        return layouts.random_split(ARRAYS, keys, shape=shape)

    def samples(self) -> Any:
        yield Sample(sample_keys(), shape=(3,), differentiable=False)
        yield Sample(sample_keys(2), shape=(2, 2), differentiable=False)
        yield Sample(sample_keys(2, impl=RBG), shape=(3,), differentiable=False)
        yield Sample(sample_keys(2, impl=UNSAFE_RBG), shape=(3,), differentiable=False)


@primitive
class random_fold_in(Primitive):
    """New key from each key and a 32-bit integer."""

    zero_derivative = True
    definition = staticmethod(functools.partial(layouts.random_fold_in, PRIMITIVES))

    def type(self, keys: ArrayType, data: ArrayType) -> ArrayType:
        check_key(self.name, keys)
        if data.dtype != dtypes.uint32:
            raise ArgumentTypeError(f"random_fold_in folds in uint32 data, got {data.short()}.")
        shape = keys.shape or data.shape
        if keys.shape and data.shape and keys.shape != data.shape:
            raise fail(
                "random_fold_in got keys and data of different shapes.",
                received=f"{keys.short()} and {data.short()}",
                fix="give one integer for each key",
            )
        return array_type(shape, keys.dtype)

    def eval(self, keys: Any, data: Any) -> Any:
        return layouts.random_fold_in(ARRAYS, keys, data)

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        shapes = [tuple(n for i, n in enumerate(np.shape(a)) if i != d) for a, d in zip(args, dims, strict=True)]
        full = (axis.size, *max(shapes, key=len))
        keys, data = (lift_operand(a, d, full) for a, d in zip(args, dims, strict=True))
        return self(keys, data), 0

    def factors(self, keys: ArrayType, data: ArrayType) -> AxisFactors:
        return elementwise([keys.ndim, data.ndim])

    def samples(self) -> Any:
        yield Sample(sample_keys(), np.array(7, np.uint32), differentiable=False)
        yield Sample(sample_keys(3), np.arange(3, dtype=np.uint32), differentiable=False)
        yield Sample(sample_keys(3), np.array(7, np.uint32), differentiable=False)
        for impl in (RBG, UNSAFE_RBG):
            yield Sample(sample_keys(3, impl=impl), np.array(7, np.uint32), differentiable=False)
            yield Sample(sample_keys(impl=impl), np.arange(3, dtype=np.uint32), differentiable=False)


@primitive
class random_clone(KeyOperation):
    """Same key, which the check for key reuse treats as a new one."""

    identity = True

    def type(self, keys: ArrayType) -> ArrayType:
        check_key(self.name, keys)
        return keys

    def eval(self, keys: Any) -> Any:
        return keys

    def samples(self) -> Any:
        yield Sample(sample_keys(2), differentiable=False)


def lift_operand(x: Any, dim: int | None, shape: Shape) -> Any:
    """Broadcast an operand of `random_fold_in` to the full batched shape, unless it is a scalar that fits anyway."""
    x = x if dim is None else front(x, dim)
    rank = len(np.shape(x))
    if (dim is None and not rank) or rank == len(shape):
        return x
    dimensions = (0,) if dim is not None else tuple(range(1, len(shape)))
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=dimensions)


def check_shape(name: str, shape: Shape) -> None:
    """Raise unless sizes are nonnegative."""
    for size in shape:
        if not isinstance(size, Expression) and size < 0:
            raise fail(f"{name} got a negative size in shape {tuple(shape)}.", fix="give sizes of 0 or more")


def sample_keys(*shape: int, impl: KeyDtype = FRY) -> np.ndarray:
    """Return distinct keys, for samples."""
    (count,) = impl.key_shape
    words = np.arange(math.prod(shape) * count, dtype=np.uint32) * np.uint32(0x9E3779B9)
    return impl.logical(words.reshape(*shape, count))
