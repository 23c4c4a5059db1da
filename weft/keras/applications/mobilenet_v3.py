"""Networks of inverted residual blocks that weigh their channels."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, divisible
from weft.keras.applications.imagenet_utils import decode_predictions

__all__ = ["MobileNetV3Large", "MobileNetV3Small", "decode_predictions", "preprocess_input"]

_NORMALIZATION = {"epsilon": 1e-3, "momentum": 0.999}


class Block(NamedTuple):
    """One block. `wide` ones have the larger kernel, and `weighed` ones weigh channels, but for minimalistic models;
    `late` ones have the activation of the network's second half."""

    expansion: float
    filters: int
    stride: int
    wide: bool
    weighed: bool
    late: bool


_SMALL = (
    Block(1, 16, 2, False, True, False),
    Block(72 / 16, 24, 2, False, False, False),
    Block(88 / 24, 24, 1, False, False, False),
    Block(4, 40, 2, True, True, True),
    *[Block(6, 40, 1, True, True, True)] * 2,
    *[Block(3, 48, 1, True, True, True)] * 2,
    Block(6, 96, 2, True, True, True),
    *[Block(6, 96, 1, True, True, True)] * 2,
)
_LARGE = (
    Block(1, 16, 1, False, False, False),
    Block(4, 24, 2, False, False, False),
    Block(3, 24, 1, False, False, False),
    Block(3, 40, 2, True, True, False),
    *[Block(3, 40, 1, True, True, False)] * 2,
    Block(6, 80, 2, False, False, True),
    Block(2.5, 80, 1, False, False, True),
    *[Block(2.3, 80, 1, False, False, True)] * 2,
    *[Block(6, 112, 1, False, True, True)] * 2,
    Block(6, 160, 2, True, True, True),
    *[Block(6, 160, 1, True, True, True)] * 2,
)


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Return images unchanged: the models scale them themselves.

    Args:
        x: an image, or a batch of images.
        data_format: accepted.
    """
    return x


def _activate(x: Any, hard: bool) -> Any:
    return layers.Activation("hard_swish")(x) if hard else layers.ReLU()(x)


def _weigh(x: Any, filters: int, prefix: str) -> Any:
    """Weight the channels by a function of their means."""
    weights = layers.GlobalAveragePooling2D(keepdims=True, name=f"{prefix}squeeze_excite_avg_pool")(x)
    weights = layers.Conv2D(divisible(filters * 0.25), 1, padding="same", name=f"{prefix}squeeze_excite_conv")(weights)
    weights = layers.ReLU(name=f"{prefix}squeeze_excite_relu")(weights)
    weights = layers.Conv2D(filters, 1, padding="same", name=f"{prefix}squeeze_excite_conv_1")(weights)
    weights = layers.ReLU(6.0)(weights + 3.0) * (1.0 / 6.0)
    return layers.Multiply(name=f"{prefix}squeeze_excite_mul")([x, weights])


def _block(backbone: Backbone, inputs: Any, block: Block, filters: int, index: int, minimalistic: bool) -> Any:
    channels = backbone.channels(inputs)
    inner = divisible(channels * block.expansion)
    kernel = 5 if block.wide and not minimalistic else 3
    hard = block.late and not minimalistic
    prefix = f"expanded_conv_{index}_" if index else "expanded_conv_"
    x = inputs
    if index:
        x = layers.Conv2D(inner, 1, padding="same", use_bias=False, name=f"{prefix}expand")(x)
        x = _activate(backbone.normalize(x, f"{prefix}expand_bn", **_NORMALIZATION), hard)
    if block.stride == 2:
        x = layers.ZeroPadding2D(padding=backbone.padding_for(x, kernel), name=f"{prefix}depthwise_pad")(x)
    x = layers.DepthwiseConv2D(
        kernel,
        strides=block.stride,
        padding="same" if block.stride == 1 else "valid",
        use_bias=False,
        name=f"{prefix}depthwise",
    )(x)
    x = _activate(backbone.normalize(x, f"{prefix}depthwise_bn", **_NORMALIZATION), hard)
    if block.weighed and not minimalistic:
        x = _weigh(x, inner, prefix)
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"{prefix}project")(x)
    x = backbone.normalize(x, f"{prefix}project_bn", **_NORMALIZATION)
    return layers.Add(name=f"{prefix}add")([inputs, x]) if block.stride == 1 and channels == filters else x


def _constructor(title: str, blocks: tuple[Block, ...], last: int) -> Any:
    def make(
        input_shape: Any = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = title,
    ) -> Any:
        backbone = Backbone(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            224,
            needs_size=False,
        )
        hard = not minimalistic
        x = backbone.image
        if include_preprocessing:
            x = layers.Rescaling(scale=1.0 / 127.5, offset=-1.0)(x)
        x = layers.Conv2D(16, 3, strides=(2, 2), padding="same", use_bias=False, name="conv")(x)
        x = _activate(backbone.normalize(x, "conv_bn", **_NORMALIZATION), hard)
        for index, block in enumerate(blocks):
            x = _block(backbone, x, block, divisible(block.filters * alpha), index, minimalistic)
        x = layers.Conv2D(divisible(backbone.channels(x) * 6), 1, padding="same", use_bias=False, name="conv_1")(x)
        x = _activate(backbone.normalize(x, "conv_1_bn", **_NORMALIZATION), hard)
        if include_top:
            width = divisible(last * alpha) if alpha > 1.0 else last
            x = layers.GlobalAveragePooling2D(keepdims=True)(x)
            x = layers.Conv2D(width, 1, padding="same", name="conv_2")(x)
            x = _activate(x, hard)
            if dropout_rate > 0:
                x = layers.Dropout(dropout_rate)(x)
            x = layers.Conv2D(classes, 1, padding="same", name="logits")(x)
            x = layers.Flatten()(x)
            x = layers.Activation(backbone.activation(), name="predictions")(x)
        else:
            x = backbone.pool(x, named=True)
        return backbone.finish(x, name)

    make.__name__ = make.__qualname__ = title
    make.__doc__ = f"""{title}, a network of inverted residual blocks that weigh their channels.

    Args:
        input_shape: the shape of an image.
        alpha: scales the count of channels.
        minimalistic: whether to leave out large kernels, weights of channels and the hard activation.
        include_top: whether the model ends with a classifier.
        weights: None for random weights, or the path of a file of weights.
        input_tensor: a KerasTensor to take as the image.
        classes: the count of classes.
        pooling: without a classifier, "avg" or "max" for pooling over the image.
        dropout_rate: the rate of dropout before the classifier.
        classifier_activation: the activation of the classifier; None for logits.
        include_preprocessing: whether images have values from 0 to 255, which the model scales.
        name: the name of the model.

    Returns:
        A functional model whose layers have the names that they have in Keras.
    """
    return make


MobileNetV3Small = _constructor("MobileNetV3Small", _SMALL, 1024)
MobileNetV3Large = _constructor("MobileNetV3Large", _LARGE, 1280)

_publish(__name__)
