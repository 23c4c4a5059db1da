"""Generators `rbg` and `unsafe_rbg`, and `lax.rng_bit_generator`: known words, and the same in every mode."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, random

# Philox 4x32 with ten rounds, from its authors' known answers: counter and key of zeros.
ZEROS = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
IMPLEMENTATIONS = ["rbg", "unsafe_rbg"]


def state(*words: int) -> np.ndarray:
    return np.array(words, np.uint32)


def test_known_words() -> None:
    after, bits = lax.rng_bit_generator(state(0, 0, 0, 0), (4,))
    np.testing.assert_array_equal(bits, np.array(ZEROS, np.uint32))
    np.testing.assert_array_equal(after, [0, 0, 1, 0])
    # The counter carries into its upper half, which the new state does not.
    after, bits = lax.rng_bit_generator(state(1, 2, 2**32 - 1, 2**32 - 1), (12,))
    assert [int(bits[4]), int(bits[11])] == [0x409ECD8, 0x3742647]
    np.testing.assert_array_equal(after, [1, 2, 2, 0])


@pytest.mark.parametrize("algorithm", list(lax.RandomAlgorithm))
def test_every_width_and_mode(algorithm: Any) -> None:
    key = state(1, 2, 3, 4)
    with weft.enable_x64(True):
        words = lax.rng_bit_generator(key, (16,), np.uint32, algorithm)[1]
        for dtype in (np.uint8, np.uint16):
            np.testing.assert_array_equal(
                lax.rng_bit_generator(key, (16,), dtype, algorithm)[1], np.asarray(words).astype(dtype)
            )
        wide = lax.rng_bit_generator(key, (8,), np.uint64, algorithm)[1]
        np.testing.assert_array_equal(np.asarray(wide).view(np.uint32), words)
        after, same = lax.rng_bit_generator(key.view(np.uint64), (16,), np.uint32, algorithm)
        np.testing.assert_array_equal(same, words)
        assert after.dtype == np.uint64
    keys = np.stack([key, state(5, 6, 7, 8)])
    mapped = weft.vmap(lambda k: lax.rng_bit_generator(k, (2, 3), algorithm=algorithm))(keys)
    for i in range(2):
        for a, b in zip(mapped, lax.rng_bit_generator(keys[i], (2, 3), algorithm=algorithm), strict=True):
            np.testing.assert_array_equal(a[i], b)
    # One stream: where a draw ends the next begins, if it used whole blocks.
    after, first = lax.rng_bit_generator(key, (8,), algorithm=algorithm)
    both = lax.rng_bit_generator(key, (16,), algorithm=algorithm)[1]
    np.testing.assert_array_equal(
        wnp.concatenate([first, lax.rng_bit_generator(after, (8,), algorithm=algorithm)[1]]), both
    )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_keys(impl: str) -> None:
    key = random.key(3, impl=impl)
    assert random.key_impl(key) == impl and random.key_data(key).shape == (4,)
    np.testing.assert_array_equal(random.key_data(key), [0, 3, 0, 3])
    assert key.dtype == random.key_dtype(impl) and repr(key.dtype) == f"key<{'rbg' if impl == 'rbg' else 'urbg'}>"
    keys = random.split(key, 4)
    assert keys.dtype == key.dtype and keys.shape == (4,)
    for f in (
        lambda k: random.bits(k, (5,)),
        lambda k: random.normal(k, (3, 2)),
        lambda k: random.key_data(random.split(k, 3)),
        lambda k: random.key_data(random.fold_in(k, 7)),
        lambda k: random.permutation(k, 6),
        lambda k: random.choice(k, 10, (4,)),
    ):
        expected = f(key)
        np.testing.assert_array_equal(weft.jit(f)(key), expected)
        np.testing.assert_array_equal(weft.vmap(f)(keys), np.stack([f(k) for k in keys]))
        np.testing.assert_array_equal(weft.jit(weft.vmap(f))(keys), np.stack([f(k) for k in keys]))
    raw = random.PRNGKey(3, impl=impl)
    np.testing.assert_array_equal(raw, random.key_data(key))
    with weft.default_prng_impl(impl):
        assert random.key_impl(random.key(0)) == impl
        np.testing.assert_array_equal(random.uniform(raw, (3,)), random.uniform(key, (3,)))
        assert random.split(raw).shape == (2, 4)
    wrapped = random.wrap_key_data(state(1, 2, 3, 4), impl=impl)
    np.testing.assert_array_equal(random.key_data(wrapped), [1, 2, 3, 4])
    moved = wnp.concatenate([keys[2:], keys[:1]])[::-1]
    np.testing.assert_array_equal(random.key_data(moved), np.asarray(random.key_data(keys))[[0, 3, 2]])
    stepped, drawn = lax.scan(lambda k, _: (random.split(k, 1)[0], random.uniform(k)), key, None, length=3)
    assert stepped.dtype == key.dtype and len(set(np.asarray(drawn).tolist())) == 3


def test_numbers_look_random() -> None:
    for impl in IMPLEMENTATIONS:
        x = np.asarray(random.normal(random.key(0, impl=impl), (100_000,)))
        assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
        assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.02


def test_uniform_of_the_process() -> None:
    draw = weft.jit(lambda a: lax.rng_uniform(a, a + 2, (100,)))
    first, second = draw(1.0), draw(1.0)
    assert np.all((first >= 1) & (first < 3)) and not np.array_equal(first, second)
    whole = lax.rng_uniform(np.int32(-3), np.int32(4), (1000,))
    assert whole.dtype == np.int32 and set(np.asarray(whole).tolist()) == set(range(-3, 4))


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="four words"):
        lax.rng_bit_generator(state(1, 2), (3,))
    with pytest.raises(TypeError, match="unsigned"):
        lax.rng_bit_generator(state(1, 2, 3, 4), (3,), np.float32)
    with pytest.raises(TypeError, match="last dimension is 4"):
        random.wrap_key_data(state(1, 2), impl="rbg")
    with pytest.raises(ValueError, match="unsafe_rbg"):
        random.key(0, impl="none")


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(importlib.import_module("weft.lax.random")).failed == 0
