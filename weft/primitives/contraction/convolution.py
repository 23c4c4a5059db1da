"""Convolution: windows of an operand contracted with a kernel, with strides, padding, both dilations and groups.

It is linear in each operand, and its transposes are convolutions again: the cotangent of the operand slides the
reversed kernel over the result's cotangent, that of the kernel slides the cotangent over the operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.indexing.dimension import definitely_less
from weft.ir.fusing import Machine, Properties, element_count, hero
from weft.ir.halo import mask_outside, with_halo
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Sample, primitive
from weft.ir.types import ArrayType, Dimension, array_type
from weft.ir.zeros import is_linear
from weft.primitives.contraction.contract import compute_dtype, contraction_dtype, round_to
from weft.primitives.contraction.convolution_shapes import ConvDimensionNumbers, Pads, Window, in_order, place_sizes
from weft.primitives.contraction.precision import CanonicalPrecision
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.families import SumOfProducts, fail
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, ramp, reshape, rev
from weft.sharding.factors import AxisFactors
from weft.sharding.halo import Reach


class Convolution(NamedTuple):
    """Convolution as data: sizes in each group, one `Window` per spatial dimension, and what the operands' axes mean.

    Axes are listed as batch, feature, spatial (kernel: output feature, input feature, spatial). Groups divide the
    features of the operand, or its batch when `batch_groups` is set; the kernel's output features are divided
    in both cases.
    """

    batch: Dimension
    groups: int
    batch_groups: bool
    in_features: Dimension
    out_features: Dimension
    windows: tuple[Window, ...]
    lhs_axes: tuple[int, ...]
    rhs_axes: tuple[int, ...]
    out_axes: tuple[int, ...]
    compute: np.dtype[Any]
    result: np.dtype[Any]
    shape: tuple[Dimension, ...]


_CONVOLVED = hero("convolution", materialized=None)


@primitive
class conv_general_dilated(SumOfProducts):
    """Windows of `lhs` contracted with the kernel `rhs`."""

    linear = "all"
    multilinear = True
    ulp = {"": 4.0}

    def type(
        self,
        lhs: ArrayType,
        rhs: ArrayType,
        *,
        window_strides: tuple[int, ...],
        padding: Pads,
        lhs_dilation: tuple[int, ...],
        rhs_dilation: tuple[int, ...],
        dimension_numbers: ConvDimensionNumbers,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision: CanonicalPrecision = None,
        preferred_element_type: Any = None,
    ) -> ArrayType:
        settings = window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers
        return result_type(lhs, rhs, *settings, feature_group_count, batch_group_count, preferred_element_type)

    def canonical(self, lhs: ArrayType, rhs: ArrayType, **params: Any) -> Convolution:
        """Return the convolution in the form that the compiler reads."""
        dnums = params["dimension_numbers"]
        batch, _, *sizes = in_order(lhs.shape, dnums.lhs_spec)
        out_features, in_features, *kernel = in_order(rhs.shape, dnums.rhs_spec)
        by_batch = params.get("batch_group_count", 1)
        groups = max(params.get("feature_group_count", 1), by_batch)
        windows = make_windows(
            sizes, kernel, *(params[n] for n in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"))
        )
        result = contraction_dtype("conv_general_dilated", lhs.dtype, rhs.dtype, params.get("preferred_element_type"))
        return Convolution(
            batch=batch // by_batch,
            groups=groups,
            batch_groups=by_batch > 1,
            in_features=in_features,
            out_features=out_features // groups,
            windows=windows,
            lhs_axes=dnums.lhs_spec,
            rhs_axes=dnums.rhs_spec,
            out_axes=dnums.out_spec,
            compute=compute_dtype(lhs.dtype, rhs.dtype, result),
            result=result,
            shape=place_sizes((batch // by_batch, out_features, *(w.count for w in windows)), dnums.out_spec),
        )

    def eval(self, lhs: Any, rhs: Any, **params: Any) -> Any:
        plan: Any = self.canonical(lhs, rhs, **params)  # arrays have the shape and dtype that types have
        if 0 in plan.shape:
            return np.zeros(plan.shape, plan.result)
        x = dilate_and_pad(round_to(lhs, plan.compute).transpose(plan.lhs_axes), plan.windows)
        kernel = round_to(rhs, plan.compute).transpose(plan.rhs_axes)
        count = len(plan.windows)
        spatial = tuple(range(2, 2 + count))
        patches = (
            np.lib.stride_tricks.sliding_window_view(x, tuple(w.extent for w in plan.windows), spatial) if count else x
        )
        steps = [slice(None, None, w.stride) for w in plan.windows] + [
            slice(None, None, w.rhs_dilation) for w in plan.windows
        ]
        patches = patches[(slice(None), slice(None), *steps)]
        # From (batch, feature, positions, window) to (group, batch and positions, feature and window).
        groups, counts = plan.groups, tuple(w.count for w in plan.windows)
        if plan.batch_groups:
            patches = patches.reshape(groups, plan.batch, *patches.shape[1:])
        else:
            patches = np.moveaxis(patches.reshape(plan.batch, groups, plan.in_features, *patches.shape[2:]), 1, 0)
        patches = np.moveaxis(patches, 2, 2 + count)
        contracted = plan.in_features * math.prod(w.window for w in plan.windows)
        left = patches.reshape(groups, plan.batch * math.prod(counts), contracted)
        right = kernel.reshape(groups, plan.out_features, contracted).swapaxes(1, 2)
        out = np.matmul(left, right).reshape(groups, plan.batch, *counts, plan.out_features)
        out = np.moveaxis(np.moveaxis(out, 0, -2).reshape(plan.batch, *counts, groups * plan.out_features), -1, 1)
        return round_to(np.ascontiguousarray(out.transpose(np.argsort(plan.out_axes))), plan.result)

    def transpose(self, cotangent: Any, lhs: Any, rhs: Any, **params: Any) -> Sequence[Any]:
        this = lhs if is_linear(lhs) else rhs
        aval = this.aval
        if any(size == 0 for size in (*cotangent.shape, *lhs.shape, *rhs.shape)):
            result = broadcast_in_dim(np.zeros((), aval.dtype), shape=aval.shape, broadcast_dimensions=())
        else:
            result = (cotangent_of_lhs if this is lhs else cotangent_of_rhs)(cotangent, lhs, rhs, params)
        if result.dtype != aval.dtype:
            result = convert_element_type(result, new_dtype=aval.dtype, weak_type=False)
        return [result, None] if this is lhs else [None, result]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (lhs, rhs), (left, right) = args, dims
        dnums: ConvDimensionNumbers = params["dimension_numbers"]
        lhs_batch, lhs_feature, *_ = dnums.lhs_spec
        out_batch, out_feature, *_ = dnums.out_spec
        kernel_out = dnums.rhs_spec[0]
        by_feature, by_batch = params.get("feature_group_count", 1), params.get("batch_group_count", 1)
        groups = max(by_feature, by_batch)
        if axis.size == 0:
            types = [without_dim(x.aval, d) for x, d in zip(args, dims, strict=True)]
            result = self.type(*types, **params)
            return broadcast_in_dim(np.zeros((), result.dtype), shape=(0, *result.shape), broadcast_dimensions=()), 0
        if left is not None and right is not None:  # each element of the batch is a group of its own
            where, count = (lhs_batch, "batch_group_count") if by_batch > 1 else (lhs_feature, "feature_group_count")
            lhs, rhs = merge(lhs, left, where), merge(rhs, right, kernel_out)
            result = conv_general_dilated(lhs, rhs, **{**params, count: groups * axis.size})
            return divide(result, out_feature, axis.size), out_feature
        if left is not None:
            lhs = merge_inside(lhs, left, lhs_batch, by_batch)
            result = conv_general_dilated(lhs, rhs, **params)
            return divide(result, out_batch, axis.size), out_batch
        assert right is not None
        rhs = merge_inside(rhs, right, kernel_out, groups)
        result = conv_general_dilated(lhs, rhs, **params)
        if groups == 1:
            return divide(result, out_feature, axis.size), out_feature
        result = divide(
            divide(result, out_feature, groups), out_feature + 1, axis.size
        )  # group, element of the batch, feature
        return merge(move_axis(result, out_feature + 1, 0), out_feature + 1, out_feature + 1), 0

    def factors(self, lhs: ArrayType, rhs: ArrayType, **params: Any) -> AxisFactors:
        """Split batch and features unless groups divide them. Along spatial dimensions split the results or, where they
        are fewer than the elements of the window, as in the cotangent of a kernel, the terms that are summed."""
        dnums: ConvDimensionNumbers = params["dimension_numbers"]
        batch, out_feature, in_feature = names_of_features(params)
        combined = ["i"] if in_feature else []
        left, right, out = [batch, in_feature], [out_feature, in_feature], [batch, out_feature]
        reach: dict[str, tuple[Reach | None, ...]] = {}
        for d, window in enumerate(windows_in(lhs.shape, rhs.shape, params)):
            name = f"s{d}"
            known = window.is_known and dtypes.kind(lhs.dtype) in "biufc"
            sums = known and window.window > window.count
            left.append(name if known or window.is_one else None)
            right.append(name if sums else None)
            out.append(None if sums else left[-1])
            if sums:
                combined.append(name)
            if known and not (window.is_all if sums else window.is_one):
                reach[name] = window.reach_of_window() if sums else window.reach_of_result(), None
        how = "or" if dtypes.kind(self.type(lhs, rhs, **params).dtype) == "b" else "sum"
        return AxisFactors(
            (place_names(tuple(left), dnums.lhs_spec), place_names(tuple(right), dnums.rhs_spec)),
            (place_names(tuple(out), dnums.out_spec),),
            dict.fromkeys(combined, how),
            inside=dict.fromkeys(reach, 0),
            reach=reach,
            reason="the window slides over all of it, and groups reach over the borders of features",
        )

    def explicit_factors(self, lhs: ArrayType, rhs: ArrayType, **params: Any) -> AxisFactors:
        """Split a result in the spatial dimensions in which `lhs` is split."""
        dnums: ConvDimensionNumbers = params["dimension_numbers"]
        batch, out_feature, in_feature = names_of_features(params)
        spatial = tuple(f"s{i}" for i in range(lhs.ndim - 2))
        left = place_names((batch, in_feature, *spatial), dnums.lhs_spec)
        right = place_names((out_feature, in_feature, *(None for _ in spatial)), dnums.rhs_spec)
        how = "or" if dtypes.kind(self.type(lhs, rhs, **params).dtype) == "b" else "sum"
        combine = {} if in_feature is None else {in_feature: how}
        out = place_names((batch, out_feature, *spatial), dnums.out_spec)
        return AxisFactors((left, right), (out,), combine, reason="groups reach over the borders of features")

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Exchange, along split spatial dimensions, the elements that the windows of this part read beyond it, with no
        more padding than between elements. Where the window is split, slide its part over them."""
        lhs, rhs = args
        dnums: ConvDimensionNumbers = params["dimension_numbers"]
        padding = list(params["padding"])
        for i, (d, k) in enumerate(zip(dnums.lhs_spec[2:], dnums.rhs_spec[2:], strict=True)):
            name = parts.operand_names[0][d]
            if name is None or not parts.split(name) or name not in parts.reach:
                continue
            lhs, halo = with_halo(parts, lhs, 0, d, np.zeros((), dtypes.storage(lhs.dtype)))
            padding[i] = halo.pad_low, halo.pad_high
            size = halo.reach.count
            if parts.operand_names[1][k] == name and size % halo.parts:
                start = parts.start(name, rhs.shape[k])
                rhs = mask_outside(rhs, k, start, size, np.zeros((), dtypes.storage(rhs.dtype)))
        return [conv_general_dilated(lhs, rhs, **{**params, "padding": tuple(padding)})]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _CONVOLVED

    def flops(self, equation: Any) -> float:
        kernel = equation.invars[1].aval
        features = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
        # Most taps of a dilated operand fall on zeros between its elements, which are left out.
        dilation = element_count(equation.params["lhs_dilation"])
        return (
            2
            * element_count(equation.outvars[0].aval.shape)
            * element_count(kernel.shape)
            / max(element_count((features,)) * dilation, 1)
        )

    def samples(self) -> Any:
        yield sample((2, 3, 5), (4, 3, 2))
        yield sample((1, 2, 5, 4), (3, 2, 2, 3), strides=(2, 1), padding=((1, 0), (1, 1)))
        yield sample(
            (2, 4, 3, 2), (2, 3, 2, 3), lhs_dilation=(2, 1), rhs_dilation=(1, 2), dnums=NHWC, padding=((0, 0), (1, 1))
        )
        yield sample((2, 4, 5), (6, 2, 3), strides=(2,), groups=2)
        yield sample((4, 3, 5), (2, 3, 2), rhs_dilation=(2,), batch_groups=2)
        yield sample((1, 1, 6), (1, 1, 2), padding=((-1, -2),))
        yield sample((1, 2, 3, 2, 3), (2, 2, 2, 1, 2))
        yield sample((2, 3), (4, 3))
        yield sample((1, 2, 2), (1, 2, 4))
        yield sample((0, 2, 3), (1, 2, 2))
        yield sample((2, 0, 3), (1, 0, 2))
        yield sample((1, 2, 0), (3, 2, 1), padding=((2, 2),))  # nothing but padding
        yield sample((1, 2, 4), (2, 2, 3), dtype=np.complex64)
        yield sample((1, 2, 4), (2, 2, 3), dtype=ml_dtypes.bfloat16)
        yield sample((1, 2, 4), (2, 2, 3), dtype=ml_dtypes.bfloat16, preferred=np.dtype(np.float32))
        yield sample((1, 2, 4), (2, 2, 3), dtype=np.int32)
        yield sample((1, 2, 4), (2, 2, 3), dtype=np.int8, preferred=np.dtype(np.int32))


# --------------------------------------------------------------------------------------------------------------- type


@lru_cache(maxsize=1024)
def result_type(
    lhs: ArrayType,
    rhs: ArrayType,
    window_strides: tuple[int, ...],
    padding: Pads,
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    preferred_element_type: Any,
) -> ArrayType:
    """Return the type of a convolution; raise an error that names both shapes if they do not fit."""
    rank = len(lhs.shape)
    shapes = f"operand {lhs.short()} and kernel {rhs.short()}"
    if rank != len(rhs.shape) or rank < 2:
        what = "conv_general_dilated lhs and rhs must have the same number of dimensions, at least 2."
        raise fail(what, received=shapes)
    for name, spec in zip(dimension_numbers._fields, dimension_numbers, strict=True):
        if sorted(spec) != list(range(rank)):
            raise fail(
                f"conv_general_dilated got {name} {spec}, which must name each of {rank} axes once.",
                received=shapes,
            )
    counts = {"window_strides": window_strides, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    for name, values in counts.items():
        if len(values) != rank - 2 or any(value < 1 for value in values):
            raise fail(
                f"conv_general_dilated window and {name} must have the same number of dimensions, and {name} be "
                f"positive; got {name} {values} for {rank - 2} spatial dimensions.",
                received=shapes,
                fix="give one positive integer for each spatial dimension",
            )
    if len(padding) != rank - 2:
        raise fail(f"conv_general_dilated got padding {padding} for {rank - 2} spatial dimensions.", received=shapes)
    batch, features, *sizes = in_order(lhs.shape, dimension_numbers.lhs_spec)
    out_features, in_features, *kernel = in_order(rhs.shape, dimension_numbers.rhs_spec)
    check_groups(shapes, batch, features, in_features, out_features, feature_group_count, batch_group_count)
    if any(size == 0 for size in kernel):
        raise fail("conv_general_dilated got a kernel without elements in a spatial dimension.", received=shapes)
    windows = make_windows(sizes, kernel, window_strides, padding, lhs_dilation, rhs_dilation)
    if any(definitely_less(w.padded, 0) for w in windows):
        raise fail(f"conv_general_dilated got padding {padding}, which crops more than there is.", received=shapes)
    shape = (batch // batch_group_count, out_features, *(w.count for w in windows))
    dtype = contraction_dtype("conv_general_dilated", lhs.dtype, rhs.dtype, preferred_element_type)
    return array_type(place_sizes(shape, dimension_numbers.out_spec), dtype, lhs.weak_type and rhs.weak_type)


def check_groups(
    shapes: str, batch: Any, features: Any, in_features: Any, out_features: Any, by_feature: int, by_batch: int
) -> None:
    """Raise unless groups divide what they split, and the kernel has the features of one group."""
    if by_feature < 1 or by_batch < 1 or (by_feature > 1 and by_batch > 1):
        raise fail(
            f"conv_general_dilated got feature_group_count={by_feature} and batch_group_count={by_batch}.",
            received=shapes,
            fix="both are at least 1, and at most one of them is more",
        )
    if by_feature > 1 and features % by_feature != 0:
        raise fail(
            f"conv_general_dilated cannot divide {features} features into feature_group_count={by_feature} groups.",
            received=shapes,
        )
    if features // by_feature != in_features:
        raise fail(
            f"conv_general_dilated got {features} features in {by_feature} groups, a kernel for {in_features} a group.",
            received=shapes,
            fix="the kernel has the operand's features divided by feature_group_count; see dimension_numbers",
        )
    if by_batch > 1 and batch % by_batch != 0:
        raise fail(
            f"conv_general_dilated cannot divide a batch of {batch} into batch_group_count={by_batch} groups.",
            received=shapes,
        )
    for name, groups in (("feature_group_count", by_feature), ("batch_group_count", by_batch)):
        if groups > 1 and out_features % groups != 0:
            raise fail(
                f"conv_general_dilated cannot divide {out_features} output features into {name}={groups} groups.",
                received=shapes,
            )


def make_windows(
    sizes: Sequence[Any],
    kernel: Sequence[Any],
    strides: Sequence[int],
    padding: Pads,
    lhs_dilation: Any,
    rhs_dilation: Any,
) -> tuple[Window, ...]:
    """Return one `Window` for each spatial dimension."""
    return tuple(
        Window(size, window, stride, low, high, base_dilation, dilation)
        for size, window, stride, (low, high), base_dilation, dilation in zip(
            sizes, kernel, strides, padding, lhs_dilation, rhs_dilation, strict=True
        )
    )


def names_of_features(params: Params) -> tuple[str | None, str | None, str | None]:
    """Return the factors of batch, output features and input features; None for those that groups divide."""
    by_feature, by_batch = params.get("feature_group_count", 1), params.get("batch_group_count", 1)
    grouped = by_feature > 1 or by_batch > 1
    return None if by_batch > 1 else "n", None if grouped else "o", None if by_feature > 1 else "i"


def place_names(names: Sequence[str | None], spec: Sequence[int]) -> tuple[str | None, ...]:
    """Return a name for each axis, given the axis of each name."""
    result: list[str | None] = [None] * len(spec)
    for name, axis in zip(names, spec, strict=True):
        result[axis] = name
    return tuple(result)


# --------------------------------------------------------------------------------------------------------------- eval


def dilate_and_pad(x: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Dilate the operand, then pad or crop it."""
    if all(w.lhs_dilation == 1 and not w.low and not w.high for w in windows):
        return x
    shape = x.shape[:2] + tuple(max(0, w.padded) for w in windows)
    out = np.zeros(shape, x.dtype)
    taken, put = [slice(None)] * 2, [slice(None)] * 2
    for w, size in zip(windows, shape[2:], strict=True):
        step, low = w.lhs_dilation, w.low
        first = max(0, -(low // step))  # the first element that is not cropped
        last = max(first, min(w.size, (size - 1 - low) // step + 1))
        taken.append(slice(first, last))
        put.append(
            slice(low + first * step, low + first * step + (last - first) * step, step) if last > first else slice(0, 0)
        )
    out[tuple(put)] = x[tuple(taken)]
    return out


# ---------------------------------------------------------------------------------------------------------- transpose


def cotangent_of_lhs(cotangent: Any, lhs: Any, rhs: Any, params: Params) -> Any:
    """Return the cotangent of `lhs`: slide the reversed kernel, its features exchanged, over the result's cotangent."""
    dnums: ConvDimensionNumbers = params["dimension_numbers"]
    lhs_spec, rhs_spec, out_spec = dnums
    by_feature, by_batch = params.get("feature_group_count", 1), params.get("batch_group_count", 1)
    groups = max(by_feature, by_batch)
    windows = windows_in(lhs.shape, rhs.shape, params)
    kernel = rev(rhs, dimensions=rhs_spec[2:]) if len(rhs_spec) > 2 else rhs
    if groups > 1:  # groups divided the output features; now they divide the features contracted with them
        kernel = merge(divide(kernel, rhs_spec[0], groups), rhs_spec[0], rhs_spec[1])
    result = conv_general_dilated(
        cotangent,
        kernel,
        **{
            **params,
            "window_strides": params["lhs_dilation"],
            "padding": tuple(w.pads_for_lhs() for w in windows),
            "lhs_dilation": params["window_strides"],
            "dimension_numbers": ConvDimensionNumbers(out_spec, (rhs_spec[1], rhs_spec[0], *rhs_spec[2:]), lhs_spec),
            "feature_group_count": groups,
            "batch_group_count": 1,
        },
    )
    if by_batch > 1:
        result = merge(divide(result, lhs_spec[1], groups), lhs_spec[1], lhs_spec[0])
    return result


def cotangent_of_rhs(cotangent: Any, lhs: Any, rhs: Any, params: Params) -> Any:
    """Return the cotangent of `rhs`: slide the result's cotangent over the operand, contracting the batch; the two
    kinds of groups are exchanged."""
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    windows = windows_in(lhs.shape, rhs.shape, params)
    swapped = [(spec[1], spec[0], *spec[2:]) for spec in (lhs_spec, out_spec, rhs_spec)]
    return conv_general_dilated(
        lhs,
        cotangent,
        **{
            **params,
            "window_strides": params["rhs_dilation"],
            "padding": tuple(w.pads_for_rhs() for w in windows),
            "rhs_dilation": params["window_strides"],
            "dimension_numbers": ConvDimensionNumbers(*swapped),
            "feature_group_count": params.get("batch_group_count", 1),
            "batch_group_count": params.get("feature_group_count", 1),
        },
    )


def windows_in(lhs_shape: Any, rhs_shape: Any, params: Params) -> tuple[Window, ...]:
    dnums = params["dimension_numbers"]
    sizes, kernel = in_order(lhs_shape, dnums.lhs_spec)[2:], in_order(rhs_shape, dnums.rhs_spec)[2:]
    return make_windows(
        sizes, kernel, params["window_strides"], params["padding"], params["lhs_dilation"], params["rhs_dilation"]
    )


# -------------------------------------------------------------------------------------------------------------- batch


def merge(x: Any, source: int, target: int) -> Any:
    """Merge the axis `source` into another as its outer part; `target` counts the axes without `source`."""
    x = move_axis(x, source, target)
    shape = x.shape
    return reshape(
        x, new_sizes=(*shape[:target], shape[target] * shape[target + 1], *shape[target + 2 :]), dimensions=None
    )


def divide(x: Any, axis: int, outer: int) -> Any:
    """Split an axis in two, the first of size `outer`."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :]), dimensions=None)


def merge_inside(x: Any, source: int, target: int, groups: int) -> Any:
    """Merge two axes as `merge` does, but inside of the groups that divide `target`."""
    if groups == 1:
        return merge(x, source, target)
    x = divide(move_axis(x, source, 0), target + 1, groups)
    x = merge(x, 0, target + 1)
    return merge(x, target, target)


def without_dim(aval: ArrayType, dim: int | None) -> ArrayType:
    return aval if dim is None else aval.without_dimension(dim)


# ------------------------------------------------------------------------------------------------------------ samples

NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def sample(
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    padding: Pads | None = None,
    lhs_dilation: tuple[int, ...] | None = None,
    rhs_dilation: tuple[int, ...] | None = None,
    dnums: ConvDimensionNumbers | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    dtype: Any = np.float32,
    preferred: Any = None,
) -> Sample:
    """Create a sample; omitted parameters have neutral values."""
    rank = len(lhs)
    axes, ones = tuple(range(rank)), (1,) * (rank - 2)
    x, kernel = ramp(*lhs, dtype=dtype), ramp(*rhs, dtype=dtype)
    if dtypes.kind(np.dtype(dtype)) == "c":
        kernel = kernel * np.complex64(0.5 - 1j)
    return Sample(
        x,
        kernel,
        window_strides=strides or ones,
        padding=padding or ((1, 0),) * (rank - 2),
        lhs_dilation=lhs_dilation or ones,
        rhs_dilation=rhs_dilation or ones,
        dimension_numbers=dnums or ConvDimensionNumbers(axes, axes, axes),
        feature_group_count=groups,
        batch_group_count=batch_groups,
        precision=None,
        preferred_element_type=preferred,
    )
