"""Hyperparameters in the state, where they can be scheduled, read and changed between steps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Schedule,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.tree_utils.arithmetic import cast_to_dtypes


class InjectHyperparamsState(NamedTuple):
    """Number of steps taken, the hyperparameters of the last step, and the inner state."""

    count: Array  # type: ignore[assignment]
    hyperparams: dict[str, Any]
    inner_state: Any


class InjectStatefulHyperparamsState(NamedTuple):
    """The fields of `InjectHyperparamsState`, and the states of the schedules."""

    count: Array  # type: ignore[assignment]
    hyperparams: dict[str, Any]
    hyperparams_states: dict[str, Any]
    inner_state: Any


class WrappedScheduleState(NamedTuple):
    """Number of steps taken."""

    count: Array  # type: ignore[assignment]


class WrappedSchedule:
    """A schedule of the count as a stateful schedule, whose state is the count."""

    def __init__(self, schedule_fn: Schedule) -> None:
        self.schedule_fn = schedule_fn

    def init(self) -> WrappedScheduleState:
        """Return a count of zero."""
        return WrappedScheduleState(wnp.zeros((), wnp.int32))

    def update(self, state: WrappedScheduleState, **extra_args: Any) -> WrappedScheduleState:
        """Return the count of the next step."""
        return WrappedScheduleState(safe_increment(state.count))

    def __call__(self, state: WrappedScheduleState, **extra_args: Any) -> Any:
        return self.schedule_fn(state.count)


def _is_stateful_schedule(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("init", "update", "__call__"))


def _as_hyperparam(value: Any, dtype: Any) -> Any:
    """Convert a hyperparameter to an array; floats to the given dtype, if any.

    It is not cast to the dtype of the updates: 0.999 is 1 in bfloat16. A Python number stays weakly typed, so that
    setting `state.hyperparams[name] = 0.1` does not recompile the step.
    """
    value = wnp.asarray(value)
    return value.astype(dtype) if dtype is not None and wnp.issubdtype(value.dtype, wnp.floating) else value


def _by_kind(bound: inspect.BoundArguments, static: set[str]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split the arguments of a factory into schedules, numbers, and arguments that are passed unchanged."""
    bound.apply_defaults()
    schedules: dict[str, Any] = {}
    numeric: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            others.update(value)
        elif name in static or isinstance(value, bool):
            others[name] = value
        elif _is_stateful_schedule(value):
            schedules[name] = value
        elif callable(value):
            schedules[name] = WrappedSchedule(value)
        elif isinstance(value, int | float | Array | np.ndarray | np.number):
            numeric[name] = value
        else:
            others[name] = value
    return schedules, numeric, others


def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., GradientTransformationExtraArgs]:
    """Return a factory like `inner_factory` whose numbers live in the state and may be schedules.

    `state.hyperparams["learning_rate"]` can be read, and set unless it is a schedule, without recompilation. Arguments
    in `static_args`, booleans and values other than numbers and functions are passed unchanged.

    Args:
        inner_factory: a function that returns a transformation, such as `adam`.
        static_args: names of arguments that are passed as they are.
        hyperparam_dtype: the dtype of the numbers in the state.

    Returns:
        A function with the arguments of `inner_factory`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optimizer = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
    >>> state = optimizer.init(wnp.ones(2))
    >>> state.hyperparams["learning_rate"]
    Array(0.5, dtype=float32, weak_type=True)
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    unknown = static - set(signature.parameters)
    if unknown:
        name = getattr(inner_factory, "__name__", "the factory")
        raise ArgumentError(
            f"static_args names {', '.join(sorted(unknown))}, which {name} "
            f"does not take; it takes {', '.join(signature.parameters)}"
        )

    @functools.wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> GradientTransformationExtraArgs:
        schedules, numeric, others = _by_kind(signature.bind(*args, **kwargs), static)

        def inner(hyperparams: dict[str, Any]) -> GradientTransformationExtraArgs:
            return with_extra_args_support(inner_factory(**others, **hyperparams))

        def init(params: Params) -> InjectStatefulHyperparamsState:
            states = {name: schedule.init() for name, schedule in schedules.items()}
            hyperparams = {name: _as_hyperparam(value, hyperparam_dtype) for name, value in numeric.items()}
            for name, schedule in schedules.items():
                hyperparams[name] = _as_hyperparam(schedule(states[name]), hyperparam_dtype)
            count = wnp.zeros((), wnp.int32)
            return InjectStatefulHyperparamsState(count, hyperparams, states, inner(hyperparams).init(params))

        def update(
            updates: Updates, state: InjectStatefulHyperparamsState, params: Params | None = None, **extra_args: Any
        ) -> Any:
            hyperparams = {name: _as_hyperparam(value, hyperparam_dtype) for name, value in state.hyperparams.items()}
            states = {}
            for name, schedule in schedules.items():
                before = state.hyperparams_states[name]
                hyperparams[name] = _as_hyperparam(schedule(before, **extra_args), hyperparam_dtype)
                states[name] = schedule.update(before, **extra_args)
            new, inner_state = inner(hyperparams).update(updates, state.inner_state, params, **extra_args)
            # A float32 hyperparameter must not widen a state of bfloat16.
            new, inner_state = cast_to_dtypes(new, updates), cast_to_dtypes(inner_state, state.inner_state)
            count = safe_increment(state.count)
            return new, InjectStatefulHyperparamsState(count, hyperparams, states, inner_state)

        return GradientTransformationExtraArgs(init, update)

    return factory


inject_stateful_hyperparams = inject_hyperparams
