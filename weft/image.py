"""Images of other sizes: resampling with interpolation kernels."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import sequence
from weft.base.errors import ArgumentError, ShapeMismatchError
from weft.base.publish import publish as _publish
from weft.numpy.contraction import einsum
from weft.numpy.elementwise import absolute
from weft.numpy.extremes import clip
from weft.numpy.reductions import sum as sum_
from weft.numpy.rounding import floor
from weft.numpy.selection import where
from weft.numpy.taking import take
from weft.numpy.ufuncs import maximum, minimum
from weft.numpy.util import (
    as_shape,
    canonicalize_axes,
    cast,
    combining_ranks,
    ensure_array,
    ensure_arrays,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


class ResizeMethod(enum.Enum):
    """Interpolation between pixels.

    >>> import weft
    >>> weft.image.ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name, such as "bilinear"."""
        try:
            return _NAMES[s]
        except (KeyError, TypeError):
            raise ArgumentError(
                f"Unknown resize method {s!r}.", fix=f"one of {', '.join(_NAMES)}, or a ResizeMethod"
            ) from None


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:
    """Resample an image to another shape.

    Args:
        image: an array; every axis whose size changes is resampled.
        shape: the new sizes of all axes, those of batches and channels, which stay, among them.
        method: "nearest", "linear" (also "bilinear", "trilinear", "triangle"), "cubic" ("bicubic", "tricubic"; the
            kernel of Keys), "cubic-pytorch" ("bicubic-pytorch"; without antialiasing, PyTorch's kernel and how it
            treats edges), "lanczos3", "lanczos5", "area" (averages over what a new pixel covers), or a `ResizeMethod`.
        antialias: whether kernels are widened where the image shrinks, so that every pixel counts.
        precision: that of the contractions.

    Returns:
        The image, of the same dtype with the method "nearest" and floating-point with the others.

    >>> import weft.numpy as np
    >>> from weft import image
    >>> image.resize(np.array([0.0, 4.0]), (4,), "linear")
    Array([0., 1., 3., 4.], dtype=float32)
    """
    (image,) = ensure_arrays("image.resize", image)
    sizes = as_shape(shape)
    if len(sizes) != image.ndim:
        raise ShapeMismatchError(
            "image.resize: shape must have a size for each axis of the image.",
            received=f"shape {sizes} for an image {image.aval.short()}",
            fix="image.shape with other numbers for the axes that change; batches and channels stay",
        )
    method = _method(method)
    axes = [axis for axis in range(image.ndim) if sizes[axis] != image.shape[axis]]
    _check_sizes(image, sizes, axes)
    if method is ResizeMethod.NEAREST:
        for axis in axes:
            # The pixel in which the centre of each new one is, in exact arithmetic.
            nearest = (2 * np.arange(sizes[axis]) + 1) * image.shape[axis] // (2 * sizes[axis])
            image = take(image, nearest, axis, mode="clip")
        return image
    (image,) = (ensure_array(x) for x in promote_dtypes_inexact(image))
    if not axes:
        return image
    real = _real_dtype(image)
    scale = np.array([sizes[axis] / image.shape[axis] for axis in axes], real)
    return _resample(image, sizes, axes, scale, np.zeros(len(axes), real), method, antialias, precision)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:
    """Resample an image so that position x of the input is at `x * scale + translation` of the result.

    Pixels are squares of size 1: the centre of pixel 0 is at 0.5. What comes from outside of the image is zero.

    Args:
        image: an array.
        shape: the sizes of all axes of the result.
        spatial_dims: the axes that are scaled and translated.
        scale: a factor for each of these axes; it may be traced, and has derivatives.
        translation: a distance for each of these axes, in pixels of the result; likewise.
        method: as in `resize`, without "nearest".
        antialias: as in `resize`.
        precision: that of the contractions.

    Returns:
        The image, of floating-point numbers.

    >>> import weft.numpy as np
    >>> from weft import image
    >>> moved = image.scale_and_translate(
    ...     np.array([1.0, 2.0, 4.0]), (3,), (0,), np.array([1.0]), np.array([1.0]), "linear")
    >>> moved
    Array([0., 1., 2.], dtype=float32)
    """
    (image,) = ensure_arrays("image.scale_and_translate", image)
    sizes = as_shape(shape)
    axes = canonicalize_axes(sequence(spatial_dims, "spatial_dims"), image.ndim, "image.scale_and_translate")
    method = _method(method)
    if method is ResizeMethod.NEAREST:
        raise ArgumentError(
            "image.scale_and_translate has no method 'nearest'.", fix="image.resize(x, shape, 'nearest'), or 'linear'"
        )
    others = [axis for axis in range(min(image.ndim, len(sizes))) if axis not in axes]
    if len(sizes) != image.ndim or any(sizes[axis] != image.shape[axis] for axis in others):
        raise ShapeMismatchError(
            "image.scale_and_translate: shape must have a size for each axis of the image, the same for those that are "
            "not in spatial_dims.",
            received=f"shape {sizes} and spatial_dims {axes} for an image {image.aval.short()}",
        )
    _check_sizes(image, sizes, axes)
    (image,) = (ensure_array(x) for x in promote_dtypes_inexact(image))
    scale, translation = (
        ensure_array(x)
        for x in promote_dtypes_inexact(
            *ensure_arrays("image.scale_and_translate", scale, translation), np.zeros((), _real_dtype(image))
        )[:2]
    )
    for name, x in (("scale", scale), ("translation", translation)):
        if x.shape != (len(axes),):
            raise ShapeMismatchError(
                f"image.scale_and_translate: {name} must be a vector with an element for each of spatial_dims.",
                received=f"{name} {x.aval.short()}, spatial_dims {axes}",
            )
    return _resample(image, sizes, axes, scale, translation, method, antialias, precision)


# ------------------------------------------------------------------------------------------------------- how it is done


def _method(method: Any) -> ResizeMethod:
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


def _check_sizes(image: Array, sizes: Sequence[int], axes: Sequence[int]) -> None:
    if any(not image.shape[axis] and sizes[axis] for axis in axes):
        raise ArgumentError(
            "An axis without pixels cannot be resampled.", received=f"an image {image.aval.short()}, shape {sizes}"
        )


def _real_dtype(image: Array) -> Any:
    """Return the dtype of positions in an image, wide enough to distinguish pixels."""
    return np.dtype(np.float64 if dtypes.to_real_dtype(image.dtype) == np.float64 else np.float32)


@combining_ranks
def _resample(
    image: Array,
    sizes: Sequence[int],
    axes: Sequence[int],
    scale: Any,
    translation: Any,
    method: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Array:
    """Contract the image with a matrix of weights for each of the axes."""
    if 0 in sizes:
        return lax.full(tuple(sizes), 0, image.dtype)
    letters = list(range(image.ndim))
    operands: list[Any] = [image, list(letters)]
    for i, axis in enumerate(axes):
        weights = _weights(image.shape[axis], sizes[axis], scale[i], translation[i], method, antialias)
        letters[axis] = image.ndim + i
        operands += [cast(weights, image.dtype), [axis, letters[axis]]]
    return einsum(*operands, letters, precision=precision)


def _weights(size: int, new_size: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool) -> Any:
    """Return the weight of each pixel (first axis) in each new one (second axis)."""
    inverse = 1 / scale
    position = np.arange(size, dtype=scale.dtype)[:, None]
    new_position = np.arange(new_size, dtype=scale.dtype)
    centre = (new_position + 0.5) * inverse - translation * inverse - 0.5  # 0 is the centre of the first pixel
    inside = (centre >= -0.5) & (centre <= size - 0.5)
    if method is ResizeMethod.AREA:
        low = (new_position - translation) * inverse
        high = (new_position + 1 - translation) * inverse
        weights = clip(minimum(high, position + 1) - maximum(low, position), 0, None)
    elif method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        weights, inside = _edge_weights(size, centre), np.ones((), bool)
    else:
        width = maximum(inverse, 1) if antialias else 1
        weights = _KERNELS[method](absolute(centre - position) / width)
    total = sum_(weights, axis=0)
    seen = absolute(total) > 1000 * float(np.finfo(np.float32).eps)
    return where(seen & inside, weights / where(seen, total, 1), 0)


def _edge_weights(size: int, centre: Any) -> Any:
    """Return the weights of PyTorch's cubic kernel for an image extended by two pixels equal to those at its edges."""
    first = floor(centre)
    weights: Any = 0
    for tap in range(-1, 3):
        position = first + tap
        weight = where((position >= -2) & (position < size + 2), _cubic(-0.75)(absolute(centre - position)), 0)
        pixel = clip(position, 0, size - 1)
        weights = weights + where(pixel == np.arange(size, dtype=centre.dtype)[:, None], weight, 0)
    return weights


# --------------------------------------------------------------------------------------------------------- the kernels
# Each is a function of the distance from a pixel, in pixels.


def _triangle(x: Any) -> Any:
    return maximum(1 - x, 0)


def _cubic(a: float) -> Callable[[Any], Any]:
    """Make the kernel of two cubic polynomials; `a` is the derivative at 1."""

    def kernel(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x >= 1, where(x >= 2, 0, far), near)

    return kernel


def _lanczos(radius: int) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        apart = where(x > 1e-3, x, 1)
        value = radius * lax.sin(np.pi * apart) * lax.sin(np.pi * apart / radius) / (np.pi * apart) ** 2
        return where(x > radius, 0, where(x > 1e-3, value, 1))

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.5),
    ResizeMethod.LANCZOS3: _lanczos(3),
    ResizeMethod.LANCZOS5: _lanczos(5),
}

_publish(__name__)
