"""Vector quantization (van den Oord et al. 2017)."""

from __future__ import annotations

from typing import Any

import weft
from weft import lax, numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.initializers import VarianceScaling
from weft.haiku.layers.averages import ExponentialMovingAverage
from weft.haiku.module import Module, transparent
from weft.haiku.parameters import get_parameter, get_state, set_state


class _Quantizer(Module):
    """Lookup of the nearest column of an embedding matrix for each vector."""

    embedding_dim: int
    num_embeddings: int
    cross_replica_axis: str | None

    @transparent
    def _nearest(self, inputs: Any, embeddings: Any) -> dict[str, Any]:
        """Return the squared distances to all embeddings, and the index of the smallest."""
        if inputs.shape[-1] != self.embedding_dim:
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} needs inputs whose last size is {self.embedding_dim}, got "
                f"shape {inputs.shape}."
            )
        flat = wnp.reshape(inputs, (-1, self.embedding_dim))
        distances = (
            wnp.sum(flat**2, 1, keepdims=True)
            - 2 * wnp.matmul(flat, embeddings)
            + wnp.sum(embeddings**2, 0, keepdims=True)
        )
        indices = wnp.argmax(-distances, 1)
        return {
            "distances": distances,
            "encodings": weft.nn.one_hot(indices, self.num_embeddings, dtype=distances.dtype),
            "encoding_indices": wnp.reshape(indices, inputs.shape[:-1]),
        }

    @transparent
    def _result(self, inputs: Any, quantized: Any, loss: Any, found: dict[str, Any]) -> dict[str, Any]:
        """Return the result, whose gradients pass through the quantization unchanged."""
        share = self._over_replicas(wnp.mean(found["encodings"], 0))
        perplexity = wnp.exp(-wnp.sum(share * wnp.log(share + 1e-10)))
        return {
            "quantize": inputs + lax.stop_gradient(quantized - inputs),
            "loss": loss,
            "perplexity": perplexity,
            **found,
        }

    @transparent
    def _over_replicas(self, x: Any) -> Any:
        return x if self.cross_replica_axis is None else lax.pmean(x, self.cross_replica_axis)


class VectorQuantizer(_Quantizer):
    """Replace each vector by the nearest embedding; embeddings are learned through the loss."""

    def __init__(
        self,
        embedding_dim: int,
        num_embeddings: int,
        commitment_cost: float,
        dtype: Any = wnp.float32,
        name: str | None = None,
        cross_replica_axis: str | None = None,
    ):
        super().__init__(name=name)
        self.embedding_dim = embedding_dim
        self.num_embeddings = num_embeddings
        self.commitment_cost = commitment_cost
        self.cross_replica_axis = cross_replica_axis
        init = VarianceScaling(distribution="uniform")
        self.embeddings = get_parameter("embeddings", [embedding_dim, num_embeddings], dtype, init=init)

    def __call__(self, inputs: Any, is_training: bool) -> dict[str, Any]:
        del is_training  # only the variant with moving averages uses it
        found = self._nearest(inputs, self.embeddings)
        quantized = self.quantize(found["encoding_indices"])
        to_code = wnp.mean((lax.stop_gradient(quantized) - inputs) ** 2)
        of_code = wnp.mean((quantized - lax.stop_gradient(inputs)) ** 2)
        return self._result(inputs, quantized, of_code + self.commitment_cost * to_code, found)

    def quantize(self, encoding_indices: Any) -> Any:
        """Return the embeddings at the given indices."""
        return self.embeddings.T[(encoding_indices,)]


class VectorQuantizerEMA(_Quantizer):
    """Replace each vector by the nearest embedding; embeddings are moving averages of the vectors they replace."""

    def __init__(
        self,
        embedding_dim: int,
        num_embeddings: int,
        commitment_cost: float,
        decay: float,
        epsilon: float = 1e-5,
        dtype: Any = wnp.float32,
        cross_replica_axis: str | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if not 0 <= decay <= 1:
            raise ArgumentError(f"VectorQuantizerEMA {self.module_name!r} needs a decay from 0 to 1, got {decay}.")
        self.embedding_dim = embedding_dim
        self.num_embeddings = num_embeddings
        self.commitment_cost = commitment_cost
        self.decay = decay
        self.epsilon = epsilon
        self.cross_replica_axis = cross_replica_axis
        self.dtype = dtype
        init = VarianceScaling(distribution="uniform")
        get_state("embeddings", [embedding_dim, num_embeddings], dtype, init=init)
        self.ema_cluster_size = ExponentialMovingAverage(decay, name="ema_cluster_size")
        self.ema_cluster_size.initialize([num_embeddings], dtype)
        self.ema_dw = ExponentialMovingAverage(decay, name="ema_dw")
        self.ema_dw.initialize([embedding_dim, num_embeddings], dtype)

    @property
    def embeddings(self) -> Any:
        """The matrix (embedding_dim, num_embeddings) as it is now."""
        return get_state("embeddings", [self.embedding_dim, self.num_embeddings], self.dtype)

    def __call__(self, inputs: Any, is_training: bool) -> dict[str, Any]:
        found = self._nearest(inputs, self.embeddings)
        quantized = self.quantize(found["encoding_indices"])
        to_code = wnp.mean((lax.stop_gradient(quantized) - inputs) ** 2)
        if is_training:
            self._learn(wnp.reshape(inputs, (-1, self.embedding_dim)), found["encodings"])
        return self._result(inputs, quantized, self.commitment_cost * to_code, found)

    @transparent
    def _learn(self, flat: Any, encodings: Any) -> None:
        """Update embeddings to the means of their vectors; counts are smoothed so that none is 0."""
        counts, sums = wnp.sum(encodings, 0), wnp.matmul(flat.T, encodings)
        if self.cross_replica_axis is not None:
            counts, sums = (lax.psum(x, self.cross_replica_axis) for x in (counts, sums))
        counts, sums = self.ema_cluster_size(counts), self.ema_dw(sums)
        total = wnp.sum(counts)
        smoothed = (counts + self.epsilon) / (total + self.num_embeddings * self.epsilon) * total
        set_state("embeddings", sums / wnp.reshape(smoothed, (1, -1)))

    def quantize(self, encoding_indices: Any) -> Any:
        """Return the embeddings at the given indices."""
        return self.embeddings.T[(encoding_indices,)]
