"""Whole networks."""

from weft.errors import suggest as _suggest
from weft.haiku.nets.mlp import MLP
from weft.haiku.nets.mobilenet import MobileNetV1
from weft.haiku.nets.resnet import ResNet, ResNet18, ResNet34, ResNet50, ResNet101, ResNet152, ResNet200
from weft.haiku.nets.vector_quantizer import VectorQuantizer, VectorQuantizerEMA

__all__ = [
    "MLP",
    "MobileNetV1",
    "ResNet",
    "ResNet101",
    "ResNet152",
    "ResNet18",
    "ResNet200",
    "ResNet34",
    "ResNet50",
    "VectorQuantizer",
    "VectorQuantizerEMA",
]

_suggest(__name__)
