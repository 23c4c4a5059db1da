"""InceptionV3, a network of modules with convolutions of several sizes side by side."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import decode_predictions
from weft.keras.applications.mobilenet import preprocess_input

__all__ = ["InceptionV3", "decode_predictions", "preprocess_input"]

# A convolution: filters, and the height and width of its kernel.
Convolution = tuple[int, int, int]


class Modules:
    """What the modules of a network are made of."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone

    def conv(self, x: Any, filters: int, height: int, width: int, stride: int = 1, padding: str = "same") -> Any:
        """Apply a convolution, a normalization without scale, and a rectifier."""
        conv = layers.Conv2D(filters, (height, width), strides=(stride, stride), padding=padding, use_bias=False)
        x = self.backbone.normalize(conv(x), scale=False)
        return layers.Activation("relu")(x)

    def chain(self, x: Any, *convolutions: Convolution) -> Any:
        """Apply convolutions one after the other."""
        for filters, height, width in convolutions:
            x = self.conv(x, filters, height, width)
        return x

    def pooled(self, x: Any, filters: int) -> Any:
        """Average neighbours and convolve the result."""
        average = layers.AveragePooling2D((3, 3), strides=(1, 1), padding="same")(x)
        return self.conv(average, filters, 1, 1)

    def merge(self, branches: list[Any], name: str) -> Any:
        """Concatenate branches along the channels."""
        return layers.concatenate(branches, axis=self.backbone.axis, name=name)

    def smaller(self, x: Any) -> Any:
        """Apply max pooling with stride 2."""
        return layers.MaxPooling2D((3, 3), strides=(2, 2))(x)

    def stem(self) -> Any:
        """Apply the first layers, from the image to maps of an eighth of its sides."""
        x = self.conv(self.backbone.image, 32, 3, 3, stride=2, padding="valid")
        x = self.conv(x, 32, 3, 3, padding="valid")
        x = self.smaller(self.conv(x, 64, 3, 3))
        x = self.conv(x, 80, 1, 1, padding="valid")
        return self.smaller(self.conv(x, 192, 3, 3, padding="valid"))

    def module_of_5(self, x: Any, pooled: int, name: str) -> Any:
        """Apply a module with kernels of 1, 5 and twice 3."""
        one = self.conv(x, 64, 1, 1)
        five = self.chain(x, (48, 1, 1), (64, 5, 5))
        three = self.chain(x, (64, 1, 1), (96, 3, 3), (96, 3, 3))
        return self.merge([one, five, three, self.pooled(x, pooled)], name)

    def module_of_7(self, x: Any, filters: int, name: str) -> Any:
        """Apply a module with kernels of 7 in one direction after the other, once and twice."""
        one = self.conv(x, 192, 1, 1)
        once = self.chain(x, (filters, 1, 1), (filters, 1, 7), (192, 7, 1))
        twice = self.chain(x, (filters, 1, 1), (filters, 7, 1), (filters, 1, 7), (filters, 7, 1), (192, 1, 7))
        return self.merge([one, once, twice, self.pooled(x, 192)], name)

    def module_of_pairs(self, x: Any, index: int) -> Any:
        """Apply a module with kernels of 3 in both directions side by side."""
        one = self.conv(x, 320, 1, 1)
        three = self.conv(x, 384, 1, 1)
        pair = [self.conv(three, 384, 1, 3), self.conv(three, 384, 3, 1)]
        first = layers.concatenate(pair, axis=self.backbone.axis, name=f"mixed9_{index}")
        three = self.chain(x, (448, 1, 1), (384, 3, 3))
        pair = [self.conv(three, 384, 1, 3), self.conv(three, 384, 3, 1)]
        second = layers.concatenate(pair, axis=self.backbone.axis)
        return self.merge([one, first, second, self.pooled(x, 192)], f"mixed{9 + index}")


@document("InceptionV3", "a network of modules", "Images go through `inception_v3.preprocess_input`.")
def InceptionV3(
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    input_shape: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "inception_v3",
) -> Any:
    backbone = Backbone(
        include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 299, smallest=75
    )
    modules = Modules(backbone)
    x = modules.stem()
    for i, pooled in enumerate((32, 64, 64)):
        x = modules.module_of_5(x, pooled, f"mixed{i}")
    three = modules.conv(x, 384, 3, 3, stride=2, padding="valid")
    twice = modules.conv(modules.chain(x, (64, 1, 1), (96, 3, 3)), 96, 3, 3, stride=2, padding="valid")
    x = modules.merge([three, twice, modules.smaller(x)], "mixed3")
    for i, filters in enumerate((128, 160, 160, 192), 4):
        x = modules.module_of_7(x, filters, f"mixed{i}")
    three = modules.conv(modules.conv(x, 192, 1, 1), 320, 3, 3, stride=2, padding="valid")
    seven = modules.chain(x, (192, 1, 1), (192, 1, 7), (192, 7, 1))
    seven = modules.conv(seven, 192, 3, 3, stride=2, padding="valid")
    x = modules.merge([three, seven, modules.smaller(x)], "mixed8")
    for i in range(2):
        x = modules.module_of_pairs(x, i)
    if include_top:
        return backbone.finish(backbone.head(x), name)
    return backbone.finish(backbone.pool(x, named=False), name)


_publish(__name__)
