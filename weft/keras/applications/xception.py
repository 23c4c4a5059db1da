"""Xception, a network of separable convolutions."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import decode_predictions as decode_predictions
from weft.keras.applications.mobilenet import preprocess_input as preprocess_input


def _separable(backbone: Backbone, x: Any, filters: int, name: str) -> Any:
    x = layers.SeparableConv2D(filters, (3, 3), padding="same", use_bias=False, name=name)(x)
    return backbone.normalize(x, f"{name}_bn")


def _activate(x: Any, name: str) -> Any:
    return layers.Activation("relu", name=f"{name}_act")(x)


def _entry(backbone: Backbone, x: Any, filters: tuple[int, int], index: int, activate: bool = True) -> Any:
    """Apply two separable convolutions and pooling, with a strided shortcut around them."""
    shortcut = layers.Conv2D(filters[1], (1, 1), strides=(2, 2), padding="same", use_bias=False)(x)
    shortcut = backbone.normalize(shortcut)
    one, two = f"block{index}_sepconv1", f"block{index}_sepconv2"
    x = _separable(backbone, _activate(x, one) if activate else x, filters[0], one)
    x = _separable(backbone, _activate(x, two), filters[1], two)
    x = layers.MaxPooling2D((3, 3), strides=(2, 2), padding="same", name=f"block{index}_pool")(x)
    return layers.add([x, shortcut])


@document("Xception", "a network of separable convolutions", "Images go through `xception.preprocess_input`.")
def Xception(
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    input_shape: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "xception",
) -> Any:
    backbone = Backbone(
        include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 299, smallest=71
    )
    x = layers.Conv2D(32, (3, 3), strides=(2, 2), use_bias=False, name="block1_conv1")(backbone.image)
    x = _activate(backbone.normalize(x, "block1_conv1_bn"), "block1_conv1")
    x = layers.Conv2D(64, (3, 3), use_bias=False, name="block1_conv2")(x)
    x = _activate(backbone.normalize(x, "block1_conv2_bn"), "block1_conv2")
    x = _entry(backbone, x, (128, 128), 2, activate=False)
    x = _entry(backbone, x, (256, 256), 3)
    x = _entry(backbone, x, (728, 728), 4)
    for index in range(5, 13):
        shortcut = x
        for i in (1, 2, 3):
            block = f"block{index}_sepconv{i}"
            x = _separable(backbone, _activate(x, block), 728, block)
        x = layers.add([x, shortcut])
    x = _entry(backbone, x, (728, 1024), 13)
    x = _activate(_separable(backbone, x, 1536, "block14_sepconv1"), "block14_sepconv1")
    x = _activate(_separable(backbone, x, 2048, "block14_sepconv2"), "block14_sepconv2")
    if include_top:
        return backbone.finish(backbone.head(x), name)
    return backbone.finish(backbone.pool(x, named=False), name)


_publish(__name__)
