"""Matrix functions and transforms by cuSOLVER, cuBLAS and cuFFT on a simulated GPU, over the samples of the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_ptx import OF_LIBRARIES
from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.laws.test_compiled import GROUPS, merged
from weft.compiler import pipeline
from weft.compiler.passes.compose import define
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.inline import inline
from weft.compiler.target.cuda.targets import hopper
from weft.ir import interpreter
from weft.runtime.array import copy_array
from weft.runtime.device import get_placement
from weft.runtime.execute import get_executable

LIBRARIES = ("cublasLt", "cublas", "cusolver", "cufft")
MATRICES = [(name, cases) for name, cases in GROUPS if cases[0].primitive.name in OF_LIBRARIES]
# Vectors whose signs or phases are a library's.
OF_ANY_PHASE = ("eigh", "svd")
# What each operation calls; others are evaluated on the host.
CALLED = {
    "cholesky": {"potrf"},
    "eigh": {"syevd"},
    "fft": {"C2C", "R2C", "C2R"},
    "geqrf": {"geqrf"},
    "linear_solve": {"trsm"},
    "lu": {"getrf"},
    "qr": {"geqrf", "orgqr"},
    "svd": {"gesvd"},
    "triangular_solve": {"trsm"},
}


def compare(cases: list[Case], found: list[Any]) -> None:
    results = iter(found)
    for case in cases:
        for i, expected in enumerate(case.results):
            actual = np.asarray(next(results))
            if case.primitive.name in OF_ANY_PHASE:
                actual, expected = np.abs(actual), np.abs(expected)
            assert_close(actual, expected, case.tolerance, f"{case}, result {i}")


@pytest.mark.parametrize("cases", [cases for _, cases in MATRICES], ids=[name for name, _ in MATRICES])
def test_definitions(cases: list[Case]) -> None:
    """What operations are defined by means the same."""
    steps = [step for step in pipeline.ALL_PASSES if step.function in (inline, decompose, define)]
    jaxpr = pipeline.run(merged(cases), hopper(frozenset(LIBRARIES)), steps)
    compare(cases, interpreter.run(jaxpr, [np.asarray(a) for case in cases for a in case.arrays]))


@pytest.mark.parametrize("cases", [cases for _, cases in MATRICES], ids=[name for name, _ in MATRICES])
def test_samples(monkeypatch: pytest.MonkeyPatch, cases: list[Case]) -> None:
    with simulated_gpu(monkeypatch) as (device, driver):
        libraries = driver.with_libraries(*LIBRARIES)
        placement = get_placement(device, True)
        arrays = [
            copy_array(np.asarray(a), t, placement)
            for case in cases
            for a, t in zip(case.arrays, case.types, strict=True)
        ]
        results = get_executable(merged(cases), device=device)(arrays, None, placement)
        compare(cases, list(results))
        called = {call for library in libraries.values() for call in library.calls if isinstance(call, str)}
        assert called >= CALLED.get(cases[0].primitive.name, set()) & {"potrf", "syevd", "getrf", "gesvd", "trsm"}


def test_failures_are_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_gpu(monkeypatch) as (device, driver):
        driver.with_libraries(*LIBRARIES)
        x = np.stack([np.eye(3), -np.eye(3)]).astype(np.float32)
        found = np.asarray(weft.jit(wnp.linalg.cholesky)(weft.device_put(x, device)))
        np.testing.assert_array_equal(found[0], np.eye(3))
        assert np.isnan(found[1]).any()


def test_solving_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 4)).astype(np.float32) + 4 * np.eye(4, dtype=np.float32), rng.normal(size=(4, 2))
    f = weft.jit(weft.grad(lambda a, b: wnp.sum(wnp.linalg.solve(a, b) ** 2)))
    expected = np.asarray(f(a, b.astype(np.float32)))
    with simulated_gpu(monkeypatch) as (device, driver):
        driver.with_libraries(*LIBRARIES)
        found = f(*(weft.device_put(x, device) for x in (a, b.astype(np.float32))))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
