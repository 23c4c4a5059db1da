"""Names of axes: partitioning over a mesh as metadata that accompanies a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.modules.metadata import AxisMetadata, is_axis_metadata
from weft.sharding import NamedSharding, PartitionSpec

PARTITION_NAME = "partition_name"  # the key of a new axis's name in `metadata_params` of a transformation

Names = tuple[str | tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class Partitioned(AxisMetadata):
    """A box with a name for each axis of its value.

    Args:
        value: the value.
        names: the axis of a mesh for each axis, or None.
        mesh: the mesh.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.Partitioned(wnp.ones((2, 3)), ("data", None)).get_partition_spec()
    P('data', None)
    """

    value: Any
    names: Names
    mesh: Any = None

    def unbox(self, apply_constraint: bool = True) -> Any:
        return self.value

    def replace_boxed(self, val: Any) -> Any:
        return replace(self, value=val)

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def _axis_name(self, params: dict[Any, Any]) -> Any:
        if PARTITION_NAME not in params:
            raise ArgumentError(
                f"A transformation that adds an axis to a value with the axes {self.names} must name the axis.",
                fix="metadata_params={nn.PARTITION_NAME: name}; the name may be None",
            )
        return params[PARTITION_NAME]

    def add_axis(self, index: int, params: dict[Any, Any]) -> Any:
        name = self._axis_name(params)
        names = list(self.names)
        position = index if index >= 0 else len(names) + 1 + index
        names += [None] * (position - len(names))
        names.insert(position, name)
        return replace(self, names=tuple(names))

    def remove_axis(self, index: int, params: dict[Any, Any]) -> Any:
        name = self._axis_name(params)
        names = list(self.names)
        found = names.pop(index)
        if found != name:
            raise ArgumentError(
                f"A transformation must remove axis {index} by its name, got {name!r} for the axes {self.names}.",
                fix="use the metadata_params with which the variables were created",
            )
        return replace(self, names=tuple(names))

    def get_partition_spec(self) -> PartitionSpec:
        """Return the names as a PartitionSpec."""
        return PartitionSpec(*self.names)

    def get_sharding(self, mesh: Any) -> NamedSharding:
        """Return the names as a sharding over a mesh."""
        return NamedSharding(mesh, self.get_partition_spec())


def register_box(cls: type) -> None:
    """Register a box as a pytree whose child is the value; its other fields are static."""
    weft.tree_util.register_dataclass(
        cls,
        data_fields=["value"],
        meta_fields=[name for name in cls.__dataclass_fields__ if name != "value"],  # type: ignore[attr-defined]
    )


register_box(Partitioned)


def with_partitioning(fn: Callable[..., Any], names: Names, mesh: Any = None) -> Callable[..., Any]:
    """Wrap an initializer, so that its values are boxes with names of axes."""

    def init(*args: Any, **kwargs: Any) -> Partitioned:
        return Partitioned(fn(*args, **kwargs), names, mesh)

    return init


def get_partition_spec(tree: Any) -> Any:
    """Return a PartitionSpec for each array: the names of its box, or an empty one. Other leaves become None.

    Args:
        tree: a tree of arrays and boxes.

    Returns:
        A tree of PartitionSpecs.

    >>> import weft.numpy as wnp
    >>> from weft import linen
    >>> linen.get_partition_spec({"w": linen.Partitioned(wnp.ones(2), ("data",)), "b": wnp.ones(2)})
    {'b': P(), 'w': P('data',)}
    """

    def spec(value: Any) -> Any:
        if isinstance(value, Partitioned):
            return value.get_partition_spec()
        return PartitionSpec() if hasattr(value, "shape") else None

    return weft.tree.map(spec, tree, is_leaf=is_axis_metadata)


def get_sharding(tree: Any, mesh: Any) -> Any:
    """Return a sharding over a mesh for each array: that of its box, or a replicated one. Other leaves become None."""

    def sharding(value: Any) -> Any:
        if isinstance(value, Partitioned):
            return value.get_sharding(mesh)
        return NamedSharding(mesh, PartitionSpec()) if hasattr(value, "shape") else None

    return weft.tree.map(sharding, tree, is_leaf=is_axis_metadata)
