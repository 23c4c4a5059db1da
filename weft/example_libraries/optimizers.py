"""Optimizers for examples: each is three functions, to make a state, to update it and to read the parameters.

init, update, get_params = adam(1e-3)
state = init(params)
state = update(i, grads, state)  # i counts the updates from 0
params = get_params(state)
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.publish import publish as _publish
from weft.base.sequences import safe_map, safe_zip, unzip2
from weft.tree_util import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "InitFn",
    "JoinPoint",
    "Optimizer",
    "OptimizerState",
    "ParamsFn",
    "Schedule",
    "Step",
    "UpdateFn",
    "adagrad",
    "adam",
    "adamax",
    "clip_grads",
    "constant",
    "exponential_decay",
    "inverse_time_decay",
    "l2_norm",
    "make_schedule",
    "map",
    "momentum",
    "namedtuple",
    "nesterov",
    "optimizer",
    "pack_optimizer_state",
    "piecewise_constant",
    "polynomial_decay",
    "rmsprop",
    "rmsprop_momentum",
    "safe_map",
    "safe_zip",
    "sgd",
    "sm3",
    "unpack_optimizer_state",
    "unzip2",
    "zip",
]

map = safe_map
zip = safe_zip

Params = Any
State = Any
Updates = Any
Step = int


class OptimizerState:
    """State of an optimizer: for each leaf of the parameters (whose structure is `tree_def`) the leaves of its state,
    whose structures are `subtree_defs`. It is a tree of all these leaves."""

    def __init__(self, packed_state: Any, tree_def: Any, subtree_defs: Any) -> None:
        self.packed_state, self.tree_def, self.subtree_defs = packed_state, tree_def, subtree_defs

    def __iter__(self) -> Any:
        return iter((self.packed_state, self.tree_def, self.subtree_defs))

    def __repr__(self) -> str:
        return f"OptimizerState({self.packed_state!r}, {self.tree_def!r}, {self.subtree_defs!r})"


register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda structure, leaves: OptimizerState(leaves[0], *structure),
)

InitFn = Callable[[Params], OptimizerState]
UpdateFn = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn = Callable[[OptimizerState], Params]
Schedule = Callable[[Step], Any]


class Optimizer(NamedTuple):
    """Functions of an optimizer: `init_fn`, `update_fn` and `params_fn`."""

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


def optimizer(opt_maker: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., Optimizer]:
    """Decorate a function that makes an optimizer of one array, to make one of trees.

    `opt_maker` returns `init(x0)`, `update(i, grad, state)` and `get_params(state)` for one array.
    """

    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(x0_tree: Any) -> OptimizerState:
            leaves, structure = tree_flatten(x0_tree)
            states, subtrees = unzip2(tree_flatten(init(x0)) for x0 in leaves)
            return OptimizerState(states, structure, subtrees)

        def tree_update(i: Any, grad_tree: Any, opt_state: OptimizerState) -> OptimizerState:
            packed, structure, subtrees = opt_state
            grads, grad_structure = tree_flatten(grad_tree)
            if grad_structure != structure:
                raise ArgumentTypeError(
                    "The optimizer update needs gradients in the structure of the parameters.",
                    received=f"{grad_structure} for {structure}",
                )
            states = safe_map(tree_unflatten, subtrees, packed)
            new_states = safe_map(functools.partial(update, i), grads, states)
            leaves, new_subtrees = unzip2(tree_flatten(state) for state in new_states)
            for old, new in safe_zip(subtrees, new_subtrees):
                if old != new:
                    raise ArgumentTypeError(
                        "The update of an optimizer must return a state in the structure of the old one.",
                        received=f"{new} for {old}",
                    )
            return OptimizerState(leaves, structure, subtrees)

        def tree_params(opt_state: OptimizerState) -> Any:
            packed, structure, subtrees = opt_state
            return tree_unflatten(structure, safe_map(get_params, safe_map(tree_unflatten, subtrees, packed)))

        return Optimizer(tree_init, tree_update, tree_params)

    return tree_opt_maker


# ---------------------------------------------------------------------------------------------------------- optimizers


@optimizer
def sgd(step_size: Any) -> Any:
    """Make gradient descent. The step size may be a schedule: a function of the number of the update."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any) -> Any:
        return x - step_size(i) * g

    return lambda x0: x0, update, lambda x: x


@optimizer
def momentum(step_size: Any, mass: Any) -> Any:
    """Make gradient descent with momentum.

    Args:
        step_size: a number, or a function from the step to one.
        mass: the decay of the velocity.

    Returns:
        A triple of functions: of the parameters, of a step, gradients and a state, and of a state.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.example_libraries import optimizers
    >>> init, update, get_params = optimizers.momentum(0.1, 0.9)
    >>> get_params(update(0, wnp.array([1.0]), init(wnp.array([2.0]))))
    Array([1.9], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step_size(i) * velocity, velocity

    return lambda x0: (x0, wnp.zeros_like(x0)), update, _first


@optimizer
def nesterov(step_size: Any, mass: Any) -> Any:
    """Make gradient descent with Nesterov's momentum."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step_size(i) * (mass * velocity + g), velocity

    return lambda x0: (x0, wnp.zeros_like(x0)), update, _first


@optimizer
def adagrad(step_size: Any, momentum: Any = 0.9) -> Any:
    """Make Adagrad: gradients divided by the root of the sum of their squares so far; with momentum."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + wnp.square(g)
        mean = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        return x - step_size(i) * mean, squares, mean

    return lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0)), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8) -> Any:
    """Make RMSProp: gradients divided by the root of the mean of their squares, with decay rate gamma."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + wnp.square(g) * (1.0 - gamma)
        return x - step_size(i) * g / wnp.sqrt(squares + eps), squares

    return lambda x0: (x0, wnp.zeros_like(x0)), update, _first


@optimizer
def rmsprop_momentum(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8, momentum: Any = 0.9) -> Any:
    """Make RMSProp with momentum."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares * gamma + wnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + step_size(i) * g / wnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0)), update, _first


@optimizer
def adam(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """Make Adam: means of gradients and of their squares, with decay rates b1 and b2."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * wnp.square(g) + b2 * squares
        count = wnp.asarray(i + 1, mean.dtype)
        unbiased, unbiased_squares = mean / (1 - b1**count), squares / (1 - b2**count)
        return x - step_size(i) * unbiased / (wnp.sqrt(unbiased_squares) + eps), mean, squares

    return lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0)), update, _first


@optimizer
def adamax(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """Make AdaMax: Adam with the largest gradient in place of the mean of squares."""
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = wnp.maximum(b2 * largest, wnp.abs(g))
        count = wnp.asarray(i + 1, mean.dtype)
        return x - (step_size(i) / (1 - b1**count)) * mean / (largest + eps), mean, largest

    return lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0)), update, _first


@optimizer
def sm3(step_size: Any, momentum: Any = 0.9) -> Any:
    """Make SM3: Adagrad with a sum of squares for each row along each axis, in place of one for each element."""
    step_size = make_schedule(step_size)

    def others(rank: int, axis: int) -> tuple[int, ...]:
        return tuple(a for a in range(rank) if a != axis)

    def init(x0: Any) -> Any:
        x0 = wnp.asarray(x0)
        return x0, wnp.zeros_like(x0), [wnp.zeros(size, x0.dtype) for size in x0.shape] or [wnp.zeros_like(x0)]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, sums = state
        expanded = [wnp.expand_dims(s, others(x.ndim, axis)) for axis, s in enumerate(sums)]
        squares = functools.reduce(wnp.minimum, expanded) + wnp.square(g)
        mean = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        sums = [wnp.max(squares, axis=others(x.ndim, axis)) for axis in range(x.ndim)] or [squares]
        return x - step_size(i) * mean, mean, sums

    return init, update, _first


def _first(state: Any) -> Any:
    return state[0]


def _inverse_root(squares: Any) -> Any:
    """Compute 1 / sqrt(squares), 0 where the squares are 0."""
    return wnp.where(squares > 0, 1.0 / wnp.sqrt(wnp.where(squares > 0, squares, 1)), 0.0)


# ----------------------------------------------------------------------------------------------------------- schedules


def constant(step_size: Any) -> Schedule:
    """Return a schedule with one step size for all updates."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """Return the schedule `step_size`, times `decay_rate` after each `decay_steps` updates, continuously."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """Return the schedule `step_size / (1 + decay_rate * i / decay_steps)`, in steps if `staircase`."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * wnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0) -> Schedule:
    """Return a schedule from `step_size` to `final_step_size` within `decay_steps` updates, by a power of the remaining
    fraction."""

    def schedule(i: Any) -> Any:
        left = (1 - wnp.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """Return a schedule with the first of `values` up to the first of `boundaries`, then the second, ..."""
    boundaries, values = wnp.asarray(boundaries), wnp.asarray(values)
    if boundaries.ndim != 1 or values.ndim != 1:
        raise ArgumentError("boundaries and values must be sequences.")
    if boundaries.shape[0] != values.shape[0] - 1:
        raise ArgumentError(
            "boundaries length must be one shorter than values length.",
            received=f"{boundaries.shape[0]} boundaries, {values.shape[0]} values",
        )
    return lambda i: values[wnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """Return a schedule, given one or a step size."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if wnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise ArgumentTypeError("A step size must be a number or a function.", received=type(scalar_or_schedule).__name__)


# ----------------------------------------------------------------------------------------------------------- gradients


def l2_norm(tree: Any) -> Any:
    """Return the root of the sum of squares of all leaves."""
    return wnp.sqrt(sum(wnp.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Scale gradients down to the norm `max_norm`, if theirs is larger."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: wnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


# ------------------------------------------------------------------------------------------------ states as plain trees


class JoinPoint:
    """Marker of the state of a leaf in the tree of parameters."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """Convert a state to a tree in the structure of the parameters, with a `JoinPoint` of its state for each leaf,
    which can be saved, for example with pickle."""
    packed, structure, subtrees = opt_state
    return tree_unflatten(structure, [JoinPoint(s) for s in safe_map(tree_unflatten, subtrees, packed)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """Convert the result of `unpack_optimizer_state` back to a state."""
    sentinels, structure = tree_flatten(marked_pytree)
    if not all(isinstance(s, JoinPoint) for s in sentinels):
        raise ArgumentTypeError(
            "pack_optimizer_state needs a tree with a JoinPoint for each leaf of the parameters.",
            fix="the result of unpack_optimizer_state(state)",
        )
    leaves, subtrees = unzip2(tree_flatten(s.subtree) for s in sentinels)
    return OptimizerState(leaves, structure, subtrees)


_publish(__name__)
