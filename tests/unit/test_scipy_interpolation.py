"""Cosine transforms, interpolation, vector quantisation and integrals, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.interpolate
import scipy.ndimage

import weft
import weft.numpy as wnp
from weft.scipy import fft, integrate
from weft.scipy.cluster.vq import vq
from weft.scipy.interpolate import RegularGridInterpolator
from weft.scipy.ndimage import map_coordinates
from weft.test_util import check_grads

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_cosine_transforms(type: int, norm: str | None) -> None:
    x = RNG.normal(size=(3, 7)).astype(np.float32)
    for name in ("dct", "idct"):
        for n in (None, 1, 2, 5, 8):
            if n == 1 and type == 1:
                continue
            got = getattr(fft, name)(x, type, n, norm=norm)
            np.testing.assert_allclose(got, getattr(scipy.fft, name)(x, type, n, norm=norm), rtol=1e-5, atol=1e-5)
    got = weft.jit(lambda v: fft.dct(v, type, axis=0, norm=norm))(x)
    np.testing.assert_allclose(got, scipy.fft.dct(x, type, axis=0, norm=norm), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fft.idct(fft.dct(x, type, norm=norm), type, norm=norm), x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fft.dctn(x, type, norm=norm), scipy.fft.dctn(x, type, norm=norm), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fft.idctn(x, type, norm=norm), scipy.fft.idctn(x, type, norm=norm), rtol=1e-5, atol=1e-5)
    sized = fft.dctn(x, type, (2, 9), (1, 0), norm)
    np.testing.assert_allclose(sized, scipy.fft.dctn(x, type, (2, 9), (1, 0), norm), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("type", [1, 2, 3, 4])
def test_derivatives_of_cosine_transforms(type: int) -> None:
    x = RNG.normal(size=(2, 5)).astype(np.float32)
    check_grads(lambda v: fft.dct(v, type), (x,), 1)
    check_grads(lambda v: fft.idct(v, type, norm="ortho"), (x + 1j * x[::-1],), 1)
    each = weft.vmap(lambda v: fft.dct(v, type))(x)
    np.testing.assert_allclose(each, scipy.fft.dct(x, type), rtol=1e-5, atol=1e-5)


def test_dtypes_of_cosine_transforms() -> None:
    assert fft.dct(np.arange(4)).dtype == np.float32
    assert fft.dct(wnp.ones(4, wnp.bfloat16)).dtype == wnp.bfloat16
    z = (RNG.normal(size=5) + 1j * RNG.normal(size=5)).astype(np.complex64)
    np.testing.assert_allclose(fft.dct(z), scipy.fft.dct(z), rtol=1e-5, atol=1e-5)


# SciPy's names for what happens outside; ours follow JAX.
MODES = {
    "constant": "grid-constant",
    "nearest": "nearest",
    "wrap": "grid-wrap",
    "mirror": "mirror",
    "reflect": "reflect",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode: str, order: int) -> None:
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    where = (RNG.uniform(-9, 13, size=(2, 3, 20)) + 0.001).astype(np.float32)
    want = scipy.ndimage.map_coordinates(x, where, order=order, mode=MODES[mode], cval=0.5)
    function = lambda a, c: map_coordinates(a, c, order, mode, 0.5)
    np.testing.assert_allclose(function(x, where), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weft.jit(function)(x, where), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weft.vmap(function, (None, 1))(x, where), want, rtol=1e-4, atol=1e-4)
    wide = [(np.floor(c) + RNG.uniform(0.1, 0.4, c.shape)).astype(np.float32) for c in where]  # nothing changes there
    check_grads(lambda a, *c: function(a, c), (x, *wide), 1)
    integers = np.arange(20, dtype=np.int32).reshape(4, 5) ** 2
    got = function(integers, where)
    assert got.dtype == np.int32
    exact = map_coordinates(integers.astype(np.float32), where, order, mode, 0)
    np.testing.assert_allclose(got, np.round(exact), atol=1e-3)
    assert map_coordinates(x[:1] * 1j, [np.float32(0.0), np.float32(1.5)], order, mode).dtype == np.complex64


def test_integers_between_two_are_rounded_away_from_zero() -> None:
    x, positions = np.array([-3, 2, 3, -128, 127], np.int8), np.array([[0.5, 1.5, 2.5, 3.5]], np.float32)
    expected = scipy.ndimage.map_coordinates(x, positions, order=1)
    np.testing.assert_array_equal(map_coordinates(x, positions, order=1), expected)
    assert map_coordinates(np.array([False, True]), positions[:, :1], order=1).tolist() == [True]


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill_value", [np.nan, None, 7.0])
def test_regular_grid(method: str, fill_value: Any) -> None:
    points = [np.sort(RNG.uniform(0, 4, n)).astype(np.float32) for n in (4, 3)]
    values = RNG.normal(size=(4, 3, 2)).astype(np.float32)
    xi = RNG.uniform(-1, 5, size=(5, 6, 2)).astype(np.float32)
    want = scipy.interpolate.RegularGridInterpolator(points, values, method, False, fill_value)(xi)
    ours = RegularGridInterpolator(points, values, method, False, fill_value)
    np.testing.assert_allclose(ours(xi), want, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours((xi[..., 0], xi[..., 1])), want, rtol=1e-3, atol=1e-3)
    backwards = RegularGridInterpolator([points[0][::-1], points[1]], values[::-1], method, False, fill_value)
    np.testing.assert_allclose(backwards(xi), want, rtol=1e-3, atol=1e-3)
    traced = weft.jit(lambda p, v, x: RegularGridInterpolator(p, v, method, False, fill_value)(x))
    np.testing.assert_allclose(traced(points, values, xi), want, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours(xi[0, 0])[0], want[0, 0], rtol=1e-3, atol=1e-3)
    each = weft.vmap(ours)(xi)
    np.testing.assert_allclose(each, want, rtol=1e-3, atol=1e-3)


def test_derivatives_on_a_regular_grid() -> None:
    points = [np.array([0.0, 1.0, 3.0], np.float32), np.array([0.0, 2.0], np.float32)]
    values = RNG.normal(size=(3, 2)).astype(np.float32)
    xi = np.array([[0.3, 1.1], [2.2, 0.4]], np.float32)
    check_grads(lambda v, x, *p: RegularGridInterpolator(p, v)(x), (values, xi, *points), 1)


def test_vector_quantisation() -> None:
    obs, codes = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (9, 4))
    for a, b in ((obs, codes), (obs[:, 0], codes[:, 0])):
        for got, want in zip(weft.jit(vq)(a, b), scipy.cluster.vq.vq(a, b), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    check_grads(lambda a, b: vq(a, b)[1], (obs, codes), 1)
    assert not np.isnan(weft.grad(lambda a: wnp.sum(vq(a, codes)[1]))(codes)).any()


def test_trapezoid() -> None:
    y, x = RNG.normal(size=(3, 5)).astype(np.float32), np.sort(RNG.normal(size=5)).astype(np.float32)
    np.testing.assert_allclose(integrate.trapezoid(y, x), np.trapezoid(y, x), rtol=1e-5)
    np.testing.assert_allclose(integrate.trapezoid(y, dx=0.3, axis=0), np.trapezoid(y, dx=0.3, axis=0), rtol=1e-5)
    check_grads(integrate.trapezoid, (y, x), 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fft.dct(np.ones(3), 5), "no transform of type 5"),
        (lambda: fft.dct(np.ones(3), norm="odd"), "norm='odd'"),
        (lambda: fft.dct(np.ones(1), 1), "cannot have the length 1"),
        (lambda: fft.dctn(np.ones((3, 3)), s=(2,), axes=(0, 1)), "a size for each axis"),
        (lambda: fft.dctn(np.ones((3, 3)), axes=(0, 0)), "duplicate"),
        (lambda: map_coordinates(np.ones(3), [np.ones(1)], 2), "order 0 or 1"),
        (lambda: map_coordinates(np.ones(3), [np.ones(1)], 1, "bounce"), "no mode 'bounce'"),
        (lambda: map_coordinates(np.ones((3, 3)), [np.ones(1)], 1), "length input.ndim"),
        (lambda: RegularGridInterpolator([np.arange(2.0)] * 2, np.ones(2)), "2 point arrays"),
        (lambda: RegularGridInterpolator([np.arange(3.0)], np.ones(2)), "one for each value"),
        (lambda: RegularGridInterpolator([np.array([0.0, 2, 1])], np.ones(3)), "strictly ascending"),
        (lambda: RegularGridInterpolator([np.arange(2.0)], np.ones(2), "cubic"), "not defined"),
        (lambda: RegularGridInterpolator([np.arange(2.0)], np.ones(2), bounds_error=True), "bounds_error=False"),
        (lambda: RegularGridInterpolator([np.arange(2.0)], np.ones(2))(np.ones((2, 2))), "has dimension 1"),
        (lambda: vq(np.ones((2, 2)), np.ones((2, 3))), "as many elements"),
        (lambda: vq(np.ones((2, 2)), np.ones(2)), "both be vectors"),
        (lambda: vq(np.full((2, 2), np.nan), np.ones((1, 2))), "NaN"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=text):
        call()
