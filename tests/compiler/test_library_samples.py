"""Samples of primitives as functions of libraries: the bits of jit, without Python, BLAS and allocation."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from tests.compiler import standalone
from tests.compiler.running import assert_same
from tests.fuzz.campaign import NO_RULE, generate
from tests.fuzz.checks import case_of
from tests.laws.laws import assert_close
from tests.laws.samples import ALONE, Case
from tests.laws.test_compiled import merged
from weft.compiler.target.cpu.standalone.definitions import with_own_definitions
from weft.compiler.target.cpu.standalone.machines import find_machine
from weft.errors import NotSupportedError
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.runtime.cpu.guarded import Edge
from weft.runtime.execute import get_executable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pages are guarded by mprotect")
# Operations that LAPACK or pocketfft computes: a library has those of small matrices, rounded otherwise, or none.
LIBRARIES = frozenset(
    {"cholesky", "eig", "eigh", "fft", "geqrf", "hessenberg", "linear_solve", "lu", "qr", "schur", "svd"}
    | {"triangular_solve", "tridiagonal", "tridiagonal_solve", "lu_pivots_to_permutation", "householder_product"}
)
DEFINED = sorted(LIBRARIES - {"eig", "schur", "householder_product"})
OWN = [case for case in ALONE if case.primitive.name not in LIBRARIES]
TOGETHER = 12


def check(cases: Sequence[Case], edge: Edge) -> None:
    """A library of some samples computes the bits of jit, whose own nans depend on how its code is optimised."""
    jaxpr = merged(cases)
    arrays = [a for case in cases for a in case.arrays]
    expected = [np.asarray(getattr(r, "_value", r)) for r in get_executable(jaxpr)(list(arrays))]
    results = standalone.call(jaxpr, arrays, edge)
    names = [f"{case}, result {i}" for case in cases for i in range(len(case.results))]
    for name, actual, wanted in zip(names, results, expected, strict=True):
        assert_same(np.frombuffer(actual, wanted.dtype).reshape(wanted.shape), wanted, name)


@pytest.mark.parametrize("edge", Edge)
def test_some_samples(edge: Edge) -> None:
    """Samples of various primitives; which ones differs between the edges."""
    chosen = {case.primitive.name: case for case in (OWN if edge is Edge.END else reversed(OWN))}
    check([chosen[name] for name in sorted(chosen)[edge is Edge.END :: 8]], edge)


@pytest.mark.slow
@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize("first", range(0, len(OWN), TOGETHER))
def test_all_samples(first: int, edge: Edge) -> None:
    check(OWN[first : first + TOGETHER], edge)


def names_of(jaxpr: Jaxpr) -> set[str]:
    return {e.primitive.name for e in jaxpr.eqns} | {
        n for e in jaxpr.eqns for inner in subjaxprs(e.params) for n in names_of(inner)
    }


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_programs(first: int) -> None:
    """Random programs with control flow and derivatives, as long as they need no other library."""
    checked = 0
    for seed in range(first, first + 20):
        try:
            program = generate(seed)
            case = case_of(program)
        except NO_RULE:
            continue
        if program.checks or names_of(case.jaxpr) & LIBRARIES:
            continue
        with program.settings():
            expected = [
                np.array(getattr(r, "_value", r)) for r in get_executable(case.jaxpr)([a.copy() for a in case.arrays])
            ]
            try:
                results = standalone.call(case.jaxpr, case.arrays, Edge.END if seed % 2 else Edge.BEGIN)
            except NotSupportedError:
                continue
        checked += 1
        for actual, wanted in zip(results, expected, strict=True):
            assert_same(np.frombuffer(actual, wanted.dtype).reshape(wanted.shape), wanted, f"seed {seed}")
    assert checked


@pytest.mark.parametrize(
    "name", [n if n in ("fft", "lu") else pytest.param(n, marks=pytest.mark.slow) for n in DEFINED]
)
def test_definitions(name: str) -> None:
    """Factorizations and transforms by kernels agree with those of LAPACK; vectors up to their signs."""
    target = find_machine("host").targets[0][1]
    for case in (case for case in ALONE if case.primitive.name == name):
        results = standalone.call(with_own_definitions(merged([case]), target), case.arrays, Edge.END)
        for actual, wanted in zip(results, case.results, strict=True):
            found = np.frombuffer(actual, wanted.dtype).reshape(wanted.shape)
            if name in ("eigh", "svd"):
                found, wanted = np.abs(found), np.abs(wanted)
            assert_close(found, wanted, case.tolerance or 1e-4, str(case))


def test_operations_of_other_libraries_are_refused() -> None:
    """What has no kernel raises an error at export; small matrices have kernels."""
    refused = set()
    for case in ALONE:
        if case.primitive.name in LIBRARIES and case.primitive.name not in refused:
            try:
                standalone.entry_of(merged([case]))
            except NotSupportedError as error:
                assert "computed by kernels" in str(error)
                refused.add(case.primitive.name)
    assert refused <= LIBRARIES and {"eigh", "fft", "svd"} <= refused
