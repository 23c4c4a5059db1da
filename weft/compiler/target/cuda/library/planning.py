"""Planning: the library call that computes an equation or a fusion of kind "library"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.fuse.fusion import fusion
from weft.compiler.target.cuda.library.composites import LibraryComposite
from weft.compiler.target.cuda.library.matmuls import plan_matmul
from weft.compiler.target.cuda.library.solvers import plan_solver, solver
from weft.compiler.target.cuda.library.transforms import plan_fft, plan_triangular
from weft.compiler.target.evaluation import plan_evaluation, refuse
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.contract import dot_general
from weft.primitives.linalg.fft import fft
from weft.primitives.linalg.triangular import triangular_solve

# Plan of each primitive, with the library that it needs. All others are evaluated on the host.
PLANS: dict[Any, tuple[str, Callable[[Equation], LibraryCall]]] = {
    dot_general: ("cublasLt", plan_matmul),
    fft: ("cufft", plan_fft),
    solver: ("cusolver", plan_solver),
    triangular_solve: ("cublas", plan_triangular),
}


def plan(equation: Equation, target: Target) -> LibraryCall:
    """Return the call that computes an equation. Operands and results are dense arrays, stored by rows."""
    primitive = equation.primitive
    if primitive is fusion:
        routine: LibraryComposite = equation.params["routine"]
        return routine.plan(equation)
    if primitive.higher_order:
        raise InternalError(f"Libraries cannot call {primitive.name}, which has sub-jaxprs.", stage="library")
    refuse(equation)
    library, found = PLANS.get(primitive, ("", plan_evaluation))
    return found(equation) if not library or library in target.libraries.present else plan_evaluation(equation)
