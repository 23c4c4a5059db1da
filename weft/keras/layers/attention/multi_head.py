"""MultiHeadAttention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.keras import regularizers
from weft.keras.layers.attention.projected import ProjectedAttention
from weft.keras.numerics.shapes import Shape


class MultiHeadAttention(ProjectedAttention):
    """Attention with several heads (Vaswani et al. 2017).

    Query, key and value are projected to `num_heads` heads of `key_dim` (values: `value_dim`), each head weights the
    values by softmax(query · key / √key_dim), and the heads are projected back to the features of the query.

    Args:
      num_heads: how many heads.
      key_dim: the size of a head's query and key.
      value_dim: the size of a head's value; `key_dim` by default.
      dropout: the share of weights that is dropped in training.
      use_bias: whether projections have a bias.
      output_shape: the last sizes of the result, where they are not those of the query.
      attention_axes: the axes that attention is over; all but batch and features by default.
      sliding_window: a query looks at steps less than this far away only.
      flash_attention: taken for compatibility; how attention is computed is the compiler's choice.
      kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer,
        kernel_constraint, bias_constraint: of the projections.
      use_gate: whether heads are multiplied by the sigmoid of another projection of the query.
      seed: of the dropout.

    Returns:
      A layer, called as `layer(query, value, key=None)`, with masks, `use_causal_mask`, `training` and
      `return_attention_scores`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
      >>> layer(weft.numpy.ones((2, 3, 8)), weft.numpy.ones((2, 5, 8))).shape
      (2, 3, 8)
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ):
        for name, value in (("num_heads", num_heads), ("key_dim", key_dim), ("value_dim", value_dim or 1)):
            if not isinstance(value, int) or value <= 0:
                raise ArgumentError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        super().__init__(**kwargs)
        if isinstance(output_shape, int):
            output_shape = (output_shape,)
        if output_shape is not None and not isinstance(output_shape, (list, tuple)):
            raise ArgumentError("`output_shape` must be an integer or a tuple of them.", received=f"{output_shape=}")
        if isinstance(attention_axes, int):
            attention_axes = (attention_axes,)
        self.set_arguments(
            num_heads=num_heads,
            key_dim=key_dim,
            value_dim=value_dim or key_dim,
            attention_axes=None if attention_axes is None else tuple(attention_axes),
        )
        self._set_common(
            dropout,
            use_bias,
            sliding_window,
            flash_attention,
            use_gate,
            seed,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        # The projections are regularized and not the layer.
        self._projected_regularizer = regularizers.get(activity_regularizer)
        self._output_shape = None if output_shape is None else tuple(output_shape)

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:  # type: ignore[override]
        """Make the projections."""
        key_shape = value_shape if key_shape is None else key_shape
        self.compute_output_shape(query_shape, value_shape, key_shape)
        heads = self.num_heads
        self._query_dense = self._projection("query", query_shape, (heads, self.key_dim))
        self._key_dense = self._projection("key", key_shape, (heads, self.key_dim))
        if self.use_gate:
            self._gate_dense = self._projection("gate", query_shape, (heads, self.value_dim), activation="sigmoid")
        self._value_dense = self._projection("value", value_shape, (heads, self.value_dim))
        self._build_weights(len(value_shape) + 1, self.attention_axes)
        between = (*query_shape[:-1], heads, self.value_dim)
        self._output_dense = self._projection(
            "attention_output", between, self._output_shape or (query_shape[-1],), contracted=2
        )
        self.built = True

    def compute_output_shape(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> Shape:
        """Return the output shape for these input shapes."""
        if key_shape is not None and tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
            raise ArgumentError(
                "Value and key must have the same sizes but for the last. "
                f"Received: value_shape={tuple(value_shape)} and key_shape={tuple(key_shape)}"
            )
        return (*query_shape[:-1], *(self._output_shape or (query_shape[-1],)))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            **super().get_config(),
            "output_shape": self._output_shape,
            "activity_regularizer": regularizers.serialize(self._projected_regularizer),
        }
