"""Networks of linen, Haiku and Keras, and a GPT-2, in onnxruntime: one model serves all batch sizes."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.onnx.runtime import check, compare, ort, run_model, session
from weft import export, haiku as hk, keras, linen as nn
from weft.errors import ArgumentError
from weft.keras import layers

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 8, 8, 1)).astype(np.float32)


def open_batch(array: np.ndarray) -> weft.ShapeDtypeStruct:
    """Return the type of an array with a symbolic first size."""
    (batch,) = export.symbolic_shape("batch")
    return weft.ShapeDtypeStruct((batch, *array.shape[1:]), array.dtype)


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.avg_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.BatchNorm(use_running_average=True)(nn.Conv(16, (3, 3), strides=2)(x))
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2), padding="SAME")
        x = nn.LayerNorm()(nn.Dense(32)(x.reshape((x.shape[0], -1))))
        return nn.log_softmax(nn.Dense(10)(nn.gelu(x)))


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(y, y, mask=mask)
        y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[-1])(nn.gelu(y))


class GPT2(nn.Module):
    letters: int = 101
    width: int = 32
    depth: int = 3
    length: int = 16

    @nn.compact
    def __call__(self, codes: Any) -> Any:
        embed = nn.Embed(self.letters, self.width)
        position = self.param("position", nn.initializers.normal(0.02), (self.length, self.width))
        x = embed(codes) + position[: codes.shape[-1]]
        mask = nn.make_causal_mask(codes)
        for _ in range(self.depth):
            x = Block(4)(x, mask)
        return embed.attend(nn.LayerNorm()(x))


def test_networks_of_linen() -> None:
    network = Convolutions()
    variables = network.init(weft.random.key(0), IMAGES)
    model = check(lambda x: network.apply(variables, x), IMAGES, specs=[open_batch(IMAGES)])
    assert model.graph.inputs[0].shape[1:] == (8, 8, 1) and str(model.graph.inputs[0].shape[0]) == "batch"
    assert {"Conv", "MaxPool", "MatMul"} <= model.graph.operations()
    # The same model at another batch size.
    compare(run_model(model, IMAGES[:1]), [network.apply(variables, IMAGES[:1])], 2e-5)


def test_gpt2() -> None:
    network = GPT2()
    codes = RNG.integers(0, network.letters, (2, network.length)).astype(np.int32)
    variables = network.init(weft.random.key(0), codes)
    model = check(lambda x: network.apply(variables, x), codes, specs=[open_batch(codes)])
    assert not {"GatherND", "ScatterElements", "Einsum"} & model.graph.operations()
    (rows, steps) = export.symbolic_shape("rows, steps", constraints=["steps <= 16"])
    any_length = export.onnx(lambda x: network.apply(variables, x), weft.ShapeDtypeStruct((rows, steps), np.int32))
    for part in (codes, codes[:1, :5]):
        compare(run_model(any_length, part), [network.apply(variables, part)], 2e-5)


def test_weights_as_inputs() -> None:
    network = nn.Dense(3)
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    variables = network.init(weft.random.key(0), x)
    model = check(network.apply, variables, x)
    assert model.inputs == ("variables_params_bias", "variables_params_kernel", "args_0")


def test_networks_of_haiku() -> None:
    network = hk.transform(lambda x: hk.nets.MLP([16, 4], activation=wnp.tanh)(hk.Flatten()(x)))
    params = network.init(weft.random.key(0), IMAGES)
    check(lambda x: network.apply(params, None, x), IMAGES, specs=[open_batch(IMAGES)])
    recurrent = hk.transform(lambda x: hk.dynamic_unroll(hk.LSTM(5), x, hk.LSTM(5).initial_state(3))[0])
    steps = RNG.normal(size=(6, 3, 4)).astype(np.float32)
    params = recurrent.init(weft.random.key(0), steps)
    model = check(lambda x: recurrent.apply(params, None, x), steps)
    assert "Scan" in model.graph.operations()


def of_images() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(),
            layers.SeparableConv2D(6, 2, padding="same"), layers.BatchNormalization(), layers.Activation("swish"),
            layers.Conv2DTranspose(3, 3, strides=2), layers.GlobalAveragePooling2D(), layers.Dropout(0.5),
            layers.Dense(5, activation="softmax"),
        ]
    )  # fmt: skip


def of_words() -> Any:
    words = keras.Input((7,), dtype="int32")
    x = layers.Embedding(20, 8)(words)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    return keras.Model(words, layers.Dense(1, activation="sigmoid")(layers.GRU(3)(x)))


@pytest.mark.parametrize(
    ("make", "inputs"), [(of_images, IMAGES), (of_words, RNG.integers(0, 20, (4, 7)).astype(np.int32))]
)
def test_models_of_keras(make: Any, inputs: np.ndarray, tmp_path: pathlib.Path) -> None:
    model, file = make(), tmp_path / "model.onnx"
    model.export(file, format="onnx")
    loaded = session(file.read_bytes())
    (name,) = (value.name for value in loaded.get_inputs())
    for rows in (len(inputs), 1):
        compare(loaded.run(None, {name: inputs[:rows]}), [model(inputs[:rows])], 2e-5)
    with pytest.raises(ArgumentError, match="derivatives"):
        model.export(file, format="onnx", vjp_order=1)


@pytest.mark.parametrize("name", ["MobileNetV2", "EfficientNetB0", "DenseNet121"])
def test_applications_of_keras(name: str, tmp_path: pathlib.Path) -> None:
    model = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=10)
    images = RNG.normal(size=(2, 32, 32, 3)).astype(np.float32)
    model.export(tmp_path / "model.onnx", format="onnx")
    loaded = session((tmp_path / "model.onnx").read_bytes())
    compare(loaded.run(None, {loaded.get_inputs()[0].name: images}), [model(images)], 2e-5)


def test_constants_in_a_file_beside(tmp_path: pathlib.Path) -> None:
    weights = RNG.normal(size=(64, 64)).astype(np.float32)
    x = RNG.normal(size=(2, 64)).astype(np.float32)
    model = export.onnx(lambda x: x @ weights, x)
    model.save(tmp_path / "model.onnx", external=True)
    assert (tmp_path / "model.onnx").stat().st_size < 1000
    loaded = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    compare(loaded.run(None, {"x": x}), [x @ weights], 2e-5)
