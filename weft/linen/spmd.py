"""Logical names of axes ('batch', 'embed'), and rules that map them to mesh axes."""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import weft
from weft.errors import ArgumentError, suggest as _suggest
from weft.modules.partitions import NamedSharding, Names, Partitioned, PartitionSpec, register_box

Rules = Sequence[tuple[str, Any]]


class _Current(threading.local):
    def __init__(self) -> None:
        self.rules: Rules = ()


_CURRENT = _Current()


class RulesFallback(enum.Enum):
    """Treatment of names that no rule maps."""

    AXIS_IS_UNSHARDED = "axis_is_unsharded"
    RAISE_ERROR = "raise_error"
    NO_CONSTRAINT = "no_constraint"


def set_logical_axis_rules(rules: Rules) -> None:
    """Set the rules of this thread."""
    _CURRENT.rules = rules


def get_logical_axis_rules() -> Rules:
    """Return the rules of this thread."""
    return _CURRENT.rules


@contextlib.contextmanager
def logical_axis_rules(rules: Rules) -> Iterator[None]:
    """Return a context in which this thread uses the given rules.

    Args:
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.

    Returns:
        A context manager.

    >>> from weft import linen
    >>> with linen.logical_axis_rules([("batch", "data"), ("embed", None)]):
    ...     linen.logical_to_mesh_axes(("batch", "embed"))
    P('data', None)
    """
    before, _CURRENT.rules = _CURRENT.rules, rules
    try:
        yield
    finally:
        _CURRENT.rules = before


def _mesh_axes(names: Sequence[Any], rules: Rules, fallback: RulesFallback) -> PartitionSpec | None:
    """Map each name to a mesh axis; return None if no constraint applies.

    Entries that are not names (None, UNCONSTRAINED) are kept. Rules are tried in order. A mesh axis can split only one
    axis of an array: a rule whose mesh axis is in use is skipped, so that a later rule for the name may apply.
    """
    present = [name for name in names if isinstance(name, str)]
    if len(set(present)) < len(present):
        raise ArgumentError(f"Logical axes must be distinct; got {tuple(names)}.")
    found: dict[Any, Any] = {}
    used: set[Any] = set()
    for name, mesh in rules:
        if name not in present or name in found:
            continue
        axes = set(mesh) if isinstance(mesh, (tuple, list)) else {mesh} - {None, PartitionSpec.UNCONSTRAINED}
        if axes & used:
            continue
        used |= axes
        found[name] = mesh
    missing = [name for name in present if name not in found]
    if missing and fallback is RulesFallback.RAISE_ERROR:
        raise ArgumentError(f"No rule for the logical axes {missing} of {tuple(names)}.")
    if missing and fallback is RulesFallback.NO_CONSTRAINT:
        return None
    return PartitionSpec(*(found.get(name) if isinstance(name, str) else name for name in names))


def logical_to_mesh_axes(array_dim_names: Sequence[str | None] | None, rules: Rules | None = None) -> Any:
    """Return the PartitionSpec over mesh axes for an array with logical axis names.

    Args:
        array_dim_names: a logical name or None for each axis.
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.

    Returns:
        A PartitionSpec.

    >>> from weft import linen
    >>> linen.logical_to_mesh_axes(("batch", None), [("batch", "data")])
    P('data', None)
    """
    if array_dim_names is None:
        return None
    return _mesh_axes(array_dim_names, _CURRENT.rules if rules is None else rules, RulesFallback.AXIS_IS_UNSHARDED)


def _is_spec(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


def logical_to_mesh(tree: Any, rules: Rules | None = None) -> Any:
    """Convert a tree of PartitionSpecs over logical names to PartitionSpecs over mesh axes.

    Args:
        tree: a tree of PartitionSpecs.
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.

    Returns:
        A tree of PartitionSpecs.

    >>> from weft import linen
    >>> from weft.sharding import PartitionSpec as P
    >>> linen.logical_to_mesh({"w": P("batch")}, [("batch", "data")])
    {'w': P('data',)}
    """
    change = lambda spec: logical_to_mesh_axes(spec, rules) if _is_spec(spec) else spec
    return weft.tree.map(change, tree, is_leaf=_is_spec)


def logical_to_mesh_sharding(tree: Any, mesh: Any, rules: Rules | None = None) -> Any:
    """Convert a tree of PartitionSpecs over logical names to shardings over a mesh.

    Args:
        tree: a tree of PartitionSpecs.
        mesh: a mesh; by default the one that is set.
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.

    Returns:
        A tree of `NamedSharding`s.

    >>> import weft
    >>> from weft import linen
    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> linen.logical_to_mesh_sharding({"w": P("batch")}, mesh, [("batch", "data")])["w"].spec
    P('data',)
    """
    change = lambda spec: NamedSharding(mesh, spec) if _is_spec(spec) else spec
    return weft.tree.map(change, logical_to_mesh(tree, rules), is_leaf=_is_spec)


def with_logical_constraint(
    x: Any,
    logical_axis_resources: Any,
    rules: Rules | None = None,
    mesh: Any = None,
    fallback: RulesFallback = RulesFallback.AXIS_IS_UNSHARDED,
) -> Any:
    """Constrain the sharding of arrays by the logical names of their axes.

    Names are checked even with a single device.

    Args:
        x: a tree of arrays.
        logical_axis_resources: a logical name for each axis, or a tree of them.
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.
        mesh: a mesh; by default the one that is set.
        fallback: what a name without a rule means.

    Returns:
        A tree like `x`.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.with_logical_constraint(wnp.ones(2), ("batch",), rules=[("batch", None)])
    Array([1., 1.], dtype=float32)
    """
    rules = _CURRENT.rules if rules is None else rules
    if logical_axis_resources is None or not rules:
        return x
    names = tuple(logical_axis_resources)
    for leaf in weft.tree.leaves(x):
        if leaf.ndim < len(names):
            raise ArgumentError(
                f"with_logical_constraint got {len(names)} names {names} for an array of shape {leaf.shape}."
            )
    _mesh_axes(names, rules, fallback)
    return x


@dataclass(frozen=True)
class LogicallyPartitioned(Partitioned):
    """A box with a logical name for each axis of its value.

    Args:
        rules: pairs of a logical name and an axis of the mesh.
        value: the value.
        names: a logical name for each axis.
        mesh: the mesh.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.LogicallyPartitioned(wnp.ones((2, 3)), ("batch", "embed")).get_partition_spec()
    P('batch', 'embed')
    """

    rules: Any = None

    def unbox(self, apply_constraint: bool = True) -> Any:
        if apply_constraint and (self.mesh is not None or _CURRENT.rules):
            return with_logical_constraint(self.value, self.get_partition_spec(), self.rules, self.mesh)
        return self.value


register_box(LogicallyPartitioned)


def with_logical_partitioning(
    fn: Callable[..., Any], names: Names, mesh: Any = None, rules: Rules | None = None
) -> Callable[..., Any]:
    """Wrap an initializer, so that its values are boxes with logical names of axes.

    Args:
        fn: an initializer.
        names: a logical name for each axis.
        mesh: a mesh; by default the one that is set.
        rules: pairs of a logical name and an axis of the mesh (or None); by default those that
            `logical_axis_rules` has set.

    Returns:
        An initializer.

    >>> from weft import random
    >>> from weft import linen
    >>> init = linen.with_logical_partitioning(linen.initializers.zeros, ("batch", "embed"))
    >>> init(random.key(0), (2, 3)).names
    ('batch', 'embed')
    """

    def init(*args: Any, **kwargs: Any) -> LogicallyPartitioned:
        return LogicallyPartitioned(fn(*args, **kwargs), names, mesh, rules)

    return init


_suggest(__name__)
