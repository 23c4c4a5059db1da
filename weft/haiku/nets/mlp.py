"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.haiku.layers.basic import dropout
from weft.haiku.layers.linear import Linear
from weft.haiku.module import Module
from weft.haiku.rng import PRNGSequence
from weft.haiku.typing import Initializer


class MLP(Module):
    """Linear layers of the given sizes, with `activation` after each except the last, or also after the last.

    Args:
        output_sizes: the sizes of the layers.
        w_init: the initializer of the weights.
        b_init: the initializer of the biases.
        with_bias: whether biases are added.
        activation: the function between layers.
        activate_final: whether it comes after the last layer too.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.nets.MLP([4, 2])(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(
        self,
        output_sizes: Iterable[int],
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        with_bias: bool = True,
        activation: Callable[[Any], Any] = weft.nn.relu,
        activate_final: bool = False,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if not with_bias and b_init is not None:
            raise ArgumentError(f"MLP {self.module_name!r} got b_init with with_bias=False.")
        self.w_init = w_init
        self.b_init = b_init
        self.with_bias = with_bias
        self.activation = activation
        self.activate_final = activate_final
        self.layers = tuple(
            Linear(size, with_bias, w_init, b_init, name=f"linear_{i}") for i, size in enumerate(output_sizes)
        )
        self.output_size = self.layers[-1].output_size if self.layers else None

    def __call__(self, inputs: Any, dropout_rate: Any = None, rng: Any = None) -> Any:
        if (dropout_rate is None) != (rng is None):
            raise ArgumentError(
                f"MLP {self.module_name!r} needs dropout_rate and rng together, got dropout_rate={dropout_rate} and "
                f"rng {'given' if rng is not None else 'None'}."
            )
        keys = None if rng is None else PRNGSequence(rng)
        out = inputs
        for i, layer in enumerate(self.layers):
            out = layer(out)
            if i < len(self.layers) - 1 or self.activate_final:
                if keys is not None:
                    out = dropout(next(keys), dropout_rate, out)
                out = self.activation(out)
        return out

    def reverse(self, activate_final: bool | None = None, name: str | None = None) -> MLP:
        """Return a network with the sizes in reverse order, from outputs to inputs, and parameters of its own."""
        if any(layer.input_size is None for layer in self.layers):
            raise ArgumentError(
                f"MLP {self.module_name!r} must be called before it is reversed: its input sizes are unknown."
            )
        return MLP(
            [layer.input_size for layer in reversed(self.layers)],  # type: ignore[misc]
            self.w_init,
            self.b_init,
            self.with_bias,
            self.activation,
            self.activate_final if activate_final is None else activate_final,
            name=f"{self.name}_reversed" if name is None else name,
        )
