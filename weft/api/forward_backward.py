"""`fwd_and_bwd`: forward and backward pass of a function as two functions, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.api.differentiate import argument_indices, hold_others
from weft.api.flat import check_callable, wraps
from weft.api.jit import jit
from weft.api.vjp import vjp


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions: `fwd(*args)` returns the value of `fun` and residuals, `bwd(residuals, cotangent)` the cotangents
    of the arguments `argnums`.

    Residuals are a tree of arrays, so that they may be passed on, and `bwd` is compiled once for all calls of `fwd`
    with arguments of the same types. With `has_aux`, `fun` returns a pair, and `fwd` returns the second part last.
    Neither is compiled unless `jitted`.

    >>> import weft
    >>> fwd, bwd = weft.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> value, residuals = fwd(2.0, 3.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [3.0, 2.0]
    """
    check_callable(fun, "fwd_and_bwd")
    indices = argument_indices(argnums, "fwd_and_bwd")

    @wraps(fun)
    def fwd(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = hold_others(fun, indices, args, kwargs, "fwd_and_bwd")
        return vjp(partial, *chosen, has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        found = residuals(cotangent)
        return found if isinstance(argnums, (tuple, list)) else found[0]

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
