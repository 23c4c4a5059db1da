"""Quantized weights: integers with scales in place of matrices, and their products."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError

# Up to this number of rows a product with packed integers is one reduction that unpacks as it reads. With more rows
# each of them would unpack again, and writing the matrix out once is faster (measured from 8 rows on).
FEW_ROWS = 4

# Tables that are only looked up are small beside the others, and a router decides by small differences.
_FLOAT_NAMES = ("positions", "types", "buckets", "router", "shared_gate")
_SCHEMES = {"int8": 8, "int4": 4}


@dataclasses.dataclass(frozen=True)
class Quantized:
    """Matrix of integers with scales: a pytree that takes the place of a weight (..., out, in).

    With 8 bits `values` are int8 (..., out, in) and `scales` (..., out): one for each output. With 4 bits the inputs
    are split into groups that have a scale each, `scales` (..., out, groups), and a byte of `values`
    (..., out, groups * size / 2) holds two numbers: byte i of a group has number i in its low half and number
    i + size / 2 in its high half. Leading axes, such as that of stacked layers, may be indexed, scanned and mapped.

    Args:
        values: integers of type int8.
        scales: floating-point numbers in the dtype of the matrix.
        columns: the number of inputs, without the zeros that fill the last group.
        bits: 8 or 4.
    """

    values: Any
    scales: Any
    columns: int
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return (*self.values.shape[:-1], self.columns)

    @property
    def ndim(self) -> int:
        """Number of axes of the matrix."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the matrix, which is that of the scales."""
        return self.scales.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the integers and the scales."""
        return int(self.values.nbytes + self.scales.nbytes)

    def __getitem__(self, index: Any) -> Quantized:
        """Index the leading axes: rows of a table, or the matrices of a stack. The last axis cannot be indexed."""
        return dataclasses.replace(self, values=self.values[index], scales=self.scales[index])

    def dequantize(self) -> Any:
        """Return the matrix as floating-point numbers.

        Returns:
            An array of `shape` and `dtype`.

        >>> import weft.numpy as wnp
        >>> from weft import models
        >>> w = models.Quantized(wnp.array([[2, -3], [4, 1]], wnp.int8), wnp.array([0.5, 1.0]), 2, 8)
        >>> w.dequantize().tolist()
        [[1.0, -1.5], [4.0, 1.0]]
        """
        scales = self.scales.astype(_compute_dtype(self.dtype))[..., None]
        if self.bits == 8:
            return (self.values.astype(scales.dtype) * scales).astype(self.dtype)
        halves = wnp.concatenate(_unpack(self), -1).astype(scales.dtype) * scales
        flat = halves.reshape(*halves.shape[:-2], halves.shape[-2] * halves.shape[-1])
        return flat[..., : self.columns].astype(self.dtype)


weft.tree_util.register_dataclass(Quantized, ["values", "scales"], ["columns", "bits"])


def _compute_dtype(dtype: Any) -> Any:
    """Return the dtype of sums: float32 for shorter dtypes."""
    return wnp.promote_types(dtype, wnp.float32)


def _unpack(weight: Quantized) -> tuple[Any, Any]:
    """Return the first and second halves (..., out, groups, size / 2) of all groups as int8."""
    groups = weight.scales.shape[-1]
    bytes_ = weight.values
    packed = bytes_.reshape(*bytes_.shape[:-1], groups, bytes_.shape[-1] // groups)
    four = np.int8(4)
    return lax.shift_right_arithmetic(lax.shift_left(packed, four), four), lax.shift_right_arithmetic(packed, four)


# ----------------------------------------------------------------------------------------------------------- quantizing


def _choose_scales(largest: Any, limit: int, dtype: Any) -> Any:
    """Return the scales that map the largest magnitudes to `limit`; normal numbers, so that they lose no bits."""
    return wnp.maximum(largest / limit, float(wnp.finfo(dtype).tiny)).astype(dtype)


def _round(x: Any, scales: Any, limit: int) -> Any:
    return wnp.clip(wnp.round(x / scales.astype(x.dtype)[..., None]), -limit, limit).astype(wnp.int8)


@functools.partial(weft.jit, static_argnames=("bits", "group"))
def _quantize_matrix(weight: Any, bits: int, group: int) -> Quantized:
    """Round a matrix (..., out, in) to multiples of its scales."""
    x, columns = weight.astype(_compute_dtype(weight.dtype)), weight.shape[-1]
    if bits == 8:
        scales = _choose_scales(wnp.abs(x).max(-1), 127, weight.dtype)
        return Quantized(_round(x, scales, 127), scales, columns, 8)
    size = min(group, columns + columns % 2)
    groups = -(-columns // size)
    x = wnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, groups * size - columns)])
    x = x.reshape(*x.shape[:-1], groups, size)
    scales = _choose_scales(wnp.abs(x).max(-1), 7, weight.dtype)
    numbers = _round(x, scales, 7)
    low, high = numbers[..., : size // 2], numbers[..., size // 2 :]
    packed = (low & np.int8(15)) | lax.shift_left(high, np.int8(4))
    return Quantized(packed.reshape(*packed.shape[:-2], groups * size // 2), scales, columns, 4)


def check_scheme(scheme: str, group: int) -> int:
    """Return the bits of a scheme, or raise an error if there is no such scheme or group."""
    if scheme not in _SCHEMES:
        raise ArgumentError(f"quantize must be one of {', '.join(_SCHEMES)}.", received=repr(scheme))
    if group < 2 or group % 2:
        raise ArgumentError("A group must be a positive even number of inputs.", received=repr(group))
    return _SCHEMES[scheme]


def quantize_leaf(keys: tuple[str | int, ...], array: Any, scheme: str, group: int = 64) -> Any:
    """Quantize one array of a model if it is a matrix of a projection, a table of tokens, or matrices of experts.

    Args:
        keys: the keys of the array in the tree.
        array: the array.
        scheme: "int8" or "int4".
        group: the number of inputs that share a scale in int4.

    Returns:
        A `Quantized`, or the array itself. Experts (experts, in, out) are stored as (experts, out, in).
    """
    bits = check_scheme(scheme, group)
    if isinstance(array, Quantized) or not wnp.issubdtype(array.dtype, wnp.floating):
        return array
    ndim = array.ndim - ("layers" in keys)
    if is_expert(keys) and ndim == 3:
        return _quantize_matrix(array.swapaxes(-1, -2), bits, group)
    if keys[-1] != "weight" or len(keys) < 2 or ndim != 2 or keys[-2] in _FLOAT_NAMES:
        return array
    return _quantize_matrix(array, bits, group)


def is_expert(keys: tuple[str | int, ...]) -> bool:
    """Return whether keys lead to the matrices of experts, which the tree has as (experts, in, out)."""
    return len(keys) > 1 and keys[-2] == "experts"


def quantize(params: Any, scheme: str, *, group: int = 64) -> Any:
    """Replace the matrices of a model with integers and scales.

    Projections, tables of tokens and matrices of experts are quantized; norms, biases, convolutions, routers and tables
    of positions stay as they are, and so do adapters. No number changes by more than half of its scale.

    Args:
        params: the parameters of a model.
        scheme: "int8" with a scale for each output, or "int4" with a scale for each group of inputs.
        group: the number of inputs that share a scale in int4, such as 32 or 64.

    Returns:
        A tree with a `Quantized` in place of each of these matrices.

    >>> import weft
    >>> from weft import models
    >>> config = models.read_config({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 3})
    >>> params = models.quantize(models.init(config, weft.random.key(0)), "int8")
    >>> query = params["layers"][0][0]["attention"]["query"]["weight"]
    >>> query.shape, query.values.dtype, query.scales.shape
    ((3, 8, 8), dtype('int8'), (3, 8))
    """
    check_scheme(scheme, group)
    return _map_leaves(lambda keys, leaf: quantize_leaf(keys, leaf, scheme, group), params)


def dequantize(params: Any) -> Any:
    """Replace quantized matrices with floating-point ones, as `save` needs them.

    Args:
        params: the parameters of a model.

    Returns:
        A tree of arrays.

    >>> import weft
    >>> from weft import models
    >>> config = models.read_config({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 3})
    >>> params = models.init(config, weft.random.key(0))
    >>> back = models.dequantize(models.quantize(params, "int8"))
    >>> weft.tree.structure(back) == weft.tree.structure(params)
    True
    """

    def restore(keys: tuple[str | int, ...], leaf: Any) -> Any:
        if not isinstance(leaf, Quantized):
            return leaf
        return leaf.dequantize().swapaxes(-1, -2) if is_expert(keys) else leaf.dequantize()

    return _map_leaves(restore, params)


def has_integers(params: Any) -> bool:
    """Return whether a tree has quantized matrices."""
    return any(isinstance(leaf, Quantized) for leaf in leaves(params))


def leaves(params: Any) -> list[Any]:
    """List the arrays and the quantized matrices of a tree.

    Args:
        params: a tree of parameters.

    Returns:
        A list in which a quantized matrix is one element.
    """
    return weft.tree.leaves(params, is_leaf=lambda node: isinstance(node, Quantized))


def _map_leaves(function: Any, node: Any, keys: tuple[str | int, ...] = ()) -> Any:
    """Apply a function of keys and leaf to each leaf of nested dicts and lists."""
    if isinstance(node, Mapping):
        return {key: _map_leaves(function, child, (*keys, key)) for key, child in node.items()}
    if isinstance(node, (list, tuple)):
        return [_map_leaves(function, child, (*keys, i)) for i, child in enumerate(node)]
    return function(keys, node)


# ------------------------------------------------------------------------------------------------------------- products


def multiply_integers(x: Any, weight: Quantized) -> Any:
    """Multiply rows by the transpose of a quantized matrix (out, in), in the dtype of the rows.

    Args:
        x: numbers (..., in).
        weight: the matrix; sums are those of float32 for short dtypes.

    Returns:
        Numbers (..., out).
    """
    wide = _compute_dtype(x.dtype)
    contract = (((x.ndim - 1,), (1,)), ((), ()))
    if weight.bits == 8:
        # The scale of an output is a factor of its sum, so integers are converted as they are read. Sums of integers
        # exceed what float16 holds.
        y = lax.dot_general(x, weight.values.astype(x.dtype), contract, preferred_element_type=wide)
        return (y * weight.scales.astype(wide)).astype(x.dtype)
    if not has_few_rows(x):
        return lax.dot_general(x, weight.dequantize().astype(x.dtype), contract)
    low, high = _unpack(weight)
    _, groups, half = low.shape
    missing = groups * half * 2 - weight.columns
    rows = wnp.pad(x.astype(wide), [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x.astype(wide)
    rows = rows.reshape(*x.shape[:-1], 1, groups, 2, half)
    sums = rows[..., 0, :] * low.astype(wide) + rows[..., 1, :] * high.astype(wide)
    return (sums * weight.scales.astype(wide)[..., None]).sum((-1, -2)).astype(x.dtype)


def has_few_rows(x: Any) -> bool:
    """Return whether an array is known to have at most `FEW_ROWS` rows along its last axis."""
    sizes = x.shape[:-1]
    return all(type(size) is int for size in sizes) and math.prod(sizes) <= FEW_ROWS


def multiply_experts(x: Any, weight: Any, sizes: Any, owners: Any) -> Any:
    """Multiply each row by the matrix of its expert, in the dtype of the rows.

    Args:
        x: rows (tokens, in), sorted by expert.
        weight: matrices (experts, in, out), or quantized ones (experts, out, in).
        sizes: the number of rows of each expert.
        owners: the expert of each row.

    Returns:
        Numbers (tokens, out).
    """
    if not isinstance(weight, Quantized):
        return lax.ragged_dot(x, weight.astype(x.dtype), sizes)
    # With fewer rows than experts, the matrices of the rows are less to read than those of all experts.
    if type(x.shape[0]) is int and x.shape[0] < weight.shape[0]:
        return weft.vmap(lambda row, own: multiply_integers(row[None], own)[0])(x, weight[owners])
    return lax.ragged_dot(x, weight.dequantize().swapaxes(-1, -2).astype(x.dtype), sizes)
