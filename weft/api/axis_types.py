"""`auto_axes` and `explicit_axes`: change the types of mesh axes inside of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.api.flat import check_callable, get_name, wraps
from weft.api.shardings import check_sharding, is_sharding, with_all_entries
from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import Scope, config, states
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.types import get_aval
from weft.primitives.movement.sharding_constraint import reshard
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec
from weft.trace.array import Array

AnyMesh = Mesh | AbstractMesh


def auto_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, out_sharding: Any = None
) -> Callable[..., Any]:
    """Make mesh axes Auto inside of a function: the compiler decides how values are split over them, and types do not
    say it.

    Args:
        f: a function of arrays; without it, return a decorator.
        axes: a name of an axis or several; all axes by default.
        out_sharding: the shardings of the results: a PartitionSpec, or a tree of them that is a prefix of the result.
            It may be passed at the call instead.

    Returns:
        A function of the same arguments.
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    check_callable(f, "auto_axes")
    function = f

    @boundary
    @wraps(function)
    def with_auto_axes(*args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.pop("out_sharding", out_sharding)
        if wanted is None:
            raise ArgumentTypeError(
                f"auto_axes of {get_name(function)} needs out_sharding: outside, types say how its results are split.",
                fix="auto_axes(f, out_sharding=P('x')), or out_sharding=P('x') at the call",
                at=user_line(),
            )
        mesh = find_mesh("auto_axes", (args, kwargs))
        inside = with_types(mesh, axes, AxisType.Auto, "auto_axes")
        args, kwargs = tree.map(lambda x: on_mesh(x, inside), (args, kwargs))
        with Scope(states["mesh"], inside):
            result = function(*args, **kwargs)
        return reshard_tree(result, wanted, mesh, f"auto_axes of {get_name(function)}", "out_sharding")

    return with_auto_axes


def explicit_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Callable[..., Any]:
    """Make mesh axes Explicit inside of a function: types say how values are split over them.

    Args:
        f: a function of arrays; without it, return a decorator.
        axes: a name of an axis or several; all axes by default.
        in_sharding: the shardings of the arguments: a PartitionSpec, or a tree of them that is a prefix of the
            positional arguments. It may be passed at the call instead.

    Returns:
        A function of the same arguments.
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    check_callable(f, "explicit_axes")
    function = f

    @boundary
    @wraps(function)
    def with_explicit_axes(*args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.pop("in_sharding", in_sharding)
        if wanted is None:
            raise ArgumentTypeError(
                f"explicit_axes of {get_name(function)} needs in_sharding: types say how its arguments are split.",
                fix="explicit_axes(f, in_sharding=P('x')), or in_sharding=P('x') at the call",
                at=user_line(),
            )
        mesh = find_mesh("explicit_axes", (args, kwargs))
        inside = with_types(mesh, axes, AxisType.Explicit, "explicit_axes")
        where = wanted if is_sharding(wanted) or not isinstance(wanted, list) else tuple(wanted)
        args = reshard_tree(args, where, inside, f"explicit_axes of {get_name(function)}", "in_sharding")
        with Scope(states["mesh"], inside):
            result = function(*args, **kwargs)
        return tree.map(lambda x: on_mesh(x, mesh), result)

    return with_explicit_axes


def find_mesh(caller: str, values: Any) -> AnyMesh:
    """Return the mesh that is set, or else the mesh of the first sharded value."""
    if config.mesh is not None:
        found: AnyMesh = config.mesh
        return found
    for x in tree.leaves(values):
        sharding = getattr(x, "sharding", None) if isinstance(x, Array) else None
        if isinstance(sharding, NamedSharding):
            return sharding.mesh
    raise ArgumentError(f"{caller} needs a mesh.", fix="with weft.set_mesh(mesh): around the call", at=user_line())


def with_types(mesh: AnyMesh, axes: Any, kind: AxisType, caller: str) -> AnyMesh:
    """Return the mesh with the named axes, or all of them, changed to a type."""
    names = mesh.axis_names if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    unknown = [n for n in names if n not in mesh.axis_names]
    if unknown:
        what = f"{caller}: axes names {unknown[0]!r}, which the mesh does not have."
        raise ArgumentError(what, received=str(mesh), fix=f"some of {mesh.axis_names}", at=user_line())
    own = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update(axis_types=tuple(kind if n in names else t for n, t in own))


def on_mesh(x: Any, mesh: AnyMesh) -> Any:
    """Return a value with the same sharding on a mesh whose axes have other types."""
    if not isinstance(x, Array):
        return x
    aval: Any = get_aval(x)
    sharding = aval.explicit_sharding if aval.explicit_sharding is not None else getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_types == mesh.axis_types:
        return x
    return reshard(x, sharding=NamedSharding(mesh, sharding.spec), source=aval.explicit_sharding)


def reshard_tree(values: Any, shardings: Any, mesh: AnyMesh, caller: str, word: str) -> Any:
    """Reshard a tree of values over a mesh to a tree of specs, which then are part of their types."""
    leaves, structure = tree.flatten(values)
    if is_sharding(shardings):
        wanted = [shardings] * len(leaves)
    else:
        try:
            wanted = tree.broadcast_prefix(shardings, values, is_leaf=is_sharding)
        except ValueError as error:
            raise ArgumentError(f"{caller}: {word} must be a prefix of the values.", received=str(error)) from None
    results = []
    for leaf, one in zip(leaves, wanted, strict=True):
        spec = one.spec if isinstance(one, NamedSharding) else one
        if not isinstance(spec, PartitionSpec):
            raise ArgumentTypeError(
                f"{caller}: {word} must be a tree of PartitionSpecs.", received=repr(one), fix="P('x')"
            )
        sharding = NamedSharding(mesh, spec)
        aval: Any = get_aval(leaf)
        check_sharding(sharding, aval.shape, f"{caller}: {aval.short()}")
        results.append(reshard(leaf, sharding=with_all_entries(sharding, aval.ndim), source=aval.explicit_sharding))
    return tree.unflatten(structure, results)
