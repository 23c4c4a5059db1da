"""Initializers of parameters: functions that make initializers, each called as `initializer(key, shape, dtype)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from weft import numpy as wnp, random
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.base.tracebacks import boundary
from weft.nn.argument_docs import document
from weft.numpy.util import as_shape
from weft.trace.array import Array


@runtime_checkable
class Initializer(Protocol):
    """The protocol of initializers: a function of a random key, a shape and a dtype.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.zeros(random.key(0), (2,), wnp.float32)
    Array([0., 0.], dtype=float32)
    """

    def __call__(self, key: Any, shape: Any, dtype: Any = None) -> Array: ...


def _dtype(dtype: Any, default: Any) -> np.dtype[Any]:
    """Return the dtype given in the call, else that of the initializer, else the default float."""
    chosen = dtype if dtype is not None else default
    found = dtypes.requested_dtype(float if chosen is None else chosen, "initializer")
    assert isinstance(found, np.dtype)
    return found


def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """Create an array of zeros.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        shape: the shape.
        dtype: the dtype, unless the call names one; float32 by default.
        out_sharding: how the array is split over a mesh.

    Returns:
        An array.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.zeros(random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return wnp.zeros(as_shape(shape), _dtype(dtype, None), out_sharding=out_sharding)


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """Create an array of ones.

    Args:
        key: a random key. Use each key once: `split` makes new ones.
        shape: the shape.
        dtype: the dtype, unless the call names one; float32 by default.
        out_sharding: how the array is split over a mesh.

    Returns:
        An array.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.ones(random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return wnp.ones(as_shape(shape), _dtype(dtype, None), out_sharding=out_sharding)


@document("An initializer: a function of a key, a shape and a dtype.", value="the value.")
def constant(value: Any, dtype: Any = None) -> Initializer:
    """Make an initializer of a constant `value`, which may be an array that broadcasts to the shape.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.constant(0.5)(random.key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        return wnp.full(as_shape(shape), value, dtype=_dtype(dtype, None))

    return init


@document("An initializer.", scale="the upper limit.")
def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of uniform numbers in [0, scale).

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.uniform(0.1)(random.key(0), (2,)).shape
    (2,)
    """

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        found = _dtype(dtype, None)
        return random.uniform(key, shape, found) * np.array(scale, found)

    return init


@document("An initializer.", stddev="the standard deviation.")
def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of normal numbers with mean 0 and the given standard deviation.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.normal(0.1)(random.key(0), (2,)).shape
    (2,)
    """

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        found = _dtype(dtype, None)
        return random.normal(key, shape, found) * np.array(stddev, found)

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Make an initializer of normal numbers within [lower, upper], times `stddev`, that before truncation."""

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        found = _dtype(dtype, None)
        return random.truncated_normal(key, lower, upper, as_shape(shape), found) * np.array(stddev, found)

    return init


# ------------------------------------------------------------------------------------------------ scaled by layer sizes


def _axes(axis: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(a % rank for a in ((axis,) if isinstance(axis, int) else axis))


def _fans(shape: tuple[int, ...], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[float, float]:
    """Return the number of inputs per output and of outputs per input; other axes are a receptive field."""
    if len(shape) <= 1 and isinstance(in_axis, int) and isinstance(out_axis, int) and in_axis != out_axis:
        raise ArgumentError(
            f"variance_scaling needs a shape of two or more dimensions to tell inputs from outputs, got {shape}."
        )
    inputs, outputs, batches = (_axes(axis, len(shape)) for axis in (in_axis, out_axis, batch_axis))
    fan_in, fan_out, batch = (math.prod(shape[a] for a in axes) for axes in (inputs, outputs, batches))
    if not math.prod(shape):
        return fan_in, fan_out
    field = math.prod(shape) / fan_in / fan_out / batch
    return fan_in * field, fan_out * field


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: Any = None,
) -> Initializer:
    """Make an initializer of variance scale / n from 'truncated_normal', 'normal' or 'uniform' numbers.

    By the mode, n is the number of inputs ('fan_in') or outputs ('fan_out'), or their arithmetic ('fan_avg') or
    geometric ('fan_geo_avg') mean.

    Args:
        scale: the factor of the variance.
        mode: "fan_in", "fan_out", "fan_avg" or "fan_geo_avg".
        distribution: "truncated_normal", "normal" or "uniform".
        in_axis: the axis or axes of inputs, in the shape.
        out_axis: the axis or axes of outputs.
        batch_axis: axes that count as neither.
        dtype: the dtype, unless the call names one; float32 by default.

    Returns:
        An initializer.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.variance_scaling(2.0, "fan_in", "normal")(random.key(0), (3, 2)).shape
    (3, 2)
    """

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        sizes, found = as_shape(shape), _dtype(dtype, None)
        fan_in, fan_out = _fans(sizes, in_axis, out_axis, batch_axis)
        counts = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        if mode not in counts:
            raise ArgumentError(f"The mode of variance_scaling must be one of {', '.join(counts)}, got mode={mode!r}.")
        variance = np.array(scale / counts[mode], found)
        return _drawn(distribution, key, sizes, variance, found)

    return init


# Standard deviation of a normal number truncated to two standard deviations; and of a complex one truncated in length.
_TRUNCATED = 0.87962566103423978
_TRUNCATED_COMPLEX = 0.95311164380491208


def _drawn(distribution: str, key: Any, shape: tuple[int, ...], variance: np.ndarray, dtype: np.dtype[Any]) -> Array:
    """Draw numbers of the given variance."""
    is_complex = dtypes.kind(dtype) == "c"
    if distribution == "normal":
        return random.normal(key, shape, dtype) * np.sqrt(variance)
    if distribution == "truncated_normal":
        if is_complex:
            stddev = np.sqrt(variance) / np.array(_TRUNCATED_COMPLEX, dtype)
            return _truncated_complex(key, shape, dtype) * stddev
        stddev = (np.sqrt(variance) / np.array(_TRUNCATED, dtype)).astype(dtype)
        return random.truncated_normal(key, -2, 2, shape, dtype) * stddev
    if distribution == "uniform":
        if is_complex:
            return _uniform_disc(key, shape, dtype) * np.sqrt(variance)
        return random.uniform(key, shape, dtype, -1) * np.sqrt(np.array(3, dtype) * variance).astype(dtype)
    raise ArgumentError(
        f"variance_scaling got distribution={distribution!r}; 'truncated_normal', 'normal' or 'uniform' is expected."
    )


def _uniform_disc(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Draw complex numbers uniformly in the disc of mean square 1."""
    length_key, angle_key = random.split(key)
    part = dtypes.to_real_dtype(dtype)
    length = wnp.sqrt(np.array(2, part) * random.uniform(length_key, shape, part)).astype(dtype)
    angle = (np.array(2 * math.pi, part) * random.uniform(angle_key, shape, part)).astype(dtype)
    return length * wnp.exp(np.array(1j, dtype) * angle)


def _truncated_complex(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Draw complex normal numbers of length at most 2."""
    length_key, angle_key = random.split(key)
    part = dtypes.to_real_dtype(dtype)
    share = (np.array(1, part) - np.exp(np.array(-4, part))) * random.uniform(length_key, shape, part)
    length = wnp.sqrt(-wnp.log(np.array(1, part) - share)).astype(dtype)
    angle = (np.array(2 * math.pi, part) * random.uniform(angle_key, shape, part)).astype(dtype)
    return length * wnp.exp(np.array(1j, dtype) * angle)


@document("An initializer.")
def glorot_uniform(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a uniform initializer of variance 1 / (mean of inputs and outputs) (Glorot and Bengio 2010).

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.glorot_uniform()(random.key(0), (3, 2)).shape
    (3, 2)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


@document("An initializer.")
def glorot_normal(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a truncated normal initializer of variance 1 / (mean of inputs and outputs).

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.glorot_normal()(random.key(0), (3, 2)).shape
    (3, 2)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a uniform initializer of variance 1 / inputs (LeCun et al. 1998)."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


@document("An initializer.")
def lecun_normal(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a truncated normal initializer of variance 1 / inputs.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.lecun_normal()(random.key(0), (3, 2)).shape
    (3, 2)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


@document("An initializer.")
def he_uniform(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a uniform initializer of variance 2 / inputs, for rectifiers (He et al. 2015).

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> initializers.he_uniform()(random.key(0), (3, 2)).shape
    (3, 2)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Make a truncated normal initializer of variance 2 / inputs, for rectifiers; also `kaiming_normal`."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


# ---------------------------------------------------------------------------------------------------------- orthogonal


@document("An initializer.", scale="the length of the columns.", column_axis="the axis of the columns.")
def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of matrices with orthonormal columns (or rows, if shorter) along `column_axis`, times scale.

    >>> from weft import random
    >>> from weft.nn import initializers
    >>> q = initializers.orthogonal()(random.key(0), (2, 2))
    >>> abs(q.T @ q).round(3)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        sizes, found = as_shape(shape), _dtype(dtype, None)
        if len(sizes) < 2:
            raise ArgumentError(f"orthogonal needs a shape of two or more dimensions, got {sizes}.")
        columns = sizes[column_axis]
        rows = math.prod(size for axis, size in enumerate(sizes) if axis != column_axis % len(sizes))
        matrix = random.orthogonal(key, rows, (), found, m=columns)
        new_shape = (*(s for i, s in enumerate(sizes) if i != column_axis % len(sizes)), columns)
        return wnp.moveaxis(wnp.reshape(matrix, new_shape), -1, column_axis) * np.array(scale, found)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of convolution kernels that are an orthogonal matrix at the centre and 0 elsewhere."""

    @boundary
    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        sizes, found = as_shape(shape), _dtype(dtype, None)
        if len(sizes) not in (3, 4, 5):
            raise ArgumentError(f"delta_orthogonal needs a shape of 3, 4 or 5 dimensions, got {sizes}.")
        if sizes[-1] < sizes[-2]:
            raise ArgumentError(
                f"delta_orthogonal needs at least as many outputs (the last size) as inputs, got shape {sizes}."
            )
        matrix = orthogonal(scale=scale, column_axis=column_axis, dtype=found)(key, sizes[-2:])
        centre = tuple((size - 1) // 2 for size in sizes[:-2])
        return wnp.zeros(sizes, found).at[centre].set(matrix)

    return init


_publish(__name__)
