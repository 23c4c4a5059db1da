"""Samples of all primitives as libraries of other machines, which wasmtime and an emulator run."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from tests.compiler.running import assert_same
from tests.compiler.test_library_samples import OWN
from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.library.running import X86, Arm, Sample, Wasm, compile_samples
from weft import export
from weft.compiler.target import native
from weft.compiler.target.cpu.standalone.dispatch import LEVEL
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
    machine = Arm([code], [s.symbol for s in samples], tmp_path)
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


def test_an_older_processor_runs_the_code_of_its_level(tmp_path: pathlib.Path) -> None:
    """The emulator has no AVX, so the function for several levels must choose the lowest one, or return a status."""
    if not native.host()[0].startswith("x86_64"):
        pytest.skip("several levels are compiled on x86-64 only")
    x = np.random.default_rng(0).normal(size=(9, 20)).astype(np.float32)

    def function(x: Any) -> Any:
        return weft.nn.softmax(x @ x.T, -1), wnp.sin(x).sum(0)

    library = export.library(function, x, name="f", target="x86-64")
    machine = X86([each.code for each in library.objects], ["f_run"], tmp_path)
    sizes = [t.bytes for t in library.signature.results]
    results = machine.call("f_run", [x], sizes, library.workspace_bytes)
    for actual, expected in zip(results, weft.jit(function)(x), strict=True):
        np.testing.assert_allclose(
            np.frombuffer(actual, np.float32).reshape(expected.shape), expected, rtol=2e-5, atol=1e-6
        )
    assert struct.unpack("<i", machine.read(machine.symbols[LEVEL], 4))[0] == 2
