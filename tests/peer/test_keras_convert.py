"""Weights of models go to PyTorch, Flax and Haiku and back: the modules there compute what the layers here do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as linen
import haiku
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tests.peer.compare  # noqa: F401  (settings of JAX, before it is imported)
from weft import keras
from weft.keras import convert
from weft.modules.convert import to_plain

RNG = np.random.default_rng(0)
layers = keras.layers


class Case(NamedTuple):
    """Layer, the shape of its input, a module of PyTorch on inputs with channels first, and one of Flax."""

    layer: Callable[[], Any]
    shape: tuple[int, ...]
    torch: Callable[[], Any] | None = None
    flax: Callable[[], Any] | None = None
    images: bool = False
    integers: bool = False


CASES = {
    "dense": Case(lambda: layers.Dense(3), (4,), lambda: torch.nn.Linear(4, 3), lambda: linen.Dense(3)),
    "conv1": Case(lambda: layers.Conv1D(5, 3), (8, 4), lambda: torch.nn.Conv1d(4, 5, 3),
                  lambda: linen.Conv(5, (3,), padding="VALID"), True),
    "conv2": Case(lambda: layers.Conv2D(6, 3, groups=2), (8, 7, 4), lambda: torch.nn.Conv2d(4, 6, 3, groups=2),
                  lambda: linen.Conv(6, (3, 3), padding="VALID", feature_group_count=2), True),
    "conv3": Case(lambda: layers.Conv3D(2, 2), (4, 4, 3, 2), lambda: torch.nn.Conv3d(2, 2, 2),
                  lambda: linen.Conv(2, (2, 2, 2), padding="VALID"), True),
    "transposed": Case(lambda: layers.Conv2DTranspose(5, 3, strides=2), (4, 5, 3),
                       lambda: torch.nn.ConvTranspose2d(3, 5, 3, stride=2),
                       lambda: linen.ConvTranspose(5, (3, 3), strides=(2, 2), padding="VALID"), True),
    "depthwise": Case(lambda: layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 4),
                      lambda: torch.nn.Conv2d(4, 8, 3, groups=4),
                      lambda: linen.Conv(8, (3, 3), padding="VALID", feature_group_count=4), True),
    "embedding": Case(lambda: layers.Embedding(9, 4), (5,), lambda: torch.nn.Embedding(9, 4),
                      lambda: linen.Embed(9, 4), integers=True),
    "layer_norm": Case(lambda: layers.LayerNormalization(epsilon=1e-5), (6,), lambda: torch.nn.LayerNorm(6),
                       lambda: linen.LayerNorm(epsilon=1e-5)),
    "group_norm": Case(lambda: layers.GroupNormalization(2, epsilon=1e-5), (5, 5, 4), lambda: torch.nn.GroupNorm(2, 4),
                       lambda: linen.GroupNorm(2, epsilon=1e-5), True),
    "rms_norm": Case(lambda: layers.RMSNormalization(epsilon=1e-6), (6,), lambda: torch.nn.RMSNorm(6, eps=1e-6),
                     lambda: linen.RMSNorm(epsilon=1e-6)),
    "batch_norm": Case(lambda: layers.BatchNormalization(epsilon=1e-5), (5, 5, 4), lambda: torch.nn.BatchNorm2d(4),
                       lambda: linen.BatchNorm(use_running_average=True, epsilon=1e-5), True),
    "lstm": Case(lambda: layers.LSTM(5, return_sequences=True), (6, 3),
                 lambda: torch.nn.LSTM(3, 5, batch_first=True), lambda: linen.RNN(linen.OptimizedLSTMCell(5))),
    "gru": Case(lambda: layers.GRU(5, return_sequences=True), (6, 3), lambda: torch.nn.GRU(3, 5, batch_first=True),
                lambda: linen.RNN(linen.GRUCell(5, name="m"))),
}  # fmt: skip


def randomized(model: Any) -> Any:
    """Weights that are all different, and variances that are positive."""
    model.set_weights([RNG.uniform(0.2, 1.0, size=weight.shape).astype(np.float32) for weight in model.get_weights()])
    return model


def built(case: Case) -> tuple[Any, np.ndarray]:
    dtype = "int32" if case.integers else "float32"
    model = keras.Sequential([keras.Input(case.shape, dtype=dtype), case.layer()])
    shape = (2, *case.shape)
    x = RNG.integers(0, 9, size=shape) if case.integers else RNG.normal(size=shape).astype(np.float32)
    return randomized(model), x


def assert_back(model: Any, back: Callable[[], None]) -> None:
    """Assert that a model whose weights were cleared has them again."""
    before = model.get_weights()
    model.set_weights([np.zeros_like(weight) for weight in before])
    back()
    for weight, want in zip(model.get_weights(), before, strict=True):
        np.testing.assert_allclose(weight, want, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_torch(name: str) -> None:
    case = CASES[name]
    assert case.torch is not None
    model, x = built(case)
    module = torch.nn.ModuleDict({"m": case.torch()}).eval()
    names = dict.fromkeys(convert.layer_paths(model), "m")
    state = {key: torch.from_numpy(value) for key, value in convert.to_torch(model, names).items()}
    module.load_state_dict(state)
    got = module["m"](torch.from_numpy(np.moveaxis(x, -1, 1).copy() if case.images else x))
    got = (got[0] if isinstance(got, tuple) else got).detach().numpy()
    np.testing.assert_allclose(np.moveaxis(got, 1, -1) if case.images else got, model(x), rtol=2e-5, atol=2e-5)
    if name in ("lstm", "gru"):  # two biases there, of which the LSTM here has the sum
        module["m"].bias_hh_l0.data.add_(0.25)
        convert.from_torch(model, module.state_dict(), names)
        got = module["m"](torch.from_numpy(x))[0].detach().numpy()
        np.testing.assert_allclose(got, model(x), rtol=2e-5, atol=2e-5)
    assert_back(model, lambda: convert.from_torch(model, module.state_dict(), names))


@pytest.mark.parametrize("name", CASES)
def test_flax(name: str) -> None:
    case = CASES[name]
    assert case.flax is not None
    model, x = built(case)
    module = case.flax()
    (path,) = convert.layer_paths(model)
    cell = name in ("lstm", "gru")
    names = {path: "cell" if cell else ""}
    want = module.init(jax.random.key(0), jnp.asarray(x))
    if cell:
        (inside,) = want["params"]
        names = {path: inside}
    variables: Any = to_plain(convert.to_linen(model, names))
    shapes = lambda tree: jax.tree.map(np.shape, jax.tree.map(np.asarray, tree))
    assert shapes(variables) == shapes(want)
    np.testing.assert_allclose(module.apply(variables, jnp.asarray(x)), model(x), rtol=2e-5, atol=2e-5)
    if name != "gru":  # whose two biases are one there
        assert_back(model, lambda: convert.from_linen(model, variables, names))
    convert.from_linen(model, variables, names)
    np.testing.assert_allclose(module.apply(variables, jnp.asarray(x)), model(x), rtol=2e-5, atol=2e-5)


def test_attention_in_torch_and_flax() -> None:
    x = RNG.normal(size=(2, 5, 6)).astype(np.float32)
    query = keras.Input((5, 6))
    model = randomized(keras.Model(query, layers.MultiHeadAttention(3, 2)(query, query)))
    (path,) = convert.layer_paths(model)
    module = torch.nn.ModuleDict({"m": torch.nn.MultiheadAttention(6, 3, batch_first=True)})
    module.load_state_dict({k: torch.from_numpy(v) for k, v in convert.to_torch(model, {path: "m"}).items()})
    inputs = torch.from_numpy(x)
    np.testing.assert_allclose(module["m"](inputs, inputs, inputs)[0].detach(), model(x), rtol=2e-5, atol=2e-5)
    assert_back(model, lambda: convert.from_torch(model, module.state_dict(), {path: "m"}))
    flax = linen.MultiHeadDotProductAttention(3)
    variables: Any = to_plain(convert.to_linen(model, {path: ""}))
    np.testing.assert_allclose(flax.apply(variables, jnp.asarray(x)), model(x), rtol=2e-5, atol=2e-5)
    assert_back(model, lambda: convert.from_linen(model, variables, {path: ""}))


def test_a_network_of_torch_by_order() -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3)
    ).eval()
    network[1].running_var.uniform_(0.5, 2.0)
    # Channels are last here, so that the features of a flattened image come in another order.
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(epsilon=1e-5),
            layers.ReLU(),
            layers.Permute((3, 1, 2)),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    state = network.state_dict()
    convert.from_torch(model, state, convert.names_by_order(model, state))
    x = RNG.normal(size=(2, 6, 6, 1)).astype(np.float32)
    want = network(torch.from_numpy(np.moveaxis(x, -1, 1).copy())).detach()
    np.testing.assert_allclose(model(x), want, rtol=2e-5, atol=2e-5)


def test_layers_and_directions_of_a_recurrent_module() -> None:
    module = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)})
    model = keras.Sequential(
        [keras.Input((6, 3))]
        + [layers.Bidirectional(layers.LSTM(4, return_sequences=True), name=f"both_{i}") for i in range(2)]
    )
    names = {
        path: f"rnn:l{i // 2}" + ("_reverse" if i % 2 else "") for i, path in enumerate(convert.layer_paths(model))
    }
    convert.from_torch(model, module.state_dict(), names)
    x = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    np.testing.assert_allclose(model(x), module["rnn"](torch.from_numpy(x))[0].detach(), rtol=2e-5, atol=2e-5)
    assert set(convert.to_torch(model, names)) == set(module.state_dict())


def test_haiku() -> None:
    def forward(x: Any) -> Any:
        x = haiku.Conv2D(4, 3, padding="VALID", name="conv")(x)
        x = haiku.BatchNorm(True, True, 0.9, eps=1e-5, name="norm")(x, is_training=False)
        x = jnp.reshape(x, (x.shape[0], 4, -1))
        x, _ = haiku.dynamic_unroll(haiku.LSTM(5, name="lstm"), x, haiku.LSTM(5).initial_state(2), time_major=False)
        return haiku.Linear(3, name="linear")(haiku.LayerNorm(-1, True, True, eps=1e-5, name="layer")(x[:, -1]))

    network = haiku.without_apply_rng(haiku.transform_with_state(forward))
    model = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            layers.Conv2D(4, 3, name="conv"),
            layers.BatchNormalization(epsilon=1e-5, name="norm"),
            layers.Reshape((4, -1)),
            layers.LSTM(5, name="lstm"),
            layers.LayerNormalization(epsilon=1e-5, name="layer"),
            layers.Dense(3, name="linear"),
        ]
    )
    randomized(model)
    params, state = (to_plain(tree) for tree in convert.to_haiku(model))
    x = RNG.normal(size=(2, 4, 4, 1)).astype(np.float32)
    got, _ = network.apply(params, state, jnp.asarray(x))
    np.testing.assert_allclose(got, model(x), rtol=2e-5, atol=2e-5)
    assert_back(model, lambda: convert.from_haiku(model, params, state))
