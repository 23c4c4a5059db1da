"""InceptionResNetV2, a network of modules whose results are added to what was there before."""

from __future__ import annotations

from typing import Any

from weft.errors import publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import decode_predictions
from weft.keras.applications.inception_v3 import Convolution, Modules
from weft.keras.applications.mobilenet import preprocess_input
from weft.keras.core import registry

__all__ = ["InceptionResNetV2", "decode_predictions", "preprocess_input"]


class CustomScaleLayer(layers.Layer):
    """The sum of two inputs, the second one times a number.

    Args:
        scale: the number.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        """Add the scaled second input to the first."""
        return inputs[0] + inputs[1] * self.scale


# The branches of the modules that are repeated, after a convolution of 1 x 1.
_BRANCHES: dict[str, tuple[tuple[Convolution, ...], ...]] = {
    "block35": (((32, 1, 1),), ((32, 1, 1), (32, 3, 3)), ((32, 1, 1), (48, 3, 3), (64, 3, 3))),
    "block17": (((192, 1, 1),), ((128, 1, 1), (160, 1, 7), (192, 7, 1))),
    "block8": (((192, 1, 1),), ((192, 1, 1), (224, 1, 3), (256, 3, 1))),
}


def _block(modules: Modules, x: Any, kind: str, scale: float, index: int, activate: bool = True) -> Any:
    """Concatenate branches, project them to the channels of the input and add them to it."""
    name = f"{kind}_{index}"
    mixed = modules.merge([modules.chain(x, *branch) for branch in _BRANCHES[kind]], f"{name}_mixed")
    up = layers.Conv2D(modules.backbone.channels(x), 1, padding="same", name=f"{name}_conv")(mixed)
    x = CustomScaleLayer(scale)([x, up])
    return layers.Activation("relu", name=f"{name}_ac")(x) if activate else x


def _reduce(modules: Modules, x: Any, *branches: tuple[Convolution, ...]) -> list[Any]:
    """Return branches whose last convolutions have stride 2, and a pooled one."""
    found = []
    for *before, (filters, height, width) in branches:
        found.append(modules.conv(modules.chain(x, *before), filters, height, width, stride=2, padding="valid"))
    return [*found, modules.smaller(x)]


@document(
    "InceptionResNetV2", "a network of modules that add", "Images go through `inception_resnet_v2.preprocess_input`."
)
def InceptionResNetV2(
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    input_shape: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "inception_resnet_v2",
) -> Any:
    backbone = Backbone(
        include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, 299, smallest=75
    )
    modules = Modules(backbone)
    x = modules.stem()
    chains: tuple[tuple[Convolution, ...], ...] = (
        ((96, 1, 1),),
        ((48, 1, 1), (64, 5, 5)),
        ((64, 1, 1), (96, 3, 3), (96, 3, 3)),
    )
    x = modules.merge([*(modules.chain(x, *chain) for chain in chains), modules.pooled(x, 64)], "mixed_5b")
    for i in range(1, 11):
        x = _block(modules, x, "block35", 0.17, i)
    three: Convolution = (384, 3, 3)
    x = modules.merge(_reduce(modules, x, (three,), ((256, 1, 1), (256, 3, 3), three)), "mixed_6a")
    for i in range(1, 21):
        x = _block(modules, x, "block17", 0.1, i)
    one: Convolution = (256, 1, 1)
    branches = ((one, three), (one, (288, 3, 3)), (one, (288, 3, 3), (320, 3, 3)))
    x = modules.merge(_reduce(modules, x, *branches), "mixed_7a")
    for i in range(1, 10):
        x = _block(modules, x, "block8", 0.2, i)
    x = _block(modules, x, "block8", 1.0, 10, activate=False)
    x = layers.Conv2D(1536, 1, padding="same", use_bias=False, name="conv_7b")(x)
    x = backbone.normalize(x, "conv_7b_bn", scale=False)
    x = layers.Activation("relu", name="conv_7b_ac")(x)
    if include_top:
        return backbone.finish(backbone.head(x), name)
    return backbone.finish(backbone.pool(x, named=False), name)


registry.register("applications.inception_resnet_v2", CustomScaleLayer)
_publish(__name__)
