"""Names of axes in separate collections beside the variables ('params_axes' beside 'params')."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ModuleDefinitionError, suggest as _suggest, user_line
from weft.linen.module import Module
from weft.linen.spmd import (
    RulesFallback as RulesFallback,
    get_logical_axis_rules as get_logical_axis_rules,
    logical_axis_rules as logical_axis_rules,
    logical_to_mesh as logical_to_mesh,
    logical_to_mesh_axes as logical_to_mesh_axes,
    set_logical_axis_rules as set_logical_axis_rules,
    with_logical_constraint,
)
from weft.linen.state import CONTEXT
from weft.linen.transforms import add_metadata_axis, remat as remat, scan, vmap
from weft.modules import metadata
from weft.modules.filters import Filter
from weft.modules.partitions import PARTITION_NAME, Partitioned, PartitionSpec
from weft.modules.scope import Variable

with_sharding_constraint = with_logical_constraint


def _are_names(value: Any) -> bool:
    """Return whether a value is the names of the axes of one array."""
    if value is None or isinstance(value, PartitionSpec):
        return True
    return isinstance(value, tuple) and not any(isinstance(one, (tuple, list, Mapping)) for one in value)


def _map_names(function: Callable[..., Any], names: Any, *trees: Any) -> Any:
    """Map the names of each array, together with the leaves of other trees at its place; None is left unchanged."""
    change = lambda one, *others: None if one is None else function(one, *others)
    return weft.tree.map(change, names, *trees, is_leaf=_are_names)


@weft.tree_util.register_static
@dataclass(frozen=True)
class AxisMetadata(metadata.AxisMetadata):
    """The names of the axes of one variable, or a tree of them, as a pytree without leaves."""

    names: Any

    def __hash__(self) -> int:
        return hash(tuple(weft.tree.leaves(self.names)))

    def unbox(self) -> Any:
        return self.names

    def replace_boxed(self, val: Any) -> AxisMetadata:
        return AxisMetadata(val)

    def add_axis(self, index: int, params: dict[Any, Any]) -> AxisMetadata:
        change = lambda names: Partitioned(None, tuple(names)).add_axis(index, params).names
        return AxisMetadata(_map_names(change, self.names))

    def remove_axis(self, index: int, params: dict[Any, Any]) -> AxisMetadata:
        change = lambda names: Partitioned(None, tuple(names)).remove_axis(index, params).names
        return AxisMetadata(_map_names(change, self.names))


def _current(module: Module | None, what: str) -> Module:
    found = CONTEXT.modules[-1] if module is None else module
    if found is None:
        raise ModuleDefinitionError(
            f"{what} must be called in a method of a module.",
            at=user_line(),
            fix="call it in a method, or pass module=",
        )
    return found


def _note_axes(module: Module, collection: str, name: str, value: Any, axes: Any) -> None:
    if axes is None:
        return

    def check(names: Any, leaf: Any) -> None:
        if len(names) not in (0, wnp.ndim(leaf)):
            raise ArgumentError(
                f"{name!r} of {module._where()} has shape {wnp.shape(leaf)}, but got the axes {tuple(names)}.",
                fix="a name or None for each axis, or () for none",
            )

    _map_names(check, axes, value)
    metadata = AxisMetadata(tuple(axes) if isinstance(axes, (list, PartitionSpec)) else axes)

    def same(before: AxisMetadata | None, now: AxisMetadata) -> AxisMetadata:
        if before is not None and before != now:
            raise ArgumentError(f"The axes of {name!r} of {module._where()} must stay {before.names}; got {now.names}.")
        return now

    module.sow(f"{collection}_axes", f"{name}_axes", metadata, reduce_fn=same, init_fn=lambda: None)


def param_with_axes(
    name: str,
    init_fn: Callable[..., Any],
    *init_args: Any,
    axes: Any = None,
    module: Module | None = None,
    **init_kwargs: Any,
) -> Any:
    """Return a parameter of the module being called, with logical names of its axes.

    Args:
        name: the name of the parameter.
        init_fn: its initializer.
        *init_args, **init_kwargs: arguments of the initializer, after the key.
        axes: a logical name for each axis; for a parameter that is a tree of arrays, a tree of them.
        module: the module; by default the one being called.

    Returns:
        The value of the parameter. The names are in the collection 'params_axes'.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> from weft.linen import partitioning
    >>> class Bias(linen.Module):
    ...     @linen.compact
    ...     def __call__(self, x):
    ...         return x + partitioning.param_with_axes("bias", linen.initializers.zeros, (2,), axes=("embed",))
    >>> sorted(Bias().init(random.key(0), wnp.ones(2)))
    ['params', 'params_axes']
    """
    owner = _current(module, "param_with_axes")
    value = owner.param(name, init_fn, *init_args, **init_kwargs)
    if axes is not None:
        _note_axes(owner, "params", name, value, axes)
        value = _constrain(value, axes)
    return value


def _constrain(value: Any, axes: Any, fallback: RulesFallback = RulesFallback.AXIS_IS_UNSHARDED) -> Any:
    """Apply the logical names of axes to a value, or to each array of a tree."""
    change = lambda names, one: with_logical_constraint(one, PartitionSpec(*names), fallback=fallback)
    return value if axes is None else _map_names(change, axes, value)


class PartitionedVariable(Variable[Any]):
    """A reference to a variable with logical axis names: values read and written are constrained by the rules.

    Attributes:
        axes: the names.
        fallback: the treatment of names without a rule.
    """

    __slots__ = ("axes", "fallback")

    def __init__(
        self,
        scope: Any,
        collection: str,
        name: str,
        axes: Sequence[Any] | None = None,
        fallback: RulesFallback = RulesFallback.AXIS_IS_UNSHARDED,
    ):
        super().__init__(scope, collection, name)
        self.axes, self.fallback = axes, fallback

    @property
    def value(self) -> Any:
        """The value."""
        return self._split(super().value)

    @value.setter
    def value(self, value: Any) -> None:
        Variable.value.fset(self, self._split(value))  # type: ignore[attr-defined]

    def _split(self, value: Any) -> Any:
        return _constrain(value, self.axes, self.fallback)


def variable_with_axes(
    collection: str,
    name: str,
    init_fn: Callable[..., Any],
    *init_args: Any,
    axes: Sequence[Any] | None = None,
    module: Module | None = None,
    fallback: RulesFallback = RulesFallback.AXIS_IS_UNSHARDED,
    **init_kwargs: Any,
) -> Variable[Any]:
    """Return a reference to a variable of the module being called, with logical names of its axes."""
    owner = _current(module, "variable_with_axes")
    found = owner.variable(collection, name, init_fn, *init_args, **init_kwargs)
    _note_axes(owner, collection, name, found.value, axes)
    return PartitionedVariable(found.scope, collection, name, axes, fallback)


def get_axis_names(axes_metadata: Any) -> Any:
    """Convert a collection of axis names to a tree of PartitionSpecs under the names of the variables.

    Args:
        axes_metadata: a collection 'params_axes'.

    Returns:
        A tree of PartitionSpecs.

    >>> import weft
    >>> from weft.linen import partitioning
    >>> partitioning.get_axis_names({"bias_axes": partitioning.AxisMetadata(names=("embed",))})
    {'bias': P('embed',)}
    """
    if isinstance(axes_metadata, AxisMetadata):
        return _map_names(lambda names: PartitionSpec(*names), axes_metadata.names)
    if isinstance(axes_metadata, Mapping):
        return {key.removesuffix("_axes"): get_axis_names(value) for key, value in axes_metadata.items()}
    return axes_metadata


def scan_with_axes(
    target: Any,
    variable_axes: Mapping[Any, Any] = {},
    variable_broadcast: Filter = False,
    variable_carry: Filter = False,
    split_rngs: Mapping[Any, bool] = {},
    in_axes: Any = 0,
    out_axes: Any = 0,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    axis_name: str = "layers",
    axes_collections: Sequence[str] = ("params",),
    data_transform: Callable[..., Any] | None = None,
    methods: Any = None,
) -> Any:
    """Transform as `nn.scan` does, and insert `axis_name` into the axis names of stacked variables."""
    axes = {f"{name}_axes": variable_axes[name] for name in axes_collections if name in variable_axes}
    return scan(
        target,
        variable_axes={**variable_axes, **axes},
        variable_broadcast=variable_broadcast,
        variable_carry=variable_carry,
        split_rngs=split_rngs,
        in_axes=in_axes,
        out_axes=out_axes,
        length=length,
        reverse=reverse,
        unroll=unroll,
        data_transform=data_transform,
        metadata_params={PARTITION_NAME: axis_name},
        methods=methods,
    )


def vmap_with_axes(
    target: Any,
    variable_axes: Mapping[Any, Any],
    split_rngs: Mapping[Any, bool] = {},
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    partitioning_axis_names: Mapping[Any, str] = {},
    spmd_axis_name: str | None = None,
    methods: Any = None,
) -> Any:
    """Transform as `nn.vmap` does, and insert the names of `partitioning_axis_names` into the axis names of variables.

    Other arguments are those of `nn.vmap`.
    """
    named = {name: axis for name, axis in variable_axes.items() if axis is not None and isinstance(name, str)}
    mapped = vmap(
        target,
        variable_axes={**variable_axes, **{f"{name}_axes": None for name in named}},
        split_rngs=split_rngs,
        in_axes=in_axes,
        out_axes=out_axes,
        axis_size=axis_size,
        axis_name=axis_name,
        spmd_axis_name=spmd_axis_name,
        methods=methods,
    )
    for name, axis in named.items():
        params = {PARTITION_NAME: partitioning_axis_names.get(name)}
        mapped = add_metadata_axis(mapped, {f"{name}_axes": axis}, metadata_params=params, methods=methods)
    return mapped


_suggest(__name__)
