"""Networks of depthwise convolutions."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone
from weft.keras.applications.imagenet_utils import (
    decode_predictions as decode_predictions,
    preprocess_input as _preprocess,
)

# Channels and strides of the blocks.
_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for MobileNet: values from -1 to 1.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "tf")


def MobileNet(
    input_shape: Any = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 1e-3,
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Any:
    """Construct MobileNet, a network of depthwise convolutions. Images go through `mobilenet.preprocess_input`.

    Args:
        input_shape: the shape of an image.
        alpha: scales the count of channels.
        depth_multiplier: results of a depthwise convolution for each channel.
        dropout: the rate of dropout before the classifier.
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
    x = layers.Conv2D(int(32 * alpha), (3, 3), padding="same", use_bias=False, strides=(2, 2), name="conv1")(
        backbone.image
    )
    x = backbone.normalize(x, "conv1_bn")
    x = layers.ReLU(6.0, name="conv1_relu")(x)
    for i, (filters, stride) in enumerate(_BLOCKS, 1):
        if stride == 2:
            x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{i}")(x)
        x = layers.DepthwiseConv2D(
            (3, 3),
            padding="same" if stride == 1 else "valid",
            depth_multiplier=depth_multiplier,
            strides=(stride, stride),
            use_bias=False,
            name=f"conv_dw_{i}",
        )(x)
        x = backbone.normalize(x, f"conv_dw_{i}_bn")
        x = layers.ReLU(6.0, name=f"conv_dw_{i}_relu")(x)
        x = layers.Conv2D(int(filters * alpha), (1, 1), padding="same", use_bias=False, name=f"conv_pw_{i}")(x)
        x = backbone.normalize(x, f"conv_pw_{i}_bn")
        x = layers.ReLU(6.0, name=f"conv_pw_{i}_relu")(x)
    if include_top:
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = layers.Dropout(dropout, name="dropout")(x)
        x = layers.Conv2D(classes, (1, 1), padding="same", name="conv_preds")(x)
        x = layers.Reshape((classes,), name="reshape_2")(x)
        x = layers.Activation(backbone.activation(), name="predictions")(x)
    else:
        x = backbone.pool(x, named=False)
    return backbone.finish(x, f"mobilenet_{alpha:0.2f}_{backbone.rows}" if name is None else name)


_publish(__name__)
