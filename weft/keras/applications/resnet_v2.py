"""Residual networks whose blocks normalize first."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras.applications.imagenet_utils import (
    decode_predictions as decode_predictions,
    preprocess_input as _preprocess,
)
from weft.keras.applications.resnet import constructor as _constructor


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for these networks: values from -1 to 1.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "tf")


_PREPROCESSING = "Images go through `resnet_v2.preprocess_input`."
ResNet50V2 = _constructor("ResNet50V2", (3, 4, 6, 3), True, _PREPROCESSING)
ResNet101V2 = _constructor("ResNet101V2", (3, 4, 23, 3), True, _PREPROCESSING)
ResNet152V2 = _constructor("ResNet152V2", (3, 8, 36, 3), True, _PREPROCESSING)

_publish(__name__)
