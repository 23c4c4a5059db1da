"""Galleries of images, drawn by matplotlib."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.keras.visualization.drawing import (
    Color,
    batch_of_images,
    draw_bounding_boxes,
    draw_segmentation_masks,
    find_wheel,
)


def plot_image_gallery(
    images: Any,
    y_true: Any = None,
    y_pred: Any = None,
    label_map: Mapping[int, str] | None = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: Sequence[float] = (0, 255),
    scale: float = 2,
    path: Any = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: int = 60,
    legend_handles: Any = None,
    data_format: str | None = None,
) -> None:
    """Plot images in rows and columns, with the names of their classes.

    Args:
        images: a batch of images.
        y_true, y_pred: true and predicted classes.
        label_map: the names of classes.
        rows, cols: how many images there are in each direction; about a square by default.
        value_range: the smallest and largest value of a pixel.
        scale: the size of an image in inches.
        path: a file to write, instead of a window.
        show: whether to open a window; by default if there is no path.
        transparent: whether the background of the file is transparent.
        dpi: pixels of the file per inch.
        legend_handles: handles of a legend, as matplotlib takes them.
        data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
    """
    pyplot = find_wheel("matplotlib.pyplot", "matplotlib", "plot_image_gallery")
    if path is not None and show:
        raise ArgumentError("Either `path` or `show=True` must be set, and not both.", received=f"{path=}, {show=}")
    if (y_true is not None or y_pred is not None) and label_map is None:
        raise ArgumentError("`y_true` and `y_pred` need `label_map`, the names of classes.", received="label_map=None")
    pictures = batch_of_images(images, data_format)
    count = len(pictures)
    if rows is None:
        rows = math.ceil(math.sqrt(count)) if cols is None else math.ceil(count / cols)
    cols = math.ceil(count / rows) if cols is None else cols
    low, high = value_range
    pictures = np.clip((pictures.astype(np.float32) - low) / (high - low) * 255, 0, 255).astype(np.uint8)
    size = (cols * scale, rows * scale)
    figure, axes = pyplot.subplots(
        rows, cols, figsize=size, frameon=False, layout="tight", squeeze=False, sharex="row", sharey="col"
    )
    if legend_handles is not None:
        figure.legend(handles=legend_handles, loc="lower center")
    for i, axis in enumerate(axes.ravel()):
        axis.axis("off")
        if i >= count:
            continue
        axis.imshow(pictures[i, ..., 0] if pictures.shape[-1] == 1 else pictures[i], cmap="gray", vmin=0, vmax=255)
        axis.margins(x=0, y=0)
        named = (("Label", y_true), ("Pred", y_pred))
        found = [
            f"{word}: {(label_map or {}).get(int(np.asarray(y)[i]), 'Unknown')}" for word, y in named if y is not None
        ]
        if found:
            axis.set_title("  ".join(found), fontsize=8)
    if path is not None:
        figure.savefig(path, pad_inches=0, bbox_inches="tight", transparent=transparent, dpi=dpi)
        pyplot.close(figure)
    elif show is None or show:
        pyplot.show()
        pyplot.close(figure)


def plot_bounding_box_gallery(
    images: Any,
    bounding_box_format: str,
    y_true: Mapping[str, Any] | None = None,
    y_pred: Mapping[str, Any] | None = None,
    value_range: Sequence[float] = (0, 255),
    true_color: Color = (0, 188, 212),
    pred_color: Color = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: Mapping[int, str] | None = None,
    ground_truth_mapping: Mapping[int, str] | None = None,
    prediction_mapping: Mapping[int, str] | None = None,
    legend: bool = False,
    legend_handles: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Plot images with true and predicted bounding boxes.

    Args:
        images: a batch of images.
        bounding_box_format: the format of the boxes.
        y_true, y_pred: dicts with "boxes" and "labels" (see `draw_bounding_boxes`).
        value_range: the smallest and largest value of a pixel.
        true_color, pred_color: colours of the boxes.
        line_thickness, font_scale, text_thickness: as in `draw_bounding_boxes`.
        class_mapping: names of classes.
        ground_truth_mapping, prediction_mapping: names of the true and of the predicted classes, if they differ.
        legend: whether there is a legend of the colours.
        legend_handles: handles of a legend of your own.
        rows, cols: how many images there are in each direction.
        data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
        **kwargs: further arguments of `plot_image_gallery`.
    """
    if legend and legend_handles is not None:
        raise ArgumentError("Either `legend` or `legend_handles` must be set, and not both.", received="both")
    pictures = batch_of_images(images, data_format)
    low, high = value_range
    pictures = np.clip((pictures.astype(np.float32) - low) / (high - low) * 255, 0, 255).astype(np.uint8)
    draw = functools.partial(
        draw_bounding_boxes,
        bounding_box_format=bounding_box_format,
        line_thickness=line_thickness,
        text_thickness=text_thickness,
        font_scale=font_scale,
        data_format="channels_last",
    )
    for boxes, color, names in (
        (y_true, true_color, ground_truth_mapping or class_mapping),
        (y_pred, pred_color, prediction_mapping or class_mapping),
    ):
        if boxes is not None:
            pictures = draw(pictures, boxes, color=color, class_mapping=names)
    if legend:
        patch = find_wheel("matplotlib.patches", "matplotlib", "plot_bounding_box_gallery").Patch
        pairs = ((true_color, "Ground Truth"), (pred_color, "Prediction"))
        legend_handles = [patch(color=np.asarray(color) / 255.0, label=label) for color, label in pairs]
    options: dict[str, Any] = {"rows": rows, "cols": cols, "data_format": "channels_last", **kwargs}
    plot_image_gallery(pictures, legend_handles=legend_handles, **options)


def plot_segmentation_mask_gallery(
    images: Any,
    num_classes: int,
    value_range: Sequence[float] = (0, 255),
    y_true: Any = None,
    y_pred: Any = None,
    color_mapping: Mapping[int, Color] | None = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Plot images, and beside each the true and the predicted masks drawn on it.

    Args:
        images: a batch of images.
        num_classes: the count of classes.
        value_range: the smallest and largest value of a pixel.
        y_true, y_pred: masks: the class of each pixel, of shape (batch, height, width, 1).
        color_mapping, blend, alpha, ignore_index: as in `draw_segmentation_masks`.
        data_format: "channels_last" or "channels_first"; that of `keras.config` by default.
        **kwargs: further arguments of `plot_image_gallery`.
    """
    pictures = batch_of_images(images, data_format)
    low, high = value_range
    pictures = np.clip((pictures.astype(np.float32) - low) / (high - low) * 255, 0, 255)
    columns = [pictures]
    for masks in (y_true, y_pred):
        if masks is not None:
            classes = batch_of_images(masks, data_format).astype(np.int32)
            columns.append(
                draw_segmentation_masks(
                    pictures, classes, num_classes, color_mapping, alpha, blend, ignore_index, "channels_last"
                ).astype(np.float32)
            )
    gallery = np.stack(columns, axis=1).reshape(-1, *pictures.shape[1:])
    options: dict[str, Any] = {"rows": len(pictures), "cols": len(columns), "data_format": "channels_last", **kwargs}
    plot_image_gallery(gallery, **options)
