"""GroupQueryAttention."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.keras import regularizers
from weft.keras.layers.attention.projected import ProjectedAttention
from weft.keras.numerics.shapes import Shape


class GroupedQueryAttention(ProjectedAttention):
    """Attention in which several heads of the query share one head of key and value (Ainslie et al. 2023).

    Args:
      head_dim: the size of a head.
      num_query_heads: how many heads the query has, a multiple of `num_key_value_heads`.
      num_key_value_heads: how many heads key and value have.
      dropout, use_bias, sliding_window, flash_attention, initializers, regularizers, constraints, use_gate, seed: as in
        `MultiHeadAttention`.
    """

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
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
        if num_query_heads % num_key_value_heads:
            raise ArgumentError(
                "`num_query_heads` must be a multiple of `num_key_value_heads`. Received: "
                f"num_query_heads={num_query_heads}, num_key_value_heads={num_key_value_heads}"
            )
        super().__init__(**kwargs)
        self.set_arguments(head_dim=head_dim, num_query_heads=num_query_heads, num_key_value_heads=num_key_value_heads)
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
        self._projected_regularizer = regularizers.get(activity_regularizer)

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:  # type: ignore[override]
        """Make the projections."""
        key_shape = value_shape if key_shape is None else key_shape
        self.compute_output_shape(query_shape, value_shape, key_shape)
        queries, others = (self.num_query_heads, self.head_dim), (self.num_key_value_heads, self.head_dim)
        self._query_dense = self._projection("query", query_shape, queries)
        self._key_dense = self._projection("key", key_shape, others)
        if self.use_gate:
            self._gate_dense = self._projection("gate", query_shape, queries, activation="sigmoid")
        self._value_dense = self._projection("value", value_shape, others)
        self._build_weights(4, None)
        between = (*query_shape[:-1], *queries)
        self._output_dense = self._projection("attention_output", between, (query_shape[-1],), contracted=2)
        self.built = True

    def compute_output_shape(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> Shape:
        """Return the output shape, which is the shape of the query."""
        if query_shape[-1] != value_shape[-1] or (key_shape is not None and value_shape[1:-1] != key_shape[1:-1]):
            raise ArgumentError(
                "Query and value must have the same features, value and key the same steps. Received: "
                f"query_shape={query_shape}, value_shape={value_shape}, key_shape={key_shape}"
            )
        return tuple(query_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            **super().get_config(),
            "activity_regularizer": regularizers.serialize(self._projected_regularizer),
        }


# The name by which Keras publishes it.
GroupQueryAttention = GroupedQueryAttention
