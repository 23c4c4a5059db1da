"""FFT: values match NumPy for every normalization and size, transposes are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import lax
from weft.base.settings import enable_x64
from weft.numpy import fft as wf
from weft.test_util import check_grads

GENERATOR = np.random.default_rng(5)
REAL = GENERATOR.standard_normal((3, 4, 6))
COMPLEX = REAL + 1j * GENERATOR.standard_normal(REAL.shape)
NORMS = [None, "ortho", "forward"]


@pytest.fixture(autouse=True)
def wide() -> Any:
    with enable_x64(True):
        yield


def close(actual: Any, expected: Any) -> None:
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, 1e-11, 1e-11)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [None, 1, 5, 6, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name: str, size: int | None, norm: str | None) -> None:
    x = REAL if name in ("rfft", "ihfft") else COMPLEX
    for axis in (-1, 0):
        close(getattr(wf, name)(x, size, axis, norm), getattr(np.fft, name)(x, size, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(name: str, norm: str | None) -> None:
    x = REAL if name.startswith("r") else COMPLEX
    for sizes, axes in ((None, (0, 2)), ((5, 7), (2, 0)), ((2, 8), (-1, -2))):
        expected = getattr(np.fft, name)(x, s=sizes, axes=axes, norm=norm)
        close(getattr(wf, name)(x, s=sizes, axes=axes, norm=norm), expected)
    if name.endswith("n"):
        close(getattr(wf, name)(x), getattr(np.fft, name)(x))


@pytest.mark.parametrize("name", ["irfft", "hfft", "irfftn"])
def test_one_frequency_is_the_spectrum_of_nothing(name: str) -> None:
    """The size is twice that of the spectrum less 2, also where that is 0; the derivative is zero, not nan."""
    function, x = getattr(wf, name), np.ones((3, 1))
    assert function(x).shape == weft.jit(function)(x).shape == (3, 0)
    np.testing.assert_array_equal(weft.grad(lambda x: function(x).sum())(x), np.zeros((3, 1)))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "irfftn", "rfftn"])
def test_derivatives(name: str) -> None:
    x = REAL if name in ("rfft", "ihfft", "rfftn") else COMPLEX
    check_grads(getattr(wf, name), (x,), 2)


@pytest.mark.parametrize("size", [6, 7])
def test_transposes_of_real_transforms_are_exact(size: int) -> None:
    signal, spectrum = GENERATOR.standard_normal(size), GENERATOR.standard_normal(size // 2 + 1) * (1 + 2j)
    for function, x in ((wf.rfft, signal), (lambda s: wf.irfft(s, size), spectrum)):
        out, pull = weft.vjp(function, x)
        ct = GENERATOR.standard_normal(out.shape) * (1 - 0.5j)
        ct = ct if np.asarray(out).dtype.kind == "c" else ct.real
        (back,) = pull(ct)
        basis = np.eye(len(x))
        columns = [np.asarray(function(basis[i].astype(x.dtype))) for i in range(len(x))]
        expected = np.array([np.sum(ct * c) for c in columns])
        if x.dtype.kind == "c":  # only the real part of the pairing counts, separately for both parts of each element
            turned = [np.asarray(function(1j * basis[i])) for i in range(len(x))]
            expected = expected.real - 1j * np.array([np.sum(ct * c) for c in turned]).real
        else:
            expected = expected.real
        np.testing.assert_allclose(np.asarray(back), expected, 1e-12, 1e-12)


def test_mapped_over_any_axis() -> None:
    for axis in range(3):
        mapped = weft.vmap(lambda x: wf.rfftn(x), in_axes=axis, out_axes=axis)(REAL)
        expected = np.stack([np.fft.rfftn(np.take(REAL, i, axis)) for i in range(REAL.shape[axis])], axis)
        close(mapped, expected)


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_frequencies_and_shifts(size: int) -> None:
    close(wf.fftfreq(size, 0.3), np.fft.fftfreq(size, 0.3))
    close(wf.rfftfreq(size, 0.3), np.fft.rfftfreq(size, 0.3))
    x = np.arange(2.0 * size).reshape(2, size)
    for axes in (None, 1, (0, 1)):
        close(wf.fftshift(x, axes), np.fft.fftshift(x, axes))
        close(wf.ifftshift(x, axes), np.fft.ifftshift(x, axes))
    assert wf.fftfreq(4, dtype=np.float32).dtype == np.float32


def test_lax_takes_names_and_makes_operands_complex() -> None:
    close(lax.fft(REAL, "FFT", (6,)), np.fft.fft(REAL))
    close(lax.fft(COMPLEX, lax.FftType.IRFFT, [10]), np.fft.irfft(COMPLEX, 10))
    with pytest.raises(ValueError, match="fft_type"):
        lax.fft(REAL, "DCT", (6,))
    with pytest.raises(ValueError, match="lengths"):
        lax.fft(REAL, "FFT", (5,))


@pytest.mark.parametrize(
    "call",
    [
        lambda: wf.rfft(COMPLEX),
        lambda: wf.fft(REAL, 0),
        lambda: wf.fft(REAL, norm="other"),
        lambda: wf.fft(REAL, axis=3),
        lambda: wf.fftn(REAL, axes=(0, 0)),
        lambda: wf.fft2(REAL, axes=(0,)),
        lambda: wf.fftn(REAL, s=(2,), axes=(0, 1)),
        lambda: wf.fftfreq(2.5),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_raise(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


def test_single_precision_stays_single() -> None:
    assert wf.fft(REAL.astype(np.float32)).dtype == np.complex64
    assert wf.irfft(COMPLEX.astype(np.complex64)).dtype == np.float32
