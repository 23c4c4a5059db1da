"""Low-rank updates of kernels."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError, NotSupportedError
from weft.keras import activations
from weft.keras.core.variable import Variable
from weft.keras.layers.layer import Layer

LINEAR = activations.get(None)  # the activation that does nothing, which need not be called


class LowRankLayer(Layer):
    """A layer with a kernel to which the product of two thin matrices may be added, which then are all that trains.

    Subclasses set `_kernel` in `build`, and call `_build_low_rank` at its end. `kernel_name` is what the kernel's
    variables are called.
    """

    kernel_name = "kernel"
    lora_rank: int | None
    lora_alpha: float | None
    lora_enabled: bool
    _kernel: Variable

    def _set_low_rank(self, rank: int | None, alpha: float | None, quantization_config: Any) -> None:
        """Store the arguments of the constructor."""
        if quantization_config is not None:
            raise NotSupportedError(
                "Layers of Weft are not quantized.", received=f"quantization_config={quantization_config!r}"
            )
        self.lora_rank = rank
        self.lora_alpha = alpha if alpha is not None else rank
        self.lora_enabled = False

    def _build_low_rank(self) -> None:
        if self.lora_rank:
            self.enable_lora(self.lora_rank, lora_alpha=self.lora_alpha)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for side in ("a", "b"):
            # The names that Keras' users know: `lora_kernel_a`, or `lora_embeddings_a`.
            setattr(cls, f"lora_{cls.kernel_name}_{side}", property(operator.attrgetter(f"_lora_{side}")))

    def _full_kernel(self) -> Any:
        """Return the kernel, with the low-rank update if LoRA is enabled."""
        if not self.lora_enabled:
            return self._kernel.value
        assert self.lora_alpha is not None and self.lora_rank is not None
        update = wnp.matmul(self._lora_a.value, self._lora_b.value)
        return self._kernel.value + (self.lora_alpha / self.lora_rank) * update

    def save_own_variables(self, store: Any) -> None:
        """Write the variables to a mapping, as a layer without a low-rank update has them: the kernel with the update
        added. So a layer without one, and Keras, can read them.

        Args:
            store: a mapping of names to arrays.
        """
        for i, variable in enumerate(self._plain_variables()):
            merged = variable is self._kernel and self.lora_enabled
            store[str(i)] = np.array(self._full_kernel()) if merged else variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the variables from a mapping. A low-rank update begins anew: its second matrix is 0.

        Args:
            store: what `save_own_variables` wrote.
        """
        for i, variable in enumerate(self._plain_variables()):
            variable.assign(store[str(i)])
        if self.lora_enabled:
            self._lora_b.assign(wnp.zeros(self._lora_b.shape, self._lora_b.dtype))

    def _plain_variables(self) -> list[Variable]:
        """Return the variables without those of the update, in the order of a layer that never had one."""
        own = [*self._own_variables()]
        if not self.lora_enabled:
            return own
        update = (self._lora_a, self._lora_b)
        rest = [each for each in own if not any(each is part for part in (*update, self._kernel))]
        return [self._kernel, *rest]

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freeze the kernel, and train a product of two matrices that is added to it.

        Args:
            rank: the inner size of the product.
            lora_alpha: the update is scaled by `lora_alpha / rank`; `rank` where None.
            a_initializer: of the first matrix.
            b_initializer: of the second.
        """
        if not hasattr(self, "_kernel"):
            raise ArgumentError(f"Layer {self.name} has no kernel yet.", fix="call it, or `build`, first")
        if self.lora_enabled:
            raise ArgumentError(f"Layer {self.name} has a low-rank update already.")
        *leading, last = self._kernel.shape
        locked, self.__dict__["_locked"] = self._locked, False
        name = self.kernel_name
        self._lora_a = self.add_weight(
            name=f"lora_{name}_a",
            shape=(*leading, rank),
            initializer=a_initializer,
            regularizer=self._kernel.regularizer,
        )
        self._lora_b = self.add_weight(
            name=f"lora_{name}_b",
            shape=(rank, last),
            initializer=b_initializer,
            regularizer=self._kernel.regularizer,
        )
        self.__dict__["_locked"] = locked
        self._kernel.trainable = False
        self.lora_rank = rank
        self.lora_alpha = lora_alpha if lora_alpha is not None else rank
        self.lora_enabled = True
