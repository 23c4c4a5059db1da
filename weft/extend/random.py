"""Random generators under the names of `jax.extend.random`: an implementation is the dtype of its keys."""

from __future__ import annotations

from typing import Any

from weft import numpy as _np
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.primitives.random.bits import IMPLEMENTATIONS, KeyDtype, random_seed as _seed, threefry2x32 as _threefry2x32
from weft.random.keys import key_dtype, seed_value as _seed_value

threefry2x32_p = _threefry2x32

threefry_prng_impl: KeyDtype = IMPLEMENTATIONS["threefry2x32"]
rbg_prng_impl: KeyDtype = IMPLEMENTATIONS["rbg"]
unsafe_rbg_prng_impl: KeyDtype = IMPLEMENTATIONS["unsafe_rbg"]


def random_seed(seeds: Any, impl: Any) -> Any:
    """Make typed keys of a generator, one for each of the integers `seeds`."""
    return _seed(_seed_value(seeds), impl=key_dtype(impl))


def seed_with_impl(impl: Any, seed: Any) -> Any:
    """Make a typed key of a generator from an integer."""
    return random_seed(seed, impl)


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """Hash the words `count`, a uint32 array, under the two words of a key: the first half of the words is hashed
    together with the second.

    >>> import weft.numpy as np
    >>> from weft.extend.random import threefry_2x32
    >>> [hex(int(word)) for word in threefry_2x32((np.uint32(0), np.uint32(0)), np.zeros(2, np.uint32))]
    ['0x6b200159', '0x99ba4efe']
    """
    first, second = (_np.asarray(word) for word in keypair)
    words = _np.asarray(count)
    if not all(x.dtype == _np.uint32 for x in (first, second, words)):
        raise ArgumentError(f"threefry_2x32 needs uint32 words, got {first.dtype}, {second.dtype}, {words.dtype}.")
    flat = words.ravel()
    if flat.size % 2:
        flat = _np.concatenate([flat, _np.zeros(1, _np.uint32)])
    halves = threefry2x32_p(first, second, *_np.split(flat, 2))
    return _np.concatenate(halves)[: words.size].reshape(words.shape)


_publish(__name__)
