"""Bounding boxes: formats, overlap and deltas, and boxes that follow the images of preprocessing layers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.errors import ArgumentError, NotSupportedError
from weft.keras import layers
from weft.keras.utils import bounding_boxes as bb

HEIGHT, WIDTH = 20, 30
XYXY = np.array([[[4.0, 5.0, 16.0, 15.0]]], np.float32)


def test_convert_format_goes_through_all_pairs() -> None:
    known = {name: bb.convert_format(XYXY, "xyxy", name, HEIGHT, WIDTH) for name in bb.FORMATS}
    np.testing.assert_allclose(known["center_yxhw"][0, 0], [10, 10, 10, 12])
    np.testing.assert_allclose(known["rel_xywh"][0, 0], [4 / 30, 0.25, 0.4, 0.5], rtol=1e-6)
    for source, target in itertools.permutations(bb.FORMATS, 2):
        out = bb.convert_format(known[source], source, target, HEIGHT, WIDTH)
        np.testing.assert_allclose(out, known[target], rtol=1e-5)
    # Sizes are not needed between two formats of parts.
    np.testing.assert_allclose(
        bb.convert_format(known["rel_xyxy"], "rel_xyxy", "rel_xywh"), known["rel_xywh"], rtol=1e-6
    )


def test_convert_format_errors() -> None:
    with pytest.raises(ArgumentError, match="needs `height` and `width`"):
        bb.convert_format(XYXY, "xyxy", "rel_xyxy")
    with pytest.raises(ArgumentError, match="`target` must be one of"):
        bb.convert_format(XYXY, "xyxy", "corners")
    with pytest.raises(ValueError, match="last dimension of 4"):
        bb.convert_format(XYXY[..., :3], "xyxy", "xywh")


def test_clip_marks_boxes_that_are_gone() -> None:
    boxes = {"boxes": np.array([[-5.0, -5.0, 5.0, 5.0], [40.0, 2.0, 50.0, 4.0]]), "labels": np.array([3, 4])}
    out = bb.clip_to_image_size(boxes, HEIGHT, WIDTH)
    np.testing.assert_array_equal(out["boxes"], [[0, 0, 5, 5], [30, 2, 30, 4]])
    np.testing.assert_array_equal(out["labels"], [3, -1])
    assert boxes["labels"].tolist() == [3, 4]


def test_iou_of_batches_and_masks() -> None:
    first = np.array([[0, 0, 2, 2], [-1, -1, -1, -1]], np.float32)
    second = np.array([[0, 0, 2, 1], [0, 0, 2, 2], [5, 5, 6, 6]], np.float32)
    out = bb.compute_iou(first, np.stack([second, second]), "xyxy", use_masking=True)
    np.testing.assert_allclose(out[1], [[0.5, 1, 0], [-1, -1, -1]], rtol=1e-6)
    relative = bb.compute_iou(first[:1] / 10, second / 10, "rel_xyxy", image_shape=(10, 10, 3))
    np.testing.assert_allclose(relative[0], [0.5, 1, 0], rtol=1e-5)
    # Complete overlap is 1; far apart it is below 0, and has a gradient.
    np.testing.assert_allclose(bb.compute_ciou(first[:1], first[:1], "xyxy"), [1.0], atol=1e-5)
    assert float(bb.compute_ciou(first[0], second[2], "xyxy")) < -0.5
    assert np.isfinite(weft.grad(lambda b: bb.compute_ciou(b, second[2], "xyxy"))(wnp.asarray(first[0]))).all()


@pytest.mark.parametrize("encoding", ["center_xywh", "center_yxhw"])
def test_deltas_are_inverse(encoding: str) -> None:
    anchors = np.array([[0, 0, 10, 10], [5, 5, 20, 15]], np.float32)
    boxes = np.array([[[1, 2, 8, 12], [4, 4, 18, 18]]] * 2, np.float32)
    variance = [0.1, 0.1, 0.2, 0.2]
    deltas = bb.encode_box_to_deltas(anchors, boxes, "xyxy", "xyxy", encoding, variance)
    out = bb.decode_deltas_to_boxes({"p": anchors}, {"p": deltas}, "xyxy", "xyxy", encoding, variance)
    np.testing.assert_allclose(out["p"], boxes, atol=1e-5)
    with pytest.raises(ArgumentError, match="`encoding_format` must be one of"):
        bb.encode_box_to_deltas(anchors, boxes, "xyxy", "xyxy", "xyxy")


def test_affine_transform_rotates() -> None:
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    same = bb.affine_transform(XYXY, zero, zero, zero, one, zero, zero, HEIGHT, WIDTH)
    np.testing.assert_allclose(same, XYXY, atol=1e-4)
    rotated = bb.affine_transform(XYXY, zero + 180, zero, zero, one, zero, zero, HEIGHT, WIDTH)
    np.testing.assert_allclose(rotated[0, 0], [13, 4, 25, 14], atol=1e-4)


GEOMETRY = {
    "flip": lambda **kw: layers.RandomFlip(seed=3, **kw),
    "rotation": lambda **kw: layers.RandomRotation((0.05, 0.1), fill_mode="constant", seed=1, **kw),
    "translation": lambda **kw: layers.RandomTranslation(0.2, 0.2, fill_mode="constant", seed=1, **kw),
    "zoom": lambda **kw: layers.RandomZoom((-0.2, 0.3), (-0.2, 0.3), fill_mode="constant", seed=2, **kw),
    "shear": lambda **kw: layers.RandomShear(0.3, 0.2, fill_mode="constant", seed=2, **kw),
    "perspective": lambda **kw: layers.RandomPerspective(1.0, 0.4, seed=2, **kw),
    "crop": lambda **kw: layers.RandomCrop(16, 24, seed=1, **kw),
    "small crop": lambda **kw: layers.RandomCrop(40, 60, seed=1, **kw),
    "center crop": lambda **kw: layers.CenterCrop(14, 22, **kw),
    "large center crop": lambda **kw: layers.CenterCrop(40, 40, **kw),
    "resizing": lambda **kw: layers.Resizing(30, 36, **kw),
    "resizing with a crop": lambda **kw: layers.Resizing(40, 40, crop_to_aspect_ratio=True, **kw),
    "resizing with a border": lambda **kw: layers.Resizing(40, 40, pad_to_aspect_ratio=True, **kw),
}


@pytest.mark.parametrize("name", GEOMETRY)
def test_boxes_follow_the_images(name: str) -> None:
    """A bright rectangle is where its box is, after the layer, in each format and for single images."""
    images = np.zeros((2, HEIGHT, WIDTH, 1), np.float32)
    x1, y1, x2, y2 = XYXY[0, 0].astype(int)
    images[:, y1:y2, x1:x2] = 255.0
    labels = np.array([[7], [8]])
    first = name in ("rotation", "resizing")
    kinds = {"data_format": "channels_first"} if first else {"data_format": "channels_last"}
    images = np.moveaxis(images, -1, 1) if first else images
    for target in ("xyxy", "rel_center_xywh"):
        layer = GEOMETRY[name](bounding_box_format=target, **kinds)
        boxes = bb.convert_format(np.concatenate([XYXY] * 2), "xyxy", target, HEIGHT, WIDTH)
        data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}, "segmentation_masks": images}
        out = layer(data, training=True)
        assert data["bounding_boxes"]["boxes"] is boxes
        shape = [out["images"].shape[2:], out["images"].shape[1:3]][not first]
        corners = bb.convert_format(out["bounding_boxes"]["boxes"], target, "xyxy", *shape)
        np.testing.assert_array_equal(out["bounding_boxes"]["labels"], labels)
        for mask, box in zip(np.asarray(out["segmentation_masks"]), np.asarray(corners)[:, 0], strict=True):
            rows, columns = np.nonzero((mask[0] if first else mask[..., 0]) > 127)
            found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(box, found, atol=2.0, err_msg=name)
    one = {"images": images[0], "bounding_boxes": {"boxes": boxes[0], "labels": labels[0]}}
    assert layer(one, training=True)["bounding_boxes"]["boxes"].shape == (1, 4)


def test_layers_without_boxes_and_formats() -> None:
    data = {"images": np.ones((8, 8, 3), np.float32), "bounding_boxes": {"boxes": [[1, 1, 2, 2]], "labels": [1]}}
    with pytest.raises(ArgumentError, match="needs the format of bounding boxes"):
        layers.RandomFlip()(data, training=True)
    with pytest.raises(NotSupportedError, match="cannot transform bounding boxes"):
        layers.RandomElasticTransform(bounding_box_format="xyxy")(data, training=True)
    with pytest.raises(ArgumentError, match="must be one of"):
        layers.RandomFlip(bounding_box_format="corners")
    with pytest.raises(ArgumentError, match="keys 'boxes' and 'labels'"):
        layers.RandomFlip(bounding_box_format="xyxy")({**data, "bounding_boxes": {"boxes": [[1, 1, 2, 2]]}})


def test_lists_of_different_lengths_are_filled_up() -> None:
    data = {
        "images": np.ones((2, 8, 8, 3), np.float32),
        "bounding_boxes": {"boxes": [[[1, 1, 2, 2], [3, 3, 5, 5]], [[2, 2, 4, 4]]], "labels": [[1, 2], [3]]},
    }
    layer = layers.MaxNumBoundingBoxes(3, bounding_box_format="xyxy", dtype="mixed_bfloat16")
    out = layer(data)["bounding_boxes"]
    np.testing.assert_array_equal(out["labels"], [[1, 2, -1], [3, -1, -1]])
    assert out["boxes"].shape == (2, 3, 4) and out["boxes"].dtype == "float32"


def test_boxes_in_mixed_precision_symbolic_and_saved() -> None:
    """Coordinates stay float32; a functional model with boxes computes, is saved and loaded."""
    inputs = {
        "images": keras.Input((16, 16, 3), name="images"),
        "bounding_boxes": {"boxes": keras.Input((5, 4)), "labels": keras.Input((5,), dtype="int32")},
    }
    out = layers.Resizing(32, 32, bounding_box_format="xyxy", dtype="mixed_float16")(inputs)
    assert out["bounding_boxes"]["boxes"].dtype == "float32"
    model = keras.Model(inputs, out)
    again = keras.Model.from_config(model.get_config())
    boxes = {"boxes": np.full((1, 5, 4), 3.3, np.float32), "labels": np.ones((1, 5), np.int32)}
    result = again({"images": np.ones((1, 16, 16, 3), np.float32), "bounding_boxes": boxes})
    np.testing.assert_allclose(result["bounding_boxes"]["boxes"], 6.6, rtol=1e-6)
    config = layers.AugMix(bounding_box_format="xyxy", data_format="channels_first").get_config()
    assert layers.AugMix.from_config(config).bounding_box_format == "xyxy"


def test_half_precision_finds_pixels_of_large_images() -> None:
    image = np.zeros((1, 4, 600, 1), np.float32)
    image[:, :, 500:] = 1.0
    shift = {"translations": np.array([[7.0, 0.0]]), "input_shape": image.shape}
    layer = layers.RandomTranslation(0.1, 0.1, fill_mode="constant", dtype="mixed_bfloat16")
    out = np.asarray(layer.transform_images(image, shift).astype("float32"))
    assert int(np.argmax(out[0, 0, :, 0] > 0.5)) == 507
    warped = layers.RandomPerspective(dtype="mixed_float16", seed=1)(image[:, :, :16], training=True)
    assert warped.dtype == "float16"


@pytest.mark.parametrize("make", [layers.AugMix, layers.RandAugment, layers.RandomElasticTransform, layers.MixUp])
def test_augmentation_draws_anew_in_compiled_steps(make: type) -> None:
    layer = make(seed=1)
    model = keras.Sequential([layer])
    images = np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 3)).astype(np.float32)
    step = weft.jit(lambda state: model.stateless_call([], state, images, training=True))
    model.build(images.shape)
    state = [v.value for v in model.non_trainable_variables]
    first, state = step(state)
    second, _ = step(state)
    assert first.shape == images.shape and float(wnp.max(wnp.abs(first - second))) > 0


def test_clahe_raises_local_contrast() -> None:
    ramp = np.linspace(100, 110, 32)[None, :, None] + np.zeros((32, 32, 3))
    layer = layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2), clip_limit=0)
    out = np.asarray(layer(ramp.astype(np.float32)))
    assert out.shape == ramp.shape and np.ptp(out) > 150
    flipped = layers.ContrastLimitedAdaptiveHistogramEqualization(
        tile_grid_size=(2, 2), clip_limit=0, data_format="channels_first"
    )(np.moveaxis(ramp, -1, 0).astype(np.float32))
    np.testing.assert_allclose(np.moveaxis(np.asarray(flipped), 0, -1), out, atol=1e-4)


def test_a_singular_shear_leaves_no_box() -> None:
    layer = layers.RandomShear(1.0, 1.0, bounding_box_format="xyxy")
    drawn = {"shear_factor": np.ones((1, 2), np.float32), "input_shape": (1, HEIGHT, WIDTH, 3)}
    out = layer.transform_bounding_boxes({"boxes": wnp.asarray(XYXY), "labels": wnp.ones((1, 1), "int32")}, drawn)
    np.testing.assert_array_equal(out["boxes"], np.zeros((1, 1, 4)))
    np.testing.assert_array_equal(out["labels"], [[-1]])
