"""Whole networks."""

from weft.errors import suggest as _suggest
from weft.haiku.nets.mlp import MLP as MLP
from weft.haiku.nets.mobilenet import MobileNetV1 as MobileNetV1
from weft.haiku.nets.resnet import (
    ResNet as ResNet,
    ResNet18 as ResNet18,
    ResNet34 as ResNet34,
    ResNet50 as ResNet50,
    ResNet101 as ResNet101,
    ResNet152 as ResNet152,
    ResNet200 as ResNet200,
)
from weft.haiku.nets.vector_quantizer import (
    VectorQuantizer as VectorQuantizer,
    VectorQuantizerEMA as VectorQuantizerEMA,
)

_suggest(__name__)
