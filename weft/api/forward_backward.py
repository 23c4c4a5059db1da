"""The forward and the backward pass of a function as two functions that are compiled once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.api.differentiate import argument_indices, hold_others, vjp
from weft.api.jit import jit


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions, the forward and the backward pass of `fun` for its arguments `argnums`.

    `fwd(*args)` returns `(fun(*args), residuals)`, with `has_aux` also what `fun` returns second; `bwd(residuals,
    cotangent)` returns the cotangents of the arguments at `argnums`: a tuple, also for one index. Both are jitted
    unless `jitted` is False, so that a loop of calls compiles each of them once.

    >>> import weft, weft.numpy as np
    >>> fwd, bwd = weft.fwd_and_bwd(lambda x, w: x * np.sin(w), argnums=(0, 1))
    >>> y, residuals = fwd(2.0, 0.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [0.0, 2.0]
    """
    indices = argument_indices(argnums, "fwd_and_bwd")

    def fwd(*args: Any) -> Any:
        held, chosen = hold_others(fun, indices, args, {}, "fwd_and_bwd")
        return vjp(held, *chosen, has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        return residuals(cotangent)

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
