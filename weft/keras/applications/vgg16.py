"""Networks of 3x3 convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import decode_predictions, preprocess_input as _preprocess

__all__ = ["VGG16", "decode_predictions", "preprocess_input"]


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for VGG: blue, green, red, minus the mean.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "caffe")


def constructor(title: str, repeats: Sequence[int]) -> Any:
    """Create the public constructor of one network of the family."""

    @document(title, "a network of 3x3 convolutions", f"Images go through `{title.lower()}.preprocess_input`.")
    def make(
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = title.lower(),
    ) -> Any:
        backbone = Backbone(
            include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 224
        )
        x = backbone.image
        for block, (filters, count) in enumerate(zip((64, 128, 256, 512, 512), repeats, strict=True), 1):
            for i in range(1, count + 1):
                x = layers.Conv2D(filters, (3, 3), activation="relu", padding="same", name=f"block{block}_conv{i}")(x)
            x = layers.MaxPooling2D((2, 2), strides=(2, 2), name=f"block{block}_pool")(x)
        if include_top:
            x = layers.Flatten(name="flatten")(x)
            x = layers.Dense(4096, activation="relu", name="fc1")(x)
            x = layers.Dense(4096, activation="relu", name="fc2")(x)
            x = layers.Dense(classes, activation=backbone.activation(), name="predictions")(x)
        else:
            x = backbone.pool(x, named=False)
        return backbone.finish(x, name)

    return make


VGG16 = constructor("VGG16", (2, 2, 3, 3, 3))

_publish(__name__)
