"""What MultiHeadAttention and GroupQueryAttention share: projections, masks and the weighted sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.layers.core.activation import Softmax
from weft.keras.layers.core.einsum_dense import EinsumDense
from weft.keras.layers.regularization.dropout import Dropout
from weft.keras.numerics.attention import attention_equations, attention_mask, projection_equation


class ProjectedAttention(ConfiguredLayer):
    """Attention over projections of query, key and value, and a projection of its result."""

    # What Keras names the layers inside; files of weights know them by these attributes.
    _query_dense: EinsumDense
    _key_dense: EinsumDense
    _value_dense: EinsumDense
    _output_dense: EinsumDense
    _gate_dense: EinsumDense | None = None
    _attention_axes: tuple[int, ...] | None = None

    def _set_common(
        self,
        dropout: float,
        use_bias: bool,
        sliding_window: int | None,
        flash_attention: bool | None,
        use_gate: bool,
        seed: int | None,
        **objects: Any,
    ) -> None:
        if sliding_window is not None and (not isinstance(sliding_window, int) or sliding_window <= 0):
            raise ArgumentError(
                f"`sliding_window` must be a positive integer or None. Received: sliding_window={sliding_window!r}"
            )
        if flash_attention and dropout > 0:
            raise ArgumentError("`flash_attention` and `dropout` do not go together: leave one of them out.")
        self.set_arguments(
            dropout=dropout, use_bias=use_bias, sliding_window=sliding_window, use_gate=use_gate, seed=seed, **objects
        )
        self._flash_attention = bool(flash_attention)
        self.supports_masking = True

    def _projection(
        self, name: str, shape: Sequence[Any], new: Sequence[int], contracted: int = 1, activation: Any = None
    ) -> EinsumDense:
        """Build a layer that contracts the last `contracted` axes of an input of `shape` into the axes `new`."""
        free = len(shape) - contracted
        equation, letters = projection_equation(free, contracted, len(new))
        fresh = lambda initializer: type(initializer).from_config(initializer.get_config())
        layer = EinsumDense(
            equation,
            output_shape=(*(None,) * (free - 1), *new),
            activation=activation,
            bias_axes=letters if self.use_bias else None,
            name=name,
            # An initializer returns the same numbers each time, so each projection has its own.
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=fresh(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self._projected_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
        )
        layer.build(tuple(shape))
        layer.supports_masking = True  # the mask of an input is used here, and is not lost without a word
        return layer

    def _build_weights(self, rank: int, axes: Sequence[int] | None) -> None:
        """Create the softmax and dropout over `axes`, for projections of `rank` dimensions."""
        if axes is None:
            self._attention_axes = tuple(range(1, rank - 2))
        else:
            self._attention_axes = tuple(axis % (rank - 1) for axis in axes)
        self._equations = attention_equations(rank, self._attention_axes)
        count = len(self._attention_axes)
        self._softmax = Softmax(axis=tuple(range(-count, 0)), dtype=self.dtype_policy)
        self._dropout_layer = Dropout(rate=self.dropout, dtype=self.dtype_policy, seed=self.seed)

    @property
    def query_dense(self) -> EinsumDense:
        """The projection of the query."""
        return self._query_dense

    @property
    def key_dense(self) -> EinsumDense:
        """The projection of the key."""
        return self._key_dense

    @property
    def value_dense(self) -> EinsumDense:
        """The projection of the value."""
        return self._value_dense

    @property
    def output_dense(self) -> EinsumDense:
        """The projection of the result."""
        return self._output_dense

    def call(
        self,
        query: Array,
        value: Array,
        key: Array | None = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return the attended values, projected; with `return_attention_scores` the weights too.

        Masks of query, value and key are (batch, steps); `attention_mask` is (batch, queries, steps). They and the
        causal mask are combined: a pair counts where all are true.
        """
        allowed = self._compute_attention_mask(
            query, value, query_mask, value_mask, key_mask, attention_mask, use_causal_mask
        )
        gate = None if self._gate_dense is None else self._gate_dense(query)
        projected = self._query_dense(query)
        out, weights = self._compute_attention(
            projected,
            self._key_dense(value if key is None else key),
            self._value_dense(value),
            allowed,
            training,
            return_attention_scores,
        )
        out = self._output_dense(out if gate is None else out * gate)
        return (out, weights) if return_attention_scores else out

    def _compute_attention_mask(
        self,
        query: Array,
        value: Array,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        allowed: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        return attention_mask(
            query, value, query_mask, value_mask, key_mask, allowed, use_causal_mask, self.sliding_window
        )

    def _compute_attention(
        self, query: Array, key: Array, value: Array, allowed: Any, training: Any, return_attention_scores: bool
    ) -> tuple[Array, Any]:
        """Return weighted values and, if they are computed, the weights; arrays have heads and size last."""
        scale = 1.0 / math.sqrt(query.shape[-1])
        if allowed is not None:
            # A mask has the axes of queries and steps last; what it lacks before them, heads for one, is put there.
            axes, rank = 2 * len(self._attention_axes or ()), len(self._equations[0].rpartition(">")[2])
            missing = tuple(range(allowed.ndim - axes, rank - axes))
            allowed = wnp.expand_dims(allowed, missing)
        if self.dropout == 0 and not return_attention_scores and query.ndim == 4:
            return nn.dot_product_attention(query, key, value, mask=allowed, scale=scale), None
        repeats = query.shape[-2] // key.shape[-2]
        if repeats > 1:
            key, value = (wnp.repeat(x, repeats, axis=-2) for x in (key, value))
        to_scores, to_result = self._equations
        scores = wnp.einsum(to_scores, key, query * wnp.asarray(scale, query.dtype))
        weights = self._softmax(scores, mask=allowed)
        dropped = self._dropout_layer(weights, training=training) if self.dropout > 0 else weights
        return wnp.einsum(to_result, dropped, value), weights

    def compute_output_spec(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return the symbolic output for symbolic inputs, with `return_attention_scores` the weights too."""
        shapes = [None if x is None else tuple(x.shape) for x in (query, value, key)]
        out = KerasTensor(self.compute_output_shape(*shapes), self.compute_dtype)
        if not return_attention_scores:
            return out
        heads = self._query_dense.compute_output_shape(query.shape)[:-1]
        axes = self._attention_axes or ()
        weights = [size for i, size in enumerate(heads) if i not in axes]
        weights += [query.shape[axis] for axis in axes] + [value.shape[axis] for axis in axes]
        return out, KerasTensor(weights, self.compute_dtype)
