"""Architectures: one that is small enough to run, and what is wrong with arguments."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from weft import keras
from weft.errors import ArgumentError, CheckpointMismatchError, NotSupportedError
from weft.keras.applications import nasnet
from weft.keras.applications.backbone import Backbone


@pytest.mark.slow
def test_a_model_for_small_images() -> None:
    x = keras.Input((32, 32, 1), name="gray")
    image = keras.layers.Concatenate(name="color")([x, x, x])
    model = keras.applications.MobileNetV2(alpha=0.35, weights=None, classes=3, input_tensor=image)
    assert model.input_names == ["gray"]
    assert model.predict(np.zeros((1, 32, 32, 1), "float32"), verbose=0).shape == (1, 3)


def test_arguments() -> None:
    with pytest.raises(NotSupportedError, match="trained weights"):
        keras.applications.ResNet50()
    with pytest.raises(ArgumentError, match="path of an existing file"):
        keras.applications.ResNet50(weights="nowhere.h5")
    with pytest.raises(ArgumentError, match="at least 32 x 32"):
        keras.applications.VGG16(weights=None, input_shape=(16, 16, 3))
    with pytest.raises(ArgumentError, match="pooling"):
        keras.applications.MobileNet(weights=None, pooling="sum")


@pytest.mark.slow
def test_weights_from_a_file(tmp_path: pathlib.Path) -> None:
    options = {"alpha": 0.35, "input_shape": (32, 32, 3), "classes": 3}
    model = keras.applications.MobileNetV2(weights=None, **options)
    for weight in model.weights:
        weight.assign(np.random.default_rng(weight.size).uniform(0.5, 1.0, weight.shape))
    model.save_weights(tmp_path / "mobile.safetensors")
    model.save(tmp_path / "mobile.keras")
    for file in ("mobile.safetensors", "mobile.keras"):
        again = keras.applications.MobileNetV2(weights=tmp_path / file, **options)
        for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(CheckpointMismatchError, match=r"layers/dense/vars/0: \(1280, 3\) in the file"):
        keras.applications.MobileNetV2(weights=tmp_path / "mobile.safetensors", **{**options, "classes": 4})


def test_predictions_are_sorted() -> None:
    utils = keras.applications.imagenet_utils
    utils._classes.update({str(i): [f"n{i}", f"name {i}"] for i in range(1000)})
    scores = np.zeros((1, 1000))
    scores[0, [7, 3]] = 0.75, 0.5
    assert utils.decode_predictions(scores, top=2) == [[("n7", "name 7", 0.75), ("n3", "name 3", 0.5)]]
    utils._classes.clear()


@pytest.mark.slow
def test_nasnet_of_few_cells() -> None:
    """All kinds of cells; the peer's tests compare the whole networks."""
    backbone = Backbone(True, None, None, (32, 32, 3), None, 5, "softmax", 32)
    model = nasnet._build(backbone, 96, 1, 8, False, "small")
    assert model.output_shape == (None, 5)
    names = {layer.name for layer in model.layers}
    assert {"stem_conv1", "normal_concat_0", "reduction_concat_reduce_2", "normal_conv_1_3"} <= names


def test_nasnet_without_weights_and_with_channels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupportedError, match="does not come with trained weights"):
        keras.applications.NASNetMobile()
    monkeypatch.setattr(Backbone, "__init__", lambda self, *args, **kwargs: setattr(self, "first", True))
    with pytest.raises(ArgumentError, match="needs images with the channels last"):
        keras.applications.NASNetLarge(weights=None)
