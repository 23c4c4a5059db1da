"""Networks in which every layer takes the results of all before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import (
    decode_predictions as decode_predictions,
    preprocess_input as _preprocess,
)

_GROWTH = 32  # channels that each block adds


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for DenseNet: normalize each channel.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "torch")


def _activate(backbone: Backbone, x: Any, name: str, activation: str) -> Any:
    x = backbone.normalize(x, name, epsilon=1.001e-5)
    return layers.Activation("relu", name=activation)(x)


def _block(backbone: Backbone, x: Any, name: str) -> Any:
    """Compute new channels from all channels, and concatenate them."""
    new = _activate(backbone, x, f"{name}_0_bn", f"{name}_0_relu")
    new = layers.Conv2D(4 * _GROWTH, 1, use_bias=False, name=f"{name}_1_conv")(new)
    new = _activate(backbone, new, f"{name}_1_bn", f"{name}_1_relu")
    new = layers.Conv2D(_GROWTH, 3, padding="same", use_bias=False, name=f"{name}_2_conv")(new)
    return layers.Concatenate(axis=backbone.axis, name=f"{name}_concat")([x, new])


def _constructor(title: str, repeats: Sequence[int]) -> Any:
    @document(title, "a densely connected network", "Images go through `densenet.preprocess_input`.")
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
        x = layers.ZeroPadding2D(padding=((3, 3), (3, 3)))(backbone.image)
        x = layers.Conv2D(64, 7, strides=2, use_bias=False, name="conv1_conv")(x)
        x = _activate(backbone, x, "conv1_bn", "conv1_relu")
        x = layers.ZeroPadding2D(padding=((1, 1), (1, 1)))(x)
        x = layers.MaxPooling2D(3, strides=2, name="pool1")(x)
        for stage, count in enumerate(repeats, 2):
            for i in range(1, count + 1):
                x = _block(backbone, x, f"conv{stage}_block{i}")
            if stage < 5:
                x = _activate(backbone, x, f"pool{stage}_bn", f"pool{stage}_relu")
                half = backbone.channels(x) // 2
                x = layers.Conv2D(half, 1, use_bias=False, name=f"pool{stage}_conv")(x)
                x = layers.AveragePooling2D(2, strides=2, name=f"pool{stage}_pool")(x)
        x = _activate(backbone, x, "bn", "relu")
        return backbone.finish(backbone.head(x), name)

    return make


DenseNet121 = _constructor("DenseNet121", (6, 12, 24, 16))
DenseNet169 = _constructor("DenseNet169", (6, 12, 32, 32))
DenseNet201 = _constructor("DenseNet201", (6, 12, 48, 32))

_publish(__name__)
