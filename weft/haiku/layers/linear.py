"""Linear layers, biases, embeddings and attention."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import lax, numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError
from weft.haiku.initializers import Constant, TruncatedNormal, VarianceScaling
from weft.haiku.module import Module, transparent
from weft.haiku.parameters import get_parameter
from weft.haiku.typing import Initializer


class Linear(Module):
    """y = x w + b over the last axis; w is initialized by a truncated normal of variance 1 / inputs.

    Args:
        output_size: the size of the last axis of the result.
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Linear(2)(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(
        self,
        output_size: int,
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.input_size: int | None = None
        self.output_size = output_size
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init or wnp.zeros

    def __call__(self, inputs: Any, *, precision: Any = None) -> Any:
        if not getattr(inputs, "shape", ()):
            raise ArgumentError(f"Linear {self.module_name!r} needs an input of one dimension or more, got a scalar.")
        size = self.input_size = inputs.shape[-1]
        dtype = _inexact(self, inputs)
        w_init = self.w_init or TruncatedNormal(stddev=1.0 / np.sqrt(size))
        w = get_parameter("w", [size, self.output_size], dtype, init=w_init)
        out = wnp.dot(inputs, w, precision=precision)
        if self.with_bias:
            b = get_parameter("b", [self.output_size], dtype, init=self.b_init)
            out = out + wnp.broadcast_to(b, out.shape)
        return out


def _inexact(module: Module, inputs: Any) -> Any:
    """Return the dtype of inputs, which parameters share; raise for integers."""
    dtype = inputs.dtype
    if not wnp.issubdtype(dtype, wnp.inexact):
        raise ArgumentTypeError(
            f"{type(module).__name__} {module.module_name!r} needs inputs of floating point.",
            received=str(dtype),
            fix="x.astype(wnp.float32)",
        )
    return dtype


class Bias(Module):
    """y = x + b, or x + b · multiplier. `bias_dims` are the axes along which b varies; all but the first by default.

    Args:
        output_size: the sizes of the axes of the bias, checked; by default those of the input.
        bias_dims: the axes along which it varies.
        b_init: the initializer of the bias.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Bias()(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 3)
    """

    def __init__(
        self,
        output_size: Sequence[int] | None = None,
        bias_dims: Sequence[int] | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.output_size = output_size
        self.bias_dims = bias_dims
        self.b_init = b_init or wnp.zeros
        self.bias_shape: tuple[int, ...] | None = None

    def __call__(self, inputs: Any, multiplier: Any = None) -> Any:
        if self.output_size is not None and tuple(self.output_size) != tuple(inputs.shape[1:]):
            raise ArgumentError(
                f"Bias {self.module_name!r} needs inputs of shape (batch, {', '.join(map(str, self.output_size))}), "
                f"got {inputs.shape}."
            )
        self.bias_shape = _bias_shape(self, inputs.shape)
        self.input_size = tuple(inputs.shape[1:])
        b = get_parameter("b", self.bias_shape, inputs.dtype, init=self.b_init)
        b = wnp.broadcast_to(b, inputs.shape)
        return inputs + (b if multiplier is None else b * multiplier)


def _bias_shape(module: Bias, shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = len(shape)
    if module.bias_dims is None:
        return tuple(shape[1:])
    if not module.bias_dims:
        return ()
    axes = {axis % rank if -rank <= axis < rank else axis for axis in module.bias_dims}
    if 0 in axes:
        raise ArgumentError(f"Bias {module.module_name!r} cannot vary along the batch, axis 0.")
    if any(axis >= rank for axis in axes):
        raise ArgumentError(
            f"Bias {module.module_name!r} got bias_dims {tuple(module.bias_dims)} for inputs of shape {shape}."
        )
    sizes = [shape[axis] if axis in axes else 1 for axis in range(rank)]
    return tuple(sizes[min(axes) :])


class EmbedLookupStyle(enum.Enum):
    """Lookup of rows: by index, or by a product with one-hot vectors."""

    ARRAY_INDEX = 1
    ONE_HOT = 2


class Embed(Module):
    """Row `id` of a matrix (vocab_size, embed_dim).

    Args:
        vocab_size: the number of rows.
        embed_dim: the number of columns.
        embedding_matrix: the first value of the matrix.
        w_init: the initializer of the weights.
        lookup_style: "ARRAY_INDEX" or "ONE_HOT".
        name: the name of the module within its parent; by default derived from its class.
        precision: the precision of the product, for "ONE_HOT".

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Embed(10, 4)(x))
    >>> x = wnp.array([1, 2, 3])
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (3, 4)
    """

    def __init__(
        self,
        vocab_size: int | None = None,
        embed_dim: int | None = None,
        embedding_matrix: Any = None,
        w_init: Initializer | None = None,
        lookup_style: str | EmbedLookupStyle = "ARRAY_INDEX",
        name: str | None = None,
        precision: Any = lax.Precision.HIGHEST,
    ):
        super().__init__(name=name)
        if embedding_matrix is None and not (vocab_size and embed_dim):
            raise ArgumentError(
                f"Embed {self.module_name!r} needs an embedding_matrix, or vocab_size and embed_dim; got "
                f"vocab_size={vocab_size}, embed_dim={embed_dim}."
            )
        if embedding_matrix is not None:
            matrix = wnp.asarray(embedding_matrix)
            if (vocab_size and vocab_size != matrix.shape[0]) or (embed_dim and embed_dim != matrix.shape[1]):
                raise ArgumentError(
                    f"Embed {self.module_name!r} got an embedding_matrix of shape {matrix.shape} with "
                    f"vocab_size={vocab_size}, embed_dim={embed_dim}."
                )
            vocab_size, embed_dim = matrix.shape
            w_init = Constant(matrix)
        self.vocab_size = int(vocab_size)  # type: ignore[arg-type]
        self.embed_dim = int(embed_dim)  # type: ignore[arg-type]
        self.w_init = w_init or TruncatedNormal()
        self.lookup_style = lookup_style
        self.precision = precision

    @property
    def embeddings(self) -> Any:
        """The matrix."""
        return get_parameter("embeddings", [self.vocab_size, self.embed_dim], init=self.w_init)

    def __call__(self, ids: Any, lookup_style: Any = None, precision: Any = None) -> Any:
        style = self.lookup_style if lookup_style is None else lookup_style
        style = _lookup_style(self, style)
        ids = wnp.asarray(ids)
        if not wnp.issubdtype(ids.dtype, wnp.integer):
            raise ArgumentError(f"Embed {self.module_name!r} needs ids of an integer dtype, got {ids.dtype}.")
        table = self.embeddings
        if style is EmbedLookupStyle.ARRAY_INDEX:
            return wnp.asarray(table)[(ids,)]
        hot = weft.nn.one_hot(ids, self.vocab_size, dtype=table.dtype)
        return wnp.dot(hot, table, precision=self.precision if precision is None else precision)


def _lookup_style(module: Module, style: Any) -> EmbedLookupStyle:
    if isinstance(style, EmbedLookupStyle):
        return style
    if isinstance(style, str) and style.upper() in EmbedLookupStyle.__members__:
        return EmbedLookupStyle[style.upper()]
    raise ArgumentError(
        f"Embed {module.module_name!r} got lookup_style={style!r}; 'ARRAY_INDEX' or 'ONE_HOT' is expected."
    )


class MultiHeadAttention(Module):
    """softmax(Q Kᵀ / √key_size) V for each head, heads concatenated and projected; Q, K, V are linear in the inputs.

    Args:
        num_heads: the number of heads.
        key_size: the size of queries and keys of a head.
        w_init_scale: the older way to say the variance of weights.
        w_init: the initializer of the weights.
        with_bias: whether a bias is added.
        b_init: the initializer of the bias.
        value_size: the size of values of a head; `key_size` by default.
        model_size: the size of the result; `key_size * num_heads` by default.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.MultiHeadAttention(2, 4, w_init_scale=1.0)(x, x, x))
    >>> x = wnp.ones((1, 3, 8))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        num_heads: int,
        key_size: int,
        w_init_scale: float | None = None,
        *,
        w_init: Initializer | None = None,
        with_bias: bool = True,
        b_init: Initializer | None = None,
        value_size: int | None = None,
        model_size: int | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_heads = num_heads
        self.key_size = key_size
        self.value_size = value_size or key_size
        self.model_size = model_size or key_size * num_heads
        if w_init is not None and w_init_scale is not None:
            raise ArgumentError(f"MultiHeadAttention {self.module_name!r} takes w_init or w_init_scale, not both.")
        if w_init is None and w_init_scale is None:
            raise ArgumentError(
                f"MultiHeadAttention {self.module_name!r} needs w_init, such as hk.initializers.VarianceScaling(1.0)."
            )
        self.w_init = VarianceScaling(w_init_scale) if w_init is None else w_init
        self.with_bias = with_bias
        self.b_init = b_init

    def __call__(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        queries = self._project(query, self.key_size, "query")
        keys = self._project(key, self.key_size, "key")
        values = self._project(value, self.value_size, "value")
        logits = wnp.einsum("...thd,...Thd->...htT", queries, keys) / np.sqrt(self.key_size).astype(keys.dtype)
        if mask is not None:
            if mask.ndim != logits.ndim:
                raise ArgumentError(
                    f"MultiHeadAttention {self.module_name!r} needs a mask of as many dimensions as the logits "
                    f"{logits.shape}, got shape {mask.shape}."
                )
            logits = wnp.where(mask, logits, wnp.asarray(-1e30, logits.dtype))
        weights = weft.nn.softmax(logits)
        heads = wnp.einsum("...htT,...Thd->...thd", weights, values)
        heads = wnp.reshape(heads, (*query.shape[:-1], self.num_heads * self.value_size))
        return Linear(self.model_size, self.with_bias, self.w_init, self.b_init)(heads)

    @transparent
    def _project(self, x: Any, size: int, name: str) -> Any:
        out = Linear(self.num_heads * size, self.with_bias, self.w_init, self.b_init, name=name)(x)
        return wnp.reshape(out, (*x.shape[:-1], self.num_heads, size))
