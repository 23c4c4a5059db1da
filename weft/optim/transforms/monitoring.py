"""Transformations that store measurements and return updates unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    stateless,
    with_extra_args_support,
)
from weft.optim.transforms.accumulation import ema
from weft.optim.tree_utils.arithmetic import tree_zeros_like


class SnapshotState(NamedTuple):
    """The measurement of the last updates, by name."""

    measurement: Any


class MonitorState(NamedTuple):
    """The last measurements by name, and the states of the measures in their order."""

    measurements: Any
    measure_states: Any


def _zero_results(function: Callable[..., Any], *args: Any) -> Any:
    """Return zeros like the results of a function."""
    return weft.tree.map(lambda kind: wnp.zeros(kind.shape, kind.dtype), weft.eval_shape(function, *args))


def snapshot(measure_name: str, measure: Callable[[Updates], Any]) -> GradientTransformation:
    """Store `measure(updates)` in the state, where `optim.tree.get(state, measure_name)` finds it."""

    def init(params: Params) -> SnapshotState:
        return SnapshotState({measure_name: measure(params)})

    def update(updates: Updates, state: SnapshotState, params: Params | None = None) -> Any:
        return updates, SnapshotState({measure_name: measure(updates)})

    return GradientTransformation(init, update)


def measure_with_ema(
    measure: Callable[[Updates], Any], decay: float, debias: bool = True, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Create a measure for `monitor`: the running average of `measure(updates)`."""
    average = ema(decay, debias, accumulator_dtype)

    def as_floats(updates: Updates) -> Any:
        widened = lambda value: wnp.asarray(value) * 1.0
        return weft.tree.map(widened, measure(updates))

    def init(params: Params) -> Any:
        return average.init(_zero_results(as_floats, params))

    def update(updates: Updates, state: Any, params: Params | None = None) -> Any:
        return average.update(as_floats(updates), state)

    return GradientTransformation(init, update)


def monitor(measures: Mapping[str, Any]) -> GradientTransformationExtraArgs:
    """Store several measurements by name; a measure is a function of updates, or a transformation that returns it."""
    parts = {
        name: with_extra_args_support(measure if hasattr(measure, "update") else _measuring(measure))
        for name, measure in measures.items()
    }

    def init(params: Params) -> MonitorState:
        states = tuple(part.init(params) for part in parts.values())
        zeros = tree_zeros_like(params)
        # Measurements exist from the start, so that the structure of the state is constant and steps can be scanned.
        measurements = {
            name: _zero_results(lambda updates, p=part, s=state: p.update(updates, s, params)[0], zeros)
            for (name, part), state in zip(parts.items(), states, strict=True)
        }
        return MonitorState(measurements, states)

    def update(updates: Updates, state: MonitorState, params: Params | None = None, **extra_args: Any) -> Any:
        measurements, states = {}, []
        for (name, part), inner in zip(parts.items(), state.measure_states, strict=True):
            measurements[name], inner = part.update(updates, inner, params, **extra_args)
            states.append(inner)
        return updates, MonitorState(measurements, tuple(states))

    return GradientTransformationExtraArgs(init, update)


def _measuring(measure: Callable[[Updates], Any]) -> GradientTransformation:
    return stateless(lambda updates, params: measure(updates))
