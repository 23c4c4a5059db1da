"""`vmap`: map a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from weft.api.flat import OutTree, argument_paths, check_callable, check_leaves, flat_function, get_name, wraps
from weft.base import tree
from weft.base.errors import AxisSpecError, ShardingTypeError
from weft.base.source import user_line, user_location
from weft.base.tracebacks import boundary
from weft.ir.context import batch_over
from weft.ir.primitive import Axis
from weft.ir.types import ArrayType, get_aval, is_value
from weft.primitives.movement.shape import move_axis, move_batch_to_front
from weft.primitives.movement.sharding_constraint import reshard
from weft.primitives.reduction.reduce import reduce_sum
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec, entry_axes
from weft.trace.refs import Ref
from weft.transforms.batch import batch_flat

Function = TypeVar("Function", bound=Callable[..., Any])


def vmap(
    fun: Function,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Function:
    """Map `fun` over an axis of each argument (`in_axes`, a tree prefix; None for an argument that all elements share),
    and stack the results along `out_axes`.

    Collectives inside refer to the axis by `axis_name`. A `shard_map` inside, and constraints, split it over the axes
    `spmd_axis_name` of their mesh. With `sum_match` a result that differs between elements is summed if its `out_axes`
    is None.

    Args:
        fun: a function of arrays.
        in_axes: the mapped axis of each argument: an integer, None, or a tree that is a prefix of the arguments.
        out_axes: where the mapped axis is in each result.
        axis_name: a name for the axis.
        axis_size: its size, where no argument has the axis.
        spmd_axis_name: axes of a mesh to split it over.
        sum_match: whether results that no `out_axes` name are summed.

    Returns:
        A function of arrays with one axis more.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.vmap(wnp.dot)(wnp.ones((3, 2)), wnp.ones((3, 2)))
    Array([2., 2., 2.], dtype=float32)
    >>> weft.vmap(lambda x, y: x + y, in_axes=(0, None))(wnp.arange(3), 10)
    Array([10, 11, 12], dtype=int32)
    """
    check_callable(fun, "vmap")
    spmd = () if spmd_axis_name is None else entry_axes(spmd_axis_name)
    in_axes = check_axes(fun, in_axes, out_axes)

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        axes = argument_axes(fun, in_axes, args, kwargs)
        refs = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Ref) and axes[i] is not None}
        leaves = [leaf.value if i in refs else leaf for i, leaf in enumerate(leaves)]
        check_leaves(
            fun, "vmap", [0 if a is None else leaf for a, leaf in zip(axes, leaves, strict=True)], args, kwargs
        )
        path = lambda i: argument_paths(fun, args, kwargs)[i]
        dims = [normalize_axis(fun, a, leaf, n, path) for n, (a, leaf) in enumerate(zip(axes, leaves, strict=True))]
        size = get_axis_size(fun, axes, dims, leaves, path, axis_size, "vmap", len(tree.leaves(args)))
        out = OutTree()
        axis = Axis(size, axis_name, spmd, get_axis_sharding(fun, leaves, dims, path))
        flat = flat_function(fun, in_tree, out)
        written: list[int] = []
        if refs:
            flat = return_written_refs(flat, refs, written)
        of_arrays, arrays, array_dims = hold_unmapped(flat, leaves, dims)
        with batch_over(spmd):
            values, out_dims = batch_flat(
                of_arrays, axis, arrays, array_dims, f"vmap({get_name(fun)})", user_location()
            )
        count = out.treedef.num_leaves
        for i, value, dim in zip(written, values[count:], out_dims[count:], strict=True):
            refs[i].replace(move_batch_axis(fun, value, dim, dims[i], axis))
        values, out_dims = values[:count], out_dims[:count]
        wanted = result_axes(fun, out_axes, out.treedef)
        if sum_match:
            summed = [w is None and d is not None for d, w in zip(out_dims, wanted, strict=True)]
            values = [reduce_sum(v, axes=(d,)) if s else v for v, d, s in zip(values, out_dims, summed, strict=True)]
            out_dims = [None if s else d for d, s in zip(out_dims, summed, strict=True)]
        return tree.unflatten(
            out.treedef, [move_batch_axis(fun, v, d, w, axis) for v, d, w in zip(values, out_dims, wanted, strict=True)]
        )

    return function  # type: ignore[return-value]  # it takes the arguments of `fun`


def return_written_refs(
    flat: Callable[..., list[Any]], refs: Mapping[int, Ref], written: list[int]
) -> Callable[..., list[Any]]:
    """Convert a flat function of mutable arrays, at the indices `refs`, to one of their values, which returns their new
    values after its results and stores the indices of written ones in `written`."""

    def function(*values: Any) -> list[Any]:
        own = {i: Ref.of(values[i]) for i in refs}
        results = flat(*(own.get(i, v) for i, v in enumerate(values)))
        written[:] = [i for i, ref in own.items() if ref.written]
        return [*results, *(own[i].value for i in written)]

    return function


def get_axis_sharding(
    fun: Callable[..., Any], leaves: Sequence[Any], dims: Sequence[int | None], path: Callable[[int], str]
) -> NamedSharding | None:
    """Return the sharding of the mapped dimensions over Explicit axes, which must be the same for all arguments with
    one."""
    found: dict[NamedSharding, int] = {}
    for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None or not is_value(leaf):
            continue
        aval: Any = get_aval(leaf)
        sharding = getattr(aval, "explicit_sharding", None)
        if sharding is not None and sharding.spec[dim] is not None:
            found[NamedSharding(sharding.mesh, PartitionSpec(sharding.spec[dim]))] = i
    if len(found) > 1:
        (one, i), (other, j) = list(found.items())[:2]
        raise ShardingTypeError(
            f"vmap of {get_name(fun)}: the mapped dimensions of all arguments must be split alike.",
            received=f"{path(i)} over {one.spec[0]!r}, {path(j)} over {other.spec[0]!r}",
            fix=f"weft.sharding.reshard({path(j)}, spec)   with {one.spec[0]!r} for its mapped dimension",
            at=user_line(),
        )
    return next(iter(found), None)


def hold_unmapped(
    function: Callable[..., Any], leaves: Sequence[Any], dims: Sequence[int | None]
) -> tuple[Callable[..., Any], list[Any], list[int | None]]:
    """Return the function of the mapped leaves, these leaves, and their dimensions. Others are passed unchanged: a
    number may be a size, or a static argument of a function that is called inside."""
    if None not in dims:
        return function, list(leaves), list(dims)

    def partial(*args: Any) -> Any:
        values = iter(args)
        return function(*(leaf if d is None else next(values) for d, leaf in zip(dims, leaves, strict=True)))

    mapped = [(leaf, dim) for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    return partial, [leaf for leaf, _ in mapped], [dim for _, dim in mapped]


def check_axes(fun: Callable[..., Any], in_axes: Any, out_axes: Any, caller: str = "vmap") -> Any:
    """Return `in_axes`, a list as a tuple; raise if it or `out_axes` does not consist of ints and None."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple, dict)) or tree.leaves(in_axes)):
        raise AxisSpecError(
            f"{caller} of {get_name(fun)}: in_axes must be an int, None or a tree of them, got {in_axes!r}.",
            at=user_line(),
            jax=_jax_text_of_axes(caller, "in_axes") + f" corresponding to the positional arguments passed to the "
            f"function, but got {in_axes}.",
        )
    for spec, word in ((in_axes, "in_axes"), (out_axes, "out_axes")):
        for leaf in tree.leaves(spec):
            if not isinstance(leaf, int) or isinstance(leaf, bool):
                raise AxisSpecError(
                    f"{caller} {word} must be an int, None, or a tree of them, for {get_name(fun)}.",
                    received=f"{leaf!r} of type {type(leaf).__name__}",
                    at=user_line(),
                    jax=_jax_text_of_axes(caller, word) + f", but got {spec}.",
                )
    return in_axes


def _jax_text_of_axes(caller: str, word: str) -> str:
    """Return the beginning of JAX's sentence about wrong axes."""
    return f"{caller} {word} must be an int, None, or a tuple of entries"


def argument_axes(
    fun: Callable[..., Any], in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any], caller: str = "vmap"
) -> list[int | None]:
    """Return the axis of each leaf of `(args, kwargs)`; keyword arguments are mapped over their first axis."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise AxisSpecError(
            f"{caller} of {get_name(fun)}: in_axes has {len(in_axes)} entries for {len(args)} positional arguments.",
            received=f"in_axes={in_axes}",
            fix="give one entry per positional argument, or one int for all",
            at=user_line(),
            jax=_jax_text_of_axes(caller, "in_axes") + " corresponding to the positional arguments passed to the "
            f"function, but got len(in_axes)={len(in_axes)}, len(args)={len(args)}",
        )
    try:
        axes = tree.flatten_axes("in_axes", tree.structure(args), in_axes)
    except ValueError as error:
        raise AxisSpecError(
            f"{caller} of {get_name(fun)}: in_axes must be a prefix of the arguments' structure.",
            received=str(error),
            at=user_line(),
            jax=_jax_text_of_prefix(caller, "in_axes", in_axes, tree.structure(args)),
        ) from None
    return axes + [0] * len(tree.leaves(kwargs))


def result_axes(
    fun: Callable[..., Any], out_axes: Any, out_tree: tree.PyTreeDef, caller: str = "vmap"
) -> list[int | None]:
    """Return the axis of each leaf of the result."""
    try:
        return tree.flatten_axes("out_axes", out_tree, out_axes)
    except ValueError as error:
        raise AxisSpecError(
            f"{caller} of {get_name(fun)}: out_axes must be a prefix of the result's structure.",
            received=str(error),
            at=user_line(),
            jax=_jax_text_of_prefix(caller, "out_axes", out_axes, out_tree),
        ) from None


def _jax_text_of_prefix(caller: str, word: str, axes: Any, structure: tree.PyTreeDef) -> str:
    """Return the sentence of JAX for axes that are not a prefix of a tree."""
    return (
        f"{caller} {word} specification must be a tree prefix of the corresponding value, got specification {axes} for "
        f"value tree {structure}."
    )


def normalize_axis(
    fun: Callable[..., Any], axis: int | None, leaf: Any, i: int, path: Callable[[int], str], caller: str = "vmap"
) -> int | None:
    """Return a mapped axis counted from the front; raise if the argument does not have it."""
    if axis is None:
        return None
    aval = get_aval(leaf)
    assert isinstance(aval, ArrayType)
    if not -aval.ndim <= axis < aval.ndim:
        raise AxisSpecError(
            f"{caller} was requested to map its argument along axis {axis}, which implies that its rank should be at "
            f"least {axis + 1 if axis >= 0 else -axis}, but is only {aval.ndim} (its shape is {aval.shape}): "
            f"`{path(i)}` has no axis {axis} to map over.",
            received=f"{aval.short()} with in_axes {axis}",
            fix="give None in in_axes for arguments that are the same for all elements",
            at=user_line(),
        )
    return axis % aval.ndim


def get_axis_size(
    fun: Callable[..., Any],
    axes: Sequence[int | None],
    dims: Sequence[int | None],
    leaves: Sequence[Any],
    path: Callable[[int], str],
    axis_size: int | None,
    caller: str = "vmap",
    positional: int | None = None,
) -> Any:
    """Return the size of all mapped axes; raise if they differ. The first `positional` leaves are those of positional
    arguments."""
    sizes: dict[Any, list[int]] = {}
    for i, (dim, leaf) in enumerate(zip(dims, leaves, strict=True)):
        if dim is not None:
            sizes.setdefault(get_aval(leaf).shape[dim], []).append(i)  # type: ignore[attr-defined]
    if axis_size is not None:
        sizes.setdefault(axis_size, [])
    if not sizes:
        raise AxisSpecError(
            f"{caller} must have at least one non-None value in in_axes: {get_name(fun)} maps over nothing.",
            fix="map at least one argument, or give axis_size",
            at=user_line(),
        )
    if len(sizes) > 1:
        lines = [
            f"size {size}: axis {axes[n]} of {path(n)}, {get_aval(leaves[n]).short()}"
            for size, indices in sizes.items()
            for n in indices[:3]
        ]
        lines += [f"size {axis_size}: axis_size"] if axis_size is not None else []
        fix = "map over axes of one size, or give None in in_axes for arguments that are the same for all elements"
        what = f"{caller} got inconsistent sizes for array axes to be mapped by {get_name(fun)}."
        groups = {
            size: [
                (axes[n], _jax_path(path(n), positional is None or n < positional), get_aval(leaves[n]))
                for n in indices
            ]
            for size, indices in sizes.items()
        }
        jax = _jax_text_of_sizes(caller, groups)
        raise AxisSpecError(what, received="\n".join(lines), fix=fix, at=user_line(), jax=jax)
    return next(iter(sizes))


def _jax_path(path: str, positional: bool) -> str:
    """Return the path of a leaf of the arguments as JAX writes it."""
    if positional:
        return f"argument {path}"
    name, bracket, rest = path.partition("[")
    return f"kwargs['{name}']{bracket}{rest}"


def _jax_text_of_sizes(caller: str, groups: dict[Any, list[tuple[int | None, str, Any]]]) -> str:
    """Return the sentence of JAX for mapped axes of several sizes: an axis, path and type for each of a size."""
    lines = [f"{caller} got inconsistent sizes for array axes to be mapped:"]
    for i, (size, entries) in enumerate(sorted(groups.items(), key=lambda group: -len(group[1]))):
        if not entries:  # the argument `axis_size`
            continue
        axis, path, aval = entries[0]
        example = f"axis {axis} of {path} of type {aval.str_short()};"
        if len(entries) == 1:
            lines.append(f"  * one axis had size {size}: {example}")
        else:
            most = "some" if i else "most"
            lines.append(f"  * {most} axes ({len(entries)} of them) had size {size}, e.g. {example}")
    return "\n".join(lines)[:-1]


def split_batch(value: Any, axis: Axis) -> Any:
    """Reshard a replicated batch of equal results like the mapped dimensions of the arguments."""
    if axis.sharding is None:
        return value
    aval: Any = get_aval(value)
    wanted = axis.insert_into(aval.without((0,))).explicit_sharding
    return reshard(value, sharding=wanted, source=aval.explicit_sharding)


def move_batch_axis(
    fun: Callable[..., Any], value: Any, dim: int | None, wanted: int | None, axis: Axis, caller: str = "vmap"
) -> Any:
    """Move the batch dimension of a result to the axis in `out_axes`."""
    if wanted is None:
        if dim is not None:
            raise AxisSpecError(
                f"vmap of {get_name(fun)}: out_axes is None for a result that differs between elements of the batch.",
                received=get_aval(value).short(),
                fix="give the axis, or reduce the result over the batch (for example with lax.psum over a named axis)",
                at=user_line(),
                jax=f"vmap has mapped output (axis_name={axis.name}) but out_axes is None, at vmap out_axes",
            )
        return value
    if dim is None:
        value, dim = split_batch(move_batch_to_front(value, None, axis), axis), 0
    rank = len(value.shape)
    if not -rank <= wanted < rank:
        raise AxisSpecError(
            f"{caller} of {get_name(fun)}: out_axes {wanted} does not exist in a result of rank {rank}.",
            fix=f"out_axes from {-rank} to {rank - 1}; the mapped axis counts",
        )
    return move_axis(value, dim, wanted % rank)
