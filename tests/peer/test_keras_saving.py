"""Files of models both ways: Keras reads those of Weft, and Weft those of Keras, with the state of optimizers."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
pytest.importorskip("h5py")
theirs = pytest.importorskip("keras")
from weft import keras as ours  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]  # of Keras itself


def mlp(k: Any) -> Any:
    x = k.Input((4,))
    h = k.layers.BatchNormalization()(k.layers.Dense(5, activation="relu")(x))
    return k.Model(x, k.layers.Dense(2)(k.layers.Dropout(0.5, seed=3)(h)))


def text(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((5,), dtype="int32"),
            k.layers.Embedding(10, 4),
            k.layers.Bidirectional(k.layers.LSTM(3)),
            k.layers.Dense(1),
        ]
    )


def images(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, 3)),
            k.layers.Conv2D(4, 3, activation="relu", kernel_regularizer=k.regularizers.L2(0.01)),
            k.layers.MaxPooling2D(),
            k.layers.Flatten(),
            k.layers.Dense(2, activation="softmax"),
        ]
    )


def attention(k: Any) -> Any:
    x = k.Input((6, 4))
    h = k.layers.MultiHeadAttention(2, 2)(x, x)
    h = k.layers.LayerNormalization()(k.layers.Add()([x, h]))
    return k.Model(x, k.layers.Dense(1)(k.layers.GlobalAveragePooling1D()(h)))


def recurrent(k: Any) -> Any:
    return k.Sequential([k.Input((5, 3)), k.layers.GRU(4, return_sequences=True), k.layers.SimpleRNN(2)])


def several(k: Any) -> Any:
    a, b = k.Input((3,), name="a"), k.Input((2,), name="b")
    shared = k.layers.Dense(4, name="shared")
    h = k.layers.Concatenate()([shared(a), k.layers.Dense(4)(b)])
    return k.Model({"a": a, "b": b}, {"x": k.layers.Dense(1)(h), "y": shared(k.layers.Dense(3)(h))})


def nested(k: Any) -> Any:
    inner = k.Sequential([k.Input((4,)), k.layers.Dense(3), k.layers.Activation("tanh")])
    x = k.Input((4,))
    return k.Model(x, k.layers.Dense(1)(inner(x)))


MODELS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "mlp": (mlp, (3, 4)),
    "text": (text, (3, 5)),
    "images": (images, (3, 8, 8, 3)),
    "attention": (attention, (3, 6, 4)),
    "recurrent": (recurrent, (2, 5, 3)),
    "several": (several, {"a": (2, 3), "b": (2, 2)}),
    "nested": (nested, (2, 4)),
}


def inputs(shape: Any, integers: bool) -> Any:
    if isinstance(shape, dict):
        return {name: inputs(s, integers) for name, s in shape.items()}
    rng = np.random.default_rng(0)
    return rng.integers(0, 10, shape).astype(np.int32) if integers else rng.normal(size=shape).astype(np.float32)


def leaves(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for _, v in sorted(value.items())] if isinstance(value, dict) else [np.asarray(value)]


@pytest.mark.parametrize("writer", ["ours", "theirs"])
@pytest.mark.parametrize("name", MODELS)
def test_files_both_ways(name: str, writer: str, tmp_path: pathlib.Path) -> None:
    write, read = (ours, theirs) if writer == "ours" else (theirs, ours)
    make, shape = MODELS[name]
    model = make(write)
    x = inputs(shape, name == "text")
    model.compile("adam", "mse")
    targets = model.predict(x, verbose=0)
    target = {k: np.zeros_like(v) for k, v in targets.items()} if isinstance(targets, dict) else np.zeros_like(targets)
    model.fit(x, target, epochs=2, verbose=0)
    file = str(tmp_path / "model.keras")
    model.save(file)
    again = read.models.load_model(file)
    for one, other in zip(leaves(model.predict(x, verbose=0)), leaves(again.predict(x, verbose=0)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    histories = [
        np.asarray(m.fit(x, target, epochs=2, shuffle=False, verbose=0).history["loss"]) for m in (model, again)
    ]
    if name != "mlp":  # Keras' files have no states of seeds, so dropout begins anew there
        np.testing.assert_allclose(histories[0], histories[1], rtol=1e-5)


@pytest.mark.parametrize("from_peer", [True, False])
def test_weights_in_several_files_go_both_ways(from_peer: bool, tmp_path: pathlib.Path) -> None:
    def trained(library: Any, seed: int) -> Any:
        library.utils.set_random_seed(seed)
        parts = [library.layers.Dense(40), library.layers.Dense(30)]
        model = library.Sequential([library.Input((30,)), *parts])
        model.compile("adam", "mse")
        x = np.ones((8, 30), "float32")
        model.fit(x, x, verbose=0)
        return model

    first, second = (theirs, ours) if from_peer else (ours, theirs)
    written, read = trained(first, 1), trained(second, 2)
    written.save_weights(tmp_path / "model.weights.json", max_shard_size=6e-6)
    assert len(list(tmp_path.glob("*.weights.h5"))) > 2
    read.load_weights(str(tmp_path / "model.weights.json"))
    both = zip(
        (*written.weights, *written.optimizer.variables), (*read.weights, *read.optimizer.variables), strict=True
    )
    for one, other in both:
        np.testing.assert_array_equal(np.array(one), np.array(other))


@pytest.mark.parametrize("build", [mlp, text])
@pytest.mark.parametrize(("writer", "reader"), [(ours, theirs), (theirs, ours)], ids=["read by Keras", "read by Weft"])
def test_files_of_the_format_h5(build: Callable[[Any], Any], writer: Any, reader: Any, tmp_path: pathlib.Path) -> None:
    model = build(writer)
    x = np.ones((3, *model.input_shape[1:]), model.inputs[0].dtype)
    model.compile(writer.optimizers.Adam(0.01), writer.losses.MeanSquaredError())
    model.train_on_batch(x, np.ones((3, model.output_shape[1]), "float32"))
    model.save(tmp_path / "model.h5")
    again = reader.models.load_model(tmp_path / "model.h5")
    np.testing.assert_allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    if reader is ours:  # Keras builds the optimizer of such a file without variables
        for variable, expected in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
            np.testing.assert_allclose(np.asarray(variable), np.asarray(expected), rtol=1e-5, atol=1e-7)
