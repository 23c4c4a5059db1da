"""Samples of all primitives as libraries of other machines, which wasmtime and an emulator run."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.compiler.host import interpret
from tests.compiler.running import assert_same
from tests.compiler.test_library_samples import OWN
from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.library.running import Arm, Sample, Wasm, compile_samples
from weft.runtime.execute import get_executable

GROUPS = 24
# Sums of elementary functions, in an order that depends on the width of vectors.
ORDERED = frozenset({"cumlogsumexp"})


def numbers(sample: Sample, results: Sequence[bytes]) -> list[np.ndarray]:
    """Return results as arrays of the dtypes that they have."""
    return [np.frombuffer(r, e.dtype).reshape(e.shape) for r, e in zip(results, sample.case.results, strict=True)]


def is_exact(case: Case) -> bool:
    """Return whether the results are no floats, so that rounding does not matter."""
    return all(r.dtype.kind in "biuV" for r in case.results)


def check_same(sample: Sample, results: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Compare bits; nans are equal."""
    for actual, wanted in zip(numbers(sample, results), numbers(sample, expected), strict=True):
        assert_same(actual, wanted, str(sample.case))


@pytest.mark.parametrize("group", range(GROUPS))
def test_arm(group: int, tmp_path: pathlib.Path) -> None:
    """AArch64 code computes the bits that the interpreter computes of the same kernels, or those of this machine: the
    interpreter evaluates elementary functions by NumPy."""
    samples, code = compile_samples(OWN[group::GROUPS], "aarch64")
    machine = Arm(code, [s.symbol for s in samples], tmp_path)
    for sample in samples:
        results = machine.call(sample.symbol, sample.arrays, sample.result_bytes, sample.program.temporary_bytes + 64)
        interpreted = [r.tobytes() for r in interpret(sample.program, [a.copy() for a in sample.arrays])]
        compiled = [np.asarray(getattr(r, "_value", r)).tobytes() for r in get_executable(sample.jaxpr)(sample.arrays)]
        if sample.case.primitive.name in ORDERED:
            for actual, wanted in zip(numbers(sample, results), sample.case.results, strict=True):
                assert_close(actual, wanted, sample.case.tolerance, str(sample.case))
            continue
        try:
            check_same(sample, results, interpreted)
        except AssertionError:
            check_same(sample, results, compiled)


@pytest.mark.parametrize("group", range(GROUPS))
def test_wasm(group: int, tmp_path: pathlib.Path) -> None:
    """WebAssembly has no fused multiply-adds: its results are as accurate as others, and equal where nothing rounds."""
    samples, code = compile_samples(OWN[group::GROUPS], "wasm32")
    machine = Wasm(code, [s.symbol for s in samples], tmp_path)
    for sample in samples:
        results = machine.call(sample.symbol, sample.arrays, sample.result_bytes, sample.program.temporary_bytes + 64)
        for actual, expected in zip(numbers(sample, results), sample.case.results, strict=True):
            if is_exact(sample.case):
                assert actual.tobytes() == np.ascontiguousarray(expected).tobytes(), str(sample.case)
            else:
                assert_close(actual, expected, sample.case.tolerance, str(sample.case))
