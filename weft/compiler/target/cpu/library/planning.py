"""Plans of equations as library calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.target.cpu.library import factorizations, hermitian, singular, solves, spectra
from weft.compiler.target.cpu.library.batches import TooLarge
from weft.compiler.target.cpu.library.host import plan_fft
from weft.compiler.target.cpu.library.matmuls import plan_matmul
from weft.compiler.target.cpu.library.writer import ZEROS
from weft.compiler.target.evaluation import plan_evaluation, refuse
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.ir.jaxpr import Equation
from weft.ir.registry import is_builtin
from weft.primitives.contraction.contract import dot_general
from weft.primitives.linalg.cholesky import cholesky
from weft.primitives.linalg.condensed import hessenberg, schur, tridiagonal
from weft.primitives.linalg.eigen import eig, eigh
from weft.primitives.linalg.fft import fft
from weft.primitives.linalg.lu import linear_solve, lu, lu_pivots_to_permutation
from weft.primitives.linalg.qr import geqrf, qr
from weft.primitives.linalg.svd import svd
from weft.primitives.linalg.triangular import triangular_solve, tridiagonal_solve


def _plan_schur(equation: Equation) -> LibraryCall:
    """Plan a Schur decomposition. A Python function that selects eigenvalues needs an evaluation in Python."""
    return plan_evaluation(equation) if equation.params.get("sort_eig_vals") else spectra.plan_schur(equation)


PLANS: dict[Any, Callable[[Equation], LibraryCall]] = {
    cholesky: factorizations.plan_cholesky,
    dot_general: plan_matmul,
    eig: spectra.plan_eig,
    eigh: hermitian.plan_eigh,
    fft: plan_fft,
    geqrf: factorizations.plan_geqrf,
    hessenberg: spectra.plan_hessenberg,
    linear_solve: solves.plan_linear_solve,
    lu: factorizations.plan_lu,
    lu_pivots_to_permutation: factorizations.plan_permutation,
    qr: factorizations.plan_qr,
    schur: _plan_schur,
    svd: singular.plan_svd,
    triangular_solve: solves.plan_triangular,
    tridiagonal: spectra.plan_tridiagonal,
    tridiagonal_solve: solves.plan_tridiagonal_solve,
}


# Primitives whose results are zeros if an operand has no elements; others are evaluated then.
SUMS = frozenset({dot_general})


def plan(equation: Equation) -> LibraryCall:
    """Return the call that computes an equation. Operands and results are dense row-major arrays."""
    if equation.primitive.higher_order:
        raise InternalError(f"A library cannot call the sub-jaxprs of {equation.primitive.name}.", stage="library")
    refuse(equation)
    operands, results = get_arrays(equation.invars), get_arrays(equation.outvars)
    if not any(r.size for r in results):
        return LibraryCall(ZEROS, parameters=(len(operands), 0))
    filled = all(x.size for x in operands)
    if equation.primitive in SUMS and not filled:
        return LibraryCall(ZEROS, parameters=(len(operands), results[0].bytes))
    found = PLANS.get(equation.primitive)
    if found is None and is_builtin(equation.primitive):
        raise InternalError(f"No kernel and no library computes `{equation.primitive.name}`.", stage="library")
    if found is None or not filled:
        return plan_evaluation(equation)
    try:
        return found(equation)
    except TooLarge:
        return plan_evaluation(equation)
