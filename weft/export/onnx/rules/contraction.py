"""Rules of contractions and convolutions: matrix products, and convolutions of channels first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.export.onnx.emitter import BOOL, FLOAT32, Emitter
from weft.export.onnx.graph import Shape, Value
from weft.export.onnx.kernels import computing_dtype
from weft.export.onnx.lower import part_types
from weft.export.onnx.rules.elementwise import compare
from weft.export.onnx.rules.movement import cut, pad
from weft.export.onnx.rules.reduction import neutral_element
from weft.export.onnx.table import Parts, define, parts_rule, rule
from weft.indexing.expression import Expression
from weft.ir.jaxpr import Equation
from weft.ir.primitive import lookup
from weft.primitives.contraction.contract import compute_dtype
from weft.primitives.families import inverse_permutation, remaining_axes


@rule("dot_general")
def write_dot_general(g: Emitter, e: Equation, lhs: Value, rhs: Value) -> Value:
    """Contract by a matrix product, in the dtype that sums have."""
    out: Any = e.outvars[0].aval
    compute = compute_dtype(lhs.dtype, rhs.dtype, out.dtype)
    truth = compute == BOOL
    inner = FLOAT32 if truth else computing_dtype("MatMul", compute)
    if inner is None:
        raise g.refuse(f"runtimes have no products of {dtypes.name(compute)}")
    result = contract(g, g.cast(lhs, inner), g.cast(rhs, inner), e.params["dimension_numbers"])
    if truth:
        result = compare(g, "Greater", result, g.scalar(0, result))
    return g.cast(g.cast(result, compute), out.dtype)


@parts_rule("dot_general")
def write_complex_product(g: Emitter, e: Equation, lhs: Parts, rhs: Parts) -> list[Parts] | None:
    """Contract complex numbers by products of their parts."""
    out: Any = e.outvars[0].aval
    if len(lhs) == len(rhs) == 1:
        return None
    part = dtypes.to_real_dtype(out.dtype)

    def product(i: int, j: int) -> Value | None:
        if i >= len(lhs) or j >= len(rhs):
            return None
        return contract(g, g.cast(lhs[i], part), g.cast(rhs[j], part), e.params["dimension_numbers"])

    def combine(operation: str, x: Value | None, y: Value | None) -> Value:
        if x is not None and y is not None:
            return g.elementwise(operation, x, y)
        found = x if y is None else y
        assert found is not None
        return found

    real = combine("Sub", product(0, 0), product(1, 1))
    return [(real, combine("Add", product(0, 1), product(1, 0)))[: len(part_types(out))]]


def contract(g: Emitter, lhs: Value, rhs: Value, dimension_numbers: Any) -> Value:
    """Contract two values: batch dimensions first, then those of the left operand, then those of the right one."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    lhs_free = remaining_axes(lhs.rank, (*lhs_contract, *lhs_batch))
    rhs_free = remaining_axes(rhs.rank, (*rhs_contract, *rhs_batch))
    batch = tuple(lhs.shape[i] for i in lhs_batch)
    m, n = tuple(lhs.shape[i] for i in lhs_free), tuple(rhs.shape[i] for i in rhs_free)
    k = tuple(lhs.shape[i] for i in lhs_contract)
    left = g.transpose(lhs, (*lhs_batch, *lhs_free, *lhs_contract))
    right = g.transpose(rhs, (*rhs_batch, *rhs_contract, *rhs_free))
    if len(k) == len(n) == 1 and m and (not batch or len(m) == 1):
        return g.node("MatMul", [left, right], left.dtype, (*batch, *m, *n))
    left = g.reshape(left, (*batch, math.prod(m), math.prod(k)))
    right = g.reshape(right, (*batch, math.prod(k), math.prod(n)))
    product = g.node("MatMul", [left, right], left.dtype, (*batch, math.prod(m), math.prod(n)))
    return g.reshape(product, (*batch, *m, *n))


@rule("conv_general_dilated")
def write_convolution(g: Emitter, e: Equation, lhs: Value, rhs: Value) -> Value | None:
    """Convolve with batch and channels first."""
    out: Any = e.outvars[0].aval
    dnums = e.params["dimension_numbers"]
    compute = compute_dtype(lhs.dtype, rhs.dtype, out.dtype)
    spatial = lhs.rank - 2
    if compute != FLOAT32 or spatial == 0 or 0 in (*lhs.shape, *rhs.shape, *out.shape):
        return None
    x = g.transpose(g.cast(lhs, FLOAT32), dnums.lhs_spec)
    kernel = g.transpose(g.cast(rhs, FLOAT32), dnums.rhs_spec)
    groups, by_batch = e.params.get("feature_group_count", 1), e.params.get("batch_group_count", 1)
    if by_batch > 1:
        x, groups = batch_groups_to_features(g, x, by_batch), by_batch
    pads = list(e.params["padding"])
    config = [(0, 0, 0)] * 2
    for i, dilation in enumerate(e.params["lhs_dilation"]):
        low, high = pads[i]
        negative = [n if not isinstance(n, Expression) and n < 0 else 0 for n in (low, high)]
        config.append((negative[0], negative[1], dilation - 1))
        pads[i] = tuple(0 if n else p for n, p in zip(negative, (low, high), strict=True))
        if any(isinstance(p, Expression) for p in pads[i]):
            config[-1], pads[i] = (low, high, dilation - 1), (0, 0)
    x = pad(g, x, g.scalar(0, x), config)
    channels = tuple(out.shape[i] for i in dnums.out_spec)
    result = g.node(
        "Conv", [x, kernel], FLOAT32, channels, group=groups, strides=tuple(e.params["window_strides"]),
        dilations=tuple(e.params["rhs_dilation"]), pads=tuple(p[side] for side in (0, 1) for p in pads),
    )  # fmt: skip
    return g.cast(g.transpose(result, inverse_permutation(dnums.out_spec)), out.dtype)


def batch_groups_to_features(g: Emitter, x: Value, groups: int) -> Value:
    """Move groups of the batch in front of the features, so that groups of features are convolved instead."""
    batch, features, *sizes = x.shape
    apart = g.reshape(x, (groups, batch // groups, features, *sizes))
    moved = g.transpose(apart, (1, 0, *range(2, apart.rank)))
    return g.reshape(moved, (batch // groups, groups * features, *sizes))


def max_pool(g: Emitter, x: Value, params: Any, shape: Shape) -> Value | None:
    """Return the maxima of windows along at most three axes by one operation; None if it has no such form."""
    window, strides = params["window_dimensions"], params["window_strides"]
    ones = (1,) * x.rank
    dilation, padding = params.get("window_dilation") or ones, params["padding"]
    axes = [i for i in range(x.rank) if window[i] != 1 or strides[i] != 1 or padding[i] != (0, 0)]
    plain = (params.get("base_dilation") or ones) == ones and 1 <= len(axes) <= 3 and x.rank >= len(axes) + 2
    low = [padding[i] for i in axes]
    # A window of padding alone has no maximum there, and pads are smaller than windows.
    fits = all(not isinstance(n, Expression) and 0 <= n < window[i] for i, p in zip(axes, low, strict=True) for n in p)
    if not plain or not fits or x.dtype != FLOAT32 or 0 in x.shape or 0 in shape:
        return None
    front = [i for i in range(x.rank) if i not in axes]
    order = (*front, *axes)
    moved = g.transpose(x, order)
    leading = moved.shape[: len(front)]
    moved = g.reshape(moved, (leading[0], math.prod(leading[1:]), *moved.shape[len(front) :]))
    counts = tuple(shape[i] for i in axes)
    result = g.node(
        "MaxPool", [moved], FLOAT32, (*moved.shape[:2], *counts), kernel_shape=tuple(window[i] for i in axes),
        strides=tuple(strides[i] for i in axes), dilations=tuple(dilation[i] for i in axes),
        pads=tuple(p[side] for side in (0, 1) for p in low),
    )  # fmt: skip
    return g.transpose(g.reshape(result, (*leading, *counts)), inverse_permutation(order))


@rule("reduce_window_max", "reduce_window_min")
@rule("reduce_window_sum", moves=True)  # of each part of complex numbers
def write_window(g: Emitter, e: Equation, x: Value) -> Value:
    """Reduce sliding windows: maxima by one operation where it has the form, others axis by axis."""
    params, out = e.params, e.outvars[0].aval
    name = e.primitive.name
    shape: Shape = out.shape  # type: ignore[attr-defined]
    if name == "reduce_window_max":
        pooled = max_pool(g, x, params, shape)
        if pooled is not None:
            return pooled
    operation = {"reduce_window_sum": "Add", "reduce_window_max": "Max", "reduce_window_min": "Min"}[name]
    neutral = np.zeros((), x.dtype) if operation == "Add" else neutral_element(name, x.dtype)
    return windows(g, operation, x, neutral, params, shape)


def windows(g: Emitter, operation: str, x: Value, neutral: Any, params: Any, shape: Shape) -> Value:
    """Combine the elements of windows along one axis after the other: the result does not depend on the order."""
    own, ones = x.dtype, (1,) * x.rank
    base, dilation = params.get("base_dilation") or ones, params.get("window_dilation") or ones
    value = g.constant(neutral)
    config = [(low, high, step - 1) for (low, high), step in zip(params["padding"], base, strict=True)]
    x = pad(g, x, value, config)
    wide = g.cast(x, FLOAT32) if dtypes.kind(own) == "f" and own.itemsize < 4 else x
    for axis, window in enumerate(params["window_dimensions"]):
        stride, size = params["window_strides"][axis], shape[axis]
        if window == stride == 1:
            continue
        parts = [place(g, wide, axis, i * dilation[axis], stride, size) for i in range(window)]
        wide = join(g, operation, parts)
    return g.cast(wide, own)


def place(g: Emitter, x: Value, axis: int, start: int, stride: int, size: Any) -> Value:
    """Return the elements at one position of each window along an axis."""
    limit = start + (size - 1) * stride + 1 if isinstance(size, Expression) or size else start
    return cut(g, x, [axis], [start], [limit], [stride], [size])


def join(g: Emitter, operation: str, parts: Sequence[Value]) -> Value:
    """Combine values in order."""
    total = parts[0]
    for part in parts[1:]:
        logical = {"Max": "Or", "Min": "And"}.get(operation, operation)
        total = g.elementwise(logical if part.dtype == BOOL else operation, total, part)
    return total


def is_complex(e: Equation) -> bool:
    """Return whether an operand of an equation is complex."""
    return any(dtypes.kind(a.aval.dtype) == "c" for a in e.invars)  # type: ignore[attr-defined]


@define("conv_general_dilated", applies=is_complex)
def define_complex_convolution(lhs: Any, rhs: Any, *, preferred_element_type: Any = None, **params: Any) -> Any:
    """Convolve complex numbers by convolutions of their parts."""
    real, imaginary = lax.real, lax.imag

    def convolve(x: Any, y: Any) -> Any:
        return lookup("conv_general_dilated")(x, y, preferred_element_type=None, **params)

    first, second = (lax.convert_element_type(x, lax.complex(np.float32(0), np.float32(0)).dtype) for x in (lhs, rhs))
    parts = [(real(x), imaginary(x)) for x in (first, second)]
    (a, b), (c, d) = parts
    return lax.complex(convolve(a, c) - convolve(b, d), convolve(a, d) + convolve(b, c))


@define("conv_general_dilated")
def define_convolution(
    lhs: Any, rhs: Any, *, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
    dimension_numbers: Any, feature_group_count: int = 1, batch_group_count: int = 1, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """Sum products with each element of the kernel, for dtypes and shapes that kernels do not take."""
    dnums = dimension_numbers
    result: Any = lookup("conv_general_dilated").type(
        lhs.aval, rhs.aval, window_strides=window_strides, padding=padding, lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation, dimension_numbers=dnums, feature_group_count=feature_group_count,
        batch_group_count=batch_group_count, precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip
    compute = compute_dtype(lhs.dtype, rhs.dtype, result.dtype)
    x, kernel = (lookup("convert_element_type")(a, new_dtype=compute, weak_type=False) for a in (lhs, rhs))
    x, kernel = x.transpose(dnums.lhs_spec), kernel.transpose(dnums.rhs_spec)
    shape = tuple(result.shape[i] for i in dnums.out_spec)
    groups = max(feature_group_count, batch_group_count)
    if batch_group_count > 1:
        apart = x.reshape(groups, x.shape[0] // groups, *x.shape[1:])
        x = apart.swapaxes(0, 1).reshape(x.shape[0] // groups, -1, *x.shape[2:])
    config = [(0, 0, 0)] * 2 + [(*p, d - 1) for p, d in zip(padding, lhs_dilation, strict=True)]
    x = lax.pad(x, np.zeros((), compute), config)
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    kernel = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:])
    total = wnp.zeros((groups, shape[0], *shape[2:], kernel.shape[1]), compute)
    for at in np.ndindex(*kernel.shape[3:]):
        starts = [i * d for i, d in zip(at, rhs_dilation, strict=True)]
        limits = [s + max((n - 1) * step + 1, 0) for s, n, step in zip(starts, shape[2:], window_strides, strict=True)]
        patch = lax.slice(x, (0, 0, 0, *starts), (*x.shape[:3], *limits), (1, 1, 1, *window_strides))
        weights = kernel[(slice(None),) * 3 + at]
        total = total + lookup("dot_general")(
            patch, weights, dimension_numbers=(((2,), (2,)), ((1,), (0,))), preferred_element_type=None
        )
    merged = wnp.moveaxis(wnp.moveaxis(total, 0, -2).reshape(*shape[:1], *shape[2:], shape[1]), -1, 1)
    ordered = merged.transpose(inverse_permutation(dnums.out_spec))
    return lookup("convert_element_type")(ordered, new_dtype=result.dtype, weak_type=False)
