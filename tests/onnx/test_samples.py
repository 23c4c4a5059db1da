"""The law of ONNX: a model of each sample of a primitive computes in onnxruntime what the primitive's `eval` does, or
the export is refused with the user's line, for a reason that is listed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.samples import ALONE, Case
from tests.onnx.runtime import errors_in_eps, run_graph
from weft.base import dtypes
from weft.compiler.passes.inline import inline
from weft.errors import NotSupportedError
from weft.export.onnx.emitter import Emitter
from weft.export.onnx.graph import NEWEST, OLDEST
from weft.export.onnx.lower import constant_parts, emit_jaxpr, part_types
from weft.export.onnx.write import declare_inputs, declare_outputs
from weft.primitives.linalg.matrix import MatrixFunction
from weft.trace.stage import stage

# Why some samples of primitives cannot be written, and which primitives.
REASONS = {
    "eigenvalues of general matrices": "eig schur",
    "choices by any function": "select_and_scatter",
    "formats that no dtype has": "reduce_precision",
}
REFUSED = {name: reason for reason, names in REASONS.items() for name in names.split()}
# Samples whose results differ, and why.
DIFFERENT = {
    "eq_to-2": "the total order of floats tells nan of different bits apart, which graphs cannot",
    "le_to-2": "the total order of floats tells nan of different bits apart, which graphs cannot",
    "lt_to-2": "the total order of floats tells nan of different bits apart, which graphs cannot",
}
# Errors in units of the dtype's precision.
TOLERANCE = 128.0
# Factorizations by loops are not LAPACK's: vectors have other signs or phases, and errors depend on the matrix.
FACTORIZATION_TOLERANCE = 4096.0
UP_TO_PHASE = {"eigh", "svd"}
CASES = [case for case in ALONE if case.result_types]


def emit(case: Case, version: int = OLDEST) -> Emitter:
    """Write the graph of a sample."""
    jaxpr = inline(stage(case.alone, case.types)[0])
    g = Emitter("f", version)
    arguments = declare_inputs(g, list(jaxpr.in_avals), [f"x{i}" for i in range(len(jaxpr.invars))])
    results = emit_jaxpr(g, jaxpr, arguments)
    declare_outputs(g, results, [f"y{i}" for i in range(len(results))])
    g.finish()
    return g


def tensors(arrays: list[np.ndarray], avals: list) -> list[np.ndarray]:
    """Return the tensors that arrays consist of."""
    g = Emitter("f", OLDEST)
    parts = [constant_parts(g, array, aval) for array, aval in zip(arrays, avals, strict=True)]
    return [np.asarray(value.data) for values in parts for value in values]


def magnitudes(arrays: list[np.ndarray], avals: list) -> list[np.ndarray]:
    """Return the magnitudes of the elements of tensors, two of which may be a complex array."""
    rest = iter(arrays)
    parts = [[next(rest) for _ in part_types(aval)] for aval in avals]
    return [np.abs(p[0]) if len(p) == 1 else np.hypot(*p) for p in parts]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_models_compute_what_primitives_do(case: Case) -> None:
    name = case.primitive.name
    try:
        g = emit(case)
    except NotSupportedError as error:
        assert name in REFUSED and "samples.py" in str(error), str(error)
        return
    found = run_graph(g.graph, g.version, tensors(case.arrays, case.types))
    expected = tensors(case.results, case.result_types)
    worst = 0.0
    if name in UP_TO_PHASE:
        found, expected = (magnitudes(arrays, case.result_types) for arrays in (found, expected))
    for own, wanted in zip(found, expected, strict=True):
        assert own.dtype == wanted.dtype and own.shape == wanted.shape
        if dtypes.kind(wanted.dtype) == "f":
            worst = max(worst, errors_in_eps(own, wanted))
        elif not np.array_equal(own, wanted):
            worst = np.inf
    limit = FACTORIZATION_TOLERANCE if isinstance(case.primitive, MatrixFunction) else TOLERANCE
    assert (worst > limit) == (str(case) in DIFFERENT), f"{worst} times the precision"


@pytest.mark.parametrize("version", range(OLDEST + 1, NEWEST + 1))
def test_later_versions(version: int) -> None:
    """The first sample of each primitive can be run in every version of the operator set."""
    for case in CASES:
        if case.index == 0 and case.primitive.name not in REFUSED:
            run_graph(emit(case, version).graph, version, tensors(case.arrays, case.types))


def test_every_reason_applies() -> None:
    """A primitive is not listed once it can be written."""
    samples = {name: [case for case in CASES if case.primitive.name == name] for name in REFUSED}
    for name, cases in samples.items():
        refused = 0
        for case in cases:
            try:
                emit(case)
            except NotSupportedError:
                refused += 1
        assert refused, name
