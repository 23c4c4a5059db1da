"""Networks whose width, count of layers and image size grow together."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, divisible, document
from weft.keras.applications.imagenet_utils import decode_predictions

__all__ = [
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "decode_predictions",
    "preprocess_input",
]

KERNEL = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_out", "distribution": "truncated_normal"},
}
DENSE = {"class_name": "VarianceScaling", "config": {"scale": 1 / 3, "mode": "fan_out", "distribution": "uniform"}}


class Stage(NamedTuple):
    """Blocks of one size, before scaling."""

    kernel: int
    repeats: int
    filters_in: int
    filters_out: int
    expansion: int
    stride: int


_STAGES = (
    Stage(3, 1, 32, 16, 1, 1),
    Stage(3, 2, 16, 24, 6, 2),
    Stage(5, 2, 24, 40, 6, 2),
    Stage(3, 3, 40, 80, 6, 2),
    Stage(5, 3, 80, 112, 6, 1),
    Stage(5, 4, 112, 192, 6, 2),
    Stage(3, 1, 192, 320, 6, 1),
)


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Return images unchanged: the models scale them themselves.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: accepted.
    """
    return x


def _conv(filters: int, name: str, **options: Any) -> Any:
    return layers.Conv2D(filters, 1, padding="same", kernel_initializer=KERNEL, name=name, **options)


def _block(
    backbone: Backbone,
    inputs: Any,
    filters_in: int,
    filters_out: int,
    stage: Stage,
    stride: int,
    rate: float,
    name: str,
) -> Any:
    """Apply expansion, depthwise convolution, channel weights and projection, with a shortcut if the sizes agree."""
    filters = filters_in * stage.expansion
    x = inputs
    if stage.expansion != 1:
        x = _conv(filters, f"{name}expand_conv", use_bias=False)(x)
        x = backbone.normalize(x, f"{name}expand_bn")
        x = layers.Activation("swish", name=f"{name}expand_activation")(x)
    if stride == 2:
        x = layers.ZeroPadding2D(padding=backbone.padding_for(x, stage.kernel), name=f"{name}dwconv_pad")(x)
    x = layers.DepthwiseConv2D(
        stage.kernel,
        strides=stride,
        padding="valid" if stride == 2 else "same",
        use_bias=False,
        depthwise_initializer=KERNEL,
        name=f"{name}dwconv",
    )(x)
    x = backbone.normalize(x, f"{name}bn")
    x = layers.Activation("swish", name=f"{name}activation")(x)
    weights = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    shape = (filters, 1, 1) if backbone.first else (1, 1, filters)
    weights = layers.Reshape(shape, name=f"{name}se_reshape")(weights)
    weights = _conv(max(1, int(filters_in * 0.25)), f"{name}se_reduce", activation="swish")(weights)
    weights = _conv(filters, f"{name}se_expand", activation="sigmoid")(weights)
    x = layers.multiply([x, weights], name=f"{name}se_excite")
    x = _conv(filters_out, f"{name}project_conv", use_bias=False)(x)
    x = backbone.normalize(x, f"{name}project_bn")
    if stride == 1 and filters_in == filters_out:
        if rate > 0:
            x = layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
        x = layers.add([x, inputs], name=f"{name}add")
    return x


def _constructor(title: str, width: float, length: float, size: int, dropout_rate: float) -> Any:
    @document(title, "a network scaled in all directions", "The model scales images itself, from 0 to 255.")
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
            include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, size
        )
        x = layers.Rescaling(1.0 / 255.0)(backbone.image)
        x = layers.Normalization(axis=backbone.axis)(x)
        x = layers.ZeroPadding2D(padding=backbone.padding_for(x, 3), name="stem_conv_pad")(x)
        x = layers.Conv2D(
            divisible(32 * width),
            3,
            strides=2,
            padding="valid",
            use_bias=False,
            kernel_initializer=KERNEL,
            name="stem_conv",
        )(x)
        x = backbone.normalize(x, "stem_bn")
        x = layers.Activation("swish", name="stem_activation")(x)
        counts = [math.ceil(length * stage.repeats) for stage in _STAGES]
        done = 0
        for i, (stage, count) in enumerate(zip(_STAGES, counts, strict=True), 1):
            filters_in, filters_out = divisible(stage.filters_in * width), divisible(stage.filters_out * width)
            for j in range(count):
                rate = 0.2 * done / float(sum(counts))
                first = j == 0
                block = f"block{i}{chr(ord('a') + j)}_"
                stride = stage.stride if first else 1
                x = _block(backbone, x, filters_in if first else filters_out, filters_out, stage, stride, rate, block)
                done += 1
        x = _conv(divisible(1280 * width), "top_conv", use_bias=False)(x)
        x = backbone.normalize(x, "top_bn")
        x = layers.Activation("swish", name="top_activation")(x)
        if include_top:
            x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
            x = layers.Dropout(dropout_rate, name="top_dropout")(x)
            x = layers.Dense(classes, activation=backbone.activation(), kernel_initializer=DENSE, name="predictions")(x)
        else:
            x = backbone.pool(x, named=True)
        return backbone.finish(x, name)

    return make


EfficientNetB0 = _constructor("EfficientNetB0", 1.0, 1.0, 224, 0.2)
EfficientNetB1 = _constructor("EfficientNetB1", 1.0, 1.1, 240, 0.2)
EfficientNetB2 = _constructor("EfficientNetB2", 1.1, 1.2, 260, 0.3)
EfficientNetB3 = _constructor("EfficientNetB3", 1.2, 1.4, 300, 0.3)
EfficientNetB4 = _constructor("EfficientNetB4", 1.4, 1.8, 380, 0.4)
EfficientNetB5 = _constructor("EfficientNetB5", 1.6, 2.2, 456, 0.4)
EfficientNetB6 = _constructor("EfficientNetB6", 1.8, 2.6, 528, 0.5)
EfficientNetB7 = _constructor("EfficientNetB7", 2.0, 3.1, 600, 0.5)

_publish(__name__)
