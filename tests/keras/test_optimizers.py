"""Laws of optimizers: compiled = eager, configs come back, freezing needs no new optimizer, transformations fit in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras, optim
from weft.keras import optimizers
from weft.keras.core.scope import stateless

RNG = np.random.default_rng(0)
START = [RNG.normal(size=(3, 2)).astype(np.float32), RNG.normal(size=2).astype(np.float32)]
SPECIAL = ("Optimizer", "OptimizerMap", "MultiOptimizer", "LossScaleOptimizer", "TransformOptimizer")
CLASSES = sorted(name for name in optimizers.__all__ if name[0].isupper() and name not in SPECIAL)


def weights() -> list[keras.Variable]:
    return [keras.Variable(start, name=name) for start, name in zip(START, ("kernel", "bias"), strict=True)]


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.normal(size=start.shape).astype(np.float32) for start in START]


def trained(optimizer: Any, steps: int = 3, variables: list[keras.Variable] | None = None) -> list[np.ndarray]:
    variables = weights() if variables is None else variables
    for step in range(steps):
        optimizer.apply(gradients(step), variables)
    return [variable.numpy() for variable in variables]


OPTIONS = {"weight_decay": 0.1, "clipnorm": 0.5, "use_ema": True, "ema_overwrite_frequency": 2}


@pytest.mark.parametrize("name", CLASSES)
def test_every_optimizer(name: str) -> None:
    optimizer = getattr(optimizers, name)(0.05, **OPTIONS)
    eager = trained(optimizer)
    again = optimizers.deserialize(optimizers.serialize(optimizer))
    assert type(again) is type(optimizer) and again.get_config() == optimizer.get_config()
    again.build(weights())
    run = weft.jit(again.stateless_apply)
    values, state = list(START), [variable.value for variable in again.variables]
    for step in range(3):
        values, state = run(state, gradients(step), values)
    for value, want in zip(values, eager, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6)
    for value, variable in zip(state, optimizer.variables, strict=True):
        np.testing.assert_allclose(value, variable.value, rtol=1e-5, atol=1e-6)
    again.set_weights(state)
    assert int(again.iterations) == 3


def test_variables_are_in_the_order_of_files() -> None:
    optimizer = optimizers.Adam(name="adam", use_ema=True, gradient_accumulation_steps=2)
    optimizer.build(weights())
    assert [variable.path for variable in optimizer.variables] == [
        "adam/iteration",
        "adam/learning_rate",
        *(f"adam/{weight}_average" for weight in ("kernel", "bias")),
        *(f"adam/{weight}_gradient_accumulator" for weight in ("kernel", "bias")),
        *(f"adam/{weight}_{slot}" for weight in ("kernel", "bias") for slot in ("momentum", "velocity")),
    ]
    store: dict[str, Any] = {}
    optimizer.save_own_variables(store)
    optimizer.load_own_variables(store)
    assert optimizer.get_config()["learning_rate"] == float(np.float32(0.001))


def test_accumulation_is_one_step_by_the_mean() -> None:
    first, second = weights(), weights()
    accumulating = optimizers.Adam(0.1, gradient_accumulation_steps=2, clipnorm=0.3, weight_decay=0.1)
    for step in range(4):
        accumulating.apply(gradients(step), first)
    plain = optimizers.Adam(0.1, clipnorm=0.3, weight_decay=0.1)
    for step in (0, 2):
        means = [(a + b) / 2 for a, b in zip(gradients(step), gradients(step + 1), strict=True)]
        plain.apply(means, second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
    assert int(accumulating.iterations) == int(plain.iterations.value) == 2


@pytest.mark.parametrize("make", [lambda: optimizers.Adam(0.1), lambda: optimizers.get(optim.adam(0.1))])
def test_freezing_and_unfreezing_needs_no_new_optimizer(make: Any) -> None:
    kernel, bias = weights()
    optimizer = make()
    optimizer.build([bias])
    optimizer.apply(gradients(0)[1:], [bias])
    momentum = next(variable for variable in optimizer.variables if variable.shape == (2,)).numpy()
    optimizer.build([kernel, bias])
    assert any(np.array_equal(variable.numpy(), momentum) for variable in optimizer.variables)
    optimizer.apply(gradients(1), [kernel, bias])
    shapes = [variable.shape for variable in optimizer.variables if variable.shape]
    if not isinstance(optimizer, optimizers.TransformOptimizer):
        assert shapes == [(3, 2), (3, 2), (2,), (2,)]
    frozen = kernel.numpy()
    optimizer.build([bias])
    optimizer.apply(gradients(2)[1:], [bias])
    np.testing.assert_array_equal(kernel.numpy(), frozen)
    assert int(optimizer.iterations.value) == 3


@pytest.mark.parametrize("transformation", [optim.adamw(0.1), optim.chain(optim.clip(0.5), optim.sgd(0.1, 0.9))])
def test_transformations_of_weft_optim(transformation: Any) -> None:
    optimizer = optimizers.get(transformation)
    eager = trained(optimizer)
    params: Any = {"0": START[0], "1": START[1]}
    state = transformation.init(params)
    for step in range(3):
        updates, state = transformation.update(dict(zip("01", gradients(step), strict=True)), state, params)
        params = optim.apply_updates(params, updates)
    for value, want in zip(eager, params.values(), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-6)
    again = optimizers.get(transformation)
    again.build(weights())
    values, own = list(START), [variable.value for variable in again.variables]
    run = weft.jit(again.stateless_apply)
    for step in range(3):
        values, own = run(own, gradients(step), values)
    np.testing.assert_allclose(values[0], eager[0], rtol=1e-5, atol=1e-6)
    assert not hasattr(optimizer, "learning_rate")
    with pytest.raises(NotImplementedError, match=r"weft\.optim"):
        optimizer.get_config()


def test_an_optimizer_in_the_style_of_keras() -> None:
    class Momentum(optimizers.Optimizer):
        def build(self, variables: Any) -> None:
            if self.built:
                return
            super().build(variables)
            self.velocities = self.add_optimizer_variables(variables, "velocity")

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            velocity = self.velocities[self._get_variable_index(variable)]
            self.assign(velocity, velocity * 0.9 - gradient * learning_rate)
            self.assign_add(variable, velocity)

    for value, want in zip(trained(Momentum(0.1)), trained(optimizers.SGD(0.1, 0.9)), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-6)
    kernel, bias = weights()
    late = Momentum(0.1)
    late.apply(gradients(0)[1:], [bias])
    late.apply(gradients(1), [kernel, bias])
    assert [variable.shape for variable in late.variables] == [(), (), (3, 2), (2,)]


def test_learning_rates() -> None:
    optimizer = optimizers.SGD(0.5)
    optimizer.learning_rate = 0.25
    assert float(optimizer.learning_rate) == 0.25 == float(optimizer.variables[1].value)
    optimizer.learning_rate = optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    assert len(optimizer.variables) == 1
    (weight,) = [keras.Variable([0.0])]
    for _ in range(2):
        optimizer.apply([[1.0]], [weight])
    assert weight.numpy() == [-0.75] and float(optimizer.learning_rate) == 0.125
    with pytest.raises(ValueError, match="is a schedule"):
        optimizer.learning_rate = 0.1
    assert float(optimizers.SGD(lambda step: 0.1 * (step + 1)).learning_rate) == pytest.approx(0.1)
    assert float(optimizers.SGD(lambda: 0.1).learning_rate) == pytest.approx(0.1)
    assert float(optimizers.SGD(optim.linear_schedule(1.0, 0.0, 10)).learning_rate) == 1.0


def test_weights_that_do_not_decay() -> None:
    kernel, bias = weights()
    optimizer = optimizers.SGD(0.5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([np.zeros_like(start) for start in START], [kernel, bias])
    np.testing.assert_allclose(kernel.value, START[0] * 0.75)
    np.testing.assert_array_equal(bias.value, START[1])


def test_loss_scale() -> None:
    """Gradients that float16 cannot hold are found; a loss is scaled inside of a program."""
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(0.5), initial_scale=4.0, dynamic_growth_steps=2)
    weight = keras.Variable([1.0])
    optimizer.build([weight])

    def step(limit: Any) -> Any:
        gradient = weft.grad(lambda w: optimizer.scale_loss((w.astype("float16") * limit).sum()))(weight.value)
        optimizer.apply([gradient], [weight])

    variables = [weight, *optimizer.variables]
    run = weft.jit(stateless(step, variables))
    values = [variable.value for variable in variables]
    scales = []
    for limit in (1.0, 1.0, np.inf, 1.0):
        _, values = run(values, wnp.asarray(limit, "float16"))
        scales.append(float(values[4]))
    assert [variable.name for variable in variables][4] == "dynamic_scale"
    assert scales == [4.0, 8.0, 4.0, 4.0] and float(values[0][0]) == -0.5


def test_averages_of_weights_that_are_frozen_and_set_free() -> None:
    kernel, bias = weights()
    optimizer = optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1)
    optimizer.apply(gradients(0)[1:], [bias])
    optimizer.build([kernel, bias])
    (_, of_kernel), _ = optimizer.averages()
    np.testing.assert_array_equal(of_kernel.value, START[0])
    optimizer.apply(gradients(1), [kernel, bias])
    np.testing.assert_allclose(kernel.value, START[0] - 0.05 * gradients(1)[0], rtol=1e-5)
    frozen = kernel.numpy()
    of_kernel.assign(np.zeros_like(frozen))
    optimizer.apply(gradients(2)[1:], [bias])
    np.testing.assert_array_equal(kernel.value, frozen)


def test_many_models_at_once() -> None:
    """A step under vmap: accumulation is a branch, which becomes a selection."""
    optimizer = optimizers.Adam(0.1, gradient_accumulation_steps=2, global_clipnorm=0.5)
    optimizer.build(weights())
    state = [variable.value for variable in optimizer.variables]
    values = list(START)
    alone = []
    for step in range(2):
        values, state = optimizer.stateless_apply(state, gradients(step), values)
        alone.append(values)
    twice = lambda arrays: [wnp.stack([array, array]) for array in arrays]
    run = weft.jit(weft.vmap(optimizer.stateless_apply))
    states, many = twice(variable.value for variable in optimizer.variables), twice(START)
    for step in range(2):
        many, states = run(states, twice(gradients(step)), many)
        for value, want in zip(many, alone[step], strict=True):
            np.testing.assert_allclose(value[1], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Nadam", "RMSprop", "Lamb", "Adafactor", "Ftrl"])
def test_weights_of_half_precision_keep_their_dtype(name: str, dtype: str) -> None:
    weight = keras.Variable(wnp.asarray(START[0], dtype), name="half")
    optimizer = getattr(optimizers, name)(0.01, weight_decay=0.1)
    optimizer.build([weight])
    new, state = weft.jit(optimizer.stateless_apply)(
        [variable.value for variable in optimizer.variables], gradients(0)[:1], [weight.value]
    )
    assert str(new[0].dtype) == dtype and new[0].shape == (3, 2)
    assert [str(value.dtype) for value in state] == [variable.dtype for variable in optimizer.variables]


def test_an_overwritten_variable() -> None:
    weight, scale = keras.Variable([1.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = optimizers.Adam(0.1, use_ema=True)
    optimizer.apply([[1.0], [7.0]], [weight, scale])
    assert scale.numpy() == [7.0] and weight.numpy() != [1.0]
    assert len([variable for variable in optimizer.variables if variable.shape]) == 3


ERRORS = [
    (lambda: optimizers.SGD(0.1, clipnorm=1.0, clipvalue=1.0), "clipvalue=1.0"),
    (lambda: optimizers.SGD("fast"), "LearningRateSchedule"),
    (lambda: optimizers.Adam(0.1, beta=0.5), "beta="),
    (lambda: optimizers.Adam(gradient_accumulation_steps=1), "at least 2"),
    (lambda: optimizers.get("adamm"), "adamm"),
    (lambda: optimizers.SGD().apply([1.0]), "not built"),
    (lambda: optimizers.SGD().apply([None], [keras.Variable([1.0], name="lonely")]), "lonely"),
    (lambda: optimizers.SGD().apply([1.0, 2.0], [keras.Variable(1.0)]), "2 gradients"),
    (lambda: optimizers.schedules.CosineDecay(0.1, 0), "decay_steps=0"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_was_received(case: Any) -> None:
    with pytest.raises(ValueError) as caught:
        case[0]()
    assert case[1] in str(caught.value), str(caught.value)
