"""Networks of inverted residual blocks."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, divisible
from weft.keras.applications.imagenet_utils import decode_predictions as decode_predictions
from weft.keras.applications.mobilenet import preprocess_input as preprocess_input

# Channels, stride of the first block, and count of blocks.
_STAGES = ((16, 1, 1), (24, 2, 2), (32, 2, 3), (64, 2, 4), (96, 1, 3), (160, 2, 3), (320, 1, 1))
_NORMALIZATION = {"epsilon": 1e-3, "momentum": 0.999}


def _block(backbone: Backbone, inputs: Any, filters: int, stride: int, index: int) -> Any:
    """Apply expansion, depthwise convolution and projection, with a shortcut if the sizes agree."""
    channels = backbone.channels(inputs)
    prefix = f"block_{index}_" if index else "expanded_conv_"
    x = inputs
    if index:
        x = layers.Conv2D(6 * channels, 1, padding="same", use_bias=False, name=f"{prefix}expand")(x)
        x = backbone.normalize(x, f"{prefix}expand_BN", **_NORMALIZATION)
        x = layers.ReLU(6.0, name=f"{prefix}expand_relu")(x)
    if stride == 2:
        x = layers.ZeroPadding2D(padding=backbone.padding_for(x, 3), name=f"{prefix}pad")(x)
    x = layers.DepthwiseConv2D(
        3, strides=stride, use_bias=False, padding="same" if stride == 1 else "valid", name=f"{prefix}depthwise"
    )(x)
    x = backbone.normalize(x, f"{prefix}depthwise_BN", **_NORMALIZATION)
    x = layers.ReLU(6.0, name=f"{prefix}depthwise_relu")(x)
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"{prefix}project")(x)
    x = backbone.normalize(x, f"{prefix}project_BN", **_NORMALIZATION)
    if channels == filters and stride == 1:
        return layers.Add(name=f"{prefix}add")([inputs, x])
    return x


def MobileNetV2(
    input_shape: Any = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Any:
    """Construct MobileNetV2, a network of inverted residual blocks. Images go through `mobilenet_v2.preprocess_input`.

    Args:
        input_shape: the shape of an image.
        alpha: scales the count of channels.
        include_top: whether the model ends with a classifier.
        weights: None for random weights, or the path of a file of weights.
        input_tensor: a KerasTensor to take as the image.
        pooling: without a classifier, "avg" or "max" for pooling over the image.
        classes: the count of classes.
        classifier_activation: the activation of the classifier; None for logits.
        name: the name of the model.

    Returns:
        A functional model whose layers have the names that they have in Keras.
    """
    backbone = Backbone(include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 224)
    x = layers.Conv2D(divisible(32 * alpha), 3, strides=(2, 2), padding="same", use_bias=False, name="Conv1")(
        backbone.image
    )
    x = backbone.normalize(x, "bn_Conv1", **_NORMALIZATION)
    x = layers.ReLU(6.0, name="Conv1_relu")(x)
    index = 0
    for filters, stride, count in _STAGES:
        for i in range(count):
            x = _block(backbone, x, divisible(int(filters * alpha)), stride if i == 0 else 1, index)
            index += 1
    last = divisible(1280 * alpha) if alpha > 1.0 else 1280
    x = layers.Conv2D(last, 1, use_bias=False, name="Conv_1")(x)
    x = backbone.normalize(x, "Conv_1_bn", **_NORMALIZATION)
    x = layers.ReLU(6.0, name="out_relu")(x)
    x = backbone.head(x, named_pooling=False)
    return backbone.finish(x, f"mobilenetv2_{alpha:0.2f}_{backbone.rows}" if name is None else name)


_publish(__name__)
