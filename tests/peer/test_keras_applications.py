"""Architectures against those of Keras: names, shapes, counts, and results with the same weights."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")

from weft import keras as ours  # noqa: E402

SMALL = {"weights": None, "input_shape": (32, 32, 3)}
MODELS: dict[str, dict[str, Any]] = {
    "ResNet50": {**SMALL, "classes": 10},
    "ResNet50V2": {**SMALL, "include_top": False, "pooling": "max"},
    "DenseNet121": {**SMALL, "include_top": False},
    "VGG16": {**SMALL, "include_top": False, "pooling": "avg"},
    "VGG19": {**SMALL, "include_top": False},
    "MobileNet": {**SMALL, "alpha": 0.5, "classes": 10},
    "MobileNetV2": {**SMALL, "alpha": 1.4, "classes": 10},
    "MobileNetV3Small": {**SMALL, "alpha": 0.75, "classes": 10},
    "MobileNetV3Large": {**SMALL, "minimalistic": True, "include_top": False},
    "NASNetMobile": {"weights": None, "input_shape": (64, 64, 3), "classes": 10},
    "NASNetLarge": {"weights": None, "input_shape": (96, 96, 3), "include_top": False, "pooling": "avg"},
    "EfficientNetB0": {**SMALL, "classes": 10},
    "EfficientNetB2": {"weights": None, "include_top": False, "pooling": "avg"},
    "ConvNeXtTiny": {**SMALL, "classes": 10},
    "EfficientNetV2B0": {**SMALL, "classes": 10},
    "EfficientNetV2B3": {**SMALL, "include_top": False, "pooling": "max"},
    "EfficientNetV2S": {**SMALL, "include_top": False, "include_preprocessing": False},
    "InceptionResNetV2": {"weights": None, "include_top": False, "input_shape": (75, 75, 3)},
    "InceptionV3": {"weights": None, "classes": 10, "input_shape": (75, 75, 3)},
    "Xception": {"weights": None, "include_top": False, "input_shape": (71, 71, 3)},
}
RUN = {"MobileNetV2", "MobileNetV3Small", "EfficientNetV2B0"}


def both(name: str) -> tuple[Any, Any]:
    """Return an architecture of Keras, and ours."""
    keras.utils.clear_session()
    ours.backend.clear_session()
    theirs = getattr(keras.applications, name)(**MODELS[name])
    return theirs, getattr(ours.applications, name)(**MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_architectures(name: str) -> None:
    theirs, mine = both(name)
    assert (mine.name, mine.count_params()) == (theirs.name, theirs.count_params())
    assert [layer.name for layer in mine.layers] == [layer.name for layer in theirs.layers]
    assert [(w.path, w.shape) for w in mine.weights] == [(w.path, tuple(w.shape)) for w in theirs.weights]
    assert mine.output_shape == theirs.output_shape
    if name in RUN:
        same_results(theirs, mine)


# A network of each family whose results are not compared above: minutes each.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in RUN])
def test_results_of_larger_architectures(name: str) -> None:
    same_results(*both(name))


def same_results(theirs: Any, mine: Any) -> None:
    """Assert that two networks with the same weights compute the same."""
    generator = np.random.default_rng(0)
    values = [np.asarray(w.value) for w in theirs.weights]
    # Statistics of a network that has seen data: means and variances that are not the first ones.
    values = [v + 0.1 * np.abs(generator.normal(size=v.shape)).astype(v.dtype) if v.ndim == 1 else v for v in values]
    theirs.set_weights(values)
    mine.set_weights(values)
    size = [64 if side is None else side for side in mine.input_shape[1:]]
    images = generator.uniform(-1, 1, (2, *size)).astype("float32")
    expected = np.asarray(theirs(images))
    assert np.all(np.isfinite(expected)) and np.ptp(expected) > 0
    # Of a hundred layers one after the other: relative to the largest.
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(mine.predict(images, verbose=0), expected, rtol=2e-3, atol=1e-4 * largest)


@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_preprocessing(mode: str, data_format: str) -> None:
    images = np.random.default_rng(0).uniform(0, 255, (2, 3, 3, 3)).astype("float32")
    mine = ours.applications.imagenet_utils.preprocess_input(images.copy(), data_format, mode)
    theirs = keras.applications.imagenet_utils.preprocess_input(images.copy(), data_format, mode)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-4)
