"""Pictures of images with boxes, masks and labels."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import numpy as np
import pytest

from weft.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.keras import visualization

IMAGES = np.zeros((2, 40, 60, 3), np.float32)
BOXES = {"boxes": np.array([[[0.25, 0.5, 0.75, 0.9]], [[0, 0, 0.1, 0.1]]], np.float32), "labels": np.array([[1], [-1]])}


def test_boxes_are_frames_in_a_color() -> None:
    out = visualization.draw_bounding_boxes(IMAGES, BOXES, "rel_xyxy", color=(1, 2, 3), line_thickness=1)
    assert out.dtype == np.uint8 and not out[1].any() and not IMAGES.any()  # -1 is no box
    rows, columns = np.nonzero((out[0] == (1, 2, 3)).all(-1))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 36, 15, 45)
    assert not out[0, 21:36, 16:45].any() and len(rows) == 2 * 31 + 2 * 15
    pytest.importorskip("PIL")
    named = visualization.draw_bounding_boxes(
        np.moveaxis(IMAGES, -1, 1), BOXES, "rel_xyxy", {1: "cat"}, (1, 2, 3), data_format="channels_first"
    )
    assert (named == 1).sum() > (out == 1).sum() + 20


def test_masks_are_blended() -> None:
    masks = np.full((2, 40, 60, 1), -1, np.int32)
    masks[:, :10] = 1
    out = visualization.draw_segmentation_masks(
        IMAGES + 100, masks, color_mapping={0: (0, 0, 0), 1: (200, 0, 0)}, alpha=0.5
    )
    np.testing.assert_array_equal(out[0, 0, 0], [150, 50, 50])
    np.testing.assert_array_equal(out[0, 20, 0], [100, 100, 100])
    plain = visualization.draw_segmentation_masks(IMAGES, masks, blend=False)
    assert plain.dtype == np.float32 and len({tuple(color) for color in plain.reshape(-1, 3)}) == 2
    with pytest.raises(ArgumentTypeError, match="must be integers"):
        visualization.draw_segmentation_masks(IMAGES, masks.astype(np.float32))


def test_galleries_are_written(tmp_path: pathlib.Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    masks = np.zeros((2, 40, 60, 1), np.int32)
    for i, plot in enumerate(
        (
            lambda path: visualization.plot_image_gallery(IMAGES, [0, 1], [1, 1], {0: "a", 1: "b"}, path=path),
            lambda path: visualization.plot_image_gallery(
                np.ones((5, 3, 4, 4)), path=path, data_format="channels_first"
            ),
            lambda path: visualization.plot_bounding_box_gallery(
                IMAGES, "rel_xyxy", BOXES, BOXES, legend=True, path=path
            ),
            lambda path: visualization.plot_segmentation_mask_gallery(IMAGES, 2, y_true=masks, y_pred=masks, path=path),
        )
    ):
        plot(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(ArgumentError, match="need `label_map`"):
        visualization.plot_image_gallery(IMAGES, [0, 1])


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="must be a batch"):
        visualization.draw_bounding_boxes(IMAGES[0], BOXES, "xyxy")
    with pytest.raises(ArgumentError, match="keys 'boxes' and 'labels'"):
        visualization.draw_bounding_boxes(IMAGES, {"boxes": BOXES["boxes"]}, "xyxy")

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(NotSupportedError, match="pip install matplotlib"):
        visualization.plot_image_gallery(IMAGES)
