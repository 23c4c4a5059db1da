"""Random keys: creation from seeds, splitting, `fold_in`, and their raw words.

A typed key (`key`) is an array of dtype `key<fry>`; a raw one (`PRNGKey`) is a uint32 array whose last dimension holds
the key's two words. Every function accepts both and returns the kind that it received.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft import lax
from weft.api.shardings import takes_out_sharding
from weft.base import dtypes
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import config
from weft.base.source import user_stacklevel
from weft.numpy.util import as_shape, cast
from weft.primitives.random.bits import (
    BY_TAG,
    IMPLEMENTATIONS,
    KeyDtype,
    random_bits,
    random_clone,
    random_fold_in,
    random_seed,
    random_split,
    random_unwrap,
    random_wrap,
)
from weft.random.argument_docs import document
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array


def key_dtype(impl_spec: Any = None) -> KeyDtype:
    """Return the dtype of keys of a generator, named as for `key`."""
    spec = config.default_prng_impl if impl_spec is None else impl_spec
    if isinstance(spec, KeyDtype):
        return spec
    found = IMPLEMENTATIONS.get(spec) or BY_TAG.get(spec) if isinstance(spec, str) else None
    if found is None:
        names = ", ".join(repr(name) for name in IMPLEMENTATIONS)
        raise ArgumentError(f"Unknown generator {spec!r}; available: {names}.")
    return found


def _resolve(impl: Any, dtype: Any) -> KeyDtype:
    """Return the generator that `impl=` or `dtype=` names; only one of them may be given."""
    if impl is not None and dtype is not None:
        raise ArgumentError(f"Give impl= or dtype=, not both; got impl={impl!r} and dtype={dtype!r}.")
    if dtype is not None and not isinstance(dtype, (KeyDtype, str)):
        raise ArgumentTypeError(f"dtype= names a key dtype here, such as weft.random.key_dtype(); got {dtype!r}.")
    if isinstance(dtype, str):
        return key_dtype(dtype.removeprefix("key<").removesuffix(">"))
    return key_dtype(dtype if dtype is not None else impl)


def seed_value(seed: Any) -> Any:
    """Convert a seed to a bindable value; integers are taken modulo 2**32, or 2**64 with `enable_x64`."""
    if isinstance(seed, (int, np.integer, np.ndarray)) and not isinstance(seed, np.bool_):
        wide = np.asarray(seed)
        if wide.dtype.kind not in "biu":
            if wide.dtype == object:
                raise OverflowError(f"A seed must fit into 64 bits, got {seed}.")
            raise ArgumentTypeError(
                "A seed must be an integer.", received=described(seed), fix="weft.random.key(int(seed))"
            )
        if config.random_seed_offset:
            wide = wide.astype(np.int64) + np.int64(config.random_seed_offset)
        if wide.dtype.itemsize == 8 and not config.enable_x64:
            wide = wide.astype(np.int32)
        return wide
    if config.random_seed_offset and isinstance(seed, Array):
        return seed + config.random_seed_offset
    return seed


def _make(name: str, seed: Any, generator: KeyDtype) -> Array:
    value = seed_value(seed)
    shape = np.shape(value) if not isinstance(value, Array) else value.shape
    if shape:
        raise ArgumentTypeError(
            f"{name} needs a single seed, got an array of shape {shape}. "
            f"For a key from each: weft.vmap(weft.random.{name})(seeds)."
        )
    return random_seed(value, impl=generator)


def key(seed: int | Any, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Create a typed random key from an integer.

    Args:
        seed: an integer.
        impl: the generator: "threefry2x32" (the default), "rbg" or "unsafe_rbg".
        dtype: a dtype of keys, instead of `impl`.

    Returns:
        A scalar array of a key dtype. The same seed yields the same numbers as in JAX.

    >>> from weft import random
    >>> random.key(0)
    Array((), dtype=key<fry>) overlaying:
    [0 0]
    >>> random.normal(random.key(0)).round(3)
    Array(1.623, dtype=float32)
    """
    return _make("key", seed, _resolve(impl, dtype))


@document(
    "A vector of uint32.",
    "random.PRNGKey(42) -> Array([ 0, 42], dtype=uint32)",
    seed="an integer.",
    impl="the generator, see `key`.",
)
def PRNGKey(seed: int | Any, *, impl: Any = None) -> Array:
    """Create a raw random key from an integer: a uint32 array of two words (a typed key with `enable_custom_prng`)."""
    typed = _make("PRNGKey", seed, key_dtype(impl))
    return typed if config.enable_custom_prng else random_unwrap(typed)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Convert a uint32 array, with the words of keys along its last dimension, to typed keys.

    Args:
        key_bits_array: an array of uint32.
        impl: the generator, see `key`.
        dtype: a dtype of keys, instead of `impl`.

    Returns:
        An array of keys, with one axis less.

    >>> from weft import random
    >>> random.wrap_key_data(random.PRNGKey(42)) == random.key(42)
    Array(True, dtype=bool)
    """
    words = key_bits_array
    return random_wrap(words if isinstance(words, Array) else np.asarray(words), impl=_resolve(impl, dtype))


@document(
    "An array of uint32, with one axis more.",
    "random.key_data(random.key(42)) -> Array([ 0, 42], dtype=uint32)",
    keys="keys of any shape.",
)
def key_data(keys: Any) -> Array:
    """Return the words of keys, along a last dimension of a uint32 array."""
    typed, _ = as_keys("key_data", keys)
    return random_unwrap(typed)


@document("A string.", "random.key_impl(random.key(0)) -> 'threefry2x32'", keys="keys of any shape.")
def key_impl(keys: Any) -> str:
    """Return the name of the generator that the keys belong to."""
    typed, _ = as_keys("key_impl", keys)
    return typed.dtype.impl


def is_key(x: Any) -> bool:
    """Return whether `x` is an array of typed keys."""
    return isinstance(getattr(x, "dtype", None), KeyDtype)


def as_keys(name: str, keys: Any) -> tuple[Array, bool]:
    """Convert keys to typed ones; also return whether they were raw."""
    if is_key(keys):
        return keys, False
    if not isinstance(keys, (Array, np.ndarray)):
        raise ArgumentTypeError(
            f"{name} needs a random key first.",
            received=described(keys),
            fix=f"weft.random.key({keys if type(keys) is int else 'seed'})   makes one",
        )
    if not isinstance(keys, Array):
        keys = np.asarray(keys)
    if keys.dtype != dtypes.uint32 or keys.shape[-1:] != key_dtype().key_shape:
        raise ArgumentTypeError(
            f"{name} needs a random key first.",
            received=f"an array of dtype {dtypes.name(keys.dtype)} and shape {tuple(keys.shape)}",
            fix=(
                "weft.random.key(seed)   makes one",
                f"a raw key: a uint32 array whose last dimension is {key_dtype().key_shape[0]}",
            ),
        )
    if config.legacy_prng_key != "allow":
        text = f"{name} got a raw uint32 array as key; make typed keys with weft.random.key(seed)."
        if config.legacy_prng_key == "error":
            raise ArgumentError(text)
        warnings.warn(text, stacklevel=user_stacklevel())
    return random_wrap(keys, impl=key_dtype()), True


def one_key(name: str, key: Any) -> tuple[Array, bool]:
    """Convert a single key to a typed one; also return whether it was raw. A batch of keys is an error."""
    typed, raw = as_keys(name, key)
    if typed.shape:
        raise ArgumentError(
            f"{name} needs a single key, got keys of shape {tuple(typed.shape)}.",
            fix=(
                f"weft.vmap(lambda key: weft.random.{name}(key, ...))(keys)   to use each",
                "keys[0]   for one of them",
            ),
        )
    return typed, raw


@document("An array of keys.", num="the number of keys, or a shape.")
def split(key: ArrayLike, num: int | tuple[int, ...] = 2) -> Array:
    """Split a key into `num` new keys (or a shape of them); the old one must not be used again.

    >>> from weft import random
    >>> first, second = random.split(random.key(0))
    >>> bool(first == second)
    False
    """
    typed, raw = one_key("split", key)
    keys = random_split(typed, shape=as_shape(num, "num"))
    return random_unwrap(keys) if raw else keys


@document("A key.", data="an integer, which may be traced.")
def fold_in(key: ArrayLike, data: Any) -> Array:
    """Derive a new key from a key and an integer, such as the index of a step; other integers yield other keys.

    >>> from weft import random
    >>> keys = [random.fold_in(random.key(0), step) for step in range(2)]
    >>> bool(keys[0] == keys[1])
    False
    """
    typed, raw = one_key("fold_in", key)
    shape = data.shape if isinstance(data, Array) else np.shape(data)
    if shape:
        raise ArgumentTypeError(
            f"fold_in needs a single integer, got an array of shape {tuple(shape)}. "
            "To fold in each: weft.vmap(weft.random.fold_in, in_axes=(None, 0))(key, data)."
        )
    if dtypes.kind(dtypes.dtype(data, canonicalize=True)) not in "biu":
        raise ArgumentTypeError(f"fold_in needs an integer, got {data!r}.")
    new_key = random_fold_in(typed, cast(data, dtypes.uint32))
    return random_unwrap(new_key) if raw else new_key


def clone(key: ArrayLike) -> Array:
    """Return the same key, to be used once more on purpose when `debug_key_reuse` is on."""
    typed, raw = as_keys("clone", key)
    copy = random_clone(typed)
    return random_unwrap(copy) if raw else copy


@takes_out_sharding
@document("Unsigned integers.", dtype="an unsigned integer dtype.")
def bits(key: ArrayLike, shape: Shape = (), dtype: DTypeLike | None = None) -> Array:
    """Draw uniform unsigned integers over the whole range of `dtype` (by default the default unsigned type).

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> random.bits(random.key(0), (2,), wnp.uint8).dtype
    dtype('uint8')
    """
    typed, _ = one_key("bits", key)
    found = dtypes.canonicalize_dtype(dtypes.uint64) if dtype is None else dtypes.requested_dtype(dtype, "bits")
    if dtypes.kind(found) != "u":
        raise ArgumentError(f"The dtype of bits must be an unsigned integer type, got dtype={dtypes.name(found)}.")
    assert isinstance(found, np.dtype)
    return draw_bits(typed, as_shape(shape), found)


def split_keys(keys: Array, count: int) -> list[Array]:
    """Split each typed key of an array into `count` keys, returned as that many arrays."""
    parts = random_split(keys, shape=(count,))
    return [lax.index_in_dim(parts, i, axis=-1, keepdims=False) for i in range(count)]


def draw_bits(key: Array, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    """Draw random bits from a typed key, or from each key of an array of them."""
    return random_bits(key, bit_width=8 * dtype.itemsize, shape=shape)
