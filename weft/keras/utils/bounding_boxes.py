"""Bounding boxes: formats, clipping, affine maps, overlap, and the deltas that detectors predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError, NotSupportedError, ShapeMismatchError, publish
from weft.keras.core.config import epsilon
from weft.keras.numerics.boxes import map_corners

FORMATS = (
    "xyxy",
    "yxyx",
    "xywh",
    "center_xywh",
    "center_yxhw",
    "rel_xyxy",
    "rel_yxyx",
    "rel_xywh",
    "rel_center_xywh",
)
_DELTA_FORMATS = ("center_xywh", "center_yxhw")


def _split(boxes: Any) -> list[Any]:
    """Return the four numbers of boxes, each with a last axis of size 1."""
    return [boxes[..., i : i + 1] for i in range(4)]


def _corners(boxes: Any, name: str) -> Any:
    """Convert boxes of a format without `rel_` to (left, top, right, bottom)."""
    a, b, c, d = _split(boxes)
    if name == "yxyx":
        a, b, c, d = b, a, d, c
    elif name == "xywh":
        c, d = a + c, b + d
    elif name.startswith("center"):
        if name == "center_yxhw":
            a, b, c, d = b, a, d, c
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return wnp.concatenate([a, b, c, d], axis=-1)


def _from_corners(boxes: Any, name: str) -> Any:
    """Convert (left, top, right, bottom) to a format without `rel_`."""
    a, b, c, d = _split(boxes)
    if name == "yxyx":
        a, b, c, d = b, a, d, c
    elif name == "xywh":
        c, d = c - a, d - b
    elif name.startswith("center"):
        a, b, c, d = a + (c - a) / 2, b + (d - b) / 2, c - a, d - b
        if name == "center_yxhw":
            a, b, c, d = b, a, d, c
    return wnp.concatenate([a, b, c, d], axis=-1)


def _check_format(name: str, argument: str) -> str:
    lower = name.lower() if isinstance(name, str) else name
    if lower not in FORMATS:
        raise ArgumentError(f"`{argument}` must be one of {', '.join(FORMATS)}.", received=f"{argument}={name!r}")
    return lower


def convert_format(
    boxes: Any, source: str, target: str, height: Any = None, width: Any = None, dtype: Any = "float32"
) -> Any:
    """Convert boxes from one format to another.

    Formats are "xyxy" (left, top, right, bottom), "yxyx", "xywh" (left, top, width, height), "center_xywh" and
    "center_yxhw" in pixels, and "rel_xyxy", "rel_yxyx", "rel_xywh" and "rel_center_xywh" in parts of the image's size.

    Args:
        boxes: an array of shape (..., 4), or a dict whose "boxes" is one; the dict is not changed.
        source: the format of the boxes.
        target: the format of the result.
        height, width: the size of the image, needed between pixels and parts of the size.
        dtype: the dtype of the result.

    Returns:
        An array of the same shape, or a new dict.

    Example:
        >>> from weft.keras.utils import bounding_boxes
        >>> bounding_boxes.convert_format([[10, 20, 30, 60]], "xyxy", "center_xywh")
        Array([[20., 40., 20., 40.]], dtype=float32)
    """
    if isinstance(boxes, dict):
        return {**boxes, "boxes": convert_format(boxes["boxes"], source, target, height, width, dtype)}
    source, target = _check_format(source, "source"), _check_format(target, "target")
    boxes = wnp.asarray(boxes).astype(dtype)
    if boxes.ndim == 0 or boxes.shape[-1] != 4:
        raise ShapeMismatchError("`boxes` must have a last dimension of 4.", received=f"boxes of shape {boxes.shape}")
    if source == target:
        return boxes
    from_parts, to_parts = source.startswith("rel_"), target.startswith("rel_")
    if from_parts != to_parts and (height is None or width is None):
        raise ArgumentError(
            "A conversion between relative and absolute formats needs `height` and `width` of the image.",
            received=f"{source=}, {target=}, {height=}, {width=}",
        )
    corners = _corners(boxes, source.removeprefix("rel_"))
    if from_parts != to_parts:
        high, wide = (wnp.asarray(size).astype(dtype) for size in (height, width))
        scaled = (lambda part, size: part * size) if from_parts else (lambda part, size: part / size)
        parts = zip(_split(corners), (wide, high, wide, high), strict=True)
        corners = wnp.concatenate([scaled(part, size) for part, size in parts], axis=-1)
    return _from_corners(corners, target.removeprefix("rel_"))


def _area(boxes: Any) -> Any:
    """Return the areas of boxes given by corners."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _only_corners(bounding_box_format: str, *others: str) -> None:
    if bounding_box_format not in ("xyxy", *others):
        raise NotSupportedError(
            f"`bounding_box_format` must be {' or '.join(map(repr, ('xyxy', *others)))}.",
            received=f"{bounding_box_format=}",
            fix='convert with `convert_format(boxes, source, "xyxy", height, width)`',
        )


def _clip(boxes: Any, height: Any, width: Any) -> Any:
    """Clip corners to (0, 0) and (width, height)."""
    sizes = (wnp.asarray(size).astype(boxes.dtype) for size in (width, height, width, height))
    parts = zip(_split(boxes), sizes, strict=True)
    return wnp.concatenate([wnp.clip(part, 0, size) for part, size in parts], axis=-1)


def clip_to_image_size(
    bounding_boxes: dict[str, Any], height: Any = None, width: Any = None, bounding_box_format: str = "xyxy"
) -> dict[str, Any]:
    """Clip boxes to the image; the label of a box outside of the image becomes -1.

    Args:
        bounding_boxes: a dict with "boxes" and, optionally, "labels".
        height, width: the size of the image, needed for "xyxy".
        bounding_box_format: "xyxy" or "rel_xyxy".

    Returns:
        A new dict.
    """
    _only_corners(bounding_box_format, "rel_xyxy")
    if bounding_box_format == "xyxy" and (height is None or width is None):
        raise ArgumentError("Clipping boxes in pixels needs `height` and `width`.", received=f"{height=}, {width=}")
    boxes = wnp.asarray(bounding_boxes["boxes"])
    boxes = _clip(boxes, 1, 1) if bounding_box_format == "rel_xyxy" else _clip(boxes, height, width)
    result = {**bounding_boxes, "boxes": boxes}
    if bounding_boxes.get("labels") is not None:
        result["labels"] = wnp.where(_area(boxes) > 0, bounding_boxes["labels"], -1)
    return result


def affine_transform(
    boxes: Any,
    angle: Any,
    translate_x: Any,
    translate_y: Any,
    scale: Any,
    shear_x: Any,
    shear_y: Any,
    height: int,
    width: int,
    center_x: float | None = None,
    center_y: float | None = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Rotate, shift, scale and shear boxes, and return the smallest boxes around the results.

    Args:
        boxes: an array of shape (batch, n, 4).
        angle: angles in degrees, of shape (batch,).
        translate_x, translate_y: shifts as parts of the width and the height, of shape (batch,).
        scale: factors of the size, of shape (batch,).
        shear_x, shear_y: angles in degrees, of shape (batch,).
        height, width: the size of the image.
        center_x, center_y: the fixed point as parts of the size; the middle by default.
        bounding_box_format: "xyxy".

    Returns:
        An array of shape (batch, n, 4).
    """
    _only_corners(bounding_box_format)
    angle = wnp.asarray(angle)
    radians = lambda degrees: -wnp.asarray(degrees) * (math.pi / 180.0)
    rotation, along_x, along_y = radians(angle), radians(shear_x), radians(shear_y)
    cx = (0.5 if center_x is None else center_x) * (width - 1)
    cy = (0.5 if center_y is None else center_y) * (height - 1)
    from_x = cx - wnp.asarray(translate_x) * (width - 1)
    from_y = cy - wnp.asarray(translate_y) * (height - 1)
    a = wnp.cos(rotation - along_y) / wnp.cos(along_y)
    b = a * wnp.tan(along_x) + wnp.sin(rotation)
    c = -wnp.sin(rotation - along_y) / wnp.cos(along_y)
    d = wnp.cos(rotation) - c * wnp.tan(along_x)
    a0, a1, b0, b1 = d * scale, -b * scale, -c * scale, a * scale
    zero, one = wnp.zeros_like(a0), wnp.ones_like(a0)
    rows = [a0, a1, cx - a0 * from_x - a1 * from_y, b0, b1, cy - b0 * from_x - b1 * from_y, zero, zero, one]
    matrices = wnp.reshape(wnp.stack(rows, axis=-1), (-1, 3, 3))
    return map_corners(wnp.asarray(boxes).astype(matrices.dtype), matrices)


def crop(boxes: Any, top: Any, left: Any, height: Any, width: Any, bounding_box_format: str = "xyxy") -> Any:
    """Express boxes in the coordinates of a part of the image, and clip them to it.

    Args:
        boxes: an array of shape (..., 4).
        top, left: where the part begins, in pixels.
        height, width: the size of the part.
        bounding_box_format: "xyxy".

    Returns:
        An array of the same shape.
    """
    return _clip(pad(boxes, -wnp.asarray(top), -wnp.asarray(left), None, None, bounding_box_format), height, width)


def pad(
    boxes: Any, top: Any, left: Any, height: Any = None, width: Any = None, bounding_box_format: str = "xyxy"
) -> Any:
    """Express boxes in the coordinates of an image that was padded.

    Args:
        boxes: an array of shape (..., 4).
        top, left: the padding, in pixels.
        height, width: accepted and not used.
        bounding_box_format: "xyxy".

    Returns:
        An array of the same shape.
    """
    _only_corners(bounding_box_format)
    x1, y1, x2, y2 = _split(wnp.asarray(boxes))
    return wnp.concatenate([x1 + left, y1 + top, x2 + left, y2 + top], axis=-1)


def _size(image_shape: Sequence[int] | None) -> tuple[Any, Any]:
    return (None, None) if image_shape is None else (image_shape[0], image_shape[1])


def compute_iou(
    boxes1: Any,
    boxes2: Any,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: float = -1,
    image_shape: Sequence[int] | None = None,
) -> Any:
    """Compute the intersection over union of all pairs of boxes.

    Args:
        boxes1: an array of shape (n, 4) or (batch, n, 4).
        boxes2: an array of shape (m, 4) or (batch, m, 4).
        bounding_box_format: the format of both (see `convert_format`).
        use_masking: whether pairs with a box whose numbers are all below 0 have the value `mask_val`.
        mask_val: that value.
        image_shape: (height, width, channels), needed for relative formats.

    Returns:
        An array of shape (n, m) or (batch, n, m).

    Example:
        >>> from weft.keras.utils import bounding_boxes
        >>> bounding_boxes.compute_iou([[0, 0, 2, 2]], [[0, 0, 2, 1], [2, 2, 3, 3]], "xyxy")
        Array([[0.5, 0. ]], dtype=float32)
    """
    height, width = _size(image_shape)
    both = []
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        boxes = convert_format(boxes, bounding_box_format, "xyxy", height, width)
        if boxes.ndim not in (2, 3):
            raise ShapeMismatchError(
                f"`{name}` must have shape (boxes, 4) or (batch, boxes, 4).", received=f"shape {boxes.shape}"
            )
        both.append(boxes)
    first, second = both[0][..., :, None, :], both[1][..., None, :, :]
    corners = [wnp.maximum(first[..., :2], second[..., :2]), wnp.minimum(first[..., 2:], second[..., 2:])]
    sides = wnp.maximum(corners[1] - corners[0], 0)
    shared = sides[..., 0] * sides[..., 1]
    result = shared / (_area(first) + _area(second) - shared + epsilon())
    if not use_masking:
        return result
    masked = (wnp.max(first, axis=-1) < 0) | (wnp.max(second, axis=-1) < 0)
    return wnp.where(masked, mask_val, result)


def compute_ciou(boxes1: Any, boxes2: Any, bounding_box_format: str, image_shape: Sequence[int] | None = None) -> Any:
    """Compute the complete intersection over union of boxes, pair by pair: the overlap, less the distance of the
    centers and the difference of the ratios of sides (Zheng et al. 2020).

    Args:
        boxes1, boxes2: arrays of shape (..., 4) that broadcast.
        bounding_box_format: the format of both (see `convert_format`).
        image_shape: (height, width, channels), needed for relative formats.

    Returns:
        An array of the shape of the boxes without the last axis.
    """
    first, second = (
        convert_format(boxes, bounding_box_format, "xyxy", *_size(image_shape)) for boxes in (boxes1, boxes2)
    )
    tiny = epsilon()
    low, high = wnp.maximum(first[..., :2], second[..., :2]), wnp.minimum(first[..., 2:], second[..., 2:])
    outer = wnp.maximum(first[..., 2:], second[..., 2:]) - wnp.minimum(first[..., :2], second[..., :2])
    sides = wnp.maximum(high - low, 0)
    shared = sides[..., 0] * sides[..., 1]
    widths = [boxes[..., 2] - boxes[..., 0] for boxes in (first, second)]
    heights = [boxes[..., 3] - boxes[..., 1] + tiny for boxes in (first, second)]
    iou = shared / (widths[0] * heights[0] + widths[1] * heights[1] - shared + 2 * tiny)
    apart = (first[..., :2] + first[..., 2:] - second[..., :2] - second[..., 2:]) / 2
    distance = wnp.sum(apart**2, axis=-1) / (wnp.sum(outer**2, axis=-1) + tiny)
    angles = [wnp.arctan(wide / high) for wide, high in zip(widths, heights, strict=True)]
    ratio = (4 / math.pi**2) * (angles[1] - angles[0]) ** 2
    return iou - (distance + ratio * ratio / (ratio - iou + 1 + tiny))


def _check_encoding(name: str, argument: str, variance: Any) -> Any:
    if name not in _DELTA_FORMATS:
        raise ArgumentError(
            f"`{argument}` must be one of {', '.join(_DELTA_FORMATS)}.", received=f"{argument}={name!r}"
        )
    if variance is None:
        return 1.0
    variance = wnp.asarray(variance).astype("float32")
    if variance.ndim == 0 or variance.shape[-1] != 4:
        raise ShapeMismatchError("`variance` must have four elements.", received=f"{variance=}")
    return variance


def encode_box_to_deltas(
    anchors: Any,
    boxes: Any,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Sequence[int] | None = None,
) -> Any:
    """Compute what a detector predicts for anchors: shifts of centers in units of the size, logarithms of ratios of
    sizes.

    Args:
        anchors: an array of shape (n, 4).
        boxes: an array of shape (n, 4) or (batch, n, 4).
        anchor_format, box_format: their formats (see `convert_format`).
        encoding_format: the order of the deltas, "center_yxhw" or "center_xywh".
        variance: four numbers that the deltas are divided by.
        image_shape: (height, width, channels), needed for relative formats.

    Returns:
        An array of the shape of the boxes.
    """
    variance = _check_encoding(encoding_format, "encoding_format", variance)
    anchors = convert_format(anchors, anchor_format, encoding_format, *_size(image_shape))
    boxes = convert_format(boxes, box_format, encoding_format, *_size(image_shape))
    anchor_size, size = (wnp.maximum(each[..., 2:], epsilon()) for each in (anchors, boxes))
    shifts, ratios = wnp.broadcast_arrays(
        (boxes[..., :2] - anchors[..., :2]) / anchor_size, wnp.log(size / anchor_size)
    )
    return wnp.concatenate([shifts, ratios], axis=-1) / variance


def decode_deltas_to_boxes(
    anchors: Any,
    boxes_delta: Any,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Sequence[int] | None = None,
) -> Any:
    """Compute boxes from what a detector predicts for anchors: the inverse of `encode_box_to_deltas`.

    Args:
        anchors: an array of shape (n, 4), or a dict of them.
        boxes_delta: the deltas, of shape (n, 4) or (batch, n, 4), or a dict of them with the same keys.
        anchor_format, box_format: the formats of the anchors and of the result (see `convert_format`).
        encoded_format: the order of the deltas, "center_yxhw" or "center_xywh".
        variance: four numbers that the deltas are multiplied by.
        image_shape: (height, width, channels), needed for relative formats.

    Returns:
        Boxes of the shape of the deltas, or a dict of them.
    """
    variance = _check_encoding(encoded_format, "encoded_format", variance)

    def decode(anchors: Any, deltas: Any) -> Any:
        anchors = convert_format(anchors, anchor_format, encoded_format, *_size(image_shape))
        deltas = wnp.asarray(deltas) * variance
        center, size = (
            deltas[..., :2] * anchors[..., 2:] + anchors[..., :2],
            wnp.exp(deltas[..., 2:]) * anchors[..., 2:],
        )
        boxes = wnp.concatenate([center, size], axis=-1)
        return convert_format(boxes, encoded_format, box_format, *_size(image_shape))

    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        return {level: decode(each, boxes_delta[level]) for level, each in anchors.items()}
    return decode(anchors, boxes_delta)


publish(__name__)
