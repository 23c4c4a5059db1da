"""Layers and what they are called on, as text, for `weft.keras` and for Keras itself.

In a row the names of `keras.layers` are those of the library under test, and the names of INPUTS are arrays. The second
column is the call. Further words say what holds: `rows` (each row of a batch by itself, so two batches at once are one
after the other), `ours` (Keras raises an error), `random` (training draws, so it is run with `training=True` too),
`writes` (training writes state that is no seed).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """A layer, its call, and what holds for it."""

    layer: str
    call: str
    words: tuple[str, ...]

    def make(self, layers: Any) -> Any:
        """The layer, by a library's `layers`."""
        return eval(self.layer, {name: getattr(layers, name) for name in self._names(layers)})

    def _names(self, layers: Any) -> list[str]:
        return [name for name in compile(self.layer, "row", "eval").co_names if hasattr(layers, name)]

    def run(self, layer: Any, inputs: dict[str, Any], **options: Any) -> Any:
        """The result of the call; layers for images draw unless they are told that this is not training."""
        if "random" in self.words:
            options.setdefault("training", False)
        return eval(f"layer({self.call}, **options)", {"layer": layer, "options": options, **inputs})

    @property
    def slack(self) -> float:
        """How many times the usual difference to Keras is allowed, for sums that cancel."""
        return 4.0 if "slack" in self.words else 1.0

    @property
    def inputs(self) -> list[str]:
        """The names of the arrays in the call."""
        return [name for name in compile(f"f({self.call})", "row", "eval").co_names if name in INPUTS]


def _row(text: str) -> Row:
    layer, call, *words = (part.strip() for part in text.split("|"))
    return Row(layer, call, tuple(words[0].split()) if words else ())


def _inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    steps = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 0, 0, 0]], np.bool_)
    return {
        "x": floats(4, 6),
        "other": floats(4, 6),
        "narrow": floats(4, 3),
        "line": floats(4, 5, 4),
        "line2": floats(4, 5, 4),
        "longer": floats(4, 7, 4),
        "line_first": floats(4, 4, 9),
        "series": floats(4, 9, 4),
        "image": floats(4, 8, 7, 4),
        "photo": rng.random((4, 6, 5, 3)).astype(np.float32),
        "photo_first": rng.random((4, 3, 6, 5)).astype(np.float32),
        "image_first": floats(4, 4, 8, 7),
        "cube": floats(4, 5, 4, 4, 2),
        "cube_first": floats(4, 2, 5, 4, 4),
        "film": floats(4, 3, 6, 5, 2),
        "film_first": floats(4, 3, 2, 6, 5),
        "strip": floats(4, 3, 6, 2),
        "state": floats(4, 3),
        "state2": floats(4, 3),
        "sound": floats(4, 40),
        "steps": steps,
        "longer_steps": np.arange(7)[None] < np.array([[7], [4], [1], [5]]),
    }


INPUTS = _inputs()

CONVOLUTION = """
Conv1D(3, 3) | series | rows
Conv1D(3, 2, strides=2, padding="same", activation="relu") | series | rows
Conv1D(4, 3, padding="causal", dilation_rate=2, groups=2, use_bias=False) | series | rows
Conv1D(3, 3, data_format="channels_first") | line_first | rows
Conv2D(3, 3) | image | rows
Conv2D(3, (2, 3), strides=(2, 1), padding="same", kernel_initializer="he_normal") | image | rows
Conv2D(4, 3, dilation_rate=2, groups=2, activation="tanh") | image | rows
Conv2D(3, 3, padding="same", data_format="channels_first") | image_first | rows
Conv3D(3, 2) | cube | rows
Conv3D(3, (1, 2, 3), strides=2, padding="same", data_format="channels_first") | cube_first | rows
Conv1DTranspose(3, 3, strides=2) | series | rows
Conv1DTranspose(3, 3, strides=2, padding="same", output_padding=1) | series | rows
Conv2DTranspose(3, 3) | image | rows
Conv2DTranspose(3, (2, 3), strides=2, padding="same", activation="relu") | image | rows
Conv2DTranspose(3, 3, dilation_rate=2, data_format="channels_first", use_bias=False) | image_first | rows
Conv3DTranspose(3, 2, strides=2) | cube | rows
DepthwiseConv1D(3, depth_multiplier=2) | series | rows
DepthwiseConv2D(3, padding="same") | image | rows
DepthwiseConv2D(3, strides=2, depth_multiplier=2, data_format="channels_first", activation="relu") | image_first | rows
SeparableConv1D(3, 3, strides=2) | series | rows
SeparableConv2D(3, 3, depth_multiplier=2, padding="same", activation="relu") | image | rows
SeparableConv2D(3, 3, data_format="channels_first", use_bias=False) | image_first | rows
"""

POOLING = """
MaxPooling1D(2) | series | rows
MaxPooling1D(3, strides=2, padding="same", data_format="channels_first") | line_first | rows
MaxPooling2D() | image | rows
MaxPooling2D((2, 3), strides=1, padding="same") | image | rows
MaxPooling3D(2, data_format="channels_first") | cube_first | rows
AveragePooling1D(2, padding="same") | series | rows
AveragePooling2D(2) | image | rows
AveragePooling2D(3, strides=2, padding="same", data_format="channels_first") | image_first | rows
AveragePooling3D((1, 2, 3), padding="same") | cube | rows
GlobalMaxPooling1D() | series | rows
GlobalMaxPooling2D(keepdims=True) | image | rows
GlobalMaxPooling3D(data_format="channels_first") | cube_first | rows
GlobalAveragePooling1D() | line, mask=steps | rows
GlobalAveragePooling1D(keepdims=True, data_format="channels_first") | line_first | rows
GlobalAveragePooling2D() | image | rows
GlobalAveragePooling3D(keepdims=True) | cube | rows
AdaptiveMaxPooling1D(4) | series | rows
AdaptiveMaxPooling2D((4, 3)) | image | rows
AdaptiveMaxPooling3D(2, data_format="channels_first") | cube_first | rows
AdaptiveAveragePooling1D(2, data_format="channels_first") | line_first | rows
AdaptiveAveragePooling2D(3) | image | rows
AdaptiveAveragePooling3D((2, 3, 4)) | cube | rows
"""

NORMALIZATION = """
BatchNormalization() | x | writes
BatchNormalization(axis=1, momentum=0.8, epsilon=1e-2) | image_first | writes
BatchNormalization(scale=False, center=False) | image | writes
BatchNormalization() | line, mask=steps | writes
BatchNormalization(renorm=True, renorm_clipping={"rmax": 3.0, "rmin": 0.3, "dmax": 5.0}) | x | writes
LayerNormalization() | line | rows
LayerNormalization(axis=(1, 2), epsilon=1e-5) | image | rows
LayerNormalization(axis=1, scale=False) | line | rows
LayerNormalization(center=False, gamma_initializer="random_normal") | x | rows
GroupNormalization(2) | image | rows
GroupNormalization(-1, axis=1) | image_first | rows
GroupNormalization(1, scale=False, center=False) | x | rows
RMSNormalization() | line | rows
RMSNormalization(axis=(1, 2)) | line | rows
UnitNormalization() | line | rows
UnitNormalization(axis=(1, 2)) | image | rows
SpectralNormalization(Dense(3)) | x | writes
SpectralNormalization(Conv2D(3, 2), power_iterations=3) | image | writes
"""

REGULARIZATION = """
Dropout(0.4, seed=3) | x | rows random
Dropout(0.5, noise_shape=(None, 1, 4), seed=3) | line | rows random
SpatialDropout1D(0.4, seed=3) | line | rows random
SpatialDropout2D(0.4, data_format="channels_first", seed=3) | image_first | rows random
SpatialDropout3D(0.4, seed=3) | cube | rows random
AlphaDropout(0.4, seed=3) | x | rows random
GaussianDropout(0.4, seed=3) | x | rows random
GaussianNoise(0.4, seed=3) | x | rows random
ActivityRegularization(l1=0.1, l2=0.2) | x | rows
"""

MERGING = """
Add() | [x, other] | rows
Add() | [narrow[:, :1], x] | rows
Subtract() | [x, other] | rows
Multiply() | [x, other, x] | rows
Average() | [x, other] | rows
Maximum() | [x, other, x] | rows
Minimum() | [x, other] | rows
Concatenate() | [x, narrow] | rows
Concatenate(axis=1) | [line, longer] | rows
Dot(axes=1) | [x, other] | rows
Dot(axes=(2, 1), normalize=True) | [line, line_first] | rows
Dot(axes=-1) | [line, longer] | rows
"""

RESHAPING = """
Flatten() | image | rows
Flatten(data_format="channels_first") | image_first | rows
Reshape((2, -1)) | x | rows
Permute((2, 1)) | line | rows
RepeatVector(3) | x | rows
ZeroPadding1D((1, 2)) | line | rows
ZeroPadding2D(((1, 0), (2, 3))) | image | rows
ZeroPadding2D(1, data_format="channels_first") | image_first | rows
ZeroPadding3D((1, 0, 2)) | cube | rows
Cropping1D(1) | line | rows
Cropping2D(((1, 0), (2, 1))) | image | rows
Cropping3D(1, data_format="channels_first") | cube_first | rows
UpSampling1D(3) | line | rows
UpSampling2D((1, 2)) | image | rows
UpSampling2D(2, interpolation="bilinear", data_format="channels_first") | image_first | rows
UpSampling3D(2) | cube | rows
"""

ATTENTION = """
Attention() | [line, longer] | rows
Attention(use_scale=True, score_mode="concat") | [line, longer, longer] | rows
Attention(dropout=0.3, seed=3) | [line, longer], mask=[steps, longer_steps], use_causal_mask=True | rows random
Attention() | [line, line], return_attention_scores=True | rows
AdditiveAttention() | [line, longer], mask=[steps, longer_steps] | rows
AdditiveAttention(use_scale=False) | [line, longer] | rows
MultiHeadAttention(2, 3) | line, longer | rows
MultiHeadAttention(2, 3, value_dim=5, output_shape=6, use_bias=False) | line, longer, longer | rows ours
MultiHeadAttention(2, 3) | line, line, use_causal_mask=True | rows
MultiHeadAttention(2, 3, dropout=0.3, seed=3) | line, longer, value_mask=longer_steps | rows random
MultiHeadAttention(2, 3) | line, line, value_mask=steps, use_causal_mask=True, return_attention_scores=True | rows
MultiHeadAttention(2, 3) | line, longer, query_mask=steps, key_mask=longer_steps | rows ours
MultiHeadAttention(2, 3, sliding_window=2, use_gate=True) | line, line | rows
MultiHeadAttention(2, 3, attention_axes=(2,)) | film, film | rows
GroupQueryAttention(3, 4, 2) | line, longer | rows
GroupQueryAttention(3, 4, 2, use_gate=True) | line, line, use_causal_mask=True, return_attention_scores=True | rows
"""

RECURRENT = """
SimpleRNN(3) | line | rows
SimpleRNN(3, return_sequences=True, go_backwards=True, activation="relu") | line, mask=steps | rows
SimpleRNN(3, dropout=0.3, recurrent_dropout=0.2, seed=3) | line | rows random
LSTM(3) | line | rows
LSTM(3, return_sequences=True, return_state=True) | line, mask=steps | rows
LSTM(3, go_backwards=True, unroll=True, use_bias=False) | line, initial_state=[state, state2] | rows
LSTM(3, dropout=0.3, seed=3, return_sequences=True) | line | rows random
LSTM(3, dropout=0.3, recurrent_dropout=0.2, seed=3, unit_forget_bias=False) | line, mask=steps | rows random
GRU(3) | line | rows
GRU(3, return_sequences=True, reset_after=False, recurrent_activation="hard_sigmoid") | line, mask=steps | rows
GRU(3, return_state=True, go_backwards=True, use_bias=False) | line, initial_state=state | rows
GRU(3, dropout=0.3, recurrent_dropout=0.2, seed=3) | line | rows random
GRU(3, reset_after=False, recurrent_dropout=0.2, seed=3) | line | rows random
RNN([LSTMCell(3), GRUCell(2)], return_sequences=True) | line, mask=steps | rows
RNN(LSTMCell(3), zero_output_for_mask=True, return_sequences=True) | line, mask=steps | rows
RNN(StackedRNNCells([SimpleRNNCell(3), LSTMCell(2)]), return_state=True) | line | rows
Bidirectional(LSTM(3)) | line | rows
Bidirectional(GRU(3, return_sequences=True), merge_mode="sum") | line, mask=steps | rows
Bidirectional(LSTM(3, return_sequences=True, return_state=True), merge_mode=None) | line | rows
Bidirectional(SimpleRNN(3), merge_mode="mul", backward_layer=SimpleRNN(3, go_backwards=True)) | line | rows
TimeDistributed(Dense(3)) | line | rows
TimeDistributed(BatchNormalization()) | line | writes
TimeDistributed(Conv2D(3, 2)) | film | rows
LSTMCell(3) | x[:, :3], [state, state2] | rows
GRUCell(3) | x[:, :3], [state] | rows
SimpleRNNCell(3) | x[:, :3], state | rows
ConvLSTM1D(3, 2) | strip | rows
ConvLSTM2D(3, 3, padding="same", return_sequences=True) | film, mask=steps[:, :3] | rows ours
ConvLSTM2D(3, 2, strides=2, data_format="channels_first", return_state=True) | film_first | rows
"""

PREPROCESSING = """
Rescaling(0.5, offset=1.0) | image | rows
Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[4.0, 3.0, 2.0, 1.0]) | image | rows
Normalization(axis=None, mean=1.0, variance=4.0, invert=True) | line | rows
Resizing(5, 9) | image | rows
Resizing(5, 9, crop_to_aspect_ratio=True, interpolation="nearest") | image | rows
Resizing(9, 5, pad_to_aspect_ratio=True, fill_value=2.0, data_format="channels_first") | image_first | rows
Resizing(3, 4, interpolation="bicubic", antialias=True) | image | rows
CenterCrop(3, 4) | image | rows
CenterCrop(10, 5, data_format="channels_first") | image_first | rows
RandomFlip(seed=3) | image | rows random
RandomFlip("vertical", seed=3, data_format="channels_first") | image_first | rows random
RandomRotation(0.2, seed=3) | image | rows random
RandomRotation((-0.3, 0.1), fill_mode="constant", fill_value=0.5, interpolation="nearest", seed=3) | image | rows random
RandomTranslation(0.2, (-0.1, 0.4), seed=3) | image | rows random
RandomTranslation(0.2, 0.3, fill_mode="wrap", data_format="channels_first", seed=3) | image_first | rows random
RandomZoom(0.3, seed=3) | image | rows random
RandomZoom((-0.3, 0.1), (0.1, 0.4), fill_mode="nearest", seed=3) | image | rows random
RandomContrast(0.5, value_range=(-2, 2), seed=3) | image | rows random
RandomBrightness(0.5, value_range=(-2, 2), seed=3) | image | rows random
RandomShear((0.0, 0.3), (0.1, 0.4), seed=3) | image | rows random
RandomGrayscale(0.5, seed=3) | photo | rows random
RandomInvert(0.8, value_range=(0, 1), seed=3, data_format="channels_first") | photo_first | rows random
RandomSaturation(0.8, value_range=(0, 1), seed=3) | photo | rows random
RandomHue((0.2, 0.5), value_range=(0, 1), seed=3, data_format="channels_first") | photo_first | rows random
RandomColorDegeneration(0.7, value_range=(0, 1), seed=3) | photo | rows random
RandomPosterization((2, 5), value_range=(0, 1), seed=3) | photo | rows random
RandomSharpness((0.1, 0.9), value_range=(0, 1), seed=3) | photo | rows random
Solarization(0.3, 0.6, value_range=(0, 1), seed=3) | photo | rows random
AutoContrast(value_range=(0, 1)) | photo | rows
MixUp(0.4, seed=3) | photo | rows random
CutMix(0.8, seed=3, data_format="channels_first") | photo_first | rows random
RandomErasing(0.9, value_range=(0, 1), seed=3) | photo | rows random
RandomErasing(fill_value=0.3, value_range=(0, 1), seed=3, data_format="channels_first") | photo_first | rows random
RandomGaussianBlur(0.9, 3, 0.8, value_range=(0, 1), seed=3) | photo | rows random
RandomColorJitter((0, 1), 0.2, 0.3, (0.3, 0.7), 0.2, seed=3) | photo | rows random
Pipeline([Rescaling(0.5), RandomFlip(seed=3)]) | photo | rows random
Equalization(value_range=(0, 1), bins=16) | photo |
RandAugment(value_range=(0, 1), num_ops=2, seed=3) | photo | rows random
RandomPerspective(0.9, 0.4, seed=3) | photo | rows random
RandomPerspective(scale=0.3, interpolation="nearest", seed=3, data_format="channels_first") | photo_first | rows random
MelSpectrogram(fft_length=16, sequence_stride=5, num_mel_bins=3, top_db=40.0) | sound | slack
STFTSpectrogram("log", frame_length=4, fft_length=8) | series | rows
STFTSpectrogram("psd", frame_length=4, padding="same", expand_dims=True) | series | rows
STFTSpectrogram("stft", frame_length=6, data_format="channels_first") | line_first | rows
"""

TABLE = [
    _row(line)
    for part in (
        CONVOLUTION,
        POOLING,
        NORMALIZATION,
        REGULARIZATION,
        MERGING,
        RESHAPING,
        ATTENTION,
        RECURRENT,
        PREPROCESSING,
    )
    for line in part.strip().splitlines()
]


def identity(row: Row) -> str:
    """The name of a test of a row."""
    return f"{row.layer}-{row.call}".replace(" ", "")
