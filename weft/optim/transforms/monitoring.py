"""Transformations that change nothing and remember something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft.optim.base import GradientTransformation, Params, Updates
from weft.optim.transforms.accumulation import ema
from weft.optim.tree_utils.arithmetic import tree_zeros_like


class SnapshotState(NamedTuple):
    """The measurement of the last updates, by its name."""

    measurement: Any


class MonitorState(NamedTuple):
    """The last measurements and the states of those that have one, by name."""

    measurements: Any
    measure_states: Any


def _zeros_of(function: Callable[..., Any], *args: Any) -> Any:
    """Zeros like the results of a function."""
    return weft.tree.map(lambda kind: wnp.zeros(kind.shape, kind.dtype), weft.eval_shape(function, *args))


def snapshot(measure_name: str, measure: Callable[[Updates], Any]) -> GradientTransformation:
    """Keeps `measure(updates)` in the state, where `optim.tree.get(state, measure_name)` finds it."""

    def init(params: Params) -> SnapshotState:
        return SnapshotState({measure_name: measure(params)})

    def update(updates: Updates, state: SnapshotState, params: Params | None = None) -> Any:
        return updates, SnapshotState({measure_name: measure(updates)})

    return GradientTransformation(init, update)


def measure_with_ema(
    measure: Callable[[Updates], Any], decay: float, debias: bool = True, accumulator_dtype: Any = None
) -> GradientTransformation:
    """The running average of `measure(updates)`, for `monitor`; its updates are the measurement."""
    average = ema(decay, debias, accumulator_dtype)

    def as_floats(updates: Updates) -> Any:
        widened = lambda value: wnp.asarray(value) * 1.0
        return weft.tree.map(widened, measure(updates))

    def init(params: Params) -> Any:
        return average.init(_zeros_of(as_floats, params))

    def update(updates: Updates, state: Any, params: Params | None = None) -> Any:
        return average.update(as_floats(updates), state)

    return GradientTransformation(init, update)


def monitor(measures: Mapping[str, Any]) -> GradientTransformation:
    """Keeps several measurements by name; a measure is a function of updates or a `measure_with_ema`."""
    plain = {name: measure for name, measure in measures.items() if not hasattr(measure, "update")}
    stateful = {name: measure for name, measure in measures.items() if hasattr(measure, "update")}

    def init(params: Params) -> MonitorState:
        states = {name: measure.init(params) for name, measure in stateful.items()}
        zeros = tree_zeros_like(params)
        measurements = {name: _zeros_of(measure, params) for name, measure in plain.items()}
        for name, measure in stateful.items():
            measurements[name] = _zeros_of(lambda updates, m=measure, n=name: m.update(updates, states[n])[0], zeros)
        return MonitorState({name: measurements[name] for name in measures}, states)

    def update(updates: Updates, state: MonitorState, params: Params | None = None) -> Any:
        measurements, states = {}, {}
        for name, measure in measures.items():
            if name in plain:
                measurements[name] = measure(updates)
            else:
                measurements[name], states[name] = measure.update(updates, state.measure_states[name])
        return updates, MonitorState(measurements, states)

    return GradientTransformation(init, update)
