"""Networks that grow as EfficientNets do, whose first blocks have one convolution in place of two."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.efficientnet import DENSE, KERNEL, preprocess_input
from weft.keras.applications.imagenet_utils import decode_predictions

__all__ = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "decode_predictions",
    "preprocess_input",
]


class Stage(NamedTuple):
    """Blocks of one size, before scaling. Fused ones have a convolution in place of expansion and depthwise
    convolution, and no weights of channels."""

    repeats: int
    filters_out: int
    expansion: int
    stride: int
    fused: bool


# What the stages of all networks have in common: expansion, stride, and whether blocks are fused.
_KINDS = ((1, 1, True), (4, 2, True), (4, 2, True), (4, 2, False), (6, 1, False), (6, 2, False), (6, 1, False))


def _stages(*sizes: tuple[int, int]) -> tuple[Stage, ...]:
    """Combine repeats and filters with the kinds of stages; a network may have one stage less than there are kinds."""
    return tuple(Stage(repeats, out, *kind) for (repeats, out), kind in zip(sizes, _KINDS, strict=False))


# Filters of the stem, and the stages after it.
_SMALL = (32, _stages((1, 16), (2, 32), (2, 48), (3, 96), (5, 112), (8, 192)))
_S = (24, _stages((2, 24), (4, 48), (4, 64), (6, 128), (9, 160), (15, 256)))
_M = (24, _stages((3, 24), (5, 48), (5, 80), (7, 160), (14, 176), (18, 304), (5, 512)))
_L = (32, _stages((4, 32), (7, 64), (7, 96), (10, 192), (19, 224), (25, 384), (7, 640)))


def _round_channels(filters: float) -> int:
    """Round a number of channels to the nearest multiple of 8."""
    return max(8, int(filters + 4) // 8 * 8)


def _conv(filters: int, kernel: int, name: str, **options: Any) -> Any:
    return layers.Conv2D(filters, kernel, padding="same", kernel_initializer=KERNEL, name=name, **options)


def _normalize(backbone: Backbone, x: Any, name: str, activation: str | None = None) -> Any:
    x = backbone.normalize(x, name, momentum=0.9)
    return x if activation is None else layers.Activation("swish", name=activation)(x)


def _fused_block(backbone: Backbone, x: Any, filters_out: int, expansion: int, stride: int, name: str) -> Any:
    """Apply an expansion by a 3 x 3 convolution and a projection; without expansion, one convolution."""
    if expansion == 1:
        x = _conv(filters_out, 3, f"{name}project_conv", strides=stride, use_bias=False)(x)
        return _normalize(backbone, x, f"{name}project_bn", f"{name}project_activation")
    filters = backbone.channels(x) * expansion
    x = _conv(filters, 3, f"{name}expand_conv", strides=stride, use_bias=False)(x)
    x = _normalize(backbone, x, f"{name}expand_bn", f"{name}expand_activation")
    x = _conv(filters_out, 1, f"{name}project_conv", use_bias=False)(x)
    return _normalize(backbone, x, f"{name}project_bn")


def _separated_block(backbone: Backbone, x: Any, filters_out: int, expansion: int, stride: int, name: str) -> Any:
    """Apply expansion, depthwise convolution, channel weights and projection."""
    filters_in = backbone.channels(x)
    filters = filters_in * expansion
    x = _conv(filters, 1, f"{name}expand_conv", use_bias=False)(x)
    x = _normalize(backbone, x, f"{name}expand_bn", f"{name}expand_activation")
    x = layers.DepthwiseConv2D(
        3, strides=stride, padding="same", use_bias=False, depthwise_initializer=KERNEL, name=f"{name}dwconv2"
    )(x)
    x = _normalize(backbone, x, f"{name}bn", f"{name}activation")
    weights = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    shape = (filters, 1, 1) if backbone.first else (1, 1, filters)
    weights = layers.Reshape(shape, name=f"{name}se_reshape")(weights)
    weights = _conv(max(1, int(filters_in * 0.25)), 1, f"{name}se_reduce", activation="swish")(weights)
    weights = _conv(filters, 1, f"{name}se_expand", activation="sigmoid")(weights)
    x = layers.multiply([x, weights], name=f"{name}se_excite")
    x = _conv(filters_out, 1, f"{name}project_conv", use_bias=False)(x)
    return _normalize(backbone, x, f"{name}project_bn")


def _scale_channels(backbone: Backbone, of_image_net: bool) -> Any:
    """Scale images from 0 to 255 for the network."""
    if not of_image_net:
        return layers.Rescaling(scale=1.0 / 128.0, offset=-1)(backbone.image)
    x = layers.Rescaling(scale=1.0 / 255)(backbone.image)
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    return layers.Normalization(mean=mean, variance=[d**2 for d in deviation], axis=backbone.axis)(x)


def _constructor(title: str, plan: tuple[int, tuple[Stage, ...]], size: int, width: float, length: float) -> Any:
    stem, stages = plan

    @document(title, "a network scaled in all directions", "The model scales images itself, from 0 to 255.")
    def make(
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = f"efficientnetv2-{title.removeprefix('EfficientNetV2').lower()}",
    ) -> Any:
        backbone = Backbone(
            include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, size
        )
        x = _scale_channels(backbone, of_image_net=plan is _SMALL) if include_preprocessing else backbone.image
        x = _conv(_round_channels(stem * width), 3, "stem_conv", strides=2, use_bias=False)(x)
        x = _normalize(backbone, x, "stem_bn", "stem_activation")
        done, total = 0, float(sum(stage.repeats for stage in stages))
        for i, stage in enumerate(stages, 1):
            filters = _round_channels(stage.filters_out * width)
            for j in range(math.ceil(length * stage.repeats)):
                block, before, stride = f"block{i}{chr(ord('a') + j)}_", x, stage.stride if j == 0 else 1
                x = (_fused_block if stage.fused else _separated_block)(
                    backbone, x, filters, stage.expansion, stride, block
                )
                if stride == 1 and backbone.channels(before) == filters:
                    if done:
                        rate = 0.2 * done / total
                        x = layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{block}drop")(x)
                    x = layers.add([x, before], name=f"{block}add")
                done += 1
        x = _conv(_round_channels(1280 * width), 1, "top_conv", use_bias=False)(x)
        x = _normalize(backbone, x, "top_bn", "top_activation")
        if include_top:
            x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
            x = layers.Dropout(0.2, name="top_dropout")(x)
            head = layers.Dense(classes, backbone.activation(), kernel_initializer=DENSE, name="predictions")
            return backbone.finish(head(x), name)
        return backbone.finish(backbone.pool(x, named=True), name)

    return make


EfficientNetV2B0 = _constructor("EfficientNetV2B0", _SMALL, 224, 1.0, 1.0)
EfficientNetV2B1 = _constructor("EfficientNetV2B1", _SMALL, 240, 1.0, 1.1)
EfficientNetV2B2 = _constructor("EfficientNetV2B2", _SMALL, 260, 1.1, 1.2)
EfficientNetV2B3 = _constructor("EfficientNetV2B3", _SMALL, 300, 1.2, 1.4)
EfficientNetV2S = _constructor("EfficientNetV2S", _S, 384, 1.0, 1.0)
EfficientNetV2M = _constructor("EfficientNetV2M", _M, 480, 1.0, 1.0)
EfficientNetV2L = _constructor("EfficientNetV2L", _L, 480, 1.0, 1.0)

_publish(__name__)
