"""`minimize`: the arguments, the choice of a method, and derivatives of a minimum by what makes it one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.api.differentiate import grad
from weft.api.vectorize import vmap
from weft.base import dtypes
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError, NonScalarGradientError
from weft.ir.types import get_aval
from weft.numpy.linalg.solving import solve
from weft.numpy.util import ensure_arrays
from weft.scipy.optimize.quasi_newton import CONVERGED, State, bfgs, lbfgs


class OptimizeResults(NamedTuple):
    """Result of `minimize`.

    x: where the function is least; success: whether it converged; status: 0 if it converged, 1 after the most
    iterations, 2 after the most evaluations, 3 and 5 if no step along a direction was good enough, by narrowing an
    interval and for want of one; fun, jac: the value and gradient at x; hess_inv: the inverse of the Hessian as far as
    the method knows it (None for L-BFGS); nfev, njev, nit: how many evaluations of the function, of its gradient, and
    iterations it took.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


# For each method: the function, and the options that `tol` means.
_METHODS: dict[str, tuple[Callable[..., State], tuple[str, ...]]] = {
    "bfgs": (bfgs, ("gtol",)),
    "l-bfgs-experimental-do-not-rely-on-this": (lbfgs, ("ftol", "gtol")),
}


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Minimise a function of a vector locally.

    The minimum and its value have derivatives with respect to `args`, and to whatever else `fun` uses: those of the
    solution of `grad(fun) = 0`. They do not depend on how it was found, and mean nothing where it did not converge.

    Args:
        fun: a function `fun(x, *args)` from a vector to a real number, that can be differentiated.
        x0: a vector to begin at, real or complex.
        args: more arguments of `fun`.
        method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this", which needs less memory.
        tol: when to stop: for BFGS the option `gtol`, for L-BFGS `gtol` and `ftol`, unless options say otherwise.
        options: of both methods, `maxiter` (200 times the number of variables by default), `gtol` (converged where the
            norm of the gradient is below it, 1e-5 by default) and `norm` (the order of that norm, by default infinity:
            the largest element); of BFGS also `line_search_maxiter`; of L-BFGS `maxcor` (steps to remember), `ftol`
            (converged where the relative decrease of the value is below it), `maxfun`, `maxgrad` and `maxls`.

    Returns:
        An `OptimizeResults`. For complex x, the inverse Hessian is that for the vector of real and imaginary parts.

    >>> import weft.numpy as np
    >>> from weft.scipy.optimize import minimize
    >>> result = minimize(lambda x, a: np.sum((x - a) ** 2), np.zeros(2), (3.0,), method="BFGS")
    >>> result.x.round(3), bool(result.success)
    (Array([3., 3.], dtype=float32), True)
    """
    if not isinstance(args, tuple):
        raise ArgumentTypeError(
            "minimize: args must be a tuple.", received=described(args), fix="args=(a,) for one argument"
        )
    if not isinstance(method, str) or method.lower() not in _METHODS:
        raise ArgumentError(f"minimize: Method {method} not recognized.", fix=f"one of {', '.join(_METHODS)}")
    minimized, tolerances = _METHODS[method.lower()]
    options = dict(options or {})
    known = [name for name in inspect.signature(minimized).parameters if name not in ("fun", "x0")]
    for name in options:
        if name not in known:
            raise ArgumentTypeError(f"minimize: {method} has no option {name!r}.", fix=f"one of {', '.join(known)}")
    if tol is not None:
        options = {**dict.fromkeys(tolerances, tol), **options}
    (start,) = ensure_arrays("minimize", x0)
    if start.ndim != 1 or dtypes.kind(start.dtype) not in "fc":
        raise ArgumentError(
            "minimize: x0 must be a vector of real or complex numbers.",
            received=start.aval.short(),
            fix="x0.ravel(), and x.reshape(...) in fun; weft.flatten_util.ravel_pytree for trees of arrays",
        )
    size = start.shape[0]
    is_complex = dtypes.kind(start.dtype) == "c"

    def to_complex(x: Any) -> Any:
        return lax.complex(x[:size], x[size:]) if is_complex else x

    def objective(x: Any) -> Any:
        value = fun(to_complex(x), *args)
        aval: Any = get_aval(value)
        if getattr(aval, "shape", None) != () or dtypes.kind(aval.dtype) not in "f":
            raise NonScalarGradientError("minimize: fun must return a real number.", received=aval.short())
        return lax.convert_element_type(value, start.dtype if not is_complex else dtypes.to_real_dtype(start.dtype))

    def search(_: Any, x: Any) -> tuple[Any, State]:
        found = minimized(objective, x, **options)
        return found.x, found

    if is_complex:
        start = lax.concatenate([lax.real(start), lax.imag(start)], 0)
    x, found = lax.custom_root(grad(objective), start, search, _solve_densely, has_aux=True)
    gradient = found.gradient
    return OptimizeResults(
        x=to_complex(x),
        success=found.status == CONVERGED,
        status=found.status,
        fun=objective(x),
        jac=lax.complex(gradient[:size], -gradient[size:]) if is_complex else gradient,
        hess_inv=found.memory if minimized is bfgs else None,
        nfev=found.evaluations,
        njev=found.evaluations,
        nit=found.iterations,
    )


def _solve_densely(operator: Callable[[Any], Any], right: Any) -> Any:
    """Solve a linear system by materialising the matrix of its operator, here of second derivatives."""
    columns = vmap(operator)(np.eye(right.shape[0], dtype=right.dtype))
    return solve(columns.T, right)
