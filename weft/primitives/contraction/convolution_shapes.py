"""Arithmetic of windows: their number, the meaning of padding strings, and the padding of gradients.

Sizes may be symbolic. Along one dimension a convolution reads, for the result at o and the window element r, index `o *
stride + r * rhs_dilation - low` of the operand dilated by `lhs_dilation`, and zero where there is no element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import ceil_divide
from weft.indexing.expression import Expression, maximum
from weft.ir.types import Dimension, Shape
from weft.primitives.families import fail, inverse_permutation
from weft.sharding.halo import Reach

Pads: TypeAlias = tuple[tuple[Dimension, Dimension], ...]


class ConvDimensionNumbers(NamedTuple):
    """Axes as batch, feature, spatial for operand and result; output feature, input feature, spatial for the kernel.

    Args:
        lhs_spec, rhs_spec, out_spec: the axes of operand, kernel and result.

    >>> from weft import lax
    >>> lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)).lhs_spec
    (0, 3, 1, 2)
    """

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


ConvGeneralDilatedDimensionNumbers: TypeAlias = ConvDimensionNumbers | tuple[str, str, str] | None


# ------------------------------------------------------------------------------------------------------------- sizes


def dilate_size(size: Dimension, dilation: int) -> Dimension:
    """Return the extent of `size` elements at steps of `dilation`."""
    if dilation == 1:
        return size
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(size: Dimension, window: Dimension, stride: int) -> Dimension:
    """Return the number of windows that fit into `size` if each is `stride` after the one before."""
    return maximum(0, (size - window) // stride + 1)


def padtype_to_pads(
    in_shape: Sequence[Dimension], window_shape: Sequence[Dimension], window_strides: Sequence[int], padding: str
) -> list[tuple[Dimension, Dimension]]:
    """Return the padding before and after each dimension for 'SAME', 'SAME_LOWER' or 'VALID'.

    With 'SAME' there are as many windows as strides in the operand; an odd element of padding is after the operand,
    with 'SAME_LOWER' before it; 'VALID' pads nothing.
    """
    name = padding.upper() if isinstance(padding, str) else padding
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise ArgumentError(
            f"padding got {padding!r}.", fix="'SAME', 'SAME_LOWER', 'VALID' or a (low, high) pair per dimension"
        )
    pads: list[tuple[Dimension, Dimension]] = []
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = maximum(0, (ceil_divide(size, stride) - 1) * stride + window - size)
        less = total // 2
        pads.append((less, total - less) if name == "SAME" else (total - less, less))
    return pads


def transpose_pads(window: Dimension, stride: int, padding: str) -> tuple[Dimension, Dimension]:
    """Return the padding with which a convolution over an operand dilated by `stride` undoes the sizes of one with
    `padding`."""
    name = padding.upper()
    if name == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else ceil_divide(total, 2)
    elif name == "VALID":
        total = window + stride - 2 + maximum(window - stride, 0)
        low = window - 1
    else:
        raise ArgumentError(
            f"conv_transpose got padding {padding!r}; it is 'SAME', 'VALID' or a (low, high) pair per dimension."
        )
    return low, total - low


class Window(NamedTuple):
    """One spatial dimension of a convolution."""

    size: Dimension
    window: Dimension
    stride: int
    low: Dimension
    high: Dimension
    lhs_dilation: int
    rhs_dilation: int

    @property
    def padded(self) -> Dimension:
        return dilate_size(self.size, self.lhs_dilation) + self.low + self.high

    @property
    def extent(self) -> Dimension:
        return dilate_size(self.window, self.rhs_dilation)

    @property
    def count(self) -> Dimension:
        return window_count(self.padded, self.extent, self.stride)

    def pads_for_lhs(self) -> tuple[Dimension, Dimension]:
        """Return the padding of the result's cotangent for which convolution with the reversed window returns the
        operand's cotangent."""
        low = self.extent - self.low - 1
        dilated = dilate_size(self.count, self.stride)
        return low, dilate_size(self.size, self.lhs_dilation) + self.extent - 1 - dilated - low

    def pads_for_rhs(self) -> tuple[Dimension, Dimension]:
        """Return the padding of the operand for which convolution with the result's cotangent returns the window's."""
        dilated = dilate_size(self.count, self.stride)
        return self.low, dilated + self.extent - 1 - dilate_size(self.size, self.lhs_dilation) - self.low

    @property
    def is_one(self) -> bool:
        """Whether every window is one element of the operand, and every element is a window."""
        return self[1:] == (1, 1, 0, 0, 1, 1)

    @property
    def is_all(self) -> bool:
        """Whether there is one window, of all elements of the operand."""
        return self == (self.window, self.window, self.stride, 0, 0, 1, 1)

    @property
    def is_known(self) -> bool:
        """Whether sizes are integers, and there is something to read and to compute."""
        sizes = self.size, self.window, self.low, self.high
        return all(isinstance(n, int) for n in sizes) and self.size != 0 and self.count != 0

    def reach_of_result(self) -> Reach:
        """Return the elements of the operand that are read for each result."""
        return Reach(self.size, self.count, self.stride, self.low, self.extent, self.lhs_dilation)  # type: ignore[arg-type]

    def reach_of_window(self) -> Reach:
        """Return the elements of the operand that are read for each element of the window, in all results."""
        extent = dilate_size(self.count, self.stride)
        return Reach(self.size, self.window, self.rhs_dilation, self.low, extent, self.lhs_dilation)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- dimension names


def conv_general_permutations(
    dimension_numbers: Sequence[str],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the axes for strings such as `('NHWC', 'HWIO', 'NHWC')`; spatial axes are in the kernel's order."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    marks = ("N", "C"), ("O", "I"), ("N", "C")
    for i, (spec, (first, second)) in enumerate(zip(dimension_numbers, marks, strict=True)):
        if spec.count(first) != 1 or spec.count(second) != 1:
            raise fail(
                f"Convolution dimension_numbers[{i}] must have {first!r} and {second!r} once each, got {spec!r}."
            )
        if len(set(spec)) != len(spec):
            raise fail(f"Convolution dimension_numbers[{i}] must not repeat a letter, got {spec!r}.")
    spatial = [letter for letter in rhs_spec if letter not in "OI"]
    if not set(spatial) == set(lhs_spec) - set("NC") == set(out_spec) - set("NC"):
        raise fail(
            f"Convolution dimension_numbers must name the same spatial dimensions, got {tuple(dimension_numbers)}.",
            fix="such as ('NHWC', 'HWIO', 'NHWC')",
        )

    def axes(spec: str, first: str, second: str) -> tuple[int, ...]:
        return (spec.index(first), spec.index(second), *map(spec.index, spatial))

    return axes(lhs_spec, *marks[0]), axes(rhs_spec, *marks[1]), axes(out_spec, *marks[2])


def conv_dimension_numbers(
    lhs_shape: Sequence[Dimension],
    rhs_shape: Sequence[Dimension],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> ConvDimensionNumbers:
    """Return the axes as integers: None means batch, feature, spatial and output feature, input feature, spatial.

    Args:
        lhs_shape, rhs_shape: the shapes of operand and kernel.
        dimension_numbers: three strings, None, or `ConvDimensionNumbers`.

    Returns:
        A `ConvDimensionNumbers`.

    >>> from weft import lax
    >>> lax.conv_dimension_numbers((1, 5, 5, 1), (3, 3, 1, 2), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise fail(
            f"A convolution needs operand and kernel of one rank, got {tuple(lhs_shape)} and {tuple(rhs_shape)}.",
            fix="both have two dimensions more than there are spatial ones",
        )
    if dimension_numbers is None:
        axes = tuple(range(rank))
        return ConvDimensionNumbers(axes, axes, axes)
    if not isinstance(dimension_numbers, (tuple, list)):
        raise ArgumentTypeError(
            f"Convolution dimension_numbers must be None, ConvDimensionNumbers or 3 strings, got {dimension_numbers!r}."
        )
    if len(dimension_numbers) != 3:
        raise fail(f"Convolution dimension_numbers has three parts, got {len(dimension_numbers)}: {dimension_numbers}.")
    if not all(isinstance(spec, str) for spec in dimension_numbers):
        raise ArgumentTypeError(
            f"Convolution dimension_numbers given as a tuple must be strings, got {dimension_numbers!r}."
        )
    for i, spec in enumerate(dimension_numbers):
        if len(spec) != rank:
            raise fail(
                f"Convolution dimension_numbers[{i}] names {len(spec)} dimensions, {spec!r}, "
                f"but the operands have {rank}: {tuple(lhs_shape)} and {tuple(rhs_shape)}."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


# ------------------------------------------------------------------------------------------------------ result shapes


def explicit_pads(padding: Any, rank: int) -> Pads:
    """Check padding given as (low, high) pairs and return it as a tuple."""
    try:
        pads = tuple((_size(low), _size(high)) for low, high in padding)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"Convolution padding must be a string or a sequence of (low, high) pairs, got {padding!r}."
        ) from None
    if len(pads) != rank:
        raise fail(f"Convolution got {len(pads)} pairs of padding for {rank} spatial dimensions: {pads}.")
    return pads


def _size(value: Any) -> Dimension:
    return value if isinstance(value, Expression) else index(value)


def in_order(shape: Sequence[Dimension], spec: Sequence[int]) -> Shape:
    """Return the sizes of the axes in `spec`, in that order."""
    return tuple(shape[axis] for axis in spec)


def place_sizes(shape: Sequence[Dimension], spec: Sequence[int]) -> Shape:
    """Reorder sizes given as batch, feature, spatial to the axes that `spec` lists."""
    return tuple(shape[position] for position in inverse_permutation(spec))


def conv_general_shape_tuple(
    lhs_shape: Sequence[Dimension],
    rhs_shape: Sequence[Dimension],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> Shape:
    """Return the shape of a convolution without dilation or groups."""
    dnums = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs, rhs = in_order(lhs_shape, dnums.lhs_spec), in_order(rhs_shape, dnums.rhs_spec)
    if isinstance(padding, str):
        pads: Pads = tuple(padtype_to_pads(lhs[2:], rhs[2:], window_strides, padding))
    else:
        pads = explicit_pads(padding, len(lhs) - 2)
    counts = [
        window_count(size + low + high, window, stride)
        for size, window, stride, (low, high) in zip(lhs[2:], rhs[2:], window_strides, pads, strict=True)
    ]
    return place_sizes((lhs[0], rhs[0], *counts), dnums.out_spec)


def conv_shape_tuple(
    lhs_shape: Sequence[Dimension],
    rhs_shape: Sequence[Dimension],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> Shape:
    """Return the shape of a convolution of (batch, features, ...) by (features out, features in, ...), without
    dilation."""
    batch, *rest = conv_general_shape_tuple(lhs_shape, rhs_shape, strides, pads, None)
    if isinstance(batch, int) and batch % batch_group_count:
        raise fail(f"A batch of {batch} does not divide into {batch_group_count} groups.")
    return (batch // batch_group_count, *rest)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[Dimension],
    rhs_shape: Sequence[Dimension],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> Shape:
    """Return the shape of a transposed convolution."""
    dnums = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs, rhs = in_order(lhs_shape, dnums.lhs_spec), in_order(rhs_shape, dnums.rhs_spec)
    if isinstance(padding, str):
        pads: Pads = tuple(transpose_pads(k, s, padding) for k, s in zip(rhs[2:], window_strides, strict=True))
    else:
        pads = explicit_pads(padding, len(lhs) - 2)
    counts = [
        window_count(dilate_size(size, stride) + low + high, window, 1)
        for size, window, stride, (low, high) in zip(lhs[2:], rhs[2:], window_strides, pads, strict=True)
    ]
    return place_sizes((lhs[0], rhs[0], *counts), dnums.out_spec)
