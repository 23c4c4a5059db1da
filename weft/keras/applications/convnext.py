"""ConvNeXt: convolutional networks with the layout of transformers."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.efficientnet import preprocess_input
from weft.keras.applications.imagenet_utils import decode_predictions
from weft.keras.core import registry
from weft.keras.models.sequential import Sequential

__all__ = [
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "decode_predictions",
    "preprocess_input",
]

_EPSILON = 1e-6
# What images of ImageNet have, from 0 to 255.
_MEAN = [0.485 * 255, 0.456 * 255, 0.406 * 255]
_VARIANCE = [(0.229 * 255) ** 2, (0.224 * 255) ** 2, (0.225 * 255) ** 2]


class LayerScale(layers.Layer):
    """Channels, each times a weight of its own.

    Args:
        init_values: the weights at first.
        projection_dim: how many channels there are.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values, self.projection_dim = init_values, projection_dim

    def build(self, input_shape: Any) -> None:
        """Make the weights."""
        start = {"class_name": "Constant", "config": {"value": self.init_values}}
        self.gamma = self.add_weight(shape=(self.projection_dim,), initializer=start)

    def call(self, x: Any) -> Any:
        """Multiply the channels by the weights."""
        return x * self.gamma


def _normalization(name: str | None = None) -> Any:
    return layers.LayerNormalization(epsilon=_EPSILON, name=name)


def _block(x: Any, filters: int, name: str) -> Any:
    """Apply a wide depthwise convolution and two dense layers over the channels, with a residual connection."""
    before = x
    x = layers.Conv2D(filters, 7, padding="same", groups=filters, name=f"{name}_depthwise_conv")(x)
    x = _normalization(f"{name}_layernorm")(x)
    x = layers.Dense(4 * filters, name=f"{name}_pointwise_conv_1")(x)
    x = layers.Activation("gelu", name=f"{name}_gelu")(x)
    x = layers.Dense(filters, name=f"{name}_pointwise_conv_2")(x)
    x = LayerScale(_EPSILON, filters, name=f"{name}_layer_scale")(x)
    return before + layers.Activation("linear", name=f"{name}_identity")(x)


def _constructor(title: str, blocks: tuple[int, ...], filters: tuple[int, ...]) -> Any:
    @document(title, "a network of wide convolutions", "The model scales images itself, from 0 to 255.")
    def make(
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = title.lower().replace("convnext", "convnext_"),
    ) -> Any:
        backbone = Backbone(
            include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 224
        )
        x = backbone.image
        if include_preprocessing:
            axis = 1 if backbone.first else -1
            x = layers.Normalization(axis, mean=_MEAN, variance=_VARIANCE, name=f"{name}_prestem_normalization")(x)
        for i, (count, width) in enumerate(zip(blocks, filters, strict=True)):
            x = _smaller(i, width, name)(x)
            for j in range(count):
                x = _block(x, width, f"{name}_stage_{i}_block_{j}")
        if include_top:
            x = layers.GlobalAveragePooling2D(name=f"{name}_head_gap")(x)
            x = _normalization(f"{name}_head_layernorm")(x)
            x = layers.Dense(classes, activation=backbone.activation(), name=f"{name}_head_dense")(x)
        else:
            x = _normalization()(backbone.pool(x, named=False))
        return backbone.finish(x, name)

    return make


def _smaller(i: int, filters: int, name: str) -> Any:
    """Return the layers that a stage begins with: patches of the image, or of 2 x 2 pixels of the stage before."""
    if i == 0:
        conv = layers.Conv2D(filters, 4, strides=4, name=f"{name}_stem_conv")
        return Sequential([conv, _normalization(f"{name}_stem_layernorm")], name=f"{name}_stem")
    conv = layers.Conv2D(filters, 2, strides=2, name=f"{name}_downsampling_conv_{i - 1}")
    normalization = _normalization(f"{name}_downsampling_layernorm_{i - 1}")
    return Sequential([normalization, conv], name=f"{name}_downsampling_block_{i - 1}")


ConvNeXtTiny = _constructor("ConvNeXtTiny", (3, 3, 9, 3), (96, 192, 384, 768))
ConvNeXtSmall = _constructor("ConvNeXtSmall", (3, 3, 27, 3), (96, 192, 384, 768))
ConvNeXtBase = _constructor("ConvNeXtBase", (3, 3, 27, 3), (128, 256, 512, 1024))
ConvNeXtLarge = _constructor("ConvNeXtLarge", (3, 3, 27, 3), (192, 384, 768, 1536))
ConvNeXtXLarge = _constructor("ConvNeXtXLarge", (3, 3, 27, 3), (256, 512, 1024, 2048))

registry.register("applications.convnext", LayerScale)
_publish(__name__)
