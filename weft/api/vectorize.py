"""`vmap`: a function over one element turned into a function over a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.api.flat import OutTree, argument_paths, check_callable, check_leaves, flat_function, name_of
from weft.base import tree
from weft.base.errors import AxisSpecError
from weft.base.source import user_line, user_location
from weft.ir.primitive import Axis
from weft.ir.types import ArrayType, type_of
from weft.ops.shape import batched_at_front, move_axis
from weft.transforms.batch import batch_flat


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
) -> Callable[..., Any]:
    """Map `fun` over axes of its arguments: `in_axes` names the axis of each (None: the same for all), as a tree prefix;
    `out_axes` says where results have theirs. `axis_name` lets collectives inside refer to the axis."""
    check_callable(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple, dict)) or tree.leaves(in_axes)):
        raise AxisSpecError(f"vmap of {name_of(fun)}: in_axes must be an int, None or a tree of them, got {in_axes!r}.", at=user_line())
    for spec, word in ((in_axes, "in_axes"), (out_axes, "out_axes")):
        for leaf in tree.leaves(spec):
            if not isinstance(leaf, int) or isinstance(leaf, bool):
                raise AxisSpecError(
                    f"vmap of {name_of(fun)}: {word} must consist of ints and None.", received=f"{leaf!r} of type {type(leaf).__name__}", at=user_line()
                )

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        check_leaves(fun, "vmap", leaves, args, kwargs)
        axes = argument_axes(fun, in_axes, args, kwargs)
        size = mapped_size(fun, axes, leaves, args, kwargs, axis_size)
        dims = [normalized(fun, a, leaf, "in_axes") for a, leaf in zip(axes, leaves, strict=True)]
        out = OutTree()
        axis = Axis(size, axis_name)
        values, out_dims = batch_flat(flat_function(fun, in_tree, out), axis, leaves, dims, f"vmap({name_of(fun)})", user_location())
        wanted = result_axes(fun, out_axes, out.treedef)
        return tree.unflatten(out.treedef, [place(fun, v, d, w, axis) for v, d, w in zip(values, out_dims, wanted, strict=True)])

    return mapped


def argument_axes(fun: Callable[..., Any], in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """The axis of each leaf of `(args, kwargs)`; keyword arguments are mapped over their first axis."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise AxisSpecError(
            f"vmap of {name_of(fun)}: in_axes has {len(in_axes)} entries for {len(args)} positional arguments.",
            received=f"in_axes={in_axes}",
            fix="give one entry per positional argument, or one int for all",
            at=user_line(),
        )
    try:
        axes = tree.flatten_axes("in_axes", tree.structure(args), in_axes)
    except ValueError as error:
        raise AxisSpecError(
            f"vmap of {name_of(fun)}: in_axes must be a prefix of the arguments' structure.", received=str(error), at=user_line()
        ) from None
    return axes + [0] * len(tree.leaves(kwargs))


def result_axes(fun: Callable[..., Any], out_axes: Any, out_tree: tree.PyTreeDef) -> list[int | None]:
    try:
        return tree.flatten_axes("out_axes", out_tree, out_axes)
    except ValueError as error:
        raise AxisSpecError(
            f"vmap of {name_of(fun)}: out_axes must be a prefix of the result's structure.", received=str(error), at=user_line()
        ) from None


def normalized(fun: Callable[..., Any], axis: int | None, leaf: Any, word: str) -> int | None:
    if axis is None:
        return None
    aval = type_of(leaf)
    assert isinstance(aval, ArrayType)
    if not -aval.ndim <= axis < aval.ndim:
        raise AxisSpecError(
            f"vmap of {name_of(fun)}: axis {axis} of {word} does not exist in an array of rank {aval.ndim}.",
            received=aval.short(),
            fix="use None for arguments that are not mapped over",
            at=user_line(),
        )
    return axis % aval.ndim


def mapped_size(fun: Callable[..., Any], axes: Sequence[int | None], leaves: Sequence[Any], args: Any, kwargs: Any, axis_size: int | None) -> Any:
    """The one size of all mapped axes."""
    sizes: dict[Any, list[int]] = {}
    for number, (axis, leaf) in enumerate(zip(axes, leaves, strict=True)):
        dim = normalized(fun, axis, leaf, "in_axes")
        if dim is not None:
            sizes.setdefault(type_of(leaf).shape[dim], []).append(number)  # type: ignore[attr-defined]
    if axis_size is not None:
        sizes.setdefault(axis_size, [])
    if not sizes:
        raise AxisSpecError(
            f"vmap of {name_of(fun)} maps over nothing: every entry of in_axes is None.", fix="map at least one argument, or give axis_size", at=user_line()
        )
    if len(sizes) > 1:
        paths = argument_paths(fun, args, kwargs)
        found = "; ".join(
            f"size {size}: " + (", ".join(f"axis {axes[n]} of {paths[n]} with shape {type_of(leaves[n]).shape}" for n in numbers) or "axis_size")  # type: ignore[attr-defined]
            for size, numbers in sizes.items()
        )
        raise AxisSpecError(f"vmap of {name_of(fun)} got mapped axes of different sizes.", received=found, at=user_line())
    return next(iter(sizes))


def place(fun: Callable[..., Any], value: Any, dim: int | None, wanted: int | None, axis: Axis) -> Any:
    """A result with its batch dimension where `out_axes` wants it."""
    if wanted is None:
        if dim is not None:
            raise AxisSpecError(
                f"vmap of {name_of(fun)}: out_axes is None for a result that differs between elements of the batch.",
                received=type_of(value).short(),
                fix="give the axis, or reduce the result over the batch (for example with lax.psum over a named axis)",
                at=user_line(),
            )
        return value
    if dim is None:
        value, dim = batched_at_front(value, None, axis), 0
    rank = len(value.shape)
    if not -rank <= wanted < rank:
        raise AxisSpecError(f"vmap of {name_of(fun)}: out_axes {wanted} does not exist in a result of rank {rank}.", at=user_line())
    return move_axis(value, dim, wanted % rank)
