"""Residual networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import decode_predictions, preprocess_input as _preprocess

__all__ = ["ResNet101", "ResNet152", "ResNet50", "decode_predictions", "preprocess_input"]

_EPSILON = 1.001e-5
_FILTERS = (64, 128, 256, 512)


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for ResNet: blue, green, red, minus the mean.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "caffe")


def _normalize(backbone: Backbone, x: Any, name: str, activation: str | None = None) -> Any:
    x = backbone.normalize(x, f"{name}_bn", epsilon=_EPSILON)
    return x if activation is None else layers.Activation("relu", name=activation)(x)


def _block(backbone: Backbone, x: Any, filters: int, stride: int, projected: bool, name: str) -> Any:
    """Apply a bottleneck: 1x1, 3x3 and 1x1 convolutions, with a shortcut around them."""
    shortcut = x
    if projected:
        shortcut = layers.Conv2D(4 * filters, 1, strides=stride, name=f"{name}_0_conv")(x)
        shortcut = _normalize(backbone, shortcut, f"{name}_0")
    x = layers.Conv2D(filters, 1, strides=stride, name=f"{name}_1_conv")(x)
    x = _normalize(backbone, x, f"{name}_1", f"{name}_1_relu")
    x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_2_conv")(x)
    x = _normalize(backbone, x, f"{name}_2", f"{name}_2_relu")
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    x = _normalize(backbone, x, f"{name}_3")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def preactivated_block(backbone: Backbone, x: Any, filters: int, stride: int, projected: bool, name: str) -> Any:
    """Apply a bottleneck of the second version: normalization and activation precede the convolutions."""
    before = _normalize(backbone, x, f"{name}_preact", f"{name}_preact_relu")
    if projected:
        shortcut = layers.Conv2D(4 * filters, 1, strides=stride, name=f"{name}_0_conv")(before)
    else:
        shortcut = layers.MaxPooling2D(1, strides=stride)(x) if stride > 1 else x
    x = layers.Conv2D(filters, 1, strides=1, use_bias=False, name=f"{name}_1_conv")(before)
    x = _normalize(backbone, x, f"{name}_1", f"{name}_1_relu")
    x = layers.ZeroPadding2D(padding=((1, 1), (1, 1)), name=f"{name}_2_pad")(x)
    x = layers.Conv2D(filters, 3, strides=stride, use_bias=False, name=f"{name}_2_conv")(x)
    x = _normalize(backbone, x, f"{name}_2", f"{name}_2_relu")
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    return layers.Add(name=f"{name}_out")([shortcut, x])


def build(backbone: Backbone, repeats: Sequence[int], preactivated: bool, name: str | None) -> Any:
    """Construct a residual network; `repeats` are the numbers of blocks in its four stages."""
    x = layers.ZeroPadding2D(padding=((3, 3), (3, 3)), name="conv1_pad")(backbone.image)
    x = layers.Conv2D(64, 7, strides=2, name="conv1_conv")(x)
    if not preactivated:
        x = _normalize(backbone, x, "conv1", "conv1_relu")
    x = layers.ZeroPadding2D(padding=((1, 1), (1, 1)), name="pool1_pad")(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)
    for stage, (filters, count) in enumerate(zip(_FILTERS, repeats, strict=True)):
        for i in range(1, count + 1):
            block = f"conv{stage + 2}_block{i}"
            if preactivated:
                stride = 2 if i == count and stage < 3 else 1
                x = preactivated_block(backbone, x, filters, stride, i == 1, block)
            else:
                stride = 2 if i == 1 and stage > 0 else 1
                x = _block(backbone, x, filters, stride, i == 1, block)
    if preactivated:
        x = _normalize(backbone, x, "post", "post_relu")
    return backbone.finish(backbone.head(x), name)


def constructor(title: str, repeats: Sequence[int], preactivated: bool, preprocessing: str) -> Any:
    """Create the public constructor of one network of the family."""

    @document(title, "a residual network", preprocessing)
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
        return build(backbone, repeats, preactivated, name)

    return make


_PREPROCESSING = "Images go through `resnet.preprocess_input`."
ResNet50 = constructor("ResNet50", (3, 4, 6, 3), False, _PREPROCESSING)
ResNet101 = constructor("ResNet101", (3, 4, 23, 3), False, _PREPROCESSING)
ResNet152 = constructor("ResNet152", (3, 8, 36, 3), False, _PREPROCESSING)

_publish(__name__)
