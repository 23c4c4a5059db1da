"""Networks and optimizers for examples, beside JAX's: the same weights from the same keys, the same results."""

from __future__ import annotations

from typing import Any

import jax.example_libraries.optimizers
import jax.example_libraries.stax
import numpy as np
import pytest

import weft
import weft.example_libraries.optimizers
import weft.example_libraries.stax
from tests.peer.compare import jax  # first of all: it says how JAX compiles

LIBRARIES = (weft, jax)


def close(got: Any, want: Any) -> None:
    got, want = weft.tree.leaves(got), jax.tree.leaves(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


NETWORKS: dict[str, Any] = {
    "dense": (lambda s: s.serial(s.Dense(4), s.Relu, s.Dense(3), s.LogSoftmax), (2, 5)),
    "convolution": (
        lambda s: s.serial(s.Conv(3, (3, 3), (2, 2), "SAME"), s.BatchNorm(), s.Relu, s.MaxPool((2, 2)), s.Flatten),
        (2, 8, 6, 2),
    ),
    "pooling": (lambda s: s.serial(s.AvgPool((3, 3), padding="SAME"), s.SumPool((2, 2), (2, 2))), (2, 6, 6, 2)),
    "channels first": (lambda s: s.MaxPool((2, 2), (2, 2), spec="NCHW"), (2, 3, 4, 6)),
    "transposed": (lambda s: s.serial(s.ConvTranspose(3, (2, 2), (2, 2)), s.Tanh), (2, 3, 3, 2)),
    "transposed in one dimension": (lambda s: s.Conv1DTranspose(3, (2,), (2,), "SAME"), (2, 3, 2)),
    "general": (lambda s: s.GeneralConv(("NCHW", "OIHW", "NCHW"), 3, (2, 2)), (2, 2, 4, 4)),
    "branches": (
        lambda s: s.serial(
            s.FanOut(2), s.parallel(s.Dense(3), s.serial(s.Dense(2), s.Elu)), s.FanInConcat(), s.Dropout(0.8)
        ),
        (4, 3),
    ),
    "sum": (
        lambda s: s.serial(s.FanOut(2), s.parallel(s.Identity, s.Gelu), s.FanInSum, s.Dropout(0.5, "test")),
        (4, 3),
    ),
    "activations": (
        lambda s: s.serial(s.Exp, s.Softplus, s.Sigmoid, s.LeakyRelu, s.Selu, s.Softmax, s.elementwise(abs)),
        (4, 3),
    ),
    "shapes": (lambda s: s.shape_dependent(lambda shape: s.Dense(shape[-1])), (4, 3)),
    "norm": (lambda s: s.BatchNorm(0, center=False), (4, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    make, shape = NETWORKS[name]
    inputs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    results = []
    for library in LIBRARIES:
        init, apply = make(library.example_libraries.stax)
        out_shape, params = init(library.random.key(3), shape)
        key = library.random.key(5)
        out = library.jit(lambda p, x, apply=apply, key=key: apply(p, x, rng=key))(params, inputs)
        grads = library.grad(lambda p, apply=apply, key=key: (apply(p, inputs, rng=key) ** 2).sum())(params)
        assert out.shape == tuple(out_shape)
        results.append((out, params, grads))
    close(*results)


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.momentum(0.1, 0.9),
    "nesterov": lambda o: o.nesterov(o.exponential_decay(0.1, 2, 0.5), 0.9),
    "adagrad": lambda o: o.adagrad(o.inverse_time_decay(0.1, 2, 0.5), 0.8),
    "rmsprop": lambda o: o.rmsprop(o.inverse_time_decay(0.1, 2, 0.5, staircase=True)),
    "rmsprop_momentum": lambda o: o.rmsprop_momentum(o.polynomial_decay(0.1, 3, 0.01, 2.0)),
    "adam": lambda o: o.adam(o.piecewise_constant([1, 2], [0.1, 0.05, 0.02])),
    "adamax": lambda o: o.adamax(0.1),
    "sm3": lambda o: o.sm3(o.constant(0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    start = {"a": np.array([[1.0, -2.0, 0.5], [0.3, 0.0, 2.0]], np.float32), "b": [np.float32(0.7)]}
    results = []
    for library in LIBRARIES:
        optimizers = library.example_libraries.optimizers
        init, update, get_params = OPTIMIZERS[name](optimizers)
        state = init(start)
        step = library.jit(update)
        for i in range(4):
            grads = library.tree.map(lambda x: x * x - 0.3, get_params(state))
            state = step(i, optimizers.clip_grads(grads, 1.5), state)
        marked = optimizers.unpack_optimizer_state(state)
        again = optimizers.pack_optimizer_state(marked)
        results.append((get_params(state), get_params(again), optimizers.l2_norm(grads)))
    close(*results)


def test_errors() -> None:
    init, update, _ = weft.example_libraries.optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="structure of the parameters"):
        update(0, [1.0], init([1.0, 2.0]))
    with pytest.raises(ValueError, match="one shorter"):
        weft.example_libraries.optimizers.piecewise_constant([1], [1.0])
    with pytest.raises(TypeError, match="a number or a function"):
        weft.example_libraries.optimizers.sgd(np.ones(3))
    with pytest.raises(TypeError, match="JoinPoint"):
        weft.example_libraries.optimizers.pack_optimizer_state([1.0])
    init, apply = weft.example_libraries.stax.Dropout(0.5)
    with pytest.raises(ValueError, match="rng=key"):
        apply((), np.ones(3))
