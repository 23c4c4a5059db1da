"""Layers that are linear in their input: contractions, and tables of vectors."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError
from weft.linen import initializers
from weft.linen.dtypes import promote_dtype
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.linen.sharing import merge_param

default_kernel_init = initializers.lecun_normal()
default_embed_init = initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def as_tuple(value: int | Iterable[int]) -> tuple[int, ...]:
    """Return a number or several numbers as a tuple."""
    return tuple(value) if isinstance(value, Iterable) else (value,)


def choose_function(function: Any, cls: Any, default: Any) -> Any:
    """Return the function that a layer computes with: an instance of `cls`, or else `function`, or else the default."""
    if cls is not None:
        return cls()
    return function if function is not None else default


class Dense(Module):
    """x · kernel + bias over the last axis.

    Args:
        features: the size of the last axis of the result.
        use_bias: whether a bias is added.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        precision: the precision of matrix products, as for `weft.lax.dot_general`.
        kernel_init: the initializer of the kernel.
        bias_init: the initializer of the bias.
        promote_dtype: the function that converts inputs and parameters to one dtype.
        dot_general: a function to contract with, instead of `weft.lax.dot_general`.
        dot_general_cls: a module class that makes such a function.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Dense(2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3)))
    >>> y.shape
    (1, 2)
    >>> {name: value.shape for name, value in variables["params"].items()}
    {'kernel': (3, 2), 'bias': (2,)}
    """

    features: int
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = wnp.float32
    precision: Any = None
    kernel_init: Callable[..., Any] = default_kernel_init
    bias_init: Callable[..., Any] = initializers.zeros
    promote_dtype: Callable[..., Any] = promote_dtype
    dot_general: Callable[..., Any] | None = None
    dot_general_cls: Any = None

    @compact
    def __call__(self, inputs: Any) -> Any:
        kernel = self.param("kernel", self.kernel_init, (wnp.shape(inputs)[-1], self.features), self.param_dtype)
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype) if self.use_bias else None
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        dot_general = choose_function(self.dot_general, self.dot_general_cls, lax.dot_general)
        out = dot_general(inputs, kernel, (((inputs.ndim - 1,), (0,)), ((), ())), precision=self.precision)
        return out if bias is None else out + bias


class DenseGeneral(Module):
    """A contraction over some axes of the input, with features of any shape and a kernel per index of the batch axes.

    The result has the batch axes, then the other axes of the input, then the features.

    Args:
        features: the sizes of the features.
        axis: the axes of the input that are contracted.
        batch_dims: the axes of the input that have a kernel for each index.
        use_bias: whether a bias is added.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        kernel_init: the initializer of the kernel.
        bias_init: the initializer of the bias.
        precision: the precision of matrix products, as for `weft.lax.dot_general`.
        promote_dtype: the function that converts inputs and parameters to one dtype.
        dot_general: a function to contract with, instead of `weft.lax.dot_general`.
        dot_general_cls: a module class that makes such a function.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.DenseGeneral((2, 4), axis=(-2, -1))
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3, 5)))
    >>> y.shape
    (1, 2, 4)
    """

    features: int | Sequence[int]
    axis: int | Sequence[int] = -1
    batch_dims: Sequence[int] = ()
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = wnp.float32
    kernel_init: Callable[..., Any] = default_kernel_init
    bias_init: Callable[..., Any] = initializers.zeros
    precision: Any = None
    promote_dtype: Callable[..., Any] = promote_dtype
    dot_general: Callable[..., Any] | None = None
    dot_general_cls: Any = None

    @compact
    def __call__(self, inputs: Any) -> Any:
        features = as_tuple(self.features)
        rank = inputs.ndim
        axes = tuple(sorted(axis % rank for axis in as_tuple(self.axis)))
        batch = tuple(axis % rank for axis in as_tuple(self.batch_dims))
        if tuple(sorted(batch)) != tuple(range(len(batch))):
            raise ArgumentError(f"batch_dims of {self._where()} must be the first axes, got {self.batch_dims}.")
        batch_shape = tuple(inputs.shape[axis] for axis in batch)
        in_shape = tuple(inputs.shape[axis] for axis in axes)
        kernel_shape = (*batch_shape, *in_shape, *features)

        def kernel_init(key: Any, shape: Any, dtype: Any = None) -> Any:
            # Initializers get a matrix of inputs by features, so that they compute the right fan-in.
            flat = (math.prod(batch_shape) * math.prod(in_shape), math.prod(features))
            return _reshape_boxed(self.kernel_init(key, flat, dtype), kernel_shape)

        def bias_init(key: Any, shape: Any, dtype: Any = None) -> Any:
            flat = (math.prod(batch_shape) * math.prod(features),)
            return _reshape_boxed(self.bias_init(key, flat, dtype), shape)

        kernel = self.param("kernel", kernel_init, kernel_shape, self.param_dtype)
        bias_shape = (*batch_shape, *features)
        bias = self.param("bias", bias_init, bias_shape, self.param_dtype) if self.use_bias else None
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        contracted = tuple(range(len(batch), len(batch) + len(axes)))
        contracting = ((axes, contracted), (batch, tuple(range(len(batch)))))
        dot_general = choose_function(self.dot_general, self.dot_general_cls, lax.dot_general)
        out = dot_general(inputs, kernel, contracting, precision=self.precision)
        if bias is None:
            return out
        between = out.ndim - len(bias_shape)
        return out + wnp.reshape(bias, (*batch_shape, *(1,) * between, *features))


def _reshape_boxed(value: Any, shape: Sequence[int]) -> Any:
    """Reshape a value, within its box if it has one."""
    if hasattr(value, "replace_boxed"):
        return value.replace_boxed(wnp.reshape(value.unbox(), shape))
    return wnp.reshape(value, shape)


class Einsum(Module):
    """einsum of the input with a kernel, plus a bias over those axes of the result that the kernel has."""

    shape: Sequence[int]
    einsum_str: str | None = None
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = wnp.float32
    precision: Any = None
    kernel_init: Callable[..., Any] = default_kernel_init
    bias_init: Callable[..., Any] = initializers.zeros
    promote_dtype: Callable[..., Any] = promote_dtype
    preferred_element_type: Any = None

    @compact
    def __call__(self, inputs: Any, einsum_str: str | None = None) -> Any:
        text = merge_param("einsum_str", self.einsum_str, einsum_str).replace(" ", "")
        if "->" not in text or text.count(",") != 1:
            raise ArgumentError(f"einsum_str of {self._where()} must have two operands and '->', got {text!r}.")
        kernel = self.param("kernel", self.kernel_init, tuple(self.shape), self.param_dtype)
        bias: Any = None
        broadcast_shape: tuple[int, ...] = ()
        if self.use_bias:
            bias_shape, broadcast_shape = self._bias_shapes(text, wnp.ndim(inputs))
            bias = self.param("bias", self.bias_init, bias_shape, self.param_dtype)
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        kind = self.preferred_element_type
        out = wnp.einsum(text, inputs, kernel, precision=self.precision, preferred_element_type=kind)
        return out if bias is None else out + wnp.reshape(bias, broadcast_shape)

    def _bias_shapes(self, text: str, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of the bias, and that shape with 1 for each axis of the result that the kernel lacks.

        Axes that input and kernel share are axes of the bias. An ellipsis has the last of the axes that it means in
        any operand.
        """
        operands, result = text.split("->")
        left, right = operands.split(",")
        unused = [letter for letter in string.ascii_letters if letter not in text]
        means = [rank - len(left.replace("...", "")), len(self.shape) - len(right.replace("...", ""))]
        means = [count if "..." in part else 0 for count, part in zip(means, (left, right), strict=True)]
        hidden = "".join(unused[: max(*means, 0)])
        right = right.replace("...", hidden[len(hidden) - means[1] :])
        if len(right) != len(self.shape) or min(means) < 0:
            raise ArgumentError(
                f"einsum_str of {self._where()} must have a letter for each axis of its operands; got {text!r} for an "
                f"input of rank {rank} and a kernel of shape {tuple(self.shape)}."
            )
        sizes = dict(zip(right, self.shape, strict=True))
        letters = result.replace("...", hidden)
        return tuple(sizes[one] for one in letters if one in sizes), tuple(sizes.get(one, 1) for one in letters)


Padding = str | int | Sequence[int | tuple[int, int]]


def canonicalize_padding(padding: Padding, rank: int, where: str = "a convolution") -> Any:
    """Convert padding to a word, or to a list of pairs, one for each spatial dimension.

    Args:
        padding: a word, an integer, or for each dimension an integer or a pair.
        rank: the number of spatial dimensions.
        where: the name of the layer, for errors.

    Returns:
        A word or a list.

    >>> from weft.linen.linear import canonicalize_padding
    >>> canonicalize_padding([1, (2, 3)], 2)
    [(1, 1), (2, 3)]
    """
    if isinstance(padding, str):
        return padding
    if isinstance(padding, int):
        return [(padding, padding)] * rank
    pairs: list[Any] = [(pad, pad) if isinstance(pad, int) else pad for pad in padding]
    if len(pairs) == rank and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
        return [tuple(pair) for pair in pairs]
    raise ArgumentError(
        f"padding of {where} must be a word, a number, or a number or pair for each of {rank} spatial dimensions; "
        f"got {padding!r}."
    )


class Embed(Module):
    """A table of vectors, looked up by integers.

    Args:
        num_embeddings: the number of vectors.
        features: their size.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        embedding_init: the initializer of the table.
        promote_dtype: the function that converts inputs and parameters to one dtype.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Embed(10, 4)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.array([1, 2, 3]))
    >>> y.shape
    (3, 4)
    """

    num_embeddings: int
    features: int
    dtype: Any = None
    param_dtype: Any = wnp.float32
    embedding_init: Callable[..., Any] = default_embed_init
    promote_dtype: Callable[..., Any] = promote_dtype

    def setup(self) -> None:
        shape = (self.num_embeddings, self.features)
        self.embedding = self.param("embedding", self.embedding_init, shape, self.param_dtype)

    def __call__(self, inputs: Any) -> Any:
        """Return the vectors at integer indices."""
        inputs = wnp.asarray(inputs)
        if not wnp.issubdtype(inputs.dtype, wnp.integer):
            raise ArgumentError(f"Embed {self._where()} needs integers, got {inputs.dtype}.", fix="x.astype(int)")
        (table,) = self.promote_dtype(self.embedding, dtype=self.dtype, inexact=False)
        if self.num_embeddings == 1:
            return wnp.broadcast_to(table, (*inputs.shape, self.features))
        return wnp.take(table, inputs, axis=0)

    def attend(self, query: Any) -> Any:
        """Return the product of the query with each vector of the table, for logits that share the table."""
        query, table = self.promote_dtype(query, self.embedding, dtype=self.dtype)
        return wnp.dot(query, table.T)
