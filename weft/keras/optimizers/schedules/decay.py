"""Learning rates that fall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.optimizers.schedules.base import LearningRateSchedule


def _floats(*values: Any) -> list[Array]:
    """Convert numbers and arrays to floats of the global type."""
    return [wnp.asarray(value).astype(config.floatx()) for value in values]


def _positive(name: str, what: str, value: float) -> float:
    if value <= 0:
        raise ArgumentError(f"{name}: `{what}` must be positive.", received=f"{what}={value}")
    return value


class ExponentialDecay(LearningRateSchedule):
    """initial_learning_rate * decay_rate^(step / decay_steps).

    Args:
        initial_learning_rate: the value at step 0.
        decay_steps: after how many steps the value is times `decay_rate`.
        decay_rate: that factor.
        staircase: whether step / decay_steps is rounded down, so that the value falls in jumps.
        name: a name for the schedule.

    >>> from weft import keras
    >>> print(keras.optimizers.schedules.ExponentialDecay(0.5, decay_steps=10, decay_rate=0.5)(20))
    0.125
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("ExponentialDecay", "decay_steps", decay_steps)
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Array:
        rate, base, steps, step = _floats(self.initial_learning_rate, self.decay_rate, self.decay_steps, step)
        passed = step / steps
        return rate * wnp.power(base, wnp.floor(passed) if self.staircase else passed)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
            "staircase": self.staircase,
            "name": self.name,
        }


class InverseTimeDecay(LearningRateSchedule):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
        initial_learning_rate: the value at step 0.
        decay_steps, decay_rate: how fast it falls.
        staircase: whether step / decay_steps is rounded down, so that the value falls in jumps.
        name: a name for the schedule.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("InverseTimeDecay", "decay_steps", decay_steps)
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Array:
        rate, decay, steps, step = _floats(self.initial_learning_rate, self.decay_rate, self.decay_steps, step)
        passed = step / steps
        return rate / (1.0 + decay * (wnp.floor(passed) if self.staircase else passed))

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
            "staircase": self.staircase,
            "name": self.name,
        }


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[0] up to and with step boundaries[0], values[1] up to boundaries[1], and so on.

    Args:
        boundaries: steps, in order.
        values: learning rates, one more than boundaries.
        name: a name for the schedule.

    >>> from weft import keras
    >>> schedule = keras.optimizers.schedules.PiecewiseConstantDecay([10, 20], [0.5, 0.25, 0.125])
    >>> print(schedule(10), schedule(11), schedule(21))
    0.5 0.25 0.125
    """

    def __init__(self, boundaries: Sequence[float], values: Sequence[float], name: str = "PiecewiseConstant") -> None:
        if len(boundaries) != len(values) - 1:
            raise ArgumentError(
                "PiecewiseConstantDecay: there must be one value more than boundaries.",
                received=f"{len(boundaries)} boundaries and {len(values)} values",
            )
        self.boundaries = list(boundaries)
        self.values = list(values)
        self.name = name

    def __call__(self, step: Any) -> Array:
        step = wnp.asarray(step)
        values = _floats(*self.values)
        rate = values[0]
        for boundary, value in zip(self.boundaries, values[1:], strict=True):
            rate = wnp.where(step > wnp.asarray(boundary).astype(step.dtype), value, rate)
        return rate

    def get_config(self) -> dict[str, Any]:
        return {"boundaries": self.boundaries, "values": self.values, "name": self.name}


class PolynomialDecay(LearningRateSchedule):
    """From initial_learning_rate to end_learning_rate in `decay_steps`, by (1 - step / decay_steps)^power.

    Args:
        initial_learning_rate: the value at step 0.
        decay_steps: when the end is reached.
        end_learning_rate: the value from there on.
        power: 1 is a straight line.
        cycle: whether the value then jumps up and falls again, over 2, 3, ... times as many steps.
        name: a name for the schedule.

    >>> from weft import keras
    >>> print(keras.optimizers.schedules.PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.5)(5))
    0.75
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("PolynomialDecay", "decay_steps", decay_steps)
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self.name = name

    def __call__(self, step: Any) -> Array:
        start, end, power = _floats(self.initial_learning_rate, self.end_learning_rate, self.power)
        steps, step = _floats(self.decay_steps, step)
        if self.cycle:
            steps = steps * wnp.where(step == 0, 1.0, wnp.ceil(step / steps))
        else:
            step = wnp.minimum(step, steps)
        return (start - end) * wnp.power(1 - step / steps, power) + end

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "end_learning_rate": self.end_learning_rate,
            "power": self.power,
            "cycle": self.cycle,
            "name": self.name,
        }


class CosineDecay(LearningRateSchedule):
    """Half a cosine from the initial rate to `alpha` times it, after a straight line up where there is a warmup.

    Args:
        initial_learning_rate: the value at step 0.
        decay_steps: over how many steps the value falls.
        alpha: the part of it that is left at the end.
        name: a name for the schedule.
        warmup_target: where the warmup ends and the fall begins; None is no warmup.
        warmup_steps: over how many steps the value grows, before `decay_steps`.

    >>> from weft import keras
    >>> schedule = keras.optimizers.schedules.CosineDecay(0.0, decay_steps=10, warmup_target=1.0, warmup_steps=4)
    >>> print(schedule(2), schedule(4), schedule(14))
    0.5 1.0 0.0
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("CosineDecay", "decay_steps", decay_steps)
        self.alpha = alpha
        self.name = name
        self.warmup_target = warmup_target
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Array:
        start, steps, step = _floats(self.initial_learning_rate, self.decay_steps, step)
        if self.warmup_target is None:
            return start * self._fall(wnp.minimum(step, steps) / steps)
        target, warmup = _floats(self.warmup_target, self.warmup_steps)
        step = wnp.minimum(step, steps + warmup)
        rising = (target - start) * (step / wnp.maximum(warmup, 1.0)) + start
        return wnp.where(step < warmup, rising, target * self._fall((step - warmup) / steps))

    def _fall(self, passed: Array) -> Array:
        cosine = 0.5 * (1.0 + wnp.cos(wnp.asarray(math.pi, passed.dtype) * passed))
        return (1 - self.alpha) * cosine + self.alpha

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "alpha": self.alpha,
            "name": self.name,
            "warmup_target": self.warmup_target,
            "warmup_steps": self.warmup_steps,
        }


class CosineDecayRestarts(LearningRateSchedule):
    """Half cosines one after the other, each `t_mul` times as long and `m_mul` times as high as the one before
    (Loshchilov and Hutter, 2016).

    Args:
        initial_learning_rate: the value at step 0.
        first_decay_steps: how long the first is.
        t_mul, m_mul: how much longer and higher the next is.
        alpha: the part of the initial rate that is left at the end of each.
        name: a name for the schedule.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = _positive("CosineDecayRestarts", "first_decay_steps", first_decay_steps)
        self._t_mul = t_mul
        self._m_mul = m_mul
        self.alpha = alpha
        self.name = name

    def __call__(self, step: Any) -> Array:
        start, first, longer, higher, step = _floats(
            self.initial_learning_rate, self.first_decay_steps, self._t_mul, self._m_mul, step
        )
        passed = step / first
        if self._t_mul == 1.0:
            restart = wnp.floor(passed)
            passed = passed - restart
        else:
            restart = wnp.floor(wnp.log(1.0 - passed * (1.0 - longer)) / wnp.log(longer))
            before = (1.0 - wnp.power(longer, restart)) / (1.0 - longer)
            passed = (passed - before) / wnp.power(longer, restart)
        cosine = 0.5 * wnp.power(higher, restart) * (1.0 + wnp.cos(wnp.asarray(math.pi, passed.dtype) * passed))
        return start * ((1 - self.alpha) * cosine + self.alpha)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "first_decay_steps": self.first_decay_steps,
            "t_mul": self._t_mul,
            "m_mul": self._m_mul,
            "alpha": self.alpha,
            "name": self.name,
        }
