"""Residual networks (He et al. 2015, and 2016 for the second version)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.layers.convolution import Conv2D
from weft.haiku.layers.linear import Linear
from weft.haiku.layers.normalization import BatchNorm
from weft.haiku.layers.pooling import max_pool
from weft.haiku.module import Module

Config = Mapping[str, Any]


def _convolution(channels: int, kernel: int, stride: Any, name: str) -> Conv2D:
    return Conv2D(channels, kernel, stride, with_bias=False, padding="SAME", name=name)


class Block(Module):
    """Convolutions with a shortcut around them.

    In the first version each convolution is followed by normalization and, except for the last, a rectifier; one more
    rectifier follows the sum. In the second, normalization and rectifier precede each convolution.
    """

    def __init__(
        self,
        channels: int,
        stride: Any,
        use_projection: bool,
        bn_config: Config,
        bottleneck: bool,
        is_second: bool,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.use_projection = use_projection
        self.is_second = is_second
        options = {"create_scale": True, "create_offset": True, "decay_rate": 0.999, **bn_config}
        if use_projection:
            self.proj_conv = _convolution(channels, 1, stride, "shortcut_conv")
            if not is_second:
                self.proj_batchnorm = BatchNorm(name="shortcut_batchnorm", **options)
        inner = channels // (4 if bottleneck else 1)
        first = _convolution(inner, 1 if bottleneck else 3, 1 if bottleneck else stride, "conv_0")
        second = _convolution(inner, 3, stride if bottleneck else 1, "conv_1")
        self.layers = [
            (first, BatchNorm(name="batchnorm_0", **options)),
            (second, BatchNorm(name="batchnorm_1", **options)),
        ]
        if bottleneck:
            last = _convolution(channels, 1, 1, "conv_2")
            # A new block is the identity of its shortcut: its last scale is 0.
            begin = {} if is_second else {"scale_init": wnp.zeros}
            self.layers.append((last, BatchNorm(name="batchnorm_2", **{**options, **begin})))

    def __call__(self, inputs: Any, is_training: bool, test_local_stats: bool) -> Any:
        out = shortcut = inputs
        if self.is_second:
            for i, (convolution, norm) in enumerate(self.layers):
                out = weft.nn.relu(norm(out, is_training, test_local_stats))
                if i == 0 and self.use_projection:
                    shortcut = self.proj_conv(out)
                out = convolution(out)
            return out + shortcut
        if self.use_projection:
            shortcut = self.proj_batchnorm(self.proj_conv(shortcut), is_training, test_local_stats)
        for i, (convolution, norm) in enumerate(self.layers):
            out = norm(convolution(out), is_training, test_local_stats)
            if i < len(self.layers) - 1:
                out = weft.nn.relu(out)
        return weft.nn.relu(out + shortcut)


class BlockGroup(Module):
    """Blocks applied one after another; the first has the stride and the projection."""

    def __init__(
        self,
        channels: int,
        num_blocks: int,
        stride: Any,
        bn_config: Config,
        resnet_v2: bool,
        bottleneck: bool,
        use_projection: bool,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.blocks = [
            Block(
                channels,
                1 if i else stride,
                use_projection and i == 0,
                bn_config,
                bottleneck,
                resnet_v2,
                name=f"block_{i}",
            )
            for i in range(num_blocks)
        ]

    def __call__(self, inputs: Any, is_training: bool, test_local_stats: bool) -> Any:
        out = inputs
        for block in self.blocks:
            out = block(out, is_training, test_local_stats)
        return out


def _four(values: Sequence[Any], what: str, module: Module) -> None:
    if len(values) != 4:
        raise ArgumentError(
            f"{type(module).__name__} {module.module_name!r} needs four {what}, one a group, got {values!r}."
        )


class ResNet(Module):
    """A convolution, four groups of residual blocks, the mean over space, and a linear layer."""

    CONFIGS = {
        18: {
            "blocks_per_group": (2, 2, 2, 2),
            "bottleneck": False,
            "channels_per_group": (64, 128, 256, 512),
            "use_projection": (False, True, True, True),
        },
        34: {
            "blocks_per_group": (3, 4, 6, 3),
            "bottleneck": False,
            "channels_per_group": (64, 128, 256, 512),
            "use_projection": (False, True, True, True),
        },
        **{
            depth: {
                "blocks_per_group": blocks,
                "bottleneck": True,
                "channels_per_group": (256, 512, 1024, 2048),
                "use_projection": (True, True, True, True),
            }
            for depth, blocks in {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}.items()
        },
    }

    BlockGroup = BlockGroup

    def __init__(
        self,
        blocks_per_group: Sequence[int],
        num_classes: int,
        bn_config: Config | None = None,
        resnet_v2: bool = False,
        bottleneck: bool = True,
        channels_per_group: Sequence[int] = (256, 512, 1024, 2048),
        use_projection: Sequence[bool] = (True, True, True, True),
        logits_config: Config | None = None,
        name: str | None = None,
        initial_conv_config: Config | None = None,
        strides: Sequence[int] = (1, 2, 2, 2),
    ):
        super().__init__(name=name)
        self.resnet_v2 = resnet_v2
        for what, values in (
            ("blocks_per_group", blocks_per_group),
            ("channels_per_group", channels_per_group),
            ("use_projection", use_projection),
            ("strides", strides),
        ):
            _four(values, what, self)
        options = {"decay_rate": 0.9, "eps": 1e-5, "create_scale": True, "create_offset": True, **(bn_config or {})}
        initial: dict[str, Any] = {
            "output_channels": 64,
            "kernel_shape": 7,
            "stride": 2,
            "with_bias": False,
            "padding": "SAME",
            "name": "initial_conv",
            **(initial_conv_config or {}),
        }
        self.initial_conv = Conv2D(**initial)
        if not resnet_v2:
            self.initial_batchnorm = BatchNorm(name="initial_batchnorm", **options)
        self.block_groups = [
            BlockGroup(
                channels_per_group[i],
                blocks_per_group[i],
                strides[i],
                options,
                resnet_v2,
                bottleneck,
                use_projection[i],
                name=f"block_group_{i}",
            )
            for i in range(4)
        ]
        if resnet_v2:
            self.final_batchnorm = BatchNorm(name="final_batchnorm", **options)
        self.logits = Linear(num_classes, **{"w_init": wnp.zeros, "name": "logits", **(logits_config or {})})

    def __call__(self, inputs: Any, is_training: bool, test_local_stats: bool = False) -> Any:
        out = self.initial_conv(inputs)
        if not self.resnet_v2:
            out = weft.nn.relu(self.initial_batchnorm(out, is_training, test_local_stats))
        out = max_pool(out, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for group in self.block_groups:
            out = group(out, is_training, test_local_stats)
        if self.resnet_v2:
            out = weft.nn.relu(self.final_batchnorm(out, is_training, test_local_stats))
        return self.logits(wnp.mean(out, axis=(1, 2)))


class _OfDepth(ResNet):
    """A network of a published depth."""

    depth: int

    def __init__(
        self,
        num_classes: int,
        bn_config: Config | None = None,
        resnet_v2: bool = False,
        logits_config: Config | None = None,
        name: str | None = None,
        initial_conv_config: Config | None = None,
        strides: Sequence[int] = (1, 2, 2, 2),
    ):
        super().__init__(
            num_classes=num_classes,
            bn_config=bn_config,
            resnet_v2=resnet_v2,
            logits_config=logits_config,
            name=name,
            initial_conv_config=initial_conv_config,
            strides=strides,
            **ResNet.CONFIGS[self.depth],  # type: ignore[arg-type]
        )


class ResNet18(_OfDepth):
    """The network of 18 layers."""

    depth = 18


class ResNet34(_OfDepth):
    """The network of 34 layers."""

    depth = 34


class ResNet50(_OfDepth):
    """The network of 50 layers."""

    depth = 50


class ResNet101(_OfDepth):
    """The network of 101 layers."""

    depth = 101


class ResNet152(_OfDepth):
    """The network of 152 layers."""

    depth = 152


class ResNet200(_OfDepth):
    """The network of 200 layers."""

    depth = 200
