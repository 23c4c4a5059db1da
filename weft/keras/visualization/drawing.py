"""Boxes and masks drawn on images."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError, ArgumentTypeError, NotSupportedError, ShapeMismatchError
from weft.keras.core.config import standardize_data_format
from weft.keras.utils.bounding_boxes import convert_format

Color = Sequence[int]


def find_wheel(module: str, wheel: str, what: str) -> Any:
    """Import a module of another library, or raise an error that names its wheel."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotSupportedError(
            f"{what} needs {wheel}, which cannot be imported.", fix=f"pip install {wheel}"
        ) from error


def batch_of_images(images: Any, data_format: str | None) -> np.ndarray:
    """Return a batch of images as an array with the channels last."""
    array = np.asarray(images)
    if array.ndim != 4:
        raise ShapeMismatchError("`images` must be a batch of images, of rank 4.", received=f"shape {array.shape}")
    return np.moveaxis(array, 1, -1) if standardize_data_format(data_format) == "channels_first" else array


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Return images as uint8; floats from 0 to 1 are scaled."""
    if images.dtype.kind == "f" and images.size:
        images = np.clip(images, 0, 1) * 255 if images.max() <= 1.0 else np.clip(images, 0, 255)
    return images.astype(np.uint8)


def draw_bounding_boxes(
    images: Any,
    bounding_boxes: Mapping[str, Any],
    bounding_box_format: str,
    class_mapping: Mapping[int, str] | None = None,
    color: Color = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int | None = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> np.ndarray:
    """Draw boxes, and the names of their classes, on images.

    Args:
        images: a batch of images, with values from 0 to 255, or floats from 0 to 1.
        bounding_boxes: a dict with "boxes" (batch, n, 4), "labels" (batch, n), where -1 is no box, and, optionally,
            "confidences" (batch, n).
        bounding_box_format: the format of the boxes (see `keras.utils.bounding_boxes.convert_format`).
        class_mapping: names of classes; boxes of other classes have no text.
        color: red, green and blue, from 0 to 255.
        line_thickness: the thickness of lines in pixels.
        text_thickness: the thickness of letters in pixels; that of lines where None.
        font_scale: the size of letters; 1 is about 12 pixels high.
        data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Returns:
        An array of uint8 of shape (batch, height, width, channels).
    """
    if not isinstance(bounding_boxes, Mapping):
        raise ArgumentTypeError("`bounding_boxes` must be a dict.", received=type(bounding_boxes).__name__)
    if not {"boxes", "labels"} <= set(bounding_boxes):
        raise ArgumentError(
            "`bounding_boxes` must have the keys 'boxes' and 'labels'.", received=repr(sorted(bounding_boxes))
        )
    pictures = as_bytes(batch_of_images(images, data_format)).copy()
    height, width = pictures.shape[1:3]
    boxes = np.asarray(convert_format(bounding_boxes["boxes"], bounding_box_format, "xyxy", height, width))
    labels, confidences = np.asarray(bounding_boxes["labels"]), bounding_boxes.get("confidences")
    for i, picture in enumerate(pictures):
        for j, label in enumerate(labels[i].astype(int)):
            if label == -1:
                continue
            left, top, right, bottom = (int(side) for side in boxes[i, j])
            _draw_frame(picture, (left, top, right, bottom), color, line_thickness)
            if class_mapping and label in class_mapping:
                text = class_mapping[label]
                if confidences is not None:
                    text = f"{text} | {float(np.asarray(confidences)[i, j]):.2f}"
                _draw_text(picture, text, (left, top), color, text_thickness or line_thickness, font_scale)
    return pictures


def _draw_frame(picture: np.ndarray, corners: tuple[int, int, int, int], color: Color, thickness: int) -> None:
    """Set the pixels of a frame whose lines are centred on the sides of a box."""
    left, top, right, bottom = corners
    before, after = (thickness - 1) // 2, thickness // 2 + 1
    span = lambda first, last: slice(max(first - before, 0), max(last + after, 0))
    for rows, columns in (
        (span(top, top), span(left, right)),
        (span(bottom, bottom), span(left, right)),
        (span(top, bottom), span(left, left)),
        (span(top, bottom), span(right, right)),
    ):
        picture[rows, columns] = color[: picture.shape[-1]]


def _draw_text(
    picture: np.ndarray, text: str, corner: tuple[int, int], color: Color, thickness: int, scale: float
) -> None:
    drawing = find_wheel("PIL.ImageDraw", "pillow", "A label of a bounding box")
    image, fonts = (find_wheel(f"PIL.{name}", "pillow", "A label of a bounding box") for name in ("Image", "ImageFont"))
    size = 12 * scale
    x, y = corner
    # Above the box; inside of it where there is no room.
    y = y - int(size) - 4 if y - 8 - 2 * int(size) > 0 else y + thickness + 3
    mask = image.new("L", (picture.shape[1], picture.shape[0]))
    drawing.Draw(mask).text(
        (x + 1, y), text, fill=255, font=fonts.load_default(size), stroke_width=(thickness - 1) // 2
    )
    picture[np.asarray(mask) > 127] = color[: picture.shape[-1]]


def draw_segmentation_masks(
    images: Any,
    segmentation_masks: Any,
    num_classes: int | None = None,
    color_mapping: Mapping[int, Color] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> np.ndarray:
    """Draw masks of classes on images.

    Args:
        images: a batch of images, with values from 0 to 255.
        segmentation_masks: the class of each pixel: integers of shape (batch, height, width, 1).
        num_classes: the count of classes; one more than the largest class by default.
        color_mapping: red, green and blue of each class; different colours by default.
        alpha: how much of the colour there is where masks are blended with images, from 0 to 1.
        blend: whether the images show through; otherwise classes have their colours, in float32.
        ignore_index: the class of pixels that stay as they are.
        data_format: "channels_last" or "channels_first"; that of `keras.config` by default.

    Returns:
        An array of shape (batch, height, width, channels), of uint8 where masks are blended.
    """
    pictures = batch_of_images(images, data_format).astype(np.float32)
    masks = batch_of_images(segmentation_masks, data_format)
    if masks.dtype.kind not in "iu":
        raise ArgumentTypeError("`segmentation_masks` must be integers.", received=f"dtype {masks.dtype}")
    classes = masks[..., 0].astype(int)
    count = int(classes.max()) + 1 if num_classes is None else num_classes
    # These steps modulo 255 give colours that are far apart from each other.
    steps = np.array([2**25 - 1, 2**15 - 1, 2**21 - 1])
    colors = [i * steps % 255 if color_mapping is None else np.asarray(color_mapping[i]) for i in range(count)]
    drawn = pictures.copy()
    for i, color in enumerate(colors):
        if i != ignore_index:
            drawn[classes == i] = color[: drawn.shape[-1]]
    if not blend:
        return drawn
    blended = np.where((classes != ignore_index)[..., None], pictures * (1 - alpha) + drawn * alpha, pictures)
    return np.clip(blended, 0, 255).astype(np.uint8)
