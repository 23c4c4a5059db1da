"""`auto_axes` and `explicit_axes`: functions inside of which axes of a mesh are Auto, or Explicit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.api.flat import check_callable, name_of, wraps
from weft.api.shardings import checked, is_sharding, with_all_entries
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
    """A function inside of which `axes` (a name or several; all by default) of the mesh are Auto: types do not say how
    values are split over them, the compiler decides. `out_sharding` says how its results are split, a PartitionSpec or
    a tree of them that is a prefix of the result; it may be given at the call instead. Without `f` it returns a
    decorator."""
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
                f"auto_axes of {name_of(function)} needs out_sharding: outside, types say how its results are split.",
                fix="auto_axes(f, out_sharding=P('x')), or out_sharding=P('x') at the call",
                at=user_line(),
            )
        mesh = mesh_of("auto_axes", (args, kwargs))
        inside = with_types(mesh, axes, AxisType.Auto, "auto_axes")
        args, kwargs = tree.map(lambda x: on_mesh(x, inside), (args, kwargs))
        with Scope(states["mesh"], inside):
            result = function(*args, **kwargs)
        return resharded_tree(result, wanted, mesh, f"auto_axes of {name_of(function)}", "out_sharding")

    return with_auto_axes


def explicit_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Callable[..., Any]:
    """A function inside of which `axes` (a name or several; all by default) of the mesh are Explicit: types say how
    values are split over them. `in_sharding` says how its arguments are, a PartitionSpec or a tree of them that is a
    prefix of the positional arguments; it may be given at the call instead. Without `f` it returns a decorator."""
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
                f"explicit_axes of {name_of(function)} needs in_sharding: types say how its arguments are split.",
                fix="explicit_axes(f, in_sharding=P('x')), or in_sharding=P('x') at the call",
                at=user_line(),
            )
        mesh = mesh_of("explicit_axes", (args, kwargs))
        inside = with_types(mesh, axes, AxisType.Explicit, "explicit_axes")
        where = wanted if is_sharding(wanted) or not isinstance(wanted, list) else tuple(wanted)
        args = resharded_tree(args, where, inside, f"explicit_axes of {name_of(function)}", "in_sharding")
        with Scope(states["mesh"], inside):
            result = function(*args, **kwargs)
        return tree.map(lambda x: on_mesh(x, mesh), result)

    return with_explicit_axes


def mesh_of(caller: str, values: Any) -> AnyMesh:
    """The mesh that is set, or that a type or a sharding among values names."""
    if config.mesh is not None:
        found: AnyMesh = config.mesh
        return found
    for x in tree.leaves(values):
        sharding = getattr(x, "sharding", None) if isinstance(x, Array) else None
        if isinstance(sharding, NamedSharding):
            return sharding.mesh
    raise ArgumentError(f"{caller} needs a mesh.", fix="with weft.set_mesh(mesh): around the call", at=user_line())


def with_types(mesh: AnyMesh, axes: Any, kind: AxisType, caller: str) -> AnyMesh:
    """The mesh where the axes named, or all, are of a kind."""
    names = mesh.axis_names if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    unknown = [n for n in names if n not in mesh.axis_names]
    if unknown:
        what = f"{caller}: axes names {unknown[0]!r}, which the mesh does not have."
        raise ArgumentError(what, received=str(mesh), fix=f"some of {mesh.axis_names}", at=user_line())
    own = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update(axis_types=tuple(kind if n in names else t for n, t in own))


def on_mesh(x: Any, mesh: AnyMesh) -> Any:
    """A value split as it is, on a mesh with the same axes of other kinds."""
    if not isinstance(x, Array):
        return x
    aval: Any = get_aval(x)
    sharding = aval.explicit_sharding if aval.explicit_sharding is not None else getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_types == mesh.axis_types:
        return x
    return reshard(x, sharding=NamedSharding(mesh, sharding.spec), source=aval.explicit_sharding)


def resharded_tree(values: Any, shardings: Any, mesh: AnyMesh, caller: str, word: str) -> Any:
    """Values whose types say that they are split over a mesh as a tree of specs says."""
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
            raise ArgumentTypeError(f"{caller}: {word} is a tree of PartitionSpecs.", received=repr(one), fix="P('x')")
        sharding = NamedSharding(mesh, spec)
        aval: Any = get_aval(leaf)
        checked(sharding, aval.shape, f"{caller}: {aval.short()}")
        results.append(reshard(leaf, sharding=with_all_entries(sharding, aval.ndim), source=aval.explicit_sharding))
    return tree.unflatten(structure, results)
