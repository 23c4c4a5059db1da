"""Resampled images and reductions over segments, beside JAX."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft import image, ops

METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(method: str, antialias: bool) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.uint8):
        x = (rng.normal(size=(7, 5, 3)) * 10 + 20).astype(dtype)
        got = image.resize(x, (4, 9, 3), method, antialias)
        want = jax.jit(jax.image.resize, static_argnums=(1, 2, 3))(x, (4, 9, 3), method, antialias)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("antialias", [True, False])
def test_scale_and_translate(method: str, antialias: bool) -> None:
    x = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(np.float32)

    def result(library: Any, scale: Any, translation: Any) -> Any:
        def f(*args: Any) -> Any:
            return library.image.scale_and_translate(args[0], (6, 8, 3), (0, 1), *args[1:], method, antialias)

        args = x, scale, translation
        return f(*args), library.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2))(*args)

    results = [library.jit(functools.partial(result, library)) for library in (weft, jax)]
    for scale, translation in (((0.73, 1.3), (0.21, -1.1)), ((2.1, 0.4), (-3.0, 2.0)), ((-1.1, 0.52), (7.1, 0.1))):
        got, want = (f(np.float32(scale), np.float32(translation)) for f in results)
        for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segments(name: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (9, 2))
    ids = np.array([0, 3, 3, -1, 9, 4, 0, 3, 4])
    for dtype in (np.float32, np.uint8, np.complex64):
        for options in ({}, {"mode": "clip"}, {"bucket_size": 4}, {"num_segments": 6}):
            got = getattr(ops, name)(x.astype(dtype), ids, **options)
            want = getattr(jax.ops, name)(x.astype(dtype), ids, **options)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5)
