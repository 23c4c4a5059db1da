"""Tables of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft.keras import constraints, initializers, regularizers
from weft.keras.core.spec import check_positive
from weft.keras.core.variable import Variable
from weft.keras.layers.core.lora import LowRankLayer


class Embedding(LowRankLayer):
    """A vector for each index: `embeddings[inputs]`.

    Args:
        input_dim: how many vectors there are; indices are below it.
        output_dim: the size of a vector.
        embeddings_initializer: of the table, which has the shape (input_dim, output_dim).
        embeddings_regularizer: a function of the table that is added to the loss.
        embeddings_constraint: a function that is applied to the table after an update.
        mask_zero: whether the index 0 is padding, which layers that know masks leave out.
        weights: the table, or a list with it, to begin with.
        lora_rank: where not None, the table is frozen and a product of this rank is trained.
        lora_alpha: the scale of the product is `lora_alpha / lora_rank`.
        quantization_config: None; layers of Weft are not quantized.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`.

    Example:
        >>> from weft import keras
        >>> import numpy as np
        >>> keras.layers.Embedding(10, 4)(np.array([[1, 2, 0]])).shape
        (1, 3, 4)
    """

    kernel_name = "embeddings"

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        if "input_length" in kwargs:
            kwargs.pop("input_length")
        super().__init__(**kwargs)
        check_positive(input_dim=input_dim, output_dim=output_dim)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.autocast = False
        self._set_low_rank(lora_rank, lora_alpha, quantization_config)
        if weights is not None:
            self.build(())
            table = weights[0] if isinstance(weights, (list, tuple)) and len(weights) == 1 else weights
            self._kernel.assign(table)

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Create the table.

        Args:
            input_shape: the shape of the indices, which does not matter.
        """
        if self.built:
            return
        self._kernel = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )
        self._build_low_rank()

    @property
    def embeddings(self) -> Any:
        """The table: a variable, or with a low-rank update its value."""
        return self._full_kernel() if self.lora_enabled else self._kernel

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data, without the values of the table."""
        config = super().get_config()
        config.pop("weights", None)
        return config

    def call(self, inputs: Any) -> Any:
        """Look up the vectors of the indices."""
        if str(inputs.dtype) not in ("int32", "int64"):
            inputs = inputs.astype("int32")
        return wnp.take(self._full_kernel(), inputs, axis=0).astype(self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return which indices are not padding; None without `mask_zero`."""
        return wnp.not_equal(inputs, 0) if self.mask_zero else None

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the output shape for an input shape."""
        return (*input_shape, self.output_dim)


class ReversibleEmbedding(Embedding):
    """An embedding that also maps vectors back to scores of indices, with `reverse=True`.

    Args:
        input_dim: how many vectors there are.
        output_dim: the size of a vector.
        tie_weights: whether the way back uses the same table, transposed; otherwise it has one of its own.
        embeddings_initializer: of the tables.
        embeddings_regularizer: a function of the tables that is added to the loss.
        embeddings_constraint: a function that is applied to the tables after an update.
        mask_zero: whether the index 0 is padding.
        reverse_dtype: the dtype of the way back; the compute dtype where None.
        logit_soft_cap: where not None, scores are `cap * tanh(scores / cap)`.
        **kwargs: `name`, `dtype`, `trainable`, `lora_rank`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        reverse_dtype: Any = None,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            input_dim,
            output_dim,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            **kwargs,
        )
        self.tie_weights = tie_weights
        self.reverse_dtype = reverse_dtype
        self.logit_soft_cap = logit_soft_cap
        self.reverse_embeddings: Variable | None = None

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Create the tables.

        Args:
            input_shape: the shape of the inputs, which does not matter.
        """
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                name="reverse_embeddings",
                shape=(self.output_dim, self.input_dim),
                initializer=self.embeddings_initializer,
                regularizer=self.embeddings_regularizer,
                constraint=self.embeddings_constraint,
            )

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        """Look up the vectors of indices or, with `reverse`, compute the scores of vectors."""
        if not reverse:
            return super().call(inputs)
        dtype = self.reverse_dtype or self.compute_dtype
        kernel = self._full_kernel().T if self.reverse_embeddings is None else self.reverse_embeddings.value
        scores = wnp.matmul(inputs.astype(dtype), kernel.astype(dtype))
        if self.logit_soft_cap is not None:
            scores = wnp.tanh(scores / self.logit_soft_cap) * self.logit_soft_cap
        return scores

    def compute_output_shape(self, input_shape: Sequence[int | None], reverse: bool = False) -> tuple[int | None, ...]:
        """Return the output shape for an input shape."""
        return (*input_shape[:-1], self.input_dim) if reverse else (*input_shape, self.output_dim)

    def compute_mask(self, inputs: Any, previous_mask: Any = None, reverse: bool = False) -> Any:
        """Return which indices are not padding; None for the reverse direction."""
        is_index = "int" in str(inputs.dtype)
        return super().compute_mask(inputs, previous_mask) if is_index and not reverse else None
