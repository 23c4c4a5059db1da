"""Optimizers and schedules beside Keras: 20 steps, state, and configs."""

from __future__ import annotations

import inspect
import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
import pytest

import tests.peer.compare  # noqa: F401  (settings of JAX, before it is imported)
import weft
from weft import keras as ours

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# `o` is keras.optimizers, `s` its schedules.
CASES = """
o.SGD(0.1)
o.SGD(0.1, momentum=0.9)
o.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
o.SGD(s.ExponentialDecay(0.5, 4, 0.5), momentum=0.5)
o.SGD(0.1, clipnorm=0.5)
o.SGD(0.1, clipvalue=0.3)
o.SGD(0.1, global_clipnorm=0.7)
o.SGD(0.1, loss_scale_factor=4.0)
o.SGD(0.1, use_ema=True, ema_momentum=0.8)
o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)
o.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3)
o.SGD(0.1, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2)
o.SGD(s.PolynomialDecay(0.1, 10), gradient_accumulation_steps=3, clipnorm=0.2, weight_decay=0.1)
o.Adam(0.1)
o.Adam(0.1, amsgrad=True)
o.Adam(0.1, beta_1=0.5, beta_2=0.9, epsilon=1e-3, weight_decay=0.05, clipnorm=1.0)
o.Adam(0.1, use_ema=True, gradient_accumulation_steps=2)
o.Adam(s.CosineDecay(0.0, 10, warmup_target=0.1, warmup_steps=5))
o.AdamW(0.1)
o.AdamW(0.1, weight_decay=0.1, global_clipnorm=1.0)
o.Nadam(0.1)
o.Nadam(0.1, weight_decay=0.01, gradient_accumulation_steps=4)
o.Adamax(0.1)
o.Adagrad(0.5)
o.Adagrad(0.5, initial_accumulator_value=0.0, weight_decay=0.1)
o.Adadelta(1.0)
o.RMSprop(0.1)
o.RMSprop(0.1, momentum=0.5, centered=True)
o.RMSprop(0.1, rho=0.5, weight_decay=0.1, clipvalue=0.5)
o.Ftrl(0.1)
o.Ftrl(0.1, l1_regularization_strength=0.1, l2_regularization_strength=0.1, beta=0.1)
o.Ftrl(0.1, learning_rate_power=-0.3, l2_shrinkage_regularization_strength=0.1)
o.Lion(0.01)
o.Lion(0.01, weight_decay=0.1)
o.Lamb(0.1)
o.Adafactor(0.1)
o.Adafactor(0.1, clip_threshold=0.5, relative_step=False)
o.Muon(0.1)
o.Muon(0.1, nesterov=False, rms_rate=None, weight_decay=None, exclude_layers=['scale'])
o.ScheduleFreeAdamW(0.1)
o.ScheduleFreeAdamW(0.1, warmup_steps=5)
o.LossScaleOptimizer(o.Adam(0.1), initial_scale=8.0, dynamic_growth_steps=3)
o.MultiOptimizer(o.OptimizerMap(o.Adam(0.1), {'bias': o.SGD(0.1)}))
"""
ROWS = [line for line in CASES.splitlines() if line]

RNG = np.random.default_rng(0)
START = [RNG.normal(size=shape).astype(np.float32) for shape in ((4, 3), (3,), (2, 3, 2))]
NAMES = ("kernel", "bias", "scale")


def gradients(step: int) -> list[np.ndarray]:
    """Of ordinary size, of that of epsilon, and all the same."""
    return [
        np.random.default_rng(step).normal(size=START[0].shape).astype(np.float32),
        np.array([1e-6, np.sin(step), 0.1], np.float32),
        np.full(START[2].shape, np.cos(step), np.float32),
    ]


def created(library: Any, text: str) -> tuple[Any, list[Any]]:
    weights = [library.Variable(start, name=name) for start, name in zip(START, NAMES, strict=True)]
    weights[1].constraint = library_constraint
    return eval(text, {"o": library.optimizers, "s": library.optimizers.schedules}), weights


def library_constraint(value: Any) -> Any:
    return value * (value > -1.0)


def apply(theirs: Any, grads: Any, weights: Any) -> None:
    """Take a step of Keras; that of a LossScaleOptimizer is a function only."""
    if not isinstance(theirs, keras.optimizers.LossScaleOptimizer):
        theirs.apply(grads, weights)
        return
    values = theirs.stateless_apply([v.value for v in theirs.variables], grads, [w.value for w in weights])
    for variables, new in zip((weights, theirs.variables), values, strict=True):
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)


def close(got: Any, want: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("text", ROWS)
def test_twenty_steps(text: str) -> None:
    optimizer, weights = created(ours, text)
    theirs, their_weights = created(keras, text)
    optimizer.build(weights)
    theirs.build(their_weights)
    shapes = lambda variables: [(tuple(v.shape), str(v.dtype)) for v in variables]
    assert shapes(optimizer.variables) == shapes(theirs.variables)
    assert [v.name for v in weights] == [v.name for v in their_weights]
    slots = [v.path.partition("/")[2] for v in theirs.variables]
    if not any(part in text for part in ("Adafactor", "Nadam")):
        assert [v.path.partition("/")[2] for v in optimizer.variables] == slots

    compiled = weft.jit(optimizer.stateless_apply)
    values, state = [w.value for w in weights], [v.value for v in optimizer.variables]
    for step in range(20):
        apply(theirs, gradients(step), their_weights)
        if step < 6:
            optimizer.apply(gradients(step), weights)
        values, state = compiled(state, gradients(step), values)
        # Iterations of Newton and Schulz make of small differences larger ones.
        tolerance = 2e-5 if "Muon" in text or "Ftrl" in text else 2e-6
        for value, other in zip(values, their_weights, strict=True):
            close(value, other.value, tolerance)
        if step < 6:
            for weight, other in zip(weights, their_weights, strict=True):
                close(weight.value, other.value, tolerance)
    for value, other in zip(state, theirs.variables, strict=True):
        close(value, other.value, 2e-5)
    for variable, value in zip(optimizer.variables, state, strict=True):
        variable.assign(value)
    for weight, value in zip(weights, values, strict=True):
        weight.assign(value)
    assert int(np.asarray(optimizer.iterations)) == int(np.asarray(theirs.iterations))
    theirs.finalize_variable_values(their_weights)
    optimizer.finalize_variable_values(weights)
    for weight, other in zip(weights, their_weights, strict=True):
        close(weight.value, other.value, 2e-5)


@pytest.mark.parametrize("text", ROWS)
def test_configs(text: str) -> None:
    optimizer, theirs = created(ours, text)[0], created(keras, text)[0]

    def plain(config: Any) -> Any:
        """Without names, which are counted."""
        if isinstance(config, dict):
            return {key: plain(value) for key, value in config.items() if key not in ("name", "shared_object_id")}
        return [plain(value) for value in config] if isinstance(config, (list, tuple)) else config

    assert plain(ours.optimizers.serialize(optimizer)) == plain(keras.optimizers.serialize(theirs))
    again = ours.optimizers.deserialize(keras.optimizers.serialize(theirs))
    assert plain(again.get_config()) == plain(optimizer.get_config())
    keras.optimizers.deserialize(ours.optimizers.serialize(optimizer))


SCHEDULES = """
s.ExponentialDecay(0.5, 4, 0.9)
s.ExponentialDecay(0.5, 4, 0.9, staircase=True)
s.InverseTimeDecay(0.5, 4, 0.9)
s.InverseTimeDecay(0.5, 4, 0.9, staircase=True)
s.PiecewiseConstantDecay([3, 7], [0.5, 0.2, 0.1])
s.PolynomialDecay(0.5, 8)
s.PolynomialDecay(0.5, 8, 0.1, power=0.5)
s.PolynomialDecay(0.5, 8, 0.1, power=2.0, cycle=True)
s.CosineDecay(0.5, 10)
s.CosineDecay(0.5, 10, alpha=0.2)
s.CosineDecay(0.1, 10, warmup_target=0.5, warmup_steps=4)
s.CosineDecayRestarts(0.5, 4)
s.CosineDecayRestarts(0.5, 4, t_mul=1.0, m_mul=0.5, alpha=0.1)
"""


@pytest.mark.parametrize("text", [line for line in SCHEDULES.splitlines() if line])
def test_schedules(text: str) -> None:
    schedule = eval(text, {"s": ours.optimizers.schedules})
    theirs = eval(text, {"s": keras.optimizers.schedules})
    compiled = weft.jit(schedule)
    for step in range(25):
        close(schedule(step), theirs(step))
        close(compiled(step), theirs(step))
    assert schedule.get_config() == theirs.get_config()


def test_a_step_that_is_not_finite() -> None:
    text = "o.LossScaleOptimizer(o.SGD(0.1, momentum=0.9), initial_scale=8.0, dynamic_growth_steps=2)"
    optimizer, weights = created(ours, text)
    theirs, their_weights = created(keras, text)
    optimizer.build(weights)
    theirs.build(their_weights)
    for step in range(8):
        grads = gradients(step)
        if step in (2, 5):
            grads[1][0] = np.inf
        optimizer.apply(grads, weights)
        apply(theirs, grads, their_weights)
        for variable, other in zip([*weights, *optimizer.variables], [*their_weights, *theirs.variables], strict=True):
            close(variable.value, other.value)


def test_names_and_parameters() -> None:
    public = {name for name in dir(keras.optimizers) if not name.startswith("_") and name != "legacy"}
    assert not public - set(ours.optimizers.__all__)
    assert not {n for n in dir(keras.optimizers.schedules) if not n.startswith("_")} - set(
        ours.optimizers.schedules.__all__
    )
    assert not {n for n in dir(keras.mixed_precision) if not n.startswith("_")} - set(ours.mixed_precision.__all__)
    for name in public:
        want, got = getattr(keras.optimizers, name), getattr(ours.optimizers, name)
        if inspect.isclass(want):
            config = lambda cls: inspect.signature(cls).parameters
            for key, parameter in config(got).items():
                if parameter.kind is not parameter.VAR_KEYWORD and key in config(want):
                    assert parameter.default == config(want)[key].default, (name, key)
