"""Functions whose intermediate values are computed again for the gradient, instead of being stored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft
from weft.keras.core.context import current_losses, get_keras_mask, set_keras_mask
from weft.keras.core.scope import StatelessScope


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes the same as `f`, and what lies inside of it once more when a gradient needs it.

    It may call layers: what those write to variables, losses that they add and masks of the results are as without it.

    Args:
        f: a function, or a layer.

    Returns:
        A function with the same arguments and results.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> layer = keras.layers.Dense(2, kernel_initializer="ones")
        >>> x = weft.numpy.ones((1, 3))
        >>> float(keras.remat(layer)(x).sum())
        6.0
    """

    @functools.wraps(f, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = weft.tree.flatten((args, kwargs), is_leaf=lambda leaf: leaf is None)
        arrays = [leaf for leaf in leaves if isinstance(leaf, weft.Array)]
        written: list[Any] = []
        owners: list[Any] = []

        def pure(arrays: list[Any]) -> Any:
            remaining = iter(arrays)
            filled = [next(remaining) if isinstance(leaf, weft.Array) else leaf for leaf in leaves]
            for old, new in zip(leaves, filled, strict=True):
                if old is not new and (mask := get_keras_mask(old)) is not None:
                    set_keras_mask(new, mask)
            inner_args, inner_kwargs = weft.tree.unflatten(structure, filled)
            with StatelessScope() as scope:
                result = f(*inner_args, **inner_kwargs)
            updates, losses = scope.updates(), scope.losses.items()
            written[:], owners[:] = [variable for variable, _ in updates], [layer for layer, _ in losses]
            masks = [get_keras_mask(leaf) for leaf in weft.tree.leaves(result)]
            return result, [value for _, value in updates], [loss for _, loss in losses], masks

        result, values, losses, masks = weft.checkpoint(pure)(arrays)
        for variable, value in zip(written, values, strict=True):
            variable.assign(value)
        store = current_losses()
        for layer, loss in zip(owners, losses, strict=True):
            store.add(layer, loss)
        for leaf, mask in zip(weft.tree.leaves(result), masks, strict=True):
            if mask is not None:
                set_keras_mask(leaf, mask)
        return result

    return run
