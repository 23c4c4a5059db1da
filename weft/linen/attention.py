"""Multi-head attention: projections, weights, masks, and a cache for decoding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft.numpy as wnp
from weft import lax, nn
from weft.errors import ArgumentError, ShapeMismatchError, suggest as _suggest, user_line
from weft.linen import initializers
from weft.linen.dtypes import promote_dtype
from weft.linen.linear import DenseGeneral, default_kernel_init
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.linen.normalization import LayerNorm
from weft.linen.sharing import merge_param


def _einsum(function: Any, dot_general: Any, precision: Any) -> Callable[..., Any]:
    """Return `function`, or else an einsum that contracts with `dot_general`."""
    if function is not None:
        return function
    if dot_general is None:
        return functools.partial(wnp.einsum, precision=precision)
    return functools.partial(wnp.einsum, precision=precision, _dot_general=dot_general)


def dot_product_attention_weights(
    query: Any,
    key: Any,
    bias: Any = None,
    mask: Any = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Any = None,
    module: Module | None = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Callable[..., Any] | None = None,
    einsum: Callable[..., Any] | None = None,
) -> Any:
    """Return softmax(query · key / √depth + bias) of shape (batch..., heads, queries, keys), restricted by the mask.

    Query and key are (batch..., length, heads, depth). With a module, the weights are sown as intermediates.
    """
    query, key = promote_dtype(query, key, dtype=dtype)
    kind = query.dtype
    _check_shapes("dot_product_attention_weights", query, key)
    scaled = query / wnp.sqrt(query.shape[-1]).astype(kind)
    logits = _einsum(einsum, einsum_dot_general, precision)("...qhd,...khd->...hqk", scaled, key)
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        logits = wnp.where(mask, logits, wnp.asarray(wnp.finfo(kind).min, logits.dtype))
    if force_fp32_for_softmax and kind != wnp.float32:
        weights = nn.softmax(logits.astype(wnp.float32))
    else:
        weights = nn.softmax(logits).astype(kind)
    if module is not None:
        module.sow("intermediates", "attention_weights", weights)
    if not deterministic and dropout_rate > 0.0:
        # With broadcast_dropout one mask is drawn for all batches and heads.
        dims = tuple(range(weights.ndim - 2)) if broadcast_dropout else ()
        weights = nn.dropout(dropout_rng, dropout_rate, weights, dims)
    return weights


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Any = None,
    module: Module | None = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Callable[..., Any] | None = None,
    qk_attn_weights_einsum: Callable[..., Any] | None = None,
    attn_weights_value_einsum: Callable[..., Any] | None = None,
) -> Any:
    """Return averages of the values (batch..., keys, heads, depth) with `dot_product_attention_weights`."""
    query, key, value = promote_dtype(query, key, value, dtype=dtype)
    _check_shapes("dot_product_attention", query, key, value)
    weights = dot_product_attention_weights(
        query,
        key,
        bias,
        mask,
        broadcast_dropout,
        dropout_rng,
        dropout_rate,
        deterministic,
        query.dtype,
        precision,
        module,
        force_fp32_for_softmax,
        einsum_dot_general,
        qk_attn_weights_einsum,
    )
    average = _einsum(attn_weights_value_einsum, einsum_dot_general, precision)
    return average("...hqk,...khd->...qhd", weights.astype(query.dtype), value)


def _check_shapes(name: str, query: Any, key: Any, value: Any = None) -> None:
    fits = query.ndim == key.ndim and query.shape[:-3] == key.shape[:-3] and query.shape[-2:] == key.shape[-2:]
    if value is not None:
        fits = fits and value.ndim == key.ndim and value.shape[:-1] == key.shape[:-1]
    if not fits:
        shapes = f"query {query.shape}, key {key.shape}" + (f", value {value.shape}" if value is not None else "")
        raise ShapeMismatchError(
            f"{name} needs (batch..., length, heads, depth) with equal batch and heads.",
            at=user_line(),
            received=shapes,
        )


class MultiHeadDotProductAttention(Module):
    """Attention whose queries, keys and values are projected to several heads, and whose result is projected back.

    Args:
        num_heads: the number of heads.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        qkv_features: the size of queries, keys and values of all heads; that of the inputs by default.
        out_features: the size of the result; that of the inputs by default.
        broadcast_dropout: whether all batches and heads share one dropout mask.
        dropout_rate: the probability that an attention weight is set to 0.
        deterministic: whether dropout is off; may be passed in the call instead.
        precision: the precision of matrix products, as for `weft.lax.dot_general`.
        kernel_init: the initializer of the kernel.
        out_kernel_init, out_bias_init: initializers of the last projection; the others by default.
        bias_init: the initializer of the bias.
        use_bias: whether a bias is added.
        attention_fn: the function that computes attention.
        decode: whether keys and values of past steps are cached, one position for each call.
        normalize_qk: whether queries and keys are normalized.
        force_fp32_for_softmax: whether the softmax is computed in float32.
        qkv_dot_general, out_dot_general, qkv_dot_general_cls, out_dot_general_cls: functions to contract with, or
            module classes that make them.
        qk_attn_weights_einsum_cls, attn_weights_value_einsum_cls: module classes that make the two einsums of
            attention.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.MultiHeadDotProductAttention(num_heads=2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3, 4)), wnp.ones((1, 5, 4)))
    >>> y.shape
    (1, 3, 4)
    """

    num_heads: int
    dtype: Any = None
    param_dtype: Any = wnp.float32
    qkv_features: int | None = None
    out_features: int | None = None
    broadcast_dropout: bool = True
    dropout_rate: float = 0.0
    deterministic: bool | None = None
    precision: Any = None
    kernel_init: Callable[..., Any] = default_kernel_init
    out_kernel_init: Callable[..., Any] | None = None
    bias_init: Callable[..., Any] = initializers.zeros
    out_bias_init: Callable[..., Any] | None = None
    use_bias: bool = True
    attention_fn: Callable[..., Any] = dot_product_attention
    decode: bool = False
    normalize_qk: bool = False
    force_fp32_for_softmax: bool = False
    qkv_dot_general: Callable[..., Any] | None = None
    out_dot_general: Callable[..., Any] | None = None
    qkv_dot_general_cls: Any = None
    out_dot_general_cls: Any = None
    qk_attn_weights_einsum_cls: Any = None
    attn_weights_value_einsum_cls: Any = None

    @compact
    def __call__(
        self,
        inputs_q: Any,
        inputs_k: Any = None,
        inputs_v: Any = None,
        *,
        inputs_kv: Any = None,
        mask: Any = None,
        deterministic: bool | None = None,
        dropout_rng: Any = None,
        sow_weights: bool = False,
    ) -> Any:
        """Attend from `inputs_q` to `inputs_k` and `inputs_v`. Each defaults to the input before it."""
        query, key, value = self._project(inputs_q, *self._keys_and_values(inputs_q, inputs_k, inputs_v, inputs_kv))
        if self.decode:
            key, value, mask = self._remember(query, key, value, mask)

        still = True
        if self.dropout_rate > 0.0:
            still = merge_param("deterministic", self.deterministic, deterministic)
            if not still and dropout_rng is None:
                dropout_rng = self.make_rng("dropout")
        attended = self.attention_fn(
            query,
            key,
            value,
            mask=mask,
            dropout_rng=dropout_rng,
            dropout_rate=self.dropout_rate,
            broadcast_dropout=self.broadcast_dropout,
            deterministic=still,
            dtype=self.dtype,
            precision=self.precision,
            **self._options(sow_weights),
        )
        return DenseGeneral(
            features=self.out_features or inputs_q.shape[-1],
            axis=(-2, -1),
            kernel_init=self.out_kernel_init or self.kernel_init,
            bias_init=self.out_bias_init or self.bias_init,
            use_bias=self.use_bias,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            precision=self.precision,
            dot_general=self.out_dot_general,
            dot_general_cls=self.out_dot_general_cls,
            name="out",
        )(attended)

    def _keys_and_values(self, inputs_q: Any, inputs_k: Any, inputs_v: Any, inputs_kv: Any) -> tuple[Any, Any]:
        """Return the inputs of the projections to keys and values."""
        if inputs_kv is not None:
            if inputs_k is not None or inputs_v is not None:
                raise ArgumentError(f"{self._where()} got inputs_kv together with inputs_k or inputs_v.")
            return inputs_kv, inputs_kv
        if inputs_k is None:
            if inputs_v is not None:
                raise ArgumentError(f"{self._where()} got inputs_v without inputs_k; values need their keys.")
            inputs_k = inputs_q
        return inputs_k, inputs_k if inputs_v is None else inputs_v

    def _project(self, inputs_q: Any, inputs_k: Any, inputs_v: Any) -> tuple[Any, Any, Any]:
        """Return queries, keys and values of all heads."""
        width = self.qkv_features or inputs_q.shape[-1]
        if width % self.num_heads:
            raise ArgumentError(f"{self._where()} cannot divide {width} features among {self.num_heads} heads.")
        project = functools.partial(
            DenseGeneral,
            axis=-1,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            features=(self.num_heads, width // self.num_heads),
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            use_bias=self.use_bias,
            precision=self.precision,
            dot_general=self.qkv_dot_general,
            dot_general_cls=self.qkv_dot_general_cls,
        )
        query = project(name="query")(inputs_q)
        key = project(name="key")(inputs_k)
        value = project(name="value")(inputs_v)
        if self.normalize_qk:
            norm = functools.partial(LayerNorm, use_bias=False, dtype=self.dtype, param_dtype=self.param_dtype)
            query, key = norm(name="query_ln")(query), norm(name="key_ln")(key)
        return query, key, value

    def _options(self, sow_weights: bool) -> dict[str, Any]:
        """Return the arguments that `attention_fn` gets only if they are set: a user's function may not have them."""
        options: dict[str, Any] = {}
        if self.qk_attn_weights_einsum_cls is not None:
            options["qk_attn_weights_einsum"] = self.qk_attn_weights_einsum_cls()
        if self.attn_weights_value_einsum_cls is not None:
            options["attn_weights_value_einsum"] = self.attn_weights_value_einsum_cls()
        if self.force_fp32_for_softmax:
            options["force_fp32_for_softmax"] = True
        if sow_weights:
            options["module"] = self
        return options

    def _remember(self, query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Write one key and value to the cache; return it with a mask of the positions so far. `init` sets its size."""
        there = self.has_variable("cache", "cached_key")
        cached_key = self.variable("cache", "cached_key", wnp.zeros, key.shape, key.dtype)
        cached_value = self.variable("cache", "cached_value", wnp.zeros, value.shape, value.dtype)
        index = self.variable("cache", "cache_index", lambda: wnp.array(0, dtype=wnp.int32))
        if not there:
            return key, value, mask
        *batch, length, heads, depth = cached_key.value.shape
        expected = (*batch, 1, heads, depth)
        if query.shape != expected:
            raise ShapeMismatchError(
                f"{self._where()} decodes one element at a time, so its query needs shape {expected}.",
                at=user_line(),
                received=f"shape {query.shape}",
            )
        now = index.value
        start = (*(wnp.zeros((), now.dtype),) * len(batch), now, *(wnp.zeros((), now.dtype),) * 2)
        key = lax.dynamic_update_slice(cached_key.value, key, start)
        value = lax.dynamic_update_slice(cached_value.value, value, start)
        cached_key.value, cached_value.value, index.value = key, value, now + 1
        seen = wnp.broadcast_to(wnp.arange(length) <= now, (*batch, 1, 1, length))
        return key, value, combine_masks(mask, seen)


class MultiHeadAttention(MultiHeadDotProductAttention):
    """`MultiHeadDotProductAttention` under a shorter name, which automatic names of parameters follow.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.MultiHeadAttention(num_heads=2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3, 4)))
    >>> y.shape
    (1, 3, 4)
    """


class SelfAttention(MultiHeadDotProductAttention):
    """Attention of the inputs to themselves.

    It has the fields of `MultiHeadDotProductAttention`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.SelfAttention(num_heads=2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3, 4)))
    >>> y.shape
    (1, 3, 4)
    """

    @compact
    def __call__(  # type: ignore[override]
        self,
        inputs_q: Any,
        mask: Any = None,
        deterministic: bool | None = None,
        dropout_rng: Any = None,
        sow_weights: bool = False,
    ) -> Any:
        return super().__call__(
            inputs_q, mask=mask, deterministic=deterministic, dropout_rng=dropout_rng, sow_weights=sow_weights
        )


# -------------------------------------------------------------------------------------------------------------- masks


def make_attention_mask(
    query_input: Any,
    key_input: Any,
    pairwise_fn: Callable[..., Any] = wnp.multiply,
    extra_batch_dims: int = 0,
    dtype: Any = wnp.float32,
) -> Any:
    """Return `pairwise_fn` of each query with each key, of shape (batch..., 1, queries, keys).

    Args:
        query_input, key_input: arrays (batch..., length), for example whether a position counts.
        pairwise_fn: a function of two arrays that broadcast.
        extra_batch_dims: the number of leading axes of size 1.
        dtype: the dtype of the mask.

    Returns:
        An array (batch..., 1, queries, keys).

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.make_attention_mask(wnp.array([1, 1, 0]), wnp.array([1, 0]))[0]
    Array([[1., 0.],
           [1., 0.],
           [0., 0.]], dtype=float32)
    """
    mask = pairwise_fn(wnp.expand_dims(query_input, -1), wnp.expand_dims(key_input, -2))
    mask = wnp.expand_dims(mask, -3)
    return wnp.expand_dims(mask, tuple(range(extra_batch_dims))).astype(dtype)


def make_causal_mask(x: Any, extra_batch_dims: int = 0, dtype: Any = wnp.float32) -> Any:
    """Return the mask that lets each element attend to itself and earlier ones; `x` is (batch..., length).

    Args:
        x: an array whose shape counts.
        extra_batch_dims: the number of leading axes of size 1.
        dtype: the dtype of the mask.

    Returns:
        An array (batch..., 1, length, length).

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.make_causal_mask(wnp.ones(3))[0]
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    positions = wnp.broadcast_to(wnp.arange(x.shape[-1], dtype=wnp.int32), x.shape)
    return make_attention_mask(positions, positions, wnp.greater_equal, extra_batch_dims, dtype)


def combine_masks(*masks: Any, dtype: Any = wnp.float32) -> Any:
    """Return the conjunction of masks. Masks that are None are ignored; without any the result is None.

    Args:
        *masks: arrays that broadcast, or None.
        dtype: the dtype of the mask.

    Returns:
        An array, or None.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.combine_masks(wnp.array([True, True]), None, wnp.array([True, False]))
    Array([1., 0.], dtype=float32)
    """
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    if len({mask.ndim for mask in present}) > 1:
        raise ShapeMismatchError(
            "combine_masks needs masks of one rank.", at=user_line(), received=", ".join(str(m.shape) for m in present)
        )
    mask = present[0]
    for other in present[1:]:
        mask = wnp.logical_and(mask, other)
    return mask.astype(dtype)


_suggest(__name__)
