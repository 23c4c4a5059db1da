"""Other shapes of the same elements: reshaping, joining, splitting, repeating, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.graph.operation import symbolic_call
from weft.keras.graph.shapes import compute_output_spec
from weft.keras.graph.tensor import KerasTensor
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operand, operation, symbolic_as, tensor


@operation
@document("An array.", axis="the axis along which they are concatenated; None reads both as vectors.")
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """Append one array to another."""
    return wnp.append(tensor(x1), tensor(x2), axis)


def _broadcast_to_spec(x: Any, shape: Any) -> Any:
    """Return the symbolic result, in which unknown sizes are assumed to broadcast."""
    if not isinstance(x, KerasTensor) or None not in x.shape or len(x.shape) > len(shape):
        return None
    target = shape[len(shape) - len(x.shape) :]
    filled = [wanted if size is None else size for size, wanted in zip(x.shape, target, strict=True)]
    return compute_output_spec(lambda x: wnp.broadcast_to(x, shape), KerasTensor(filled, x.dtype))


@operation
@symbolic_as(_broadcast_to_spec)
def broadcast_to(x: Any, shape: Any) -> Any:
    """Broadcast an array to a shape.

    Args:
        x: an array.
        shape: the sizes that it has afterwards.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.broadcast_to([1, 2], (2, 2)))
        [[1 2]
         [1 2]]
    """
    return wnp.broadcast_to(tensor(x), shape)


@operation
@document(
    "An array of their common dtype.",
    "print(keras.ops.concatenate([[1, 2], [3]])) -> [1 2 3]",
    xs="a list of arrays whose other axes have the same sizes.",
    axis="the axis.",
)
def concatenate(xs: Any, axis: int = 0) -> Any:
    """Concatenate arrays along an axis."""
    return wnp.concatenate([tensor(x) for x in xs], axis)


@operation
@document("An array of rank 3 or more.", xs="a list of arrays; vectors and matrices get axes of size 1 first.")
def dstack(xs: Any) -> Any:
    """Concatenate arrays along their third axis."""
    return wnp.dstack([tensor(x) for x in xs])


@operation
@document("An array.", xs="a list of arrays.")
def hstack(xs: Any) -> Any:
    """Concatenate arrays along their second axis, vectors along their only one."""
    return wnp.hstack([tensor(x) for x in xs])


@operation
@document("An array of rank 2 or more.", xs="a list of arrays.")
def vstack(xs: Any) -> Any:
    """Concatenate arrays along their first axis; vectors become rows."""
    return wnp.vstack([tensor(x) for x in xs])


@operation
def stack(x: Any, axis: int = 0) -> Any:
    """Stack arrays of one shape along a new axis.

    Args:
        x: a list of arrays.
        axis: where the new axis is.

    Returns:
        An array of their common dtype.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.stack([[1, 2], [3, 4]], axis=1))
        [[1 3]
         [2 4]]
    """
    return wnp.stack([tensor(part) for part in x], axis)


@operation
@document("A list of arrays.", indices_or_sections="how many parts, or the indices to cut at.", axis="the axis to cut.")
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split an array into parts that need not have equal sizes."""
    return wnp.array_split(tensor(x), indices_or_sections, axis)


@operation
@document(
    "A list of arrays.",
    "[part.tolist() for part in keras.ops.split([1, 2, 3, 4], 2)] -> [[1, 2], [3, 4]]",
    axis="the axis to cut.",
)
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split an array into parts."""
    return wnp.split(tensor(x), indices_or_sections, axis)


@operation
@document("A list of arrays.")
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """Split an array of rank 3 or more along its third axis."""
    return wnp.dsplit(tensor(x), indices_or_sections)


@operation
@document("A list of arrays.")
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """Split an array along its second axis, a vector along its only one."""
    return wnp.hsplit(tensor(x), indices_or_sections)


@operation
@document("A list of arrays.", x="an array of rank 2 or more.")
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """Split an array along its first axis."""
    return wnp.vsplit(tensor(x), indices_or_sections)


@operation
@document(
    "An array.",
    "keras.ops.expand_dims([1, 2], -1).shape -> (2, 1)",
    axis="where the new axis is in the result; a tuple for several.",
)
def expand_dims(x: Any, axis: Any) -> Any:
    """Insert new axes of size 1."""
    return wnp.expand_dims(tensor(x), tuple(axis) if isinstance(axis, list) else axis)


@operation
@document(
    "An array.", "keras.ops.squeeze([[1, 2]]).shape -> (2,)", axis="the axis or axes to drop; all of size 1 if None."
)
def squeeze(x: Any, axis: Any = None) -> Any:
    """Remove axes of size 1."""
    return wnp.squeeze(tensor(x), tuple(axis) if isinstance(axis, list) else axis)


def _reshape_spec(x: Any, newshape: Any) -> Any:
    """Return the symbolic result: if no size is -1, all sizes are known and an unknown size of `x` must fit."""
    sizes = [newshape] if isinstance(newshape, int) else newshape
    if isinstance(newshape, KerasTensor):
        sizes = [newshape] * (newshape.shape[0] or 0)  # as many unknown sizes
    if isinstance(sizes, (list, tuple)) and any(isinstance(size, KerasTensor) for size in sizes):
        x = x if isinstance(x, KerasTensor) else tensor(x)
        return KerasTensor([size if isinstance(size, int) and size >= 0 else None for size in sizes], str(x.dtype))
    if not isinstance(x, KerasTensor) or None not in x.shape or not isinstance(sizes, (list, tuple)):
        return None
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return None
    known = math.prod(size for size in x.shape if size is not None)
    return KerasTensor(sizes, x.dtype) if known and math.prod(sizes) % known == 0 else None


@operation
@symbolic_as(_reshape_spec)
@document(
    "An array.",
    "keras.ops.reshape([1, 2, 3, 4], (2, -1)).shape -> (2, 2)",
    newshape="the sizes, one of which may be -1: it follows from the others.",
)
def reshape(x: Any, newshape: Any) -> Any:
    """Reshape an array."""
    if isinstance(newshape, (tuple, list)) and list(newshape).count(None) == 1 and -1 not in newshape:
        newshape = [-1 if size is None else size for size in newshape]  # from `ops.shape` of an unknown batch
    return wnp.reshape(tensor(x), newshape)


@operation
@document("A vector.")
def ravel(x: Any) -> Any:
    """Flatten an array to a vector."""
    return wnp.ravel(tensor(x))


@operation
def transpose(x: Any, axes: Any = None) -> Any:
    """Permute the axes of an array.

    Args:
        x: an array.
        axes: the order; reversed by default.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.transpose([[1, 2], [3, 4]]))
        [[1 3]
         [2 4]]
    """
    return wnp.transpose(tensor(x), axes)


@operation
@document(
    "An array.",
    "keras.ops.moveaxis(keras.ops.ones((1, 2, 3)), 0, -1).shape -> (2, 3, 1)",
    source="the axis or axes.",
    destination="where they are in the result.",
)
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Move axes of an array to other positions; the rest keep their order."""
    return wnp.moveaxis(tensor(x), source, destination)


@operation
@document("An array.", axis1="an axis.", axis2="the other.")
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Exchange two axes of an array."""
    return wnp.swapaxes(tensor(x), axis1, axis2)


@operation
@document(
    "An array of the same shape.",
    "print(keras.ops.flip([1, 2, 3])) -> [3 2 1]",
    axis="the axis or axes; all of them if None.",
)
def flip(x: Any, axis: Any = None) -> Any:
    """Reverse the elements of an array along axes."""
    return wnp.flip(tensor(x), tuple(axis) if isinstance(axis, list) else axis)


@operation
@document("An array of the same shape.", x="an array of rank 2 or more.")
def fliplr(x: Any) -> Any:
    """Reverse an array along its second axis."""
    return wnp.fliplr(tensor(x))


@operation
@document("An array of the same shape.", x="an array of rank 1 or more.")
def flipud(x: Any) -> Any:
    """Reverse an array along its first axis."""
    return wnp.flipud(tensor(x))


@operation
@document(
    "An array of the same shape.",
    "print(keras.ops.roll([1, 2, 3], 1)) -> [3 1 2]",
    shift="by how many, an integer or one for each axis.",
    axis="the axis or axes; None shifts the array read as a vector.",
)
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Shift elements along axes; those that leave at the end enter at the start."""
    return wnp.roll(tensor(x), shift, axis)


@operation
def rot90(array: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotate an array by quarter turns in the plane of two axes.

    Args:
        array: an array of rank 2 or more.
        k: how many quarters, from the first axis towards the second.
        axes: the plane.

    Returns:
        An array.
    """
    array = tensor(array)
    if array.ndim < 2:
        raise ArgumentError("The argument of rot90 must have rank 2 or more.", received=f"shape {array.shape}")
    return wnp.rot90(array, k, (axes[0], axes[1]))


def _repeat_spec(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Return the symbolic result: with a number for each element, an unknown size stays unknown."""
    if not isinstance(x, KerasTensor) or isinstance(repeats, int) or axis is None or x.shape[axis] is not None:
        return None
    return KerasTensor(x.shape, x.dtype)


@operation
@symbolic_as(_repeat_spec)
@document(
    "An array.",
    "print(keras.ops.repeat([1, 2], 2)) -> [1 1 2 2]",
    repeats="how many times, an integer or one for each element along `axis`.",
    axis="the axis; None reads the array as a vector.",
)
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element several times."""
    # A list is not traced: the size of the result follows from it.
    repeats = np.asarray(repeats) if isinstance(repeats, (list, tuple)) else operand(repeats)
    return wnp.repeat(tensor(x), repeats, axis)


@operation
@document("An array.", "print(keras.ops.tile([1, 2], 2)) -> [1 2 1 2]", repeats="how many times along each axis.")
def tile(x: Any, repeats: Any) -> Any:
    """Repeat an array along each axis."""
    return wnp.tile(tensor(x), repeats)


@operation
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """Pad an array at its borders.

    Args:
        x: an array.
        pad_width: how many before and after each axis: `((before, after), ...)`, one pair for all, or one integer.
        mode: "constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median", "minimum"
            or "empty".
        constant_values: what is added in mode "constant", 0 by default.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.pad([1, 2], (1, 2)))
        [0 1 2 0 0]
    """
    if constant_values is None:
        return wnp.pad(tensor(x), pad_width, mode)
    if mode != "constant":
        raise ArgumentError(
            "`constant_values` is for mode 'constant' only.",
            received=f"mode={mode!r}, constant_values={constant_values!r}",
        )
    return wnp.pad(tensor(x), pad_width, mode, constant_values=constant_values)


@operation
@document("A vector, or a matrix.", x="a matrix, or a vector.")
def diag(x: Any, k: int = 0) -> Any:
    """Return the diagonal of a matrix, or a matrix with the given diagonal."""
    return wnp.diag(tensor(x), k)


@operation
@document("A matrix.", x="an array, read as a vector.")
def diagflat(x: Any, k: int = 0) -> Any:
    """Create a matrix with the elements of an array on a diagonal."""
    return wnp.diagflat(tensor(x), k)


@operation
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the diagonals in the planes of two axes.

    Args:
        x: an array of rank 2 or more.
        offset: which diagonal: 0 is the main one, positive ones are above it.
        axis1: the first axis of the planes.
        axis2: the second.

    Returns:
        An array whose last axis runs along the diagonal.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.diagonal([[1, 2], [3, 4]]))
        [1 4]
    """
    return wnp.diagonal(tensor(x), offset, axis1, axis2)


@operation
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Sum along the diagonals in the planes of two axes.

    Args:
        x: an array of rank 2 or more.
        offset: which diagonal: 0 is the main one, positive ones are above it.
        axis1: the first axis of the planes.
        axis2: the second.

    Returns:
        An array without these axes.
    """
    return wnp.trace(tensor(x), offset, axis1, axis2)


@operation
def tril(x: Any, k: int = 0) -> Any:
    """Replace the elements above a diagonal with zeros.

    Args:
        x: an array whose last two axes are matrices.
        k: which diagonal: 0 is the main one, positive ones are above it.

    Returns:
        An array of the same shape.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.tril([[1, 2], [3, 4]]))
        [[1 0]
         [3 4]]
    """
    return wnp.tril(tensor(x), k)


@operation
def triu(x: Any, k: int = 0) -> Any:
    """Replace the elements below a diagonal with zeros.

    Args:
        x: an array whose last two axes are matrices.
        k: which diagonal: 0 is the main one, positive ones are above it.

    Returns:
        An array of the same shape.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.triu([[1, 2], [3, 4]]))
        [[1 2]
         [0 4]]
    """
    return wnp.triu(tensor(x), k)


@document("An integer.", "keras.ops.ndim([[1, 2]]) -> 2")
def ndim(x: Any) -> int:
    """Return the rank of an array."""
    return len(x.shape) if hasattr(x, "shape") else tensor(x).ndim


def _size_spec(x: Any) -> Any:
    return KerasTensor((), "int32")


@symbolic_as(_size_spec)
@document("An integer.", "keras.ops.size([[1, 2]]) -> 2")
def size(x: Any) -> Any:
    """Return the number of elements of an array; for a symbolic tensor with unknown sizes, a symbolic integer."""
    if isinstance(x, KerasTensor) and None in x.shape:
        return symbolic_call(size, x)
    return math.prod(x.shape if hasattr(x, "shape") else tensor(x).shape)
