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
from weft.export.onnx.graph import OLDEST
from weft.export.onnx.lower import constant_parts, emit_jaxpr
from weft.export.onnx.model import declare_inputs, declare_outputs
from weft.trace.stage import stage

# Why some samples of primitives cannot be written, and which primitives.
REASONS = {
    "complex numbers": (
        "abs acos acosh add asin asinh atan atan2 atanh complex conj convert_element_type cos cosh "
        "cumlogsumexp cumprod cumsum div dot_general exp exp2 expm1 faddeeva fft imag integer_pow log log1p "
        "logistic max min mul neg pow real reduce_prod reduce_sum reduce_window_sum rotation rsqrt sign sin "
        "sinh sqrt square sub tan tanh xlog1py xlogy"
    ),
    "factorizations": (
        "cholesky eig eigh geqrf hessenberg householder_product linear_solve lu lu_pivots_to_permutation qr "
        "schur svd triangular_solve tridiagonal tridiagonal_solve"
    ),
    "special functions": (
        "bessel_i0 bessel_i0e bessel_i1 bessel_i1e beta digamma erf_inv erfc expn gamma_difference "
        "gamma_ratio hurwitz_zeta igamma igamma_derivative igamma_grad_a igammac incomplete_beta lgamma "
        "log_beta log_beta_density log_gamma_density log_ndtr ndtr ndtri owens_t polygamma random_gamma_grad "
        "regularized_incomplete_beta zeta"
    ),
    "gradients of pooling": "select_and_gather_add select_and_scatter select_and_scatter_add",
    "convolutions of other dtypes than float32": "conv_general_dilated",
    "steps between floats": "nextafter",
    "choices by platform": "platform_index",
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
TOLERANCE = 64.0
CASES = [case for case in ALONE if case.result_types]


def emit(case: Case) -> Emitter:
    """Write the graph of a sample."""
    jaxpr = inline(stage(case.alone, case.types)[0])
    g = Emitter("f", OLDEST)
    arguments = declare_inputs(g, list(jaxpr.in_avals), [f"x{i}" for i in range(len(jaxpr.invars))])
    results = emit_jaxpr(g, jaxpr, arguments)
    declare_outputs(g, results, [f"y{i}" for i in range(len(results))])
    g.graph.drop_dead()
    return g


def tensors(arrays: list[np.ndarray], avals: list) -> list[np.ndarray]:
    """Return the tensors that arrays consist of."""
    g = Emitter("f", OLDEST)
    parts = [constant_parts(g, array, aval) for array, aval in zip(arrays, avals, strict=True)]
    return [np.asarray(value.data) for values in parts for value in values]


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
    for own, wanted in zip(found, expected, strict=True):
        assert own.dtype == wanted.dtype and own.shape == wanted.shape
        if dtypes.kind(wanted.dtype) == "f":
            worst = max(worst, errors_in_eps(own, wanted))
        elif not np.array_equal(own, wanted):
            worst = np.inf
    assert (worst > TOLERANCE) == (str(case) in DIFFERENT), f"{worst} times the precision"


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
