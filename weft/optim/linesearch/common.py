"""Common parts of line searches: calling the objective with the arguments it takes, and reusing its values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, ArgumentTypeError
from weft.optim.tree_utils.state import tree_get


def arguments_for(where: str, function: Callable[..., Any], extra_args: dict[str, Any]) -> dict[str, Any]:
    """Return the extra arguments that the objective takes; raise if it does not take all of them."""
    parameters = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        unused = sorted(set(extra_args) - set(parameters))
        if unused:
            raise ArgumentTypeError(
                f"{where}: update got keyword arguments that value_fn does not take: {', '.join(unused)}; "
                f"value_fn takes {', '.join(parameters)}"
            )
    return dict(extra_args)


def scalar_dtype(params: Any) -> Any:
    """Return the dtype of step sizes and values: the real dtype that the parameters promote to."""
    leaves = weft.tree.leaves(params)
    return wnp.finfo(wnp.result_type(*leaves, 0.0)).dtype if leaves else wnp.result_type(float)


def in_dtype(value: Any, dtype: Any) -> Any:
    """Return the real part of a scalar as an array of the given dtype."""
    value = wnp.asarray(value)
    return (value.real if wnp.iscomplexobj(value) else value).astype(dtype)


def scale_updates(rate: Any, updates: Any) -> Any:
    """Multiply updates by the step size, keeping the dtype of each."""
    return weft.tree.map(lambda u: wnp.asarray(u) * rate.astype(wnp.asarray(u).dtype), updates)


def cast_like(new: Any, state: Any) -> Any:
    """Cast a new state to the dtypes of the last one, since a step may be the body of a loop."""

    def cast(leaf: Any, old: Any) -> Any:
        dtype = wnp.asarray(old).dtype
        leaf = wnp.asarray(leaf)
        return (leaf if wnp.issubdtype(dtype, wnp.complexfloating) else leaf.real).astype(dtype)

    return weft.tree.map(cast, new, state)


def check_scalar(where: str, value_fn: Any, value: Any, grad: Any, params: Any) -> None:
    """Raise if an argument that a line search needs is missing."""
    needed = {"value": value, "grad": grad, "value_fn": value_fn, "params": params}
    missing = [name for name, argument in needed.items() if argument is None]
    if missing:
        raise ArgumentTypeError(
            f"{where} searches along a line and needs {', '.join(missing)}: "
            "call optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)"
        )


def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Return `weft.value_and_grad(value_fn)` with an argument `state`, from which a line search's value is reused.

    A line search has already computed value and gradient at its last point; they are recomputed only if the state lacks
    them.

    Args:
        value_fn: the function that is minimized.

    Returns:
        A function of the arguments of `value_fn` and `state=` that returns a value and a gradient.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> f = lambda x: (x**2).sum()
    >>> solver = optim.lbfgs()
    >>> params = wnp.array([3.0])
    >>> optim.value_and_grad_from_state(f)(params, state=solver.init(params))
    (Array(9., dtype=float32), Array([6.], dtype=float32))
    """

    def value_and_grad(params: Any, *args: Any, state: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, grad = tree_get(state, "value"), tree_get(state, "grad")
        if value is None or grad is None:
            raise ArgumentError(
                "value_and_grad_from_state needs a state that keeps value and gradient: "
                "that of lbfgs, scale_by_zoom_linesearch, or scale_by_backtracking_linesearch(store_grad=True)"
            )

        def compute(operand: Any) -> Any:
            return weft.value_and_grad(value_fn)(operand[0], *args, **kwargs)

        def reuse(operand: Any) -> Any:
            return operand[1], operand[2]

        unknown = wnp.logical_or(wnp.isinf(value), wnp.isnan(value))
        return lax.cond(unknown, compute, reuse, (params, value, grad))

    return value_and_grad
