"""Gradients of a stateful function with respect to variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.context import get_keras_mask, set_keras_mask
from weft.keras.core.scope import StatelessScope


def gradients(
    loss_fn: Callable[[], Any], variables: Sequence[Any], scale: Callable[[Any], Any] | None = None
) -> tuple[Any, Any, list[Any]]:
    """Return the value of a closure and its gradient with respect to the variables that it reads.

    What the closure writes (statistics, seeds, metrics) is written once, with the values of this evaluation.

    Args:
        loss_fn: `loss_fn() -> loss` or `loss_fn() -> (loss, aux)`; the loss is a scalar, `aux` any tree of arrays.
        variables: what is differentiated with respect to.
        scale: applied to the loss before it is differentiated, and not to the value that is returned.

    Returns:
        `(loss, aux, gradients)`; gradients are in the order of `variables`, `aux` is None where there is none.

    >>> from weft import keras
    >>> from weft.keras.training import gradients
    >>> weight = keras.Variable(3.0)
    >>> loss, aux, (gradient,) = gradients(lambda: weight * weight, [weight])
    >>> float(loss), aux, float(gradient)
    (9.0, None, 6.0)
    """
    variables = list(variables)
    written: list[Any] = []

    def pure(values: list[Any]) -> tuple[Any, Any]:
        with StatelessScope(zip(variables, values, strict=True)) as scope:
            result = loss_fn()
            loss, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
            loss = weft.numpy.asarray(loss)
            if loss.ndim:
                raise ArgumentError(
                    "A loss that is differentiated is a scalar.",
                    received=f"an array of shape {loss.shape}",
                    fix="ops.mean(loss)",
                )
            scaled = loss if scale is None else scale(loss)
        # Masks belong to objects, and these do not leave the transformation: they go beside their values.
        masks = [get_keras_mask(leaf) for leaf in weft.tree.leaves(aux)]
        started = dict(zip(map(id, variables), values, strict=True))
        changed = [(v, new) for v, new in scope._values.values() if started.get(id(v)) is not new]
        written[:] = [variable for variable, _ in changed]
        return scaled, (loss, aux, masks, [value for _, value in changed])

    values = [variable.value for variable in variables]
    (_, (loss, aux, masks, new)), found = weft.value_and_grad(pure, has_aux=True)(values)
    for variable, value in zip(written, new, strict=True):
        variable.assign(value)
    for leaf, mask in zip(weft.tree.leaves(aux), masks, strict=True):
        if mask is not None:
            set_keras_mask(leaf, mask)
    return loss, aux, found
