"""Images whose pixels come from other positions."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.seeds import draw_seed
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor
from weft.keras.ops.image.colors import _filter_channels, _gaussian
from weft.keras.ops.image.geometry import spatial_axes
from weft.scipy.ndimage import map_coordinates as _map_coordinates

_FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
_ORDERS = {"nearest": 0, "bilinear": 1}


def _check_fill_mode(fill_mode: str) -> str:
    if fill_mode not in _FILL_MODES:
        raise ArgumentError(f"`fill_mode` must be one of {', '.join(_FILL_MODES)}.", received=f"{fill_mode=}")
    return fill_mode


def _order(interpolation: str) -> int:
    if interpolation not in _ORDERS:
        raise ArgumentError(f"`interpolation` must be one of {', '.join(_ORDERS)}.", received=f"{interpolation=}")
    return _ORDERS[interpolation]


@operation
def map_coordinates(inputs: Any, coordinates: Any, order: int, fill_mode: str = "constant", fill_value: Any = 0) -> Any:
    """Sample an array at coordinates that need not be integers.

    Args:
        inputs: an array.
        coordinates: one array an axis, along the first axis.
        order: 0 takes the nearest element, 1 interpolates between neighbours.
        fill_mode: what is outside: "constant", "nearest" (the edge), "wrap", "mirror" or "reflect".
        fill_value: the constant.

    Returns:
        An array of the shape of the coordinates of one axis.
    """
    inputs, coordinates = tensor(inputs), tensor(coordinates)
    if coordinates.shape[0] != inputs.ndim:
        raise ShapeMismatchError(
            "`coordinates` must have one array for each axis of `inputs`.",
            received=f"inputs {inputs.shape}, coordinates {coordinates.shape}",
        )
    mode = _check_fill_mode(fill_mode)
    if mode == "constant":
        # The constant is a border of one element, so that values near the edge go over to it.
        inside = _map_coordinates(
            wnp.pad(inputs, 1, constant_values=fill_value), list(coordinates + 1), order, "nearest"
        )
        return inside
    return _map_coordinates(inputs, list(coordinates), order, mode, fill_value)


def _sample(images: Any, coordinates: Any, order: int, fill_mode: str, fill_value: Any) -> Any:
    """Sample images (batch, rows, columns, channels) at coordinates (batch, 2, rows, columns)."""

    def of_channel(channel: Any, where: Any) -> Any:
        return map_coordinates(channel, where, order, fill_mode, fill_value)

    of_image = weft.vmap(of_channel, in_axes=(-1, None), out_axes=-1)
    return weft.vmap(of_image)(images, coordinates)


def _as_batch(images: Any, data_format: str | None) -> tuple[Any, Any]:
    """Convert images to a batch of floats with channels last; also return the inverse conversion."""
    images = tensor(images)
    spatial_axes(images, data_format)
    dtype, single = images.dtype, images.ndim == 3
    first = standardize_data_format(data_format) == "channels_first"
    batch = inexact(images[None] if single else images)
    batch = wnp.moveaxis(batch, 1, -1) if first else batch

    def undo(result: Any) -> Any:
        result = wnp.moveaxis(result, -1, 1) if first else result
        return (result[0] if single else result).astype(dtype)

    return batch, undo


def _wide(dtype: Any) -> Any:
    """Return the dtype of coordinates: half precision does not tell the pixels of large images apart."""
    return wnp.promote_types(dtype, "float32")


def _project(parameters: Any, rows: int, columns: int) -> Any:
    """Return the source coordinates of pixels under a projection of eight parameters: (batch, 2, rows, columns)."""
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    a, b, c, d, e, f, g, h = (parameters[:, i, None, None] for i in range(8))
    scale = g * x + h * y + 1
    return wnp.stack([(d * x + e * y + f) / scale, (a * x + b * y + c) / scale], axis=1)


@operation
@document(
    "Images of the same shape and dtype.",
    transform="the parameters a, b, c, d, e, f, g and h: one vector for all images, or one for each.",
)
def affine_transform(
    images: Any,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: Any = 0,
    data_format: str | None = None,
) -> Any:
    """Transform images: pixel (x, y) is that of the inputs at `(a x + b y + c, d x + e y + f) / (g x + h y + 1)`."""
    batch, undo = _as_batch(images, data_format)
    parameters = inexact(transform)
    parameters = parameters.astype(_wide(parameters.dtype))
    if parameters.ndim not in (1, 2) or parameters.shape[-1] != 8:
        raise ShapeMismatchError(
            "`transform` must have eight parameters, or eight for each image.", received=f"shape {parameters.shape}"
        )
    parameters = wnp.broadcast_to(parameters, (batch.shape[0], 8))
    coordinates = _project(parameters, *batch.shape[1:3])
    return undo(_sample(batch, coordinates, _order(interpolation), _check_fill_mode(fill_mode), fill_value))


@operation
def perspective_transform(
    images: Any,
    start_points: Any,
    end_points: Any,
    interpolation: str = "bilinear",
    fill_value: Any = 0,
    data_format: str | None = None,
) -> Any:
    """Change the perspective of images such that four points go to four other points.

    Args:
        images: an image or a batch of images.
        start_points: four points (x, y) of the inputs, for all images or for each.
        end_points: where they are afterwards.
        interpolation: "nearest" or "bilinear".
        fill_value: what is outside.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        Images of the same shape and dtype.
    """
    batch, undo = _as_batch(images, data_format)
    parameters = homography(start_points, end_points, batch.shape[0])
    coordinates = _project(parameters, *batch.shape[1:3])
    return undo(_sample(batch, coordinates, _order(interpolation), "constant", fill_value))


def homography(start_points: Any, end_points: Any, batch: int) -> Any:
    """Return the eight parameters of the projections that map end points to start points, of shape (batch, 8)."""
    points = [inexact(each) for each in (start_points, end_points)]
    dtype = _wide(wnp.promote_types(*(each.dtype for each in points)))
    start, end = (wnp.broadcast_to(each.astype(dtype), (batch, 4, 2)) for each in points)
    x, y, u, v = end[..., 0], end[..., 1], start[..., 0], start[..., 1]
    one, zero = wnp.ones_like(x), wnp.zeros_like(x)
    # u (g x + h y + 1) = a x + b y + c, and the same for v: eight equations.
    first = wnp.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=-1)
    second = wnp.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=-1)
    system = wnp.concatenate([first, second], axis=1)
    return wnp.linalg.solve(system, wnp.concatenate([u, v], axis=1)[..., None])[..., 0]


@operation
def elastic_transform(
    images: Any,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: Any = 0.0,
    seed: Any = None,
    data_format: str | None = None,
) -> Any:
    """Distort images by smooth random displacements.

    Args:
        images: an image or a batch of images.
        alpha: how far away they are.
        sigma: how smoothly they change: a standard deviation in pixels.
        interpolation: "nearest" or "bilinear".
        fill_mode: what is outside: "constant", "nearest" (the edge), "wrap", "mirror" or "reflect".
        fill_value: the constant.
        seed: an integer, a `SeedGenerator`, or None for the global one.
        data_format: "channels_last" or "channels_first"; None is the setting.

    Returns:
        Images of the same shape and dtype.
    """
    size = int(6 * sigma) | 1
    return elastic(images, alpha, sigma, size, interpolation, fill_mode, fill_value, draw_seed(seed), data_format)


def elastic(
    images: Any,
    alpha: Any,
    sigma: Any,
    size: int,
    interpolation: str,
    fill_mode: str,
    fill_value: Any,
    key: Any,
    data_format: str | None,
) -> Any:
    """Compute `elastic_transform` with a window of a fixed size, for which `alpha` and `sigma` may be traced.

    `key` is the data of a key, as `draw_seed` returns it.
    """
    batch, undo = _as_batch(images, data_format)
    count, rows, columns = batch.shape[:3]
    dtype = _wide(batch.dtype)
    noise = weft.random.normal(weft.random.wrap_key_data(key), (2, count, rows, columns), "float32").astype(dtype)
    weights = _gaussian(size, sigma, dtype)
    kernel = wnp.outer(weights, weights)
    smooth = _filter_channels(wnp.moveaxis(noise, 0, -1), kernel, "channels_last") * alpha
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    coordinates = wnp.stack([y + smooth[..., 1], x + smooth[..., 0]], axis=1)
    return undo(_sample(batch, coordinates, _order(interpolation), _check_fill_mode(fill_mode), fill_value))
