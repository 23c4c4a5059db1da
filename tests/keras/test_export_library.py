"""Models of Keras, Flax and Haiku as libraries."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import haiku, keras, linen, optim
from weft.errors import ArgumentError, NotSupportedError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
Spec = weft.ShapeDtypeStruct


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def convolutional() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )


@pytest.mark.slow
def test_a_model_for_batches_of_any_size(tmp_path: pathlib.Path) -> None:
    model = convolutional()
    model.export(tmp_path / "m.so", format="library")
    assert "int32_t m(" in (tmp_path / "m.h").read_text()
    loaded = weft.export.load(tmp_path / "m.so")
    for rows in (1, 2, 5, 16):
        x = normal(rows, 8, 8, 1)
        np.testing.assert_allclose(loaded(x), model(x, training=False), rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError):
        loaded(normal(17, 8, 8, 1))


def test_endpoints_share_a_library(tmp_path: pathlib.Path) -> None:
    model = convolutional()
    archive = keras.export.ExportArchive(format="library")
    archive.track(model)
    archive.add_endpoint("serve", model.call, [keras.InputSpec(shape=(2, 8, 8, 1), dtype="float32")])
    archive.add_endpoint("chosen", lambda x: wnp.argmax(model(x), -1), [keras.InputSpec(shape=(2, 8, 8, 1))])
    archive.write_out(tmp_path / "digits", verbose=False)
    loaded, x = weft.export.load(tmp_path / "digits" / "libdigits.so"), normal(2, 8, 8, 1)
    np.testing.assert_allclose(loaded.serve(x), model(x), rtol=1e-5, atol=1e-6)
    assert loaded.chosen(x).tolist() == np.argmax(model(x), -1).tolist()


def test_other_formats_and_derivatives_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match="derivatives"):
        convolutional().export(tmp_path / "m.so", format="library", vjp_order=1)
    with pytest.raises(NotSupportedError):
        keras.export.ExportArchive(format="onnx")


class Net(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(2)(linen.relu(linen.LayerNorm()(linen.Dense(16)(x))))


def test_a_training_step_of_linen_learns_in_a_library(tmp_path: pathlib.Path) -> None:
    net, x = Net(), normal(12, 4)
    y = (x[:, 0] > x[:, 1]).astype(np.int32)
    params, rule = net.init(weft.random.key(0), x), optim.adam(0.05)

    @weft.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return optim.softmax_cross_entropy_with_integer_labels(net.apply(params, x), y).mean()

        value, grads = weft.value_and_grad(loss)(params)
        updates, state = rule.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    state = rule.init(params)
    step_in_place = weft.jit(step, donate_argnums=(0, 1))
    built = weft.export.library(step_in_place, params, state, x, y, name="step")
    assert all(t.alias is not None for t in built.signature.results[:-1])
    file = next(path for path in built.save(tmp_path) if path.suffix == ".so")
    loaded, losses = weft.export.load(file), []
    own = (params, state)
    for _ in range(30):
        *own, value = loaded(*own, x, y)
        params, state, expected = step(params, state, x, y)
        assert np.asarray(value).tobytes() == np.asarray(expected).tobytes()
        losses.append(float(value))
    assert losses[-1] < losses[0] / 4


def test_a_function_of_haiku(tmp_path: pathlib.Path) -> None:
    net = haiku.without_apply_rng(haiku.transform(lambda x: haiku.nets.MLP([8, 3])(x)))
    x = normal(5, 4)
    params = net.init(weft.random.key(0), x)
    built = weft.export.library(net.apply, params, x, name="f")
    file = next(path for path in built.save(tmp_path) if path.suffix == ".so")
    assert weft.export.load(file)(params, x).tobytes() == np.asarray(weft.jit(net.apply)(params, x)).tobytes()
