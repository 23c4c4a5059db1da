"""Gradients of a stateful function with respect to variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.context import get_keras_mask, set_keras_mask
from weft.keras.core.scope import StatelessScope
from weft.tree_util import register_dataclass, register_static


@register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Written:
    """The variables that a closure wrote, in the order of their new values. It compares by identity."""

    variables: tuple[Any, ...]


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Outcome:
    """The auxiliary output of a differentiated closure.

    Attributes:
        loss: the loss, not scaled.
        aux: further outputs of the closure, or None.
        masks: the Keras mask of each leaf of `aux`: masks belong to objects, which do not leave a transformation.
        values: the new values of written variables.
        written: these variables.
    """

    loss: Any
    aux: Any
    masks: list[Any]
    values: list[Any]
    written: Written


def gradients(
    loss_fn: Callable[[], Any], variables: Sequence[Any], scale: Callable[[Any], Any] | None = None
) -> tuple[Any, Any, list[Any]]:
    """Return the value of a closure and its gradient with respect to the variables that it reads.

    Writes of the closure (statistics, seeds, metrics) happen once, with the values of this evaluation.

    Args:
        loss_fn: `loss_fn() -> loss` or `loss_fn() -> (loss, aux)`; the loss is a scalar, `aux` any tree of arrays.
        variables: the variables to differentiate with respect to.
        scale: a function applied to the loss before differentiation, but not to the returned loss.

    Returns:
        `(loss, aux, gradients)`; gradients are in the order of `variables`, and `aux` is None without further outputs.

    >>> from weft import keras
    >>> from weft.keras.training import gradients
    >>> weight = keras.Variable(3.0)
    >>> loss, aux, (gradient,) = gradients(lambda: weight * weight, [weight])
    >>> float(loss), aux, float(gradient)
    (9.0, None, 6.0)
    """
    variables = list(variables)

    def pure(values: list[Any]) -> tuple[Any, Outcome]:
        with StatelessScope(zip(variables, values, strict=True)) as scope:
            result = loss_fn()
            loss, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
            loss = weft.numpy.asarray(loss)
            if loss.ndim:
                raise ArgumentError(
                    "A loss that is differentiated must be a scalar.",
                    received=f"an array of shape {loss.shape}",
                    fix="ops.mean(loss)",
                )
            scaled = loss if scale is None else scale(loss)
        masks = [get_keras_mask(leaf) for leaf in weft.tree.leaves(aux)]
        started = dict(zip(map(id, variables), values, strict=True))
        changed = [(v, new) for v, new in scope.updates() if started.get(id(v)) is not new]
        written = Written(tuple(variable for variable, _ in changed))
        return scaled, Outcome(loss, aux, masks, [value for _, value in changed], written)

    values = [variable.value for variable in variables]
    (_, outcome), found = weft.value_and_grad(pure, has_aux=True)(values)
    for variable, value in zip(outcome.written.variables, outcome.values, strict=True):
        variable.assign(value)
    for leaf, mask in zip(weft.tree.leaves(outcome.aux), outcome.masks, strict=True):
        if mask is not None:
            set_keras_mask(leaf, mask)
    return outcome.loss, outcome.aux, found
