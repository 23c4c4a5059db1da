"""`pmap`: map a function over an axis of its arguments, with each element on a device of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.flat import (
    OutTree,
    argument_paths,
    as_tuple,
    check_callable,
    check_leaves,
    flat_function,
    get_name,
    wraps,
)
from weft.api.jit import jit
from weft.api.shard_map import shard_map
from weft.api.vectorize import (
    argument_axes,
    check_axes,
    get_axis_size,
    move_batch_axis,
    normalize_axis,
    result_axes,
    vmap,
)
from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.primitive import Axis
from weft.primitives.movement.shape import move_batch_to_front, reshape
from weft.runtime.device import devices as all_devices
from weft.sharding.device import Device
from weft.sharding.mesh import AxisType, Mesh
from weft.sharding.spec import PartitionSpec

UNNAMED = "devices"  # the axis of a mesh that collectives do not name


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Any:
    """Map `fun` over axes of its arguments as `vmap` does, with each element on a device of its own.

    `in_axes` and `out_axes` are those of `vmap`; a result with None in `out_axes` is that of the first device. Inside,
    collectives over `axis_name` communicate between devices. `devices` are by default the first ones there are (of
    `backend`, if that is given), as many as there are elements. Arguments in `static_broadcasted_argnums` are compared
    as static arguments of `jit` are, and those in `donate_argnums` give their buffers to the call. A `pmap` inside of
    another one has an axis more, and takes a device for each pair of elements. `jit` of a `shard_map` over a mesh of
    one axis does the same, and more.

    Args:
        fun: a function of arrays.
        axis_name: the name by which collectives inside refer to the axis.
        in_axes, out_axes: the mapped axis of each argument and result, as for `vmap`.
        static_broadcasted_argnums: positions of arguments that are Python values.
        devices: the devices, one for each element.
        backend: a platform such as "cpu" or "gpu"; the default one if None.
        axis_size: the number of elements, where no argument has the axis.
        donate_argnums: arguments whose memory the results may take.

    Returns:
        A function of arrays with the mapped axis.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.pmap(lambda x: x + weft.lax.axis_index("i"), axis_name="i")(wnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    check_callable(fun, "pmap")
    in_axes = check_axes(fun, in_axes, out_axes, "pmap")
    static = as_tuple(static_broadcasted_argnums)
    if devices is not None:
        wrong = [d for d in devices if not isinstance(d, Device)]
        if wrong or not devices:
            received = described(wrong[0]) if wrong else "none"
            raise ArgumentTypeError(
                "pmap: devices must be a list of devices.", received=received, fix="weft.devices()[:2]"
            )

    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        if any(i >= len(args) for i in static):
            what = f"pmap of {get_name(fun)}: the arguments in static_broadcasted_argnums must be passed by position."
            raise ArgumentError(
                what,
                received=f"{len(args)} positional arguments and static_broadcasted_argnums={static}",
                at=user_line(),
                jax=f"pmapped function has static_broadcasted_argnums={static} but was called with only {len(args)} "
                f"positional argument{'s' if len(args) != 1 else ''}. All static broadcasted arguments must be passed "
                "positionally.",
            )
        held = {i % len(args) for i in static if -len(args) <= i < len(args)}
        dynamic = tuple(a for i, a in enumerate(args) if i not in held)
        axes = in_axes
        if isinstance(in_axes, tuple) and len(in_axes) == len(args):
            axes = tuple(a for i, a in enumerate(in_axes) if i not in held)

        @wraps(fun)
        def one(*own: Any, **named: Any) -> Any:
            values = iter(own)
            return fun(*(a if i in held else next(values) for i, a in enumerate(args)), **named)

        return run(one, axes, dynamic, kwargs)

    def run(one: Callable[..., Any], axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        check_leaves(one, "pmap", leaves, args, kwargs)
        found = argument_axes(one, axes, args, kwargs, "pmap")
        path = lambda i: argument_paths(one, args, kwargs)[i]
        dims = [normalize_axis(one, a, x, i, path, "pmap") for i, (a, x) in enumerate(zip(found, leaves, strict=True))]
        size = get_axis_size(one, found, dims, leaves, path, axis_size, "pmap", len(tree.leaves(args)))
        around = math.prod(context.axes[a] for a in context.device_axes)
        taken = select_devices(fun, size, around, devices, backend)
        if context.device_axes:  # the device axes around take the devices: there is one for each pair
            return vmap(one, axes, out_axes, axis_name, size)(*args, **kwargs)
        name = UNNAMED if axis_name is None else axis_name
        out = OutTree()
        local = flat_function(one, in_tree, out)
        wanted: list[int | None] = []

        def body(*parts: Any) -> Any:
            results = local(*(x if d is None else without(x, d) for x, d in zip(parts, dims, strict=True)))
            wanted[:] = result_axes(one, out_axes, out.treedef, "pmap")
            stacked = [move_batch_to_front(x, None, Axis(1)) for x in own(results, True)]
            return stacked, own(results, False)

        def own(results: Sequence[Any], split: bool) -> list[Any]:
            return [x for x, w in zip(results, wanted, strict=True) if (w is not None) == split]

        mesh = Mesh(np.array(taken, object), (name,), (AxisType.Auto,))
        specs = tuple(PartitionSpec() if d is None else PartitionSpec(*[None] * d, name) for d in dims)
        split = shard_map(
            body, mesh=mesh, in_specs=specs, out_specs=(PartitionSpec(name), PartitionSpec()), check_vma=False
        )
        parts, shared = split(*leaves)
        each, whole = iter(parts), iter(shared)
        moved = lambda x, w: move_batch_axis(fun, x, 0, w, Axis(size), "pmap")
        results = [next(whole) if w is None else moved(next(each), w) for w in wanted]
        return tree.unflatten(out.treedef, results)

    return jit(function, static_argnums=static, donate_argnums=as_tuple(donate_argnums))


def select_devices(
    fun: Callable[..., Any], size: int, around: int, devices: Sequence[Device] | None, backend: str | None
) -> list[Device]:
    """Return the devices of the elements; raise if there are too few, counting the maps around."""
    there = list(all_devices(backend) if devices is None else devices)
    if len(there) < size * around or (devices is not None and len(there) != size):
        nested = f", inside of maps over {around}," if around > 1 else ""
        rows = -(-size // max(len(there), 1))
        shape = f"({len(there)}, {rows}, ...)"
        pad = "" if size == rows * len(there) else f", padded to {rows * len(there)} elements"
        several = (
            (f"arguments of shape {shape}{pad}, and vmap inside",) if around == 1 and size > len(there) > 0 else ()
        )
        raise ArgumentError(
            f"pmap of {get_name(fun)} over {size} elements{nested} needs {size * around} devices.",
            received=f"{len(there)} devices",
            fix=(
                "weft.config.update('num_cpu_devices', n)   right after `import weft`",
                "vmap, which maps on one device",
                *several,
            ),
        )
    return there[:size]


def without(x: Any, dim: int) -> Any:
    """Remove the mapped dimension of a shard, which has size 1."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:dim], *shape[dim + 1 :]), dimensions=None)
