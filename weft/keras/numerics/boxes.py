"""Bounding boxes as arrays: checks, and boxes around mapped boxes."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError


def map_corners(boxes: Any, matrices: Any) -> Any:
    """Map the four corners of boxes and return the smallest boxes around them.

    Args:
        boxes: corners, of shape (batch or 1, n, 4).
        matrices: matrices of points (x, y, 1), of shape (batch, 3, 3); a projection divides by the third coordinate.

    Returns:
        Boxes of shape (batch, n, 4).
    """
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    points = wnp.stack(
        [wnp.stack([x, y, wnp.ones_like(x)], axis=-1) for x, y in ((x1, y1), (x2, y1), (x2, y2), (x1, y2))], axis=-2
    )
    mapped = points @ wnp.swapaxes(matrices, -1, -2)[:, None]
    mapped = mapped[..., :2] / mapped[..., 2:]
    return wnp.concatenate([wnp.min(mapped, axis=-2), wnp.max(mapped, axis=-2)], axis=-1)


def densify(bounding_boxes: Any) -> dict[str, Any]:
    """Return boxes and labels as arrays; lists of different lengths are filled up with boxes of 0 and labels of -1.

    Args:
        bounding_boxes: a dict with "boxes" (n, 4) or (batch, n, 4) and "labels" (n,) or (batch, n): arrays or lists.

    Returns:
        A new dict with the same keys.
    """
    if not isinstance(bounding_boxes, dict) or not {"boxes", "labels"} <= set(bounding_boxes):
        raise ArgumentError(
            "`bounding_boxes` must be a dict with the keys 'boxes' and 'labels'.",
            received=repr(
                sorted(bounding_boxes) if isinstance(bounding_boxes, dict) else type(bounding_boxes).__name__
            ),
        )
    boxes, labels = bounding_boxes["boxes"], bounding_boxes["labels"]
    if isinstance(boxes, (list, tuple)):
        if not isinstance(labels, (list, tuple)) or len(boxes) != len(labels):
            length = len(labels) if isinstance(labels, (list, tuple)) else type(labels).__name__
            raise ArgumentError(
                "`bounding_boxes['labels']` must be a list as long as `bounding_boxes['boxes']`.",
                received=f"{len(boxes)} boxes, labels: {length}",
            )
        if boxes and isinstance(labels[0], (list, tuple)):
            longest = max(len(each) for each in labels)
            boxes = [[*each, *[[0, 0, 0, 0]] * (longest - len(each))] for each in boxes]
            labels = [[*each, *[-1] * (longest - len(each))] for each in labels]
        labels = wnp.asarray(labels, "int32")
    boxes = wnp.asarray(boxes).astype("float32")
    labels = wnp.asarray(labels)
    if boxes.ndim not in (2, 3) or boxes.shape[-1] != 4 or labels.ndim not in (boxes.ndim - 1, boxes.ndim):
        raise ShapeMismatchError(
            "`bounding_boxes` must have boxes of shape (boxes, 4) or (batch, boxes, 4) and a label for each.",
            received=f"boxes of shape {boxes.shape}, labels of shape {labels.shape}",
        )
    return {**bounding_boxes, "boxes": boxes, "labels": labels}
