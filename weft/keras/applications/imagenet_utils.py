"""Images and predictions of models for ImageNet."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError, publish as _publish
from weft.keras import ops, utils
from weft.keras.core.config import floatx, is_float_dtype, standardize_data_format
from weft.keras.graph.tensor import is_keras_tensor

_MEAN = {"torch": (0.485, 0.456, 0.406), "caffe": (103.939, 116.779, 123.68)}
_DEVIATION = (0.229, 0.224, 0.225)
_CLASSES = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
_classes: dict[str, list[str]] = {}


def preprocess_input(x: Any, data_format: str | None = None, mode: str = "caffe") -> Any:
    """Preprocess images with values from 0 to 255 as in the training of a model.

    Args:
        x: an image, or a batch of images.
        data_format: "channels_last" or "channels_first"; the setting where None.
        mode: "caffe" (blue, green, red, minus the mean), "tf" (from -1 to 1) or "torch" (normalized by channel).

    Returns:
        A new array of floats.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> keras.applications.imagenet_utils.preprocess_input(np.full((1, 1, 3), 255.0), mode="tf")
        Array([[[1., 1., 1.]]], dtype=float32)
    """
    if mode not in ("caffe", "tf", "torch"):
        raise ArgumentError("`mode` must be 'caffe', 'tf' or 'torch'.", received=f"mode={mode!r}")
    first = standardize_data_format(data_format) == "channels_first"
    if not is_keras_tensor(x):
        x = wnp.asarray(x)
    if not is_float_dtype(x.dtype):
        x = ops.cast(x, floatx())
    if mode == "tf":
        return x / 127.5 - 1.0
    axis = x.ndim - 3 if first else x.ndim - 1
    by_channel = lambda values: wnp.reshape(
        wnp.asarray(values, dtype=x.dtype), tuple(3 if i == axis else 1 for i in range(x.ndim))
    )
    if mode == "caffe":
        return ops.flip(x, axis) - by_channel(_MEAN["caffe"])
    return (x / 255.0 - by_channel(_MEAN["torch"])) / by_channel(_DEVIATION)


def decode_predictions(preds: Any, top: int = 5) -> list[list[tuple[str, str, float]]]:
    """Return the best classes of each row.

    The names of the classes are downloaded at the first use.

    Args:
        preds: scores, of shape (batch, 1000).
        top: how many classes to return.

    Returns:
        For each row a list of (identifier, name, score), best first.
    """
    scores = np.asarray(preds)
    if scores.ndim != 2 or scores.shape[1] != 1000:
        raise ShapeMismatchError("Predictions must have the shape (batch, 1000).", received=f"shape {scores.shape}")
    if not _classes:
        file = utils.get_file(
            "imagenet_class_index.json", _CLASSES, cache_subdir="models", file_hash="c2c37ea517e94d9795004a39431a14cb"
        )
        _classes.update(json.loads(pathlib.Path(file).read_text(encoding="utf-8")))
    best = np.argsort(-scores, axis=1)[:, :top]
    return [
        [(*_classes[str(i)], float(row[i])) for i in indices]  # type: ignore[misc]
        for row, indices in zip(scores, best, strict=True)
    ]


_publish(__name__)
