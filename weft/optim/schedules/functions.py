"""Schedules: functions from the number of steps to a value such as the learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.base import Schedule
from weft.typing import ArrayLike


@document("A function from the step count to a value.", "optim.constant_schedule(0.1)(5) -> 0.1", value="the value.")
def constant_schedule(value: ArrayLike) -> Schedule:
    """Create a schedule that is always `value`."""
    return lambda count: value


def _steps(count: Any) -> Any:
    """Convert a count of steps to a number for arrays: a float if it exceeds int32."""
    return float(count) if isinstance(count, int) and count > np.iinfo(np.int32).max else count


def polynomial_schedule(
    init_value: float | Array,
    end_value: float | Array,
    power: float | Array,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """Create the schedule `(init - end) * (1 - t / steps)**power + end` from `transition_begin` on."""
    if transition_steps <= 0:
        return constant_schedule(init_value)
    begin, total = _steps(max(transition_begin, 0)), _steps(transition_steps)

    def schedule(count: Any) -> Any:
        steps = wnp.clip(wnp.asarray(_steps(count)) - begin, 0, total)
        return (init_value - end_value) * (1 - steps / total) ** power + end_value

    return schedule


def linear_schedule(
    init_value: float | Array, end_value: float | Array, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """Create a linear schedule from `init_value` to `end_value`.

    Args:
        init_value: the first value.
        end_value: the last value.
        transition_steps: the number of steps between them.
        transition_begin: the step where it begins.

    Returns:
        A function from the step count to a value.

    >>> from weft import optim
    >>> optim.linear_schedule(1.0, 0.0, 10)(5)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


@document(
    "A function from the step count to a value.",
    "float(optim.piecewise_constant_schedule(1.0, {10: 0.5})(20)) -> 0.5",
    boundaries_and_scales="for each boundary a factor.",
)
def piecewise_constant_schedule(
    init_value: ArrayLike, boundaries_and_scales: Mapping[int, ArrayLike] | None = None
) -> Schedule:
    """Create a schedule that starts at `init_value` and is multiplied by a scale at each boundary."""
    scales = dict(boundaries_and_scales or {})
    _check_scales("piecewise_constant_schedule", scales)

    def schedule(count: Any) -> Any:
        value = init_value
        for boundary, factor in sorted(scales.items()):
            value = wnp.where(wnp.asarray(count) < boundary, value, value * factor)
        return value

    return schedule


def _check_scales(where: str, scales: Mapping[int, Any]) -> None:
    for boundary, factor in scales.items():
        if isinstance(factor, int | float) and factor < 0:
            raise ArgumentError(f"{where} needs scales of at least 0, got {factor} at {boundary}")


def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Create the schedule `init * decay_rate**(t / steps)`, bounded by `end_value`; `staircase` rounds t / steps down.

    Args:
        init_value: the first value.
        transition_steps: the number of steps between them.
        decay_rate: the factor for `transition_steps` steps.
        transition_begin: the step where it begins.
        staircase: whether it changes only every `transition_steps` steps.
        end_value: the limit.

    Returns:
        A function from the step count to a value.

    >>> from weft import optim
    >>> float(optim.exponential_decay(1.0, 10, 0.5)(20))
    0.25
    """
    if transition_steps is not None and transition_steps <= 0:
        return constant_schedule(init_value)
    if isinstance(decay_rate, int | float) and decay_rate == 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)

    def schedule(count: Any) -> Any:
        steps = wnp.asarray(count) - begin
        power = steps / transition_steps
        if staircase:
            power = wnp.floor(power)
        value = wnp.where(steps <= 0, init_value, init_value * wnp.power(decay_rate, power))
        if end_value is not None:
            value = wnp.where(decay_rate < 1.0, wnp.maximum(value, end_value), wnp.minimum(value, end_value))
        return value

    return schedule


def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """Create the schedule `init * ((1 - alpha) * ((1 + cos(pi * t / steps)) / 2)**exponent + alpha)`.

    Args:
        init_value: the first value.
        decay_steps: the number of steps to the end.
        alpha: the last value, as a fraction of the first.
        exponent: the power of the cosine.

    Returns:
        A function from the step count to a value.

    >>> from weft import optim
    >>> float(optim.cosine_decay_schedule(1.0, 10)(10))
    0.0
    """
    if isinstance(decay_steps, int | float) and not decay_steps > 0:
        raise ArgumentError(f"cosine_decay_schedule needs decay_steps above 0, got {decay_steps}")

    def schedule(count: Any) -> Any:
        total = _steps(decay_steps)
        steps = wnp.minimum(_steps(count), total)
        cosine = 0.5 * (1 + wnp.cos(wnp.pi * steps / total))
        return init_value * ((1 - alpha) * cosine**exponent + alpha)

    return schedule


def _linear(start: Any, end: Any, part: Any) -> Any:
    return (end - start) * part + start


def _cosine(start: Any, end: Any, part: Any) -> Any:
    return end + (start - end) / 2.0 * (wnp.cos(wnp.pi * part) + 1)


def piecewise_interpolate_schedule(
    interpolate_type: str, init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """Create a schedule that interpolates between values at boundaries, "linear" or "cosine"."""
    kinds = {"linear": _linear, "cosine": _cosine}
    if interpolate_type not in kinds:
        raise ArgumentError(f'interpolate_type must be "linear" or "cosine", got {interpolate_type!r}')
    interpolate = kinds[interpolate_type]
    if not boundaries_and_scales:
        return constant_schedule(init_value)
    _check_scales("piecewise_interpolate_schedule", boundaries_and_scales)
    pairs = sorted(boundaries_and_scales.items())
    bounds = np.array([0] + [boundary for boundary, _ in pairs])
    values = np.cumprod([init_value] + [factor for _, factor in pairs]).astype(np.float32)
    # Two boundaries at one step make an empty interval.
    lengths = np.maximum(bounds[1:] - bounds[:-1], 1)

    def schedule(count: Any) -> Any:
        count = wnp.asarray(count)
        inside = (bounds[:-1] <= count) & (count < bounds[1:])
        part = (count - bounds[:-1]) / lengths
        between = interpolate(values[:-1], values[1:], part)
        return wnp.sum(wnp.where(inside, between, 0.0)) + wnp.where(count >= bounds[-1], values[-1], 0.0)

    return schedule


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Create a linear one-cycle schedule: up to the peak, down, and further down (Smith 2018)."""
    if transition_steps <= 0:
        raise ArgumentError(f"linear_onecycle_schedule needs transition_steps above 0, got {transition_steps}")
    scales = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1.0 / div_factor,
        transition_steps: 1.0 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, scales)


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Create a one-cycle schedule of cosines: up to the peak, and far down (Smith 2018)."""
    if transition_steps <= 0:
        raise ArgumentError(f"cosine_onecycle_schedule needs transition_steps above 0, got {transition_steps}")
    scales = {
        int(pct_start * transition_steps): div_factor,
        int(transition_steps): 1.0 / (div_factor * final_div_factor),
    }
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, scales)


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Join schedules, each of which counts from its boundary.

    Args:
        schedules: functions from a step count to a value.
        boundaries: the steps where the next one begins.

    Returns:
        A function from the step count to a value.

    >>> from weft import optim
    >>> joined = optim.join_schedules([optim.constant_schedule(1.0), optim.constant_schedule(0.5)], [10])
    >>> float(joined(9)), float(joined(10))
    (1.0, 0.5)
    """
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentError(
            f"join_schedules needs one boundary less than schedules, got {len(schedules)} schedules "
            f"and {len(boundaries)} boundaries"
        )

    def schedule(count: Any) -> Any:
        value = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            value = wnp.where(wnp.asarray(count) < boundary, value, following(count - boundary))
        return value

    return schedule


@document(
    "A function from the step count to a value.",
    "float(optim.warmup_constant_schedule(0.0, 1.0, 10)(5)) -> 0.5",
    peak_value="the value after the warmup.",
    warmup_steps="the number of steps to the peak.",
)
def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """Create a linear warmup to the peak, followed by a constant."""
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """Create a linear warmup to the peak, followed by a cosine decay; `decay_steps` includes the warmup.

    Args:
        init_value: the first value.
        peak_value: the value after the warmup.
        warmup_steps: the number of steps to the peak.
        decay_steps: the number of steps to the end.
        end_value: the last value.
        exponent: the power of the cosine.

    Returns:
        A function from the step count to a value.

    >>> from weft import optim
    >>> float(optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)(10))
    1.0
    """
    if isinstance(decay_steps, int) and isinstance(warmup_steps, int) and decay_steps <= warmup_steps:
        raise ArgumentError(
            f"decay_steps counts the warmup, so it must be above warmup_steps; got decay_steps={decay_steps} "
            f"and warmup_steps={warmup_steps}"
        )
    known_zero = isinstance(peak_value, int | float) and peak_value == 0
    alpha = 0.0 if known_zero else end_value / peak_value
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent),
        ],
        [warmup_steps],
    )


def warmup_exponential_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Create a linear warmup to the peak, followed by an exponential decay."""
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value),
        ],
        [warmup_steps],
    )


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Create cosine decays with warm restarts: a `warmup_cosine_decay_schedule` for each set of arguments."""
    members, boundaries, step = [], [], 0
    for kwargs in cosine_kwargs:
        members.append(warmup_cosine_decay_schedule(**kwargs))
        step += kwargs["decay_steps"]
        boundaries.append(step)
    return join_schedules(members, boundaries[:-1])
