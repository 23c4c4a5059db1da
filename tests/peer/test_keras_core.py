"""Core layers and models against Keras 3 on the same weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
import jax  # noqa: E402

import weft  # noqa: E402
from weft import keras as ours  # noqa: E402
from weft.keras.core.seeds import set_random_seed  # noqa: E402

Build = Callable[[Any], Any]

LAYERS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "dense": (lambda k: k.layers.Dense(3, activation="gelu"), (2, 4)),
    "dense 3d": (lambda k: k.layers.Dense(3, activation="softmax"), (2, 5, 4)),
    "dense lora": (lambda k: k.layers.Dense(3, lora_rank=2), (2, 4)),
    "einsum": (lambda k: k.layers.EinsumDense("abc,cde->abde", (None, 3, 2), bias_axes="de"), (2, 5, 4)),
    "einsum left": (lambda k: k.layers.EinsumDense("...x,xy->...y", 6, bias_axes="y"), (2, 5, 4)),
    "einsum right": (lambda k: k.layers.EinsumDense("ab...,bc->ac...", 6, bias_axes="c"), (2, 5, 4)),
    "embedding": (lambda k: k.layers.Embedding(7, 3), (2, 4)),
    "activation": (lambda k: k.layers.Activation("hard_sigmoid"), (2, 4)),
    "relu": (lambda k: k.layers.ReLU(0.5, 0.1, 0.2), (2, 4)),
    "leaky": (lambda k: k.layers.LeakyReLU(), (2, 4)),
    "elu": (lambda k: k.layers.ELU(0.7), (2, 4)),
    "prelu": (lambda k: k.layers.PReLU("ones", shared_axes=[1]), (2, 4, 3)),
    "softmax": (lambda k: k.layers.Softmax(axis=(1, 2)), (2, 4, 3)),
    "masking": (lambda k: k.layers.Masking(0.0), (2, 4, 3)),
}


def sample(name: str, shape: tuple[int, ...]) -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.integers(0, 7, shape) if name == "embedding" else generator.normal(size=shape).astype("float32")


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    build, shape = LAYERS[name]
    x = sample(name, shape)
    keras.utils.set_random_seed(3)
    theirs = build(keras)
    theirs.build((None, *shape[1:]))
    set_random_seed(3)
    mine = build(ours)
    if not mine.built:
        mine.build((None, *shape[1:]))
    # The same initial weights, in the same order, bit for bit.
    assert [v.name for v in mine.weights] == [v.name for v in theirs.weights]
    for one, other in zip(mine.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), np.asarray(other.value))
    values = [np.random.default_rng(2).normal(size=v.shape).astype("float32") for v in theirs.weights]
    theirs.set_weights(values)
    mine.set_weights(values)
    np.testing.assert_allclose(mine(x), theirs(x), rtol=1e-5, atol=1e-6)
    assert mine.compute_output_shape((None, *shape[1:]))[0] is None

    def my_loss(values: Any) -> Any:
        others = [v.value for v in mine.non_trainable_variables]
        return (mine.stateless_call(values, others, x)[0] ** 2).sum()

    def their_loss(values: Any) -> Any:
        others = [v.value for v in theirs.non_trainable_variables]
        return (theirs.stateless_call(values, others, x)[0] ** 2).sum()

    found = weft.grad(my_loss)([v.value for v in mine.trainable_variables])
    expected = jax.grad(their_loss)([v.value for v in theirs.trainable_variables])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_their_configs_make_our_layers(name: str) -> None:
    build, _ = LAYERS[name]
    theirs = build(keras)
    data = keras.saving.serialize_keras_object(theirs)
    mine = ours.saving.deserialize_keras_object(data)
    config = mine.get_config()
    for key, value in theirs.get_config().items():
        if key not in ("dtype",) and not isinstance(value, dict):
            assert config.get(key) == value, key
    back = keras.saving.deserialize_keras_object(ours.saving.serialize_keras_object(mine))
    assert type(back) is type(theirs)


def branching(k: Any) -> Any:
    a, b = k.Input((4,), name="a"), k.Input((4,), name="b")
    shared = k.layers.Dense(3, name="shared")
    one = shared(a)
    two = k.layers.Dense(3, activation="relu", name="two")(shared(b))
    inner = k.Sequential([k.Input((3,)), k.layers.Dense(2, name="last")], name="inner")
    three = k.layers.Dense(2, name="three")(one)
    return k.Model([b, a], {"y": inner(two), "z": three, "one": one}, name="model")


def deep(k: Any) -> Any:
    x = k.Input((4,), name="x")
    h = k.layers.Dense(4, name="d0")(x)
    first = h
    for i in range(1, 4):
        h = k.layers.Dense(4, activation="tanh", name=f"d{i}")(h)
    left = k.layers.Dense(2, name="left")(first)
    right = k.layers.Dense(2, name="right")(h)
    return k.Model(x, [left, right, k.layers.Dense(1, name="top")(left)])


def stack(k: Any) -> Any:
    return k.Sequential([k.Input((4,)), k.layers.Dense(5, activation="relu"), k.layers.Dropout(0.5), k.layers.Dense(2)])


@pytest.mark.parametrize("build", [branching, deep, stack])
def test_models(build: Build) -> None:
    keras.utils.clear_session()
    ours.backend.clear_session()
    keras.utils.set_random_seed(5)
    theirs = build(keras)
    set_random_seed(5)
    mine = build(ours)
    assert [layer.name for layer in mine.layers] == [layer.name for layer in theirs.layers]
    assert [w.path for w in mine.weights] == [w.path for w in theirs.weights]
    assert [v.path for v in mine.variables] == [v.path for v in theirs.variables]
    for one, other in zip(mine.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), np.asarray(other.value))
    assert (mine.name, mine.count_params()) == (theirs.name, theirs.count_params())
    assert mine.output_shape == theirs.output_shape
    if build is not stack:
        assert mine.output_names == theirs.output_names
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    x = [rows, rows + 1] if build is branching else rows
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6), theirs(x), _tree(mine(x)))


def _tree(value: Any) -> Any:
    return jax.tree.map(np.asarray, value, is_leaf=lambda leaf: isinstance(leaf, weft.Array))


@pytest.mark.parametrize("build", [branching, deep, stack])
def test_configs_of_models_go_both_ways(build: Build) -> None:
    theirs, mine = build(keras), build(ours)
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    x = [rows, rows + 1] if build is branching else rows
    from_theirs = ours.models.model_from_json(theirs.to_json())
    from_theirs.set_weights([np.asarray(w.value) for w in theirs.weights])
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6), theirs(x), _tree(from_theirs(x)))
    from_mine = keras.models.model_from_json(mine.to_json())
    from_mine.set_weights(mine.get_weights())
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6), from_mine(x), _tree(mine(x)))


def test_operations_in_their_files() -> None:
    ops = keras.ops
    x = keras.Input((4, 6))
    y = ops.mean(x, axis=-1) * 2 + ops.max(x, axis=1)[:, :4]
    y = ops.where(y > 0, ops.concatenate([y, ops.relu(y)], axis=-1)[:, 2:6], 0.5)
    z = ops.einsum("bi,ij->bj", ops.reshape(y, (-1, 4)), ops.ones((4, 3)))
    z = ops.clip(ops.softmax(ops.leaky_relu(z, 0.1), axis=-1), 0.1, 0.5)
    z = ops.squeeze(ops.expand_dims(ops.cast(z, "float16"), 1), 1)
    first = ops.split(x, 2, axis=1)[0]
    theirs = keras.Model(x, [z, ops.transpose(x, (0, 2, 1)), ops.stack([first, -first], axis=1)])
    mine = ours.models.model_from_json(theirs.to_json())
    again = ours.models.model_from_json(mine.to_json())
    rows = np.random.default_rng(0).normal(size=(3, 4, 6)).astype("float32")
    for found in (mine(rows), again(rows)):
        for one, other in zip(found, theirs(rows), strict=True):
            np.testing.assert_allclose(
                np.asarray(one), np.asarray(other), rtol=1e-3 if other.dtype == "float16" else 1e-5
            )


def masked(k: Any) -> Any:
    x = k.Input((5,), dtype="int32", name="ids")
    h = k.layers.Embedding(7, 3, mask_zero=True, name="embedding")(x)
    h = k.layers.Dense(4, activation="tanh", name="dense")(h)
    return k.Model(x, k.layers.LSTM(2, name="lstm")(h))


def test_masks_in_functional_models() -> None:
    theirs, mine = masked(keras), masked(ours)
    mine.set_weights([np.asarray(w.value) for w in theirs.weights])
    ids = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 1], [0, 0, 0, 0, 0]], "int32")
    expected = np.asarray(theirs(ids))
    from_theirs = ours.models.model_from_json(theirs.to_json())
    from_theirs.set_weights(mine.get_weights())
    for found in (mine(ids), weft.jit(mine)(ids), mine.predict(ids, verbose=0), from_theirs(ids)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    values = [v.value for v in mine.trainable_variables]
    seeds = [[v.value for v in model.non_trainable_variables] for model in (mine, theirs)]
    gradient = weft.jit(weft.grad(lambda v: (mine.stateless_call(v, seeds[0], ids)[0] ** 2).sum()))(values)
    their_loss = lambda v: (theirs.stateless_call(v, seeds[1], ids)[0] ** 2).sum()
    for one, other in zip(gradient, jax.grad(their_loss)([v.value for v in theirs.trainable_variables]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_names_of_objects_without_names() -> None:
    keras.utils.clear_session()
    ours.backend.clear_session()

    def names(k: Any) -> list[str]:
        entries = [k.layers.Dense(1), k.layers.Dense(1), k.layers.ReLU(), stack(k), stack(k), branching(k)]
        return [entry.name for entry in entries] + [layer.name for layer in entries[4].layers]

    assert names(ours) == names(keras)


def test_result_types() -> None:
    dtypes = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32"]
    for one in dtypes:
        for other in [*dtypes, int, float]:
            assert ours.backend.result_type(one, other) == keras.backend.result_type(one, other), (one, other)


def test_dropout_draws_the_same() -> None:
    x = np.ones((4, 6), "float32")
    theirs, mine = keras.layers.Dropout(0.5, seed=7), ours.layers.Dropout(0.5, seed=7)
    for _ in range(3):
        np.testing.assert_array_equal(mine(x, training=True), np.asarray(theirs(x, training=True)))
    np.testing.assert_array_equal(mine.variables[0].numpy(), np.asarray(theirs.variables[0].value))


def test_known_differences() -> None:
    """Where the documentation of Keras says one thing, and Keras does another: ours is as documented."""

    def frozen(k: Any) -> bool:
        x = k.Input((3,))
        model = k.Model(x, k.layers.BatchNormalization()(x, training=False))
        rows = np.random.default_rng(0).normal(2, 3, (8, 3)).astype("float32")
        return bool(np.allclose(np.asarray(model(rows, training=True)), np.asarray(model(rows, training=False))))

    # `layer(x, training=False)` in a functional model holds, whatever the model is called with.
    assert (frozen(ours), frozen(keras)) == (True, False)

    def scale(k: Any) -> float:
        layer = k.layers.Dense(1, lora_rank=2, lora_alpha=4.0, use_bias=False)
        layer.build((None, 1))
        layer.set_weights([np.zeros((1, 1)), np.ones((1, 2)), np.ones((2, 1))])
        return float(np.asarray(layer(np.ones((1, 1), "float32")))[0, 0])

    # The update of rank 2 is scaled by `lora_alpha / lora_rank`.
    assert (scale(ours), scale(keras)) == (4.0, 2.0)
