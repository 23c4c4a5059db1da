"""Variables of linen, Haiku and Keras from the tensors of a folder."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import haiku, keras, linen, models
from weft.errors import ArgumentError, CheckpointMismatchError
from weft.modules import safetensors

NUMBERS = np.random.default_rng(0)
CONVOLUTION = NUMBERS.normal(size=(4, 3, 3, 3)).astype(np.float32)
BIAS = NUMBERS.normal(size=4).astype(np.float32)
MATRIX = NUMBERS.normal(size=(2, 4)).astype(np.float32)
IMAGES = NUMBERS.normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    tree = {"body": {"0": {"weight": CONVOLUTION, "bias": BIAS}}, "head": {"weight": MATRIX}}
    safetensors.save_file(weft.tree.map(wnp.asarray, tree), tmp_path / "model.safetensors")
    return tmp_path


def expected() -> np.ndarray:
    x = weft.lax.conv_general_dilated(wnp.asarray(IMAGES), CONVOLUTION, (1, 1), "SAME") + BIAS[:, None, None]
    return np.asarray(weft.nn.relu(x).mean((2, 3)) @ MATRIX.T)


def close(got: Any) -> None:
    np.testing.assert_allclose(got, expected(), rtol=1e-4, atol=1e-5)


def test_linen(folder: pathlib.Path) -> None:
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Conv(4, (3, 3))(x)).mean((1, 2))
            return linen.Dense(2, use_bias=False)(x)

    x = wnp.asarray(IMAGES.transpose(0, 2, 3, 1))
    target = weft.eval_shape(Net().init, weft.random.key(0), x)
    table = {"body.*.weight": "~params.Conv_*.kernel", "body.*.bias": "params.Conv_*.bias"}
    variables = models.load_tree(folder, target, table | {"head.weight": "~params.Dense_0.kernel"})
    close(Net().apply(variables, x))


def test_haiku(folder: pathlib.Path) -> None:
    def net(x: Any) -> Any:
        x = weft.nn.relu(haiku.Conv2D(4, 3)(x)).mean((1, 2))
        return haiku.Linear(2, with_bias=False)(x)

    transformed = haiku.without_apply_rng(haiku.transform(net))
    x = wnp.asarray(IMAGES.transpose(0, 2, 3, 1))
    target = transformed.init(weft.random.key(0), x)
    table = {"body.0.weight": "~conv2_d.w", "body.0.bias": "conv2_d.b", "head.weight": "~linear.w"}
    close(transformed.apply(models.load_tree(folder, target, table), x))


def test_keras(folder: pathlib.Path) -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, padding="same", activation="relu", name="body"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2, use_bias=False, name="head"),
        ],
        name="net",
    )
    target = {weight.path: weight.value for weight in model.weights}
    paths = {path.rsplit("/", 2)[-2] + "." + path.rsplit("/", 1)[-1]: path for path in target}
    table = {"body.0.weight": "~" + paths["body.kernel"], "body.0.bias": paths["body.bias"]}
    loaded = models.load_tree(folder, target, table | {"head.weight": "~" + paths["head.kernel"]})
    for weight in model.weights:
        weight.assign(loaded[weight.path])
    close(model(IMAGES.transpose(0, 2, 3, 1)))


def test_one_error_lists_what_does_not_fit(folder: pathlib.Path) -> None:
    target = {"a": wnp.zeros((4, 3)), "b": wnp.zeros(2)}
    with pytest.raises(CheckpointMismatchError) as caught:
        models.load_tree(folder, target, {"head.weight": "a"})
    for part in ("1 missing: b.", "2 extra: body.0.", "1 misshapen: head.weight is (2, 4) as a, must be (4, 3)."):
        assert part in str(caught.value)
    with pytest.raises(ArgumentError, match="matrix"):
        models.load_tree(folder, target, {"body.0.bias": "~b", "head.weight": "a"})


def test_dtypes(folder: pathlib.Path) -> None:
    target = {"k": wnp.zeros((3, 3, 3, 4)), "b": wnp.zeros(4), "h": wnp.zeros((2, 4))}
    table = {"body.0.weight": "~k", "body.0.bias": "b", "head.weight": "h"}
    loaded = models.load_tree(folder, target, table, dtype=wnp.bfloat16)
    assert {leaf.dtype.name for leaf in weft.tree.leaves(loaded)} == {"bfloat16"}
