"""Resampling of images: what must hold of every method, and values that are known otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import image
from weft.test_util import check_grads

METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]
SMOOTH = METHODS[1:]
X = np.random.default_rng(0).normal(size=(5, 4, 2)).astype(np.float32)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [True, False])
def test_a_constant_stays_and_axes_are_separate(method: str, antialias: bool) -> None:
    ones = image.resize(np.full((5, 4), 3.0, np.float32), (7, 3), method, antialias)
    np.testing.assert_allclose(ones, np.full((7, 3), 3.0), rtol=1e-5)
    both = image.resize(X, (8, 3, 2), method, antialias)
    one_by_one = image.resize(image.resize(X, (8, 4, 2), method, antialias), (8, 3, 2), method, antialias)
    np.testing.assert_allclose(both, one_by_one, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weft.jit(lambda x: image.resize(x, (8, 3, 2), method, antialias))(X), both, atol=1e-6)
    each = weft.vmap(lambda x: image.resize(x, (8, 3), method, antialias), 2, 2)(X)
    np.testing.assert_allclose(each, both, atol=1e-6)


def test_linear_interpolation() -> None:
    centres = (np.arange(12) + 0.5) * 5 / 12 - 0.5
    np.testing.assert_allclose(
        image.resize(X[:, 0, 0], (12,), "bilinear"), np.interp(centres, np.arange(5), X[:, 0, 0]), atol=1e-6
    )


def test_area_is_the_mean_of_blocks() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(6, 4)
    np.testing.assert_allclose(image.resize(x, (2, 2), "area"), x.reshape(2, 3, 2, 2).mean((1, 3)), rtol=1e-6)


def test_nearest_keeps_the_dtype() -> None:
    x = np.arange(6, dtype=np.uint8)
    small = image.resize(x, (4,), image.ResizeMethod.NEAREST)
    assert small.dtype == np.uint8
    np.testing.assert_array_equal(small, [0, 2, 3, 5])
    assert image.resize(x, (4,), "linear").dtype == np.float32
    assert image.resize(wnp.asarray(x, wnp.bfloat16), (4,), "cubic").dtype == wnp.bfloat16
    assert image.resize(x + 1j, (4,), "cubic").dtype == np.complex64


@pytest.mark.parametrize("method", SMOOTH)
def test_a_translation_by_whole_pixels_is_a_shift(method: str) -> None:
    moved = image.scale_and_translate(X, (5, 6, 2), (1,), np.ones(1), np.array([2.0]), method)
    want = np.concatenate([np.zeros((5, 2, 2)), X], 1)
    np.testing.assert_allclose(moved, want, atol=1e-5)
    assert image.resize(X, (5, 0, 2), method).shape == (5, 0, 2)


@pytest.mark.parametrize("method", SMOOTH)
@pytest.mark.parametrize("antialias", [True, False])
def test_derivatives(method: str, antialias: bool) -> None:
    def function(x: Any, scale: Any, translation: Any) -> Any:
        return image.scale_and_translate(x, (4, 5, 2), (0, 1), scale, translation, method, antialias)

    scale, translation = np.array([0.93, 1.21], np.float32), np.array([0.3, -0.17], np.float32)
    with weft.enable_x64(True):
        check_grads(function, tuple(a.astype(np.float64) for a in (X, scale, translation)), 1)
    loss = lambda *args: wnp.sum(function(*args) ** 2)
    for a, b in zip(
        weft.jit(weft.grad(loss, (0, 1, 2)))(X, scale, translation),
        weft.grad(loss, (0, 1, 2))(X, scale, translation),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    many = weft.vmap(function, (None, 0, None))(X, np.stack([scale, 2 * scale]), translation)
    np.testing.assert_allclose(many[1], function(X, 2 * scale, translation), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: image.resize(X, (3, 3), "linear"), "a size for each axis"),
        (lambda: image.resize(X, (3, 3, 2), "bendy"), "Unknown resize method 'bendy'"),
        (lambda: image.resize(np.zeros((0,)), (3,), "linear"), "without pixels"),
        (lambda: image.resize(X, (-1, 4, 2), "linear"), "negative"),
        (lambda: image.resize([1.0], (2,), "linear"), "requires ndarray"),
        (lambda: image.scale_and_translate(X, (5, 4, 2), (0,), np.ones(1), np.ones(1), "nearest"), "no method"),
        (lambda: image.scale_and_translate(X, (5, 4, 2), (0,), np.ones(2), np.ones(1), "cubic"), "scale must be"),
        (lambda: image.scale_and_translate(X, (5, 9, 2), (0,), np.ones(1), np.ones(1), "cubic"), "not in spatial_dims"),
        (lambda: image.scale_and_translate(X, (5, 4, 2), (3,), np.ones(1), np.ones(1), "cubic"), "out of bounds"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()
