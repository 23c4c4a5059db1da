"""The distribution of now, and what it says of variables, batches and outputs: which sharding of Weft each has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.keras.core.scope import StatelessScope
from weft.sharding import NamedSharding, PartitionSpec


class _Current:
    """What `set_distribution` has set, for all threads."""

    distribution: Any = None


# Of the innermost `Distribution.scope()` of this thread: a tuple of one, or None outside of scopes.
_scoped: ContextVar[tuple[Any] | None] = ContextVar("weft_keras_distribution", default=None)


def current_distribution() -> Any:
    """The distribution of the innermost scope, else that of `set_distribution`, else None."""
    scoped = _scoped.get()
    return _Current.distribution if scoped is None else scoped[0]


def set_current_distribution(value: Any) -> None:
    """Outside of scopes the distribution is this one from now on."""
    _Current.distribution = value


@contextmanager
def distribution_scope(value: Any) -> Iterator[Any]:
    """A block in which a distribution is the current one."""
    token = _scoped.set((value,))
    try:
        yield value
    finally:
        _scoped.reset(token)


def sharding_of(layout: Any) -> Any:
    """A layout (or a sharding already) as a sharding of Weft."""
    return getattr(layout, "backend_layout", layout)


def variable_sharding(variable: Any) -> Any:
    """The sharding that the current distribution has for a variable with a path and a shape; None without one."""
    distribution = current_distribution()
    return None if distribution is None else sharding_of(distribution.get_variable_layout(variable))


def initialized_in(initializer: Callable[..., Any], shape: Sequence[int], dtype: str, sharding: Any) -> Any:
    """The value of an initializer, of which no device ever has more than its part."""
    if sharding.is_fully_replicated:
        return weft.device_put(wnp.asarray(initializer(tuple(shape), dtype=dtype), dtype=dtype), sharding)
    written: list[Any] = []

    def value_and_writes() -> tuple[Any, list[Any]]:
        # An initializer may draw from a generator, whose state is a variable: its writes are results.
        with StatelessScope() as scope:
            value = wnp.asarray(initializer(tuple(shape), dtype=dtype), dtype=dtype)
        written[:] = [variable for variable, _ in scope.updates()]
        return value, [value for _, value in scope.updates()]

    value, writes = weft.jit(value_and_writes, out_shardings=(sharding, None))()
    for variable, new in zip(written, writes, strict=True):
        variable.assign(np.asarray(new))
    return value


def sharding_beside(weight: Any, shape: Sequence[int]) -> Any:
    """The sharding of something that an optimizer has beside a weight: the weight's, if it has the weight's shape."""
    sharding = weight.layout
    if sharding is None or tuple(shape) == tuple(weight.shape):
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec())


def pinned(variable: Any, value: Any) -> Any:
    """A value that a program assigns to a variable, in the variable's layout."""
    return value if variable.layout is None else lax.with_sharding_constraint(value, variable.layout)


def sharded_batch(batch: Any) -> Any:
    """The arrays of a batch as the current distribution shards data: each device gets its rows."""
    distribution = current_distribution()
    if distribution is None:
        return batch
    distribution.check_processes()
    layout = lambda leaf: sharding_of(distribution.get_data_layout(np.shape(leaf)))
    return weft.tree.map(lambda leaf: weft.device_put(leaf, layout(leaf)), batch)


def output_in_layout(outputs: Any, path: str | None) -> Any:
    """What a layer returned, in the layout that the current distribution has for the outputs of the layer."""
    distribution = current_distribution()
    layout = None if distribution is None or path is None else distribution.get_tensor_layout(f"{path}/output")
    if layout is None:
        return outputs
    return weft.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, sharding_of(layout)), outputs)
