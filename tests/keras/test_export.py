"""Models as programs without Keras: what is read back computes the same, for any sizes that were left open."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError, NotSupportedError
from weft.keras import layers

X = np.random.default_rng(0).normal(size=(5, 6, 4)).astype("float32")


class Subclassed(keras.Model):
    """One that is built by its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.dropout = layers.Dense(3), layers.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dropout(self.dense(x), training=training)


def functional() -> Any:
    a, b = keras.Input((4,), name="a"), keras.Input((None, 4), name="b")
    return keras.Model({"a": a, "b": b}, {"y": layers.Dense(2)(a) + layers.GRU(2)(b)})


def read(file: pathlib.Path) -> Any:
    return weft.export.deserialize(file.read_bytes())


def test_programs_compute_what_models_do(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = functional()
    model.export(tmp_path / "model", verbose=True)
    assert "rows" in capsys.readouterr().out
    program = read(tmp_path / "model")
    for rows, steps in ((5, 6), (2, 3)):
        inputs = {"a": X[:rows, 0], "b": X[:rows, :steps]}
        np.testing.assert_allclose(program.call(inputs)["y"], model(inputs)["y"], rtol=1e-6, atol=1e-6)


def test_subclasses_and_derivatives(tmp_path: pathlib.Path) -> None:
    model, file = Subclassed(), tmp_path / "model.weft"
    with pytest.raises(ArgumentError, match="not built"):
        model.export(file)
    x = X[:, 0]
    expected = model(x)
    model.export(file, vjp_order=1)
    np.testing.assert_array_equal(read(file).call(x), expected)
    layer = layers.TFSMLayer(file)
    gradient = weft.grad(lambda x: layer(x).sum())(weft.numpy.asarray(x))
    np.testing.assert_allclose(gradient, np.broadcast_to(model.dense.kernel.numpy().sum(axis=1), x.shape), rtol=1e-6)
    inputs = keras.Input((4,))
    around = keras.Model(inputs, layers.Dense(1)(layer(inputs)))
    around.compile("sgd", "mse")
    around.fit(x, x[:, :1], verbose=0)
    assert not layer.weights
    with pytest.raises(NotSupportedError, match="TFSMLayer is not made from a config"):
        keras.layers.deserialize(keras.layers.serialize(layer))
    with pytest.raises(NotSupportedError, match="format"):
        model.export(file, format="tf_saved_model")


def test_archives_have_endpoints(tmp_path: pathlib.Path) -> None:
    model = Subclassed()
    archive = keras.export.ExportArchive()
    with pytest.raises(ArgumentError, match="not built"):
        archive.track(model)
    expected = model(X[:, 0])
    archive.track(model)
    signature = [keras.InputSpec(shape=(None, 4), dtype="float32")]
    archive.add_endpoint("serve", model, signature)
    archive.add_endpoint("loud", lambda x: model(x) * 100, signature)
    with pytest.raises(ArgumentError, match="already"):
        archive.add_endpoint("loud", model, signature)
    archive.write_out(tmp_path / "folder", verbose=False)
    layer = layers.TFSMLayer(tmp_path / "folder", call_training_endpoint="loud")
    np.testing.assert_array_equal(layer(X[:, 0]), expected)
    np.testing.assert_array_equal(layer(X[:, 0], training=True), expected * 100)
    with pytest.raises(ArgumentError, match="endpoints loud, serve"):
        layers.TFSMLayer(tmp_path / "folder", call_endpoint="other")
