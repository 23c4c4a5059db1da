"""Networks whose cells were found by a search (Zoph et al. 2018)."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError, publish as _publish
from weft.keras import layers
from weft.keras.applications.backbone import Backbone, document
from weft.keras.applications.imagenet_utils import (
    decode_predictions as decode_predictions,
    preprocess_input as _preprocess,
)
from weft.keras.core.names import name_scope


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Preprocess images for NASNet: values from -1 to 1.

    Args:
        x: an image, or a batch of images, with values from 0 to 255.
        data_format: "channels_last" or "channels_first"; the setting where None.
    """
    return _preprocess(x, data_format, "tf")


class _Cells:
    """The cells of one network; each takes the outputs of the two cells before it."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone

    def normalize(self, x: Any, name: str) -> Any:
        return self.backbone.normalize(x, name, momentum=0.9997, epsilon=1e-3)

    def separable(self, x: Any, filters: int, size: int, name: str, stride: int = 1) -> Any:
        """Apply two separable convolutions, each after ReLU and with batch normalization."""
        with name_scope(f"separable_conv_block_{name}"):
            x = layers.Activation("relu")(x)
            if stride == 2:
                x = layers.ZeroPadding2D(self.backbone.padding_for(x, size), name=f"separable_conv_1_pad_{name}")(x)
            for i in (1, 2):
                if i == 2:
                    x = layers.Activation("relu")(x)
                x = layers.SeparableConv2D(
                    filters,
                    (size, size),
                    strides=(stride, stride) if i == 1 else (1, 1),
                    name=f"separable_conv_{i}_{name}",
                    padding="valid" if i == 1 and stride == 2 else "same",
                    use_bias=False,
                )(x)
                x = self.normalize(x, f"separable_conv_{i}_bn_{name}")
        return x

    def pointwise(self, x: Any, filters: int, name: str) -> Any:
        return layers.Conv2D(
            filters, (1, 1), padding="same", use_bias=False, name=name, kernel_initializer="he_normal"
        )(x)

    def adjust(self, p: Any, x: Any, filters: int, name: str) -> Any:
        """Adjust the output of the second to last cell to the size of the last one's output and `filters` channels."""
        with name_scope("adjust_block"):
            if p is None:
                return x
            if p.shape[-2] != x.shape[-2]:
                with name_scope(f"adjust_reduction_block_{name}"):
                    p = layers.Activation("relu", name=f"adjust_relu_1_{name}")(p)
                    shifted = lambda: layers.Cropping2D(((1, 0), (1, 0)))(layers.ZeroPadding2D(((0, 1), (0, 1)))(p))
                    parts = []
                    for i in (1, 2):
                        part = p if i == 1 else shifted()
                        pool = layers.AveragePooling2D((1, 1), strides=(2, 2), name=f"adjust_avg_pool_{i}_{name}")
                        parts.append(self.pointwise(pool(part), filters // 2, f"adjust_conv_{i}_{name}"))
                    return self.normalize(layers.concatenate(parts, axis=-1), f"adjust_bn_{name}")
            if p.shape[-1] != filters:
                with name_scope(f"adjust_projection_block_{name}"):
                    p = layers.Activation("relu")(p)
                    p = self.pointwise(p, filters, f"adjust_conv_projection_{name}")
                    return self.normalize(p, f"adjust_bn_{name}")
        return p

    def entry(self, x: Any, filters: int, kind: str, name: str) -> Any:
        """Project the output of the last cell to `filters` channels."""
        h = self.pointwise(layers.Activation("relu")(x), filters, f"{kind}_conv_1_{name}")
        return self.normalize(h, f"{kind}_bn_1_{name}")

    def normal(self, x: Any, p: Any, filters: int, name: str) -> tuple[Any, Any]:
        """Apply a cell that retains the size of the image."""
        pool = lambda tensor, side: layers.AveragePooling2D(
            (3, 3), strides=(1, 1), padding="same", name=f"normal_{side}_{name}"
        )(tensor)
        with name_scope(f"normal_A_block_{name}"):
            p = self.adjust(p, x, filters, name)
            h = self.entry(x, filters, "normal", name)
            with name_scope("block_1"):
                left = self.separable(h, filters, 5, f"normal_left1_{name}")
                right = self.separable(p, filters, 3, f"normal_right1_{name}")
                x1 = layers.add([left, right], name=f"normal_add_1_{name}")
            with name_scope("block_2"):
                left = self.separable(p, filters, 5, f"normal_left2_{name}")
                right = self.separable(p, filters, 3, f"normal_right2_{name}")
                x2 = layers.add([left, right], name=f"normal_add_2_{name}")
            with name_scope("block_3"):
                x3 = layers.add([pool(h, "left3"), p], name=f"normal_add_3_{name}")
            with name_scope("block_4"):
                x4 = layers.add([pool(p, "left4"), pool(p, "right4")], name=f"normal_add_4_{name}")
            with name_scope("block_5"):
                x5 = self.separable(h, filters, 3, f"normal_left5_{name}")
                x5 = layers.add([x5, h], name=f"normal_add_5_{name}")
            return layers.concatenate([p, x1, x2, x3, x4, x5], axis=-1, name=f"normal_concat_{name}"), x

    def reduction(self, x: Any, p: Any, filters: int, name: str) -> tuple[Any, Any]:
        """Apply a cell that halves the size of the image."""
        pool = lambda kind, tensor, side: kind(
            (3, 3), strides=(2, 2), padding="valid", name=f"reduction_{side}_{name}"
        )(tensor)
        with name_scope(f"reduction_A_block_{name}"):
            p = self.adjust(p, x, filters, name)
            h = self.entry(x, filters, "reduction", name)
            padded = layers.ZeroPadding2D(self.backbone.padding_for(h, 3), name=f"reduction_pad_1_{name}")(h)
            with name_scope("block_1"):
                left = self.separable(h, filters, 5, f"reduction_left1_{name}", 2)
                right = self.separable(p, filters, 7, f"reduction_right1_{name}", 2)
                x1 = layers.add([left, right], name=f"reduction_add_1_{name}")
            with name_scope("block_2"):
                left = pool(layers.MaxPooling2D, padded, "left2")
                right = self.separable(p, filters, 7, f"reduction_right2_{name}", 2)
                x2 = layers.add([left, right], name=f"reduction_add_2_{name}")
            with name_scope("block_3"):
                left = pool(layers.AveragePooling2D, padded, "left3")
                right = self.separable(p, filters, 5, f"reduction_right3_{name}", 2)
                x3 = layers.add([left, right], name=f"reduction_add3_{name}")
            with name_scope("block_4"):
                x4 = layers.AveragePooling2D((3, 3), strides=(1, 1), padding="same", name=f"reduction_left4_{name}")(x1)
                x4 = layers.add([x2, x4])
            with name_scope("block_5"):
                left = self.separable(x1, filters, 3, f"reduction_left4_{name}")
                right = pool(layers.MaxPooling2D, padded, "right5")
                x5 = layers.add([left, right], name=f"reduction_add4_{name}")
            return layers.concatenate([x2, x3, x4, x5], axis=-1, name=f"reduction_concat_{name}"), x


def _build(backbone: Backbone, penultimate: int, blocks: int, stem: int, skip_reduction: bool, name: str | None) -> Any:
    if backbone.first:
        raise ArgumentError(
            "NASNet needs images with the channels last.",
            received="image_data_format() == 'channels_first'",
            fix="keras.config.set_image_data_format('channels_last')",
        )
    cells, filters = _Cells(backbone), penultimate // 24
    x = layers.Conv2D(stem, (3, 3), strides=(2, 2), use_bias=False, name="stem_conv1", kernel_initializer="he_normal")(
        backbone.image
    )
    x = cells.normalize(x, "stem_bn1")
    p: Any = None
    x, p = cells.reduction(x, p, filters // 4, "stem_1")
    x, p = cells.reduction(x, p, filters // 2, "stem_2")
    for i in range(3):
        if i:
            x, before = cells.reduction(x, p, filters * 2**i, f"reduce_{i * blocks}")
            p = p if skip_reduction else before
        for j in range(blocks):
            x, p = cells.normal(x, p, filters * 2**i, str(i * (blocks + 1) + j if i < 2 else 2 * blocks + j + 1))
    x = layers.Activation("relu")(x)
    return backbone.finish(backbone.head(x, named_pooling=False), name)


def _make(title: str, size: int, penultimate: int, blocks: int, stem: int, skip_reduction: bool) -> Any:
    @document(title, "Zoph et al. 2018", "Images go through `nasnet.preprocess_input`.")
    def create(
        input_shape: Any = None,
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str | None = None,
    ) -> Any:
        if title == "NASNetMobile" and not include_top and input_shape is None:
            input_shape = (size, size, 3)
        backbone = Backbone(
            include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, size
        )
        default = {"NASNetMobile": "nasnet_mobile", "NASNetLarge": "nasnet_large"}[title]
        return _build(backbone, penultimate, blocks, stem, skip_reduction, default if name is None else name)

    return create


NASNetMobile = _make("NASNetMobile", 224, 1056, 4, 32, False)
NASNetLarge = _make("NASNetLarge", 331, 4032, 6, 96, True)

_publish(__name__)
