"""The parts of every optimizer: a pair of pure functions `init` and `update`, and the types of both.

`init(params)` returns the state; `update(updates, state, params)` returns updates from gradients, and the new state.
A transformation that wants more than these three (a loss value, say) is a `GradientTransformationExtraArgs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import weft
from weft.errors import boundary
from weft.optim.tree_mapping import map_trees
from weft.typing import ArrayLike

Params: TypeAlias = Any
"""Type of parameters: a tree of arrays."""
Updates: TypeAlias = Any
"""Type of updates: a tree like the parameters; `update` maps gradients to increments."""
OptState: TypeAlias = Any
"""A tree: what a transformation stores from one step to the next."""
Schedule: TypeAlias = Callable[[ArrayLike], ArrayLike]
"""A number that depends on the count of steps."""
ScalarOrSchedule: TypeAlias = float | weft.Array | Schedule
MaskOrFn: TypeAlias = Any | Callable[[Params], Any]
"""A tree of booleans, or a function from parameters to one."""


class TransformInitFn(Protocol):
    """`init(params) -> state`."""

    def __call__(self, params: Params) -> OptState: ...


class TransformUpdateFn(Protocol):
    """`update(updates, state, params=None) -> (updates, state)`."""

    def __call__(self, updates: Updates, state: OptState, params: Params | None = None) -> tuple[Updates, OptState]: ...


class TransformUpdateExtraArgsFn(Protocol):
    """`update(updates, state, params=None, **extra_args) -> (updates, state)`."""

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None, **extra_args: Any
    ) -> tuple[Updates, OptState]: ...


class StatefulSchedule(Protocol):
    """A schedule with a state of its own: `init()`, `update(state, **extra_args)`, and `schedule(state)`."""

    def init(self) -> Any: ...
    def update(self, state: Any, **extra_args: Any) -> Any: ...
    def __call__(self, state: Any, **extra_args: Any) -> Any: ...


def without_shared_arrays(init: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `init` so that no array is in its state twice, nor both in the state and in the parameters.

    A training step usually donates parameters and state, and an array can be donated only once.
    """

    @functools.wraps(init)
    def init_unshared(params: Params, *args: Any, **kwargs: Any) -> OptState:
        state = init(params, *args, **kwargs)
        seen = {id(leaf) for leaf in weft.tree.leaves(params)}

        def own(leaf: Any) -> Any:
            if not isinstance(leaf, weft.Array) or isinstance(leaf, weft.core.Tracer):
                return leaf
            if id(leaf) in seen:
                leaf = leaf.copy()
            seen.add(id(leaf))
            return leaf

        return weft.tree.map(own, state)

    return init_unshared


class _Functions(NamedTuple):
    init: Callable[..., Any]
    update: Callable[..., Any]


class GradientTransformation(_Functions):
    """A pair of pure functions `init` and `update`. Tracebacks of errors end at their calls.

    Args:
        init: a function from parameters to a state.
        update: a function of updates, a state and parameters that returns updates and the next state.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> double = optim.GradientTransformation(lambda params: (), lambda updates, state, params=None: (2 * updates, ()))
    >>> double.update(wnp.ones(2), double.init(None))[0]
    Array([2., 2.], dtype=float32)
    """

    __slots__ = ()

    def __new__(cls, init: Callable[..., Any], update: Callable[..., Any]) -> Self:
        return super().__new__(cls, boundary(without_shared_arrays(init)), boundary(update))


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose `update` takes keyword arguments, and ignores those of other transformations.

    Args:
        init: a function from parameters to a state.
        update: a function of updates, a state, parameters and keyword arguments.

    >>> from weft import optim
    >>> isinstance(optim.lbfgs(), optim.GradientTransformationExtraArgs)
    True
    """

    __slots__ = ()


class EmptyState(NamedTuple):
    """The state of a transformation without state.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.identity().init(wnp.ones(2))
    EmptyState()
    """


def init_empty_state(params: Params) -> EmptyState:
    """Initialize a transformation without state."""
    return EmptyState()


def identity() -> GradientTransformation:
    """Return updates unchanged.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.identity()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.5, -1. ], dtype=float32)
    """
    return GradientTransformation(init_empty_state, lambda updates, state, params=None: (updates, state))


def set_to_zero() -> GradientTransformation:
    """Replace all updates by zero, so that parameters do not change.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.set_to_zero()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([0., 0.], dtype=float32)
    """

    def update(updates: Updates, state: EmptyState, params: Params | None = None) -> tuple[Updates, EmptyState]:
        return weft.tree.map(weft.numpy.zeros_like, updates), state

    return GradientTransformation(init_empty_state, update)


def stateless(f: Callable[[Updates, Params | None], Updates]) -> GradientTransformation:
    """Create a transformation without state that applies `f(updates, params)`."""

    def update(updates: Updates, state: EmptyState, params: Params | None = None) -> tuple[Updates, EmptyState]:
        return f(updates, params), state

    return GradientTransformation(init_empty_state, update)


def stateless_with_tree_map(f: Callable[[Any, Any | None], Any]) -> GradientTransformation:
    """Create a transformation without state that applies `f(update, param)` to each leaf."""

    def update(updates: Updates, state: EmptyState, params: Params | None = None) -> tuple[Updates, EmptyState]:
        if params is None:
            return weft.tree.map(lambda leaf: f(leaf, None), updates), state
        (new,) = map_trees("stateless_with_tree_map", lambda u, p: (f(u, p),), updates=updates, params=params)
        return new, state

    return GradientTransformation(init_empty_state, update)


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """Return `tx` if it takes extra arguments, else a wrapper that drops them."""
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx

    def update(updates: Updates, state: OptState, params: Params | None = None, **extra_args: Any) -> Any:
        del extra_args
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)
