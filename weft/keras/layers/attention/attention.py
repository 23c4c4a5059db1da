"""Attention and AdditiveAttention: one head, without projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras import random
from weft.keras.core.seeds import SeedGenerator
from weft.keras.core.spec import is_shape
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.attention import causal_mask
from weft.keras.numerics.shapes import Shape


class Attention(ConfiguredLayer):
    """softmax(scores of query and key) · value, for inputs [query, value] or [query, value, key].

    Shapes are (batch, queries, size), (batch, steps, size of values) and (batch, steps, size); the key
    defaults to the value.

    Args:
      use_scale: whether the scores are multiplied by a variable.
      score_mode: "dot" (the contraction of query and key) or "concat" (the sum of tanh(query + key)).
      dropout: the share of weights that is dropped in training.
      seed: of the dropout.

    Returns:
      A layer. Its call takes `mask=[query_mask, value_mask]`, `training`, `return_attention_scores` (the weights come
      too) and `use_causal_mask` (a query looks at its own step and those before).

    Example:
      >>> import weft
      >>> from weft import keras
      >>> query, value = weft.numpy.ones((2, 3, 4)), weft.numpy.ones((2, 5, 4))
      >>> keras.layers.Attention()([query, value]).shape
      (2, 3, 4)
    """

    scale: Any = None
    concat_score_weight: Any = None

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if score_mode not in ("dot", "concat"):
            raise ArgumentError(f"`score_mode` must be 'dot' or 'concat'. Received: score_mode={score_mode!r}")
        self.set_arguments(use_scale=use_scale, score_mode=score_mode, dropout=dropout, seed=seed)
        if dropout > 0:
            self.seed_generator = SeedGenerator(seed)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Make the variables of the scores."""
        self._check(input_shape)
        if self.use_scale:
            self.scale = self._scalar("scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self._scalar("concat_score_weight")
        self.built = True

    def _scalar(self, name: str) -> Any:
        return self.add_weight(name=name, shape=(), initializer="ones", dtype=self.dtype, trainable=True)

    def _scores(self, query: Array, key: Array) -> Array:
        """Compute the scores (batch, queries, steps)."""
        if self.score_mode == "dot":
            scores = wnp.matmul(query, wnp.swapaxes(key, -2, -1))
            return scores if self.scale is None else scores * self.scale.value
        total = wnp.expand_dims(query, -2) + wnp.expand_dims(key, -3)
        if self.scale is not None:
            total = self.scale.value * total
        return self.concat_score_weight.value * wnp.sum(wnp.tanh(total), axis=-1)

    def call(
        self,
        inputs: Sequence[Array],
        mask: Any = None,
        training: bool | None = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Attend to the values: their weighted sum for each query."""
        self._check(inputs, mask)
        query, value = inputs[0], inputs[1]
        key = inputs[2] if len(inputs) > 2 else value
        query_mask, value_mask = (None, None) if mask is None else (mask[0], mask[1])
        scores = self._scores(query, key)
        allowed = None if value_mask is None else wnp.expand_dims(value_mask, -2).astype(bool)
        if use_causal_mask:
            earlier = causal_mask(scores.shape[-2], scores.shape[-1])
            allowed = earlier if allowed is None else allowed & earlier
        if allowed is not None:
            # Subtracted and not put in: with nothing allowed, the weights are those without a mask.
            large = 65504.0 if scores.dtype == wnp.float16 else 1.0e9
            scores = wnp.where(allowed, scores, scores - large)
        weights = nn.softmax(scores, axis=-1)
        if training and self.dropout > 0:
            weights = random.dropout(weights, self.dropout, seed=self.seed_generator)
        out = wnp.matmul(weights, value)
        if query_mask is not None:
            out = wnp.where(wnp.expand_dims(query_mask, -1).astype(bool), out, 0)
        return (out, weights) if return_attention_scores else out

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:  # Keras's names override those of Layer
        """Return the mask of the query."""
        self._check(inputs, mask)
        return None if mask is None else mask[0]

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return (batch, queries, size of values)."""
        query, value = input_shape[0], input_shape[1]
        return (*query[:-1], value[-1])

    def compute_output_spec(
        self,
        inputs: Any,
        mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return the symbolic output for symbolic inputs, with `return_attention_scores` the weights too."""
        self._check(inputs)
        query, value = inputs[0], inputs[1]
        out = KerasTensor(self.compute_output_shape([query.shape, value.shape]), self.compute_dtype)
        weights = (*query.shape[:-1], value.shape[-2])
        return (out, KerasTensor(weights, self.compute_dtype)) if return_attention_scores else out

    def _check(self, inputs: Any, mask: Any = None) -> None:
        name = type(self).__name__
        if not isinstance(inputs, (list, tuple)) or len(inputs) not in (2, 3) or is_shape(inputs):
            raise ArgumentError(
                f"{name} is called on a list [query, value] or [query, value, key]. "
                f"Received: {len(inputs) if isinstance(inputs, (list, tuple)) else type(inputs).__name__}"
            )
        if mask is not None and (not isinstance(mask, (list, tuple)) or len(mask) not in (2, 3)):
            raise ArgumentError(f"The mask of {name} is a list [query_mask, value_mask]. Received: {mask!r}")


class AdditiveAttention(Attention):
    """Attention whose score is the sum of scale · tanh(query + key) (Bahdanau et al. 2014).

    Args:
      use_scale: whether there is a `scale`, a variable with a number for each feature.
      dropout: the share of weights that is dropped in training.
    """

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Any):
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Make the scale."""
        self._check(input_shape)
        if self.use_scale:
            self.scale = self.add_weight(
                name="scale",
                shape=(input_shape[0][-1],),
                initializer="glorot_uniform",
                dtype=self.dtype,
                trainable=True,
            )
        self.built = True

    def _scores(self, query: Array, key: Array) -> Array:
        total = wnp.tanh(wnp.expand_dims(query, -2) + wnp.expand_dims(key, -3))
        return wnp.sum(total if self.scale is None else self.scale.value * total, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "seed": self.seed}
