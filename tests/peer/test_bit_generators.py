"""Bits, keys and random numbers of `rbg` and `unsafe_rbg` are JAX's on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp

STATES = [[0, 0, 0, 0], [1, 2, 3, 4], [5, 6, 2**32 - 1, 2**32 - 1], [7, 2**31, 2**32 - 2, 9]]
SHAPES = [(8,), (7,), (3, 2), (2, 4), (3, 5), (5, 3), (2, 3, 2), (1,), ()]


@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_PHILOX", "RNG_THREE_FRY"])
def test_bits(algorithm: str) -> None:
    with jax.enable_x64(True), weft.enable_x64(True):
        for words in STATES:
            key = np.array(words, np.uint32)
            for i, shape in enumerate(SHAPES):
                dtype = (np.uint8, np.uint16, np.uint32, np.uint64)[i % 4]
                if algorithm == "RNG_THREE_FRY" and not shape:
                    continue
                expected = jax.lax.rng_bit_generator(
                    jnp.asarray(key), shape, dtype, getattr(jax.lax.RandomAlgorithm, algorithm)
                )
                found = weft.lax.rng_bit_generator(key, shape, dtype, getattr(weft.lax.RandomAlgorithm, algorithm))
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(a, b, err_msg=f"{words} {shape} {dtype}")


PROGRAMS: dict[str, Any] = {
    "seed": lambda r, k: r.key_data(k),
    "split": lambda r, k: r.key_data(r.split(k, 3)),
    "split in two dimensions": lambda r, k: r.key_data(r.split(k, (2, 3))),
    "fold in": lambda r, k: r.key_data(r.fold_in(k, 12345)),
    "bits": lambda r, k: r.bits(k, (3, 5)),
    "narrow bits": lambda r, k: r.bits(k, (9,), "uint8"),
    "uniform": lambda r, k: r.uniform(k, (5,)),
    "normal": lambda r, k: r.normal(r.split(k)[1], (5,)),
    "integers": lambda r, k: r.randint(k, (9,), 0, 100),
    "categorical": lambda r, k: r.categorical(k, np.zeros((4, 3), np.float32)),
}


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_numbers(name: str, impl: str) -> None:
    for seed in (0, 3, 2**31 - 1):
        expected = PROGRAMS[name](jax.random, jax.random.key(seed, impl=impl))
        found = PROGRAMS[name](weft.random, weft.random.key(seed, impl=impl))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert str(weft.random.key(0, impl=impl).dtype) == str(jax.random.key(0, impl=impl).dtype)
    assert wnp.issubdtype(weft.random.key(0, impl=impl).dtype, weft.dtypes.prng_key)
