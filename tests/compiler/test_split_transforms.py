"""Long FFTs composed of short ones: the same results within rounding, for all kinds and transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import run_passes
from weft.base import settings
from weft.compiler import pipeline
from weft.compiler.passes import split_transforms as module
from weft.compiler.passes.split_transforms import sides

LENGTHS = [256, 960, 1024, 1248, 4096]


@pytest.fixture(autouse=True)
def short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 256)


def signal(shape: Any, dtype: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    result = rng.normal(size=shape)
    return (result + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else result).astype(dtype)


def transforms(jaxpr: Any) -> list[int]:
    """The lengths of the transforms that are left after the passes."""
    found = run_passes(jaxpr, pipeline.ALL_PASSES[:-1])
    return [e.params["fft_lengths"][0] for e in found.eqns if e.primitive.name == "fft"]


def check(name: str, x: np.ndarray, *length: int) -> None:
    function = getattr(wnp.fft, name)
    double = x.dtype in (np.float64, np.complex128)
    with weft.enable_x64(double):
        jaxpr = weft.make_jaxpr(lambda x: function(x, *length))(x)
        whole = (length or x.shape[-1:])[0]
        assert len(transforms(jaxpr)) == 2 and max(transforms(jaxpr)) < whole
        found = np.asarray(weft.jit(lambda x: function(x, *length))(x))
    expected = getattr(np.fft, name)(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64), *length)
    assert found.shape == expected.shape and found.dtype.itemsize == expected.dtype.itemsize // (1 if double else 2)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 4 * np.finfo(x.dtype).eps


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_complex_transforms(length: int, double: bool, lead: tuple[int, ...]) -> None:
    x = signal((*lead, length), np.complex128 if double else np.complex64)
    check("fft", x)
    check("ifft", x)


@pytest.mark.parametrize("length", LENGTHS[2:])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_real_transforms(length: int, double: bool, lead: tuple[int, ...]) -> None:
    check("rfft", signal((*lead, length), np.float64 if double else np.float32))
    # The imaginary parts at both ends do not count.
    check("irfft", signal((*lead, length // 2 + 1), np.complex128 if double else np.complex64), length)


@pytest.mark.parametrize("length", [257, 1022, 2 * 17 * 64])
def test_other_transforms_are_not_split(length: int) -> None:
    assert transforms(weft.make_jaxpr(wnp.fft.fft)(signal(length, np.complex64))) == [length]


def test_batches_are_not_split() -> None:
    assert transforms(weft.make_jaxpr(wnp.fft.fft)(signal((8, 1024), np.complex64))) == [1024]


def test_sides_are_near_a_square() -> None:
    assert sides(1 << 20) == (1024, 1024) and sides(1 << 19) == (512, 1024) and sides(1_000_000) == (1000, 1000)
    assert sides(17 * 64) is None and sides(128) is None


def test_derivatives_and_maps() -> None:
    x = signal(1024, np.float32)

    def energy(x: Any) -> Any:
        return (wnp.abs(wnp.fft.rfft(x)) ** 2).sum()

    gradient = np.asarray(weft.jit(weft.grad(energy))(x))
    # By Parseval the two halves of the spectrum have the energy of the signal; each half misses or has both ends.
    spectrum = np.fft.rfft(x.astype(np.float64))
    both = 2 * 1024 * x.astype(np.float64) / 2 + np.real(spectrum[0] + spectrum[-1] * (-1.0) ** np.arange(1024))
    np.testing.assert_allclose(gradient, both, rtol=2e-4, atol=2e-2)
    rows = signal((2, 1024), np.float32)
    mapped = np.asarray(weft.jit(weft.vmap(wnp.fft.rfft))(rows))
    np.testing.assert_allclose(mapped, np.fft.rfft(rows), rtol=1e-4, atol=1e-3)


def test_threads_do_not_change_bits() -> None:
    x = signal(1 << 16, np.complex64)
    results = []
    for num_threads in (1, 2):
        with settings.num_threads(num_threads):
            results.append(np.asarray(weft.jit(lambda x: wnp.fft.fft(x))(x)).tobytes())
    assert results[0] == results[1]
