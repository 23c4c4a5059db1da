"""Functions and layers whose intermediate values are computed again for the gradient, instead of being stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.context import current_losses, get_keras_mask, set_keras_mask
from weft.keras.core.scope import StatelessScope


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that gradients recompute its intermediate values instead of storing them.

    The function may call layers: their writes to variables, added losses and masks of the results stay as without it.

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


@dataclass(frozen=True)
class RematMode:
    """Which layers a `RematScope` asks to compute again."""

    mode: str | None
    output_size_threshold: int
    layer_names: tuple[str, ...]


_MODES = ("full", "activations", "larger_than", "list_of_layers", None)
_mode: ContextVar[RematMode | None] = ContextVar("weft_keras_remat_mode", default=None)


def current_remat_mode() -> RematMode | None:
    """Return the mode of the innermost `RematScope`, or None outside of them."""
    return _mode.get()


class RematScope:
    """A block; layers constructed in it compute their intermediate values again for the gradient, which needs less
    memory and more time.

    Args:
        mode: "full" for all layers; "activations" for the activation functions of layers that have one; "larger_than"
            for layers whose output has more elements than a threshold; "list_of_layers" for layers by name; None for
            no layer, inside of another scope.
        output_size_threshold: the threshold; an unknown size of the batch counts as 1.
        layer_names: the names.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> with keras.RematScope("full"):
        ...     layer = keras.layers.Dense(2, kernel_initializer="ones")
        >>> float(layer(weft.numpy.ones((1, 3))).sum())
        6.0
    """

    def __init__(
        self, mode: str | None = "full", output_size_threshold: int = 1024, layer_names: Sequence[str] | None = None
    ) -> None:
        if mode not in _MODES:
            raise ArgumentError(f"`mode` must be one of {', '.join(map(repr, _MODES))}.", received=f"{mode=}")
        self.mode = mode
        self.output_size_threshold = output_size_threshold
        self.layer_names = list(layer_names or ())
        self._tokens: list[Token[RematMode | None]] = []

    def __enter__(self) -> RematScope:
        mode = RematMode(self.mode, self.output_size_threshold, tuple(self.layer_names))
        self._tokens.append(_mode.set(mode))
        return self

    def __exit__(self, *_: object) -> None:
        _mode.reset(self._tokens.pop())
