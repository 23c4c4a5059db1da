"""MobileNet (Howard et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.layers.convolution import Conv2D
from weft.haiku.layers.depthwise import DepthwiseConv2D
from weft.haiku.layers.linear import Linear
from weft.haiku.layers.normalization import BatchNorm
from weft.haiku.module import Module


def _norm() -> BatchNorm:
    return BatchNorm(create_scale=True, create_offset=True, decay_rate=0.999)


class MobileNetV1Block(Module):
    """A depthwise convolution and a pointwise one, each with normalization and rectifier."""

    def __init__(self, channels: int, stride: int, use_bn: bool = True, name: str | None = None):
        super().__init__(name=name)
        self.channels = channels
        self.stride = stride
        self.use_bn = use_bn

    def __call__(self, inputs: Any, is_training: bool) -> Any:
        one = ((1, 1), (1, 1))
        depthwise = DepthwiseConv2D(1, 3, self.stride, padding=one, with_bias=not self.use_bn, name="depthwise_conv")
        pointwise = Conv2D(self.channels, 1, 1, padding="VALID", with_bias=not self.use_bn, name="pointwise_conv")
        out = depthwise(inputs)
        if self.use_bn:
            out = _norm()(out, is_training)
        out = pointwise(weft.nn.relu(out))
        if self.use_bn:
            out = _norm()(out, is_training)
        return weft.nn.relu(out)


class MobileNetV1(Module):
    """A convolution, blocks of the given strides and channels, the mean over space, and a linear layer."""

    def __init__(
        self,
        strides: Sequence[int] = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1),
        channels: Sequence[int] = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024),
        num_classes: int = 1000,
        use_bn: bool = True,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if len(strides) != len(channels):
            raise ArgumentError(
                f"MobileNetV1 {self.module_name!r} needs as many strides as channels, got {len(strides)} and "
                f"{len(channels)}."
            )
        self.strides = strides
        self.channels = channels
        self.num_classes = num_classes
        self.use_bn = use_bn

    def __call__(self, inputs: Any, is_training: bool) -> Any:
        out = Conv2D(32, 3, 2, padding="VALID", with_bias=not self.use_bn)(inputs)
        if self.use_bn:
            out = _norm()(out, is_training)
        out = weft.nn.relu(out)
        for stride, channels in zip(self.strides, self.channels, strict=True):
            out = MobileNetV1Block(channels, stride, self.use_bn)(out, is_training)
        return Linear(self.num_classes, name="logits")(wnp.mean(out, axis=(1, 2)))
