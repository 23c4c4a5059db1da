"""Layers against Keras: names and shapes of variables, results and gradients, on the same weights."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

from typing import Any

import numpy as np
import pytest

from tests.keras.layer_table import INPUTS, TABLE as ALL, Row, identity
from tests.peer.compare import jax  # first of all: it says how JAX compiles

import weft  # isort: skip
import weft.keras.layers  # isort: skip
from weft.keras.core.seeds import set_random_seed  # isort: skip

keras = pytest.importorskip("keras")

# Keras asks JAX for 64-bit integers.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")

TABLE = [row for row in ALL if "ours" not in row.words]
SEEDS = {weft.keras: set_random_seed, keras: keras.utils.set_random_seed}


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def close(found: Any, expected: Any, limit: float) -> None:
    found, expected = leaves(found), leaves(expected)
    assert [x.shape for x in found] == [x.shape for x in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind == "f":
            scale = max(1.0, float(np.max(np.abs(b), initial=0)))
            np.testing.assert_allclose(a, b, rtol=limit, atol=limit * scale)
        else:
            np.testing.assert_array_equal(a, b)


def built(row: Row, training: bool) -> tuple[Any, Any]:
    """Return both layers with equal weights, which differ from those of initializers that return constants."""
    layers = []
    for library, own in ((weft.keras, weft), (keras, jax)):
        library.backend.clear_session()  # names are counted from the start, whatever other tests have built
        SEEDS[library](1)
        layer = row.make(library.layers)
        row.run(layer, {name: own.numpy.asarray(INPUTS[name]) for name in row.inputs})
        layers.append(layer)
    ours, theirs = layers
    assert [(v.path, tuple(v.shape), v.dtype, v.trainable) for v in ours.weights] == [
        (v.path, tuple(v.shape), v.dtype, v.trainable) for v in theirs.weights
    ]
    rng = np.random.default_rng(2)
    values = [np.asarray(v.value) + 0.1 * rng.random(v.shape).astype(v.dtype) for v in theirs.weights]
    for layer in layers:
        layer.set_weights(values)
        for variable in layer.non_trainable_variables:
            if str(variable.dtype) == "uint32":
                variable.assign(np.array([3, 0], np.uint32))
    return ours, theirs


def compare(row: Row, training: bool) -> None:
    ours, theirs = built(row, training)
    results = []
    for layer, own in ((ours, weft), (theirs, jax)):
        data = {name: own.numpy.asarray(INPUTS[name]) for name in row.inputs}
        floats = {name: x for name, x in data.items() if INPUTS[name].dtype == np.float32}
        others = [v.value for v in layer.non_trainable_variables]

        def run(values: Any, floats: Any, layer: Any = layer, data: Any = data, others: Any = others) -> Any:
            call = lambda *args, **kwargs: layer.stateless_call(values, others, *args, **kwargs)
            return row.run(call, {**data, **floats}, **({"training": True} if training else {}))

        def loss(values: Any, floats: Any, run: Any = run, own: Any = own) -> Any:
            out, _ = run(values, floats)
            parts = [leaf for leaf in own.tree_util.tree_leaves(out) if own.numpy.issubdtype(leaf.dtype, np.floating)]
            return sum((part * own.numpy.cos(own.numpy.arange(part.size).reshape(part.shape))).sum() for part in parts)

        values = [v.value for v in layer.trainable_variables]
        out, state = own.jit(run)(values, floats)
        results.append((out, state, own.jit(own.grad(loss, argnums=(0, 1)))(values, floats)))
    (out, state, gradient), (expected, expected_state, expected_gradient) = results
    close(out, expected, 1e-6 * row.slack)
    if training:
        close(state, expected_state, 1e-6 * row.slack)
    close(gradient, expected_gradient, 1e-5)


@pytest.mark.parametrize("row", TABLE, ids=identity)
def test_inference(row: Row) -> None:
    compare(row, training=False)


@pytest.mark.parametrize("row", [row for row in TABLE if {"random", "writes"} & set(row.words)], ids=identity)
def test_training(row: Row) -> None:
    compare(row, training=True)


@pytest.mark.parametrize("row", TABLE, ids=identity)
def test_initial_weights(row: Row) -> None:
    """The same seeds lead to the same weights, and configurations of one library are understood by the other."""
    found = []
    for library, own in ((weft.keras, weft), (keras, jax)):
        SEEDS[library](7)
        layer = row.make(library.layers)
        row.run(layer, {name: own.numpy.asarray(INPUTS[name]) for name in row.inputs})
        found.append(layer)
    ours, theirs = found
    for a, b in zip(ours.get_weights(), [np.asarray(v.value) for v in theirs.weights], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    known = {name: value for name, value in ours.get_config().items() if name in theirs.get_config()}
    assert set(known) >= set(theirs.get_config()) - OPTIONAL
    type(theirs).from_config(ours.get_config())


# What a configuration of Keras has that needs not be written.
OPTIONAL = {"quantization_config", "synchronized", "rms_scaling", "bounding_box_format"}


def images_model(library: Any) -> Any:
    layers = library.layers
    inputs = library.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Add()([x, layers.SeparableConv2D(8, 3, padding="same")(x)])
    x = layers.SpatialDropout2D(0.3, seed=5)(layers.MaxPooling2D()(x))
    x = layers.Dropout(0.2, seed=4)(layers.GlobalAveragePooling2D()(x))
    return library.Model(inputs, layers.Dense(3)(x))


def text_model(library: Any) -> Any:
    layers = library.layers
    inputs = library.Input((9,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True, dropout=0.2, seed=3))(x)
    x = layers.LayerNormalization()(x)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    return library.Model(inputs, layers.Dense(3)(layers.GRU(5)(x)))


def augmented_model(library: Any) -> Any:
    layers = library.layers
    return library.Sequential(
        [
            library.Input((12, 12, 3)),
            layers.RandomFlip(seed=2),
            layers.Rescaling(0.5),
            layers.ZeroPadding2D(1),
            layers.Conv2D(4, 3, strides=2, activation="gelu"),
            layers.GroupNormalization(2),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.UnitNormalization(),
            layers.Dense(3),
        ]
    )


@pytest.mark.parametrize("make", [images_model, text_model, augmented_model])
@pytest.mark.filterwarnings("ignore")
def test_training_of_models(make: Any) -> None:
    """Three epochs with masks, dropout, moving averages and a smaller last batch lead to the losses of Keras."""
    found = []
    for library in (weft.keras, keras):
        rng = np.random.default_rng(0)
        model = make(library)
        if make is text_model:
            x = (rng.integers(0, 20, (40, 9)) * (np.arange(9) < rng.integers(1, 9, (40, 1)))).astype(np.int32)
        else:
            x = rng.normal(size=(40, 12, 12, 3)).astype(np.float32)
        y = rng.integers(0, 3, (40,))
        values = [rng.normal(size=tuple(v.shape), scale=0.3).astype(np.float32) for v in model.weights]
        model.set_weights(
            [value**2 if "variance" in v.path else value for value, v in zip(values, model.weights, strict=True)]
        )
        model.compile("adam", library.losses.SparseCategoricalCrossentropy(from_logits=True))
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
        found.append([*history, model.evaluate(x, y, batch_size=16, verbose=0)])
    np.testing.assert_allclose(found[0], found[1], rtol=5e-6)


@pytest.mark.parametrize("row", [row for row in ALL if "ours" in row.words], ids=identity)
@pytest.mark.filterwarnings("ignore")
def test_known_differences(row: Row) -> None:
    """What Keras refuses, or does otherwise than it says, still differs."""
    try:
        ours, theirs = built(row, training=False)
    except (ValueError, TypeError):
        return
    found, expected = (
        row.run(layer, {name: own.numpy.asarray(INPUTS[name]) for name in row.inputs})
        for layer, own in ((ours, weft), (theirs, jax))
    )
    assert not np.allclose(leaves(found)[0], leaves(expected)[0])
