"""What arguments mean that many functions of `weft.keras.ops` take: see `weft/base/docstrings.py`."""

from weft.errors import Documenter

document = Documenter(
    {
        "axis": "the axis or axes to reduce; all of them if None.",
        "data_format": '"channels_last" or "channels_first"; None is the setting.',
        "dilation_rate": "the distance of elements of the kernel, one integer or one for each spatial axis.",
        "dtype": "its dtype, `floatx()` by default.",
        "fill_mode": 'what is outside: "constant", "nearest" (the edge), "wrap", "mirror" or "reflect".',
        "fill_value": "the constant.",
        "from_logits": "whether `output` is logits.",
        "images": "an image or a batch of images.",
        "indices_or_sections": "how many parts of equal size, or the indices to cut at.",
        "inputs": "an array of shape (batch, *spatial, channels), or (batch, channels, *spatial).",
        "interpolation": '"nearest" or "bilinear".',
        "k": "which diagonal: 0 is the main one, positive ones are above it.",
        "keepdims": "whether reduced axes stay, with size 1.",
        "sequence_length": "the length of a window.",
        "sequence_stride": "the distance of their starts.",
        "shape": "its sizes.",
        "strides": "the distance of windows, one integer or one for each spatial axis.",
        "threshold": "the threshold.",
        "x": "an array.",
        "x1": "an array.",
        "x2": "an array.",
    },
    {
        "keras.": "from weft import keras",
    },
    heading="Example:",
)
