"""Convolutional networks: ResNet and ConvNeXt, from description to labels."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError
from weft.models.config import Config, Fields
from weft.models.encoders import Shapes, count_labels, linear, norm
from weft.models.transformer import ACTIVATIONS, project

_STAGE = "resnet.encoder.stages.*.layers.*"


def _resnet_unit(outer: str, own: str) -> dict[str, str]:
    """Return the names of a convolution and its batch norm."""
    return {
        f"{outer}.convolution": own,
        f"{outer}.normalization": f"{own}_norm",
        f"{outer}.normalization.running_mean": f"{own}_norm.mean",
        f"{outer}.normalization.running_var": f"{own}_norm.variance",
    }


RESNET = {
    **_resnet_unit("resnet.embedder.embedder", "stem"),
    **_resnet_unit(f"{_STAGE}.layer.0", "stages.*.*.first"),
    **_resnet_unit(f"{_STAGE}.layer.1", "stages.*.*.second"),
    **_resnet_unit(f"{_STAGE}.layer.2", "stages.*.*.third"),
    **_resnet_unit(f"{_STAGE}.shortcut", "stages.*.*.shortcut"),
    "classifier.1": "classifier",
}
CONVNEXT = {
    "convnext.embeddings.patch_embeddings": "stem",
    "convnext.embeddings.layernorm": "stem_norm",
    "convnext.encoder.stages.*.downsampling_layer.0": "downsampling.*.norm",
    "convnext.encoder.stages.*.downsampling_layer.1": "downsampling.*.convolution",
    "convnext.encoder.stages.*.layers.*.dwconv": "stages.*.*.depthwise",
    "convnext.encoder.stages.*.layers.*.layernorm": "stages.*.*.norm",
    "convnext.encoder.stages.*.layers.*.pwconv1": "stages.*.*.up",
    "convnext.encoder.stages.*.layers.*.pwconv2": "stages.*.*.down",
    "convnext.encoder.stages.*.layers.*.layer_scale_parameter": "stages.*.*.layer_scale",
    "convnext.layernorm": "norm",
    "classifier": "classifier",
}


def _task(fields: Fields, width: int) -> tuple[str, Shapes]:
    if any(name.endswith("ForImageClassification") for name in fields.get("architectures", [])):
        return "image labels", linear("classifier", count_labels(fields), width)
    return "image features", {}


def read_resnet(fields: Fields) -> Config:
    """Read the config of ResNet."""
    sizes, depths = fields["hidden_sizes"], fields["depths"]
    kind = fields.get("layer_type", "bottleneck")
    if kind not in ("bottleneck", "basic"):
        raise ArgumentError("layer_type of a ResNet must be bottleneck or basic.", received=repr(kind))
    extras: Shapes = {}

    def unit(path: str, rows: int, columns: int, size: int) -> None:
        extras[f"{path}.weight"] = (rows, columns, size, size)
        extras.update({f"{path}_norm.{name}": (rows,) for name in ("weight", "bias", "mean", "variance")})

    channels = fields.get("embedding_size", 64)
    unit("stem", channels, fields.get("num_channels", 3), 7)
    strides = []
    for stage, (width, depth) in enumerate(zip(sizes, depths, strict=True)):
        for block in range(depth):
            stride = 2 if block == 0 and (stage or fields.get("downsample_in_first_stage", False)) else 1
            path = f"stages.{stage}.{block}"
            if kind == "bottleneck":
                unit(f"{path}.first", width // 4, channels, 1)
                unit(f"{path}.second", width // 4, width // 4, 3)
                unit(f"{path}.third", width, width // 4, 1)
            else:
                unit(f"{path}.first", width, channels, 3)
                unit(f"{path}.second", width, width, 3)
            if stride != 1 or channels != width:
                unit(f"{path}.shortcut", width, channels, 1)
            channels = width
            strides.append(stride)
    task, head = _task(fields, channels)
    options = {
        "strides": tuple(strides),
        "activation": fields.get("hidden_act", "relu"),
        # The stride is in the first convolution of a block, or in that of size 3.
        "early": kind == "basic" or fields.get("downsample_in_bottleneck", False),
    }
    return Config("resnet", task, {}, extras | head, options, None, dict(fields.raw))


def read_convnext(fields: Fields) -> Config:
    """Read the config of ConvNeXt."""
    sizes, depths = fields.get("hidden_sizes", [96, 192, 384, 768]), fields.get("depths", [3, 3, 9, 3])
    patch, channels = fields.get("patch_size", 4), fields.get("num_channels", 3)
    extras: Shapes = {"stem.weight": (sizes[0], channels, patch, patch), "stem.bias": (sizes[0],)}
    extras |= norm("stem_norm", sizes[0])
    for stage, (width, depth) in enumerate(zip(sizes, depths, strict=True)):
        if stage:
            extras |= norm(f"downsampling.{stage}.norm", sizes[stage - 1])
            extras |= linear(f"downsampling.{stage}.convolution", width, sizes[stage - 1])
            extras[f"downsampling.{stage}.convolution.weight"] = (width, sizes[stage - 1], 2, 2)
        for block in range(depth):
            path = f"stages.{stage}.{block}"
            extras |= {f"{path}.depthwise.weight": (width, 1, 7, 7), f"{path}.depthwise.bias": (width,)}
            extras |= norm(f"{path}.norm", width)
            extras |= linear(f"{path}.up", 4 * width, width) | linear(f"{path}.down", width, 4 * width)
            if fields.get("layer_scale_init_value", 1e-6) > 0:
                extras[f"{path}.layer_scale"] = (width,)
    task, head = _task(fields, sizes[-1])
    options = {"epsilon": fields.get("layer_norm_eps", 1e-12), "activation": fields.get("hidden_act", "gelu")}
    extras |= norm("norm", sizes[-1]) | head
    return Config("convnext", task, {}, extras, options, None, dict(fields.raw))


# -------------------------------------------------------------------------------------------------------------- forward


def convolve(x: Any, w: dict[str, Any], stride: int = 1, groups: int = 1, has_border: bool = True) -> Any:
    """Convolve images (batch, channels, height, width), with a border of zeros that keeps their size at stride 1."""
    border = w["weight"].shape[-1] // 2 if has_border else 0
    padding = [(border, border)] * 2
    y = lax.conv_general_dilated(x, w["weight"].astype(x.dtype), (stride, stride), padding, feature_group_count=groups)
    return y + w["bias"].astype(y.dtype)[:, None, None] if "bias" in w else y


def batch_normalize(x: Any, w: dict[str, Any]) -> Any:
    """Normalize each channel by stored statistics."""
    factor = w["weight"] * lax.rsqrt(w["variance"] + np.float32(1e-5))
    return x * factor[:, None, None] + (w["bias"] - w["mean"] * factor)[:, None, None]


def layer_normalize(x: Any, w: dict[str, Any], epsilon: float = 1e-6) -> Any:
    """Normalize the last axis."""
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + np.float32(epsilon)) * w["weight"] + w["bias"]


def residual_network(images: Any, params: dict[str, Any], config: Config) -> Any:
    """Return the features (batch, channels, height, width) of a ResNet."""
    activation = ACTIVATIONS[config.get("activation")]

    def unit(x: Any, w: dict[str, Any], name: str, stride: int = 1) -> Any:
        return batch_normalize(convolve(x, w[name], stride), w[f"{name}_norm"])

    x = activation(unit(images, params, "stem", 2))
    x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
    strides = iter(config.get("strides"))
    for stage in params["stages"]:
        for w in stage:
            stride = next(strides)
            first, second = (stride, 1) if config.get("early") else (1, stride)
            y = unit(activation(unit(x, w, "first", first)), w, "second", second)
            if "third" in w:
                y = unit(activation(y), w, "third")
            x = activation(y + (unit(x, w, "shortcut", stride) if "shortcut" in w else x))
    return x


def convnext(images: Any, params: dict[str, Any], config: Config) -> Any:
    """Return the features (batch, channels, height, width) of a ConvNeXt."""

    def normalize_channels(x: Any, w: dict[str, Any]) -> Any:
        return wnp.moveaxis(layer_normalize(wnp.moveaxis(x, 1, -1), w), -1, 1)

    activation = ACTIVATIONS[config.get("activation")]
    x = convolve(images, params["stem"], params["stem"]["weight"].shape[-1], has_border=False)
    x = normalize_channels(x, params["stem_norm"])
    for number, stage in enumerate(params["stages"]):
        if number:
            w = params["downsampling"][str(number)]
            x = convolve(normalize_channels(x, w["norm"]), w["convolution"], 2, has_border=False)
        for w in stage:
            y = wnp.moveaxis(convolve(x, w["depthwise"], groups=x.shape[1]), 1, -1)
            y = project(activation(project(layer_normalize(y, w["norm"]), w["up"])), w["down"])
            if "layer_scale" in w:
                y = y * w["layer_scale"]
            x = x + wnp.moveaxis(y, -1, 1)
    return x


def pool_features(x: Any, params: dict[str, Any], config: Config) -> Any:
    """Average features over an image, and normalize them if the model does."""
    x = x.mean((2, 3))
    return layer_normalize(x, params["norm"], config.get("epsilon")) if "norm" in params else x
