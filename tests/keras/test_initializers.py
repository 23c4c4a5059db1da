"""Random arrays, initializers, regularizers, constraints and activations: configs, seeds and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError
from weft.keras.core.scope import stateless

INITIALIZERS = [
    keras.initializers.Constant(2.0),
    keras.initializers.Constant(np.array([1.0, 2.0, 3.0, 4.0])),
    keras.initializers.Zeros(),
    keras.initializers.Ones(),
    keras.initializers.Identity(3.0),
    keras.initializers.RandomNormal(1.0, 2.0, seed=3),
    keras.initializers.RandomUniform(1.0, 2.0, seed=3),
    keras.initializers.TruncatedNormal(1.0, 2.0, seed=3),
    keras.initializers.VarianceScaling(2.0, "fan_out", "uniform", seed=3),
    keras.initializers.GlorotUniform(seed=3),
    keras.initializers.HeNormal(seed=keras.random.SeedGenerator(3)),
    keras.initializers.Orthogonal(2.0, seed=3),
]


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=lambda one: type(one).__name__)
def test_initializers_through_files(initializer: Any) -> None:
    config = json.loads(json.dumps(keras.initializers.serialize(initializer)))
    again = keras.initializers.deserialize(config)
    assert type(again) is type(initializer)
    assert again.get_config() == initializer.get_config()
    found, wanted = again((4, 4), "float32"), initializer((4, 4), "float32")
    assert (found.shape, str(found.dtype)) == ((4, 4), "float32")
    np.testing.assert_array_equal(found, wanted)
    name = type(initializer).__name__
    assert isinstance(keras.initializers.get(name), type(initializer))


def test_seeds_of_initializers() -> None:
    keras.utils.set_random_seed(1)
    first, second = keras.initializers.GlorotUniform(), keras.initializers.GlorotUniform()
    assert first.seed != second.seed
    np.testing.assert_array_equal(first((3, 4)), first((3, 4)))
    np.testing.assert_array_equal(first((3, 4)), first.clone()((3, 4)))
    drawn = keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(1))
    assert not np.array_equal(drawn((3,)), drawn((3,)))
    matrix = np.asarray(keras.initializers.Orthogonal(seed=1)((3, 5)))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-5)
    np.testing.assert_array_equal(keras.initializers.get(np.array([1.0, 2.0]))((2,)), [1.0, 2.0])


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: keras.random.normal((3,), seed=seed),
        lambda seed: keras.random.uniform((3,), seed=seed),
        lambda seed: keras.random.randint((3,), 0, 1000, seed=seed),
        lambda seed: keras.random.dropout(np.ones(32, "float32"), 0.5, seed=seed),
        lambda seed: keras.random.shuffle(np.arange(32), seed=seed),
    ],
)
def test_draws(draw: Any) -> None:
    np.testing.assert_array_equal(draw(7), draw(7))
    np.testing.assert_array_equal(weft.jit(lambda: draw(7))(), draw(7))
    generator = keras.random.SeedGenerator(7)
    first, second = np.asarray(draw(generator)), np.asarray(draw(generator))
    np.testing.assert_array_equal(first, draw(7))
    assert not np.array_equal(first, second)
    assert np.asarray(generator.state.value).tolist() == [7, 2]
    # In a compiled function the state goes in and out.
    run = weft.jit(stateless(lambda: draw(generator), [generator.state]))
    result, state = run([np.array([7, 1], "uint32")])
    np.testing.assert_array_equal(result, second)
    assert np.asarray(state[0]).tolist() == [7, 2]


def test_dropout_keeps_the_mean_and_axes_together() -> None:
    dropped = np.asarray(keras.random.dropout(np.ones((400, 50), "float32"), 0.25, seed=1))
    assert abs(dropped.mean() - 1) < 0.02 and set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    rows = np.asarray(keras.random.dropout(np.ones((40, 5), "float32"), 0.5, noise_shape=(None, 1), seed=1))
    assert (rows == rows[:, :1]).all()


def test_configs_of_relatives() -> None:
    for kind, one in (
        ("regularizers", keras.regularizers.L1L2(0.1, 0.2)),
        ("regularizers", keras.regularizers.OrthogonalRegularizer(0.1, "columns")),
        ("constraints", keras.constraints.MinMaxNorm(0.5, 2.0, 0.3, axis=[0, 1])),
        ("constraints", keras.constraints.UnitNorm(1)),
    ):
        module = getattr(keras, kind)
        again = module.deserialize(json.loads(json.dumps(module.serialize(one))))
        assert (type(again), again.get_config()) == (type(one), one.get_config())
        weights = np.random.RandomState(0).uniform(-1, 1, (3, 4)).astype("float32")
        np.testing.assert_array_equal(again(weights), one(weights))
        assert module.get(None) is None and module.get(one) is one
    columns = np.linalg.qr(np.random.RandomState(0).normal(size=(4, 3)))[0]
    assert float(keras.regularizers.OrthogonalRegularizer(1.0, "columns")(columns)) < 1e-6


def test_activations_of_users() -> None:
    @keras.saving.register_keras_serializable("tests")
    def doubled(x: Any) -> Any:
        return 2 * x

    config = json.loads(json.dumps(keras.activations.serialize(doubled)))
    assert keras.activations.deserialize(config) is doubled
    assert keras.activations.get(doubled) is doubled
    assert keras.activations.get(None) is keras.activations.linear


def test_elastic_transform() -> None:
    images = np.random.RandomState(0).uniform(size=(2, 8, 6, 3)).astype("float32")
    transform = keras.ops.image.elastic_transform
    np.testing.assert_allclose(transform(images, alpha=0.0, seed=1), images, atol=1e-6)
    eager = transform(images, alpha=5.0, sigma=1.0, seed=1)
    np.testing.assert_allclose(weft.jit(lambda x: transform(x, 5.0, 1.0, seed=1))(images), eager, atol=1e-5)
    assert not np.allclose(eager, images)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: keras.random.normal((2,), dtype="int32"), "float"),
        (lambda: keras.random.randint((2,), 0, 2, dtype="float32"), "integer"),
        (lambda: keras.random.normal((2,), seed="one"), "seed"),
        (lambda: keras.random.categorical([0.0, 1.0], 2), "matrix"),
        (lambda: keras.random.dropout([1.0], 0.5, noise_shape=(1, 1)), "axes"),
        (lambda: keras.initializers.VarianceScaling(-1.0), "positive"),
        (lambda: keras.initializers.VarianceScaling(mode="fan"), "mode"),
        (lambda: keras.initializers.Orthogonal()((3,)), "two axes"),
        (lambda: keras.initializers.Identity()((3, 3, 3)), "matrices"),
        (lambda: keras.initializers.RandomNormal(seed="one"), "seed"),
        (lambda: keras.regularizers.L2(-1.0), "negative"),
        (lambda: keras.regularizers.OrthogonalRegularizer(mode="all"), "mode"),
        (lambda: keras.activations.get(3), "activation"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call()
