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
from weft.errors import ArgumentError
from weft.experimental import multihost_utils
from weft.keras.core.scope import StatelessScope
from weft.sharding import NamedSharding, PartitionSpec


class _Current:
    """What `set_distribution` has set, for all threads."""

    distribution: Any = None


# Of the innermost `Distribution.scope()` of this thread: a tuple of one, or None outside of scopes.
_scoped: ContextVar[tuple[Any] | None] = ContextVar("weft_keras_distribution", default=None)


def current_distribution() -> Any:
    """Return the distribution of the innermost scope, else that of `set_distribution`, else None."""
    scoped = _scoped.get()
    return _Current.distribution if scoped is None else scoped[0]


def set_current_distribution(value: Any) -> None:
    """Set the distribution that applies outside of scopes."""
    _Current.distribution = value


@contextmanager
def distribution_scope(value: Any) -> Iterator[Any]:
    """Make a distribution the current one within the block."""
    token = _scoped.set((value,))
    try:
        yield value
    finally:
        _scoped.reset(token)


def as_sharding(layout: Any) -> Any:
    """Convert a layout to a sharding of Weft; a sharding is returned unchanged."""
    return getattr(layout, "backend_layout", layout)


def variable_sharding(variable: Any) -> Any:
    """Return the sharding of a variable with a path and a shape under the current distribution; None without one."""
    distribution = current_distribution()
    return None if distribution is None else as_sharding(distribution.get_variable_layout(variable))


def initialize_in(initializer: Callable[..., Any], shape: Sequence[int], dtype: str, sharding: Any) -> Any:
    """Compute the value of an initializer such that no device ever holds more than its shard."""
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
    """Return the sharding of an optimizer variable: the weight's if the shapes are equal, else replicated."""
    sharding = weight.layout
    if sharding is None or tuple(shape) == tuple(weight.shape):
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec())


def pin(variable: Any, value: Any) -> Any:
    """Constrain a value that a program assigns to a variable to the variable's layout."""
    return value if variable.layout is None else lax.with_sharding_constraint(value, variable.layout)


def shard_batch(batch: Any) -> Any:
    """Shard the arrays of a batch as the current distribution shards data: each device gets its rows.

    With several processes, each has the whole batch and takes the rows of its devices; data that was divided before
    (`auto_shard_dataset=False`) has only these rows.
    """
    distribution = current_distribution()
    if distribution is None:
        return batch

    def of_leaf(leaf: Any) -> Any:
        layout = as_sharding(distribution.get_data_layout(np.shape(leaf)))
        if not distribution.spans_processes or (isinstance(leaf, weft.Array) and not leaf.is_fully_addressable):
            return weft.device_put(leaf, layout)
        dtype: Any = weft.dtypes.canonicalize_dtype(leaf.dtype)
        host = np.asarray(leaf, dtype)
        if distribution.auto_shard_dataset:
            return weft.make_array_from_callback(host.shape, layout, lambda index: host[index])
        return weft.make_array_from_process_local_data(layout, host)

    return weft.tree.map(of_leaf, batch)


def row_sharding() -> Any:
    """Return the sharding of rows that must be divided between processes, or None."""
    distribution = current_distribution()
    if distribution is None or not distribution.spans_processes or not distribution.auto_shard_dataset:
        return None
    return as_sharding(distribution.get_data_layout((1,)))


def whole_everywhere(outputs: Any) -> Any:
    """Replicate the outputs that a program returns to the host, so that each of several processes gets all of them."""
    distribution = current_distribution()
    if distribution is None or not distribution.spans_processes:
        return outputs
    whole = lambda leaf: NamedSharding(as_sharding(distribution.get_data_layout(leaf.shape)).mesh, PartitionSpec())
    return weft.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, whole(leaf)), outputs)


def own_rows(outputs: Any) -> Any:
    """Select the rows of outputs for this process, if each process has predicted from rows of its own."""
    distribution = current_distribution()
    if distribution is None or not distribution.spans_processes or distribution.auto_shard_dataset:
        return outputs
    own = lambda leaf: weft.process_slices(as_sharding(distribution.get_data_layout(leaf.shape)), leaf.shape)[0]
    # On the host: a program that takes other rows in each process would be another one in each.
    return weft.tree.map(lambda leaf: np.asarray(leaf)[own(leaf)], outputs)


def check_agreement(variables: Sequence[Any]) -> None:
    """Raise an error if replicated variables have different values in the processes of the current distribution."""
    distribution = current_distribution()
    if distribution is None or not distribution.spans_processes:
        return
    whole = {v.path: v._value for v in variables if v.layout is not None and v.layout.is_fully_replicated}
    try:
        multihost_utils.assert_equal(whole, "Processes have different values of variables")
    except AssertionError as error:
        raise ArgumentError(
            "All processes must begin with the same variables.",
            received=str(error),
            fix="keras.utils.set_random_seed(0) in each process, before layers are constructed",
        ) from None


def output_in_layout(outputs: Any, path: str | None) -> Any:
    """Constrain the outputs of a layer to the layout that the current distribution has for them."""
    distribution = current_distribution()
    layout = None if distribution is None or path is None else distribution.get_tensor_layout(f"{path}/output")
    if layout is None:
        return outputs
    return weft.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, as_sharding(layout)), outputs)
