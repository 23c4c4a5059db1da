"""`shard_map`: run a function of the shards of arrays on every device of a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.api.flat import (
    OutTree,
    argument_paths,
    check_callable,
    check_leaves,
    flat_function,
    get_name,
    get_types,
    wraps,
)
from weft.api.shard_values import DeviceValues, is_eager
from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import Scope, config, states
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import context, manual_axes as manual_axes_in_scope
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.kinds import ManualCast
from weft.ir.types import ArrayType, get_aval, is_value
from weft.ir.varying import apply_casts, casts_to, manual_state
from weft.primitives.collectives.casts import vary_unreduced_cast
from weft.primitives.control.shard_map import check_divides, chosen, local_type, shard_map as shard_map_primitive
from weft.runtime.sharded import ShardedArray
from weft.sharding.current import current_mesh
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes, split_axes
from weft.trace.stage import stage

AnyMesh = Mesh | AbstractMesh


class Infer:
    """Default of `in_specs`: the specs of the arguments' types."""

    def __repr__(self) -> str:
        return "Infer"


INFER = Infer()


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = INFER,
    mesh: AnyMesh | None = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Run `f` on every device along axes of a mesh, on its shards of the arguments.

    `in_specs` and `out_specs` are trees of `PartitionSpec`s, prefixes of the arguments and of the result: a dimension
    is split over the axes in its entry, and values are replicated over axes in no entry. Inside, collectives such as
    `lax.psum` name these axes. `mesh` is by default that of `set_mesh`. `axis_names` are the manual axes, by default
    all of them; the compiler partitions over the others. With `check_vma` types inside have the axes along which a
    value varies: a result that varies although its spec says that it is replicated is an error, and derivatives
    communicate no more than they must. Without `f` it returns a decorator.

    Args:
        f: a function of the shards of one device.
        out_specs: how the shards of results form whole arrays.
        in_specs: how arguments are split; by default as their types say. An argument with the spec None is static and
            passed to `f` unchanged.
        mesh: the mesh; by default the one that is set.
        axis_names: the axes that are Manual inside; all by default.
        check_vma: whether types track the axes along which values vary, so that wrong `out_specs` raise.

    Returns:
        A function of whole arrays.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> total = weft.shard_map(lambda x: weft.lax.psum(x.sum(), "data"), mesh=mesh, in_specs=P("data"), out_specs=P())
    >>> total(wnp.arange(4.0))
    Array(6., dtype=float32)
    """
    options: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
    if f is None:
        return functools.partial(shard_map, axis_names=axis_names, check_vma=check_vma, **options)
    check_callable(f, "shard_map")
    function = f

    @boundary
    @wraps(function)
    def function_of_arrays(*args: Any, **kwargs: Any) -> Any:
        where = mesh if mesh is not None else current_mesh("shard_map", "mesh=mesh")
        if not isinstance(where, AnyMesh):
            raise ArgumentTypeError("shard_map: mesh must be a mesh.", received=described(where), fix="mesh=mesh")
        check_mesh_around(where)
        manual = manual_axes_from(where, axis_names)
        leaves, in_tree = tree.flatten((args, kwargs))
        found = argument_specs(function, in_specs, args, kwargs, leaves, manual)
        is_mapped = [spec is not None for spec in found]
        static = [leaf for leaf, m in zip(leaves, is_mapped, strict=True) if not m]
        arrays = [leaf if m else 0 for leaf, m in zip(leaves, is_mapped, strict=True)]
        check_leaves(function, "shard_map", arrays, args, kwargs)
        paths = chosen(argument_paths(function, args, kwargs), is_mapped)
        leaves = list(chosen(leaves, is_mapped))
        specs = [spec for spec in found if spec is not None]
        check_same_mesh(function, where, leaves, paths)
        types = get_types(leaves)
        check_specs("in_specs", specs, where, manual, check_vma)
        if not manual:  # all axes are manual already
            return function(*args, **kwargs)
        local = []
        for path, aval, spec in zip(paths, types, specs, strict=True):
            if not isinstance(aval, ArrayType):
                what = f"The arguments of shard_map of {get_name(function)} must be arrays."
                raise ArgumentTypeError(what, received=f"{path}: {aval}")
            check_divides(aval, spec, where)
            check_own_split(function, path, aval, spec, manual)
            local.append(local_type(aval, spec, where, manual, check_vma))
        out = OutTree()
        sizes = {a: where.shape[a] for a in where.axis_names if a in manual}
        flat = flat_function(function, in_tree, out)

        def body(*parts: Any) -> list[Any]:
            split, whole = iter(parts), iter(static)
            results = flat(*(next(split if m else whole) for m in is_mapped))
            if not check_vma:
                return results
            found = result_specs(function, out_specs, out.treedef)
            return [vary_as(r, s, manual) for r, s in zip(results, found, strict=True)]

        observer = None
        if is_eager(leaves) and isinstance(where, Mesh) and not (context.device_axes or where.is_multi_process):

            def run(observed: Callable[..., Any]) -> Any:
                axes = tuple(a for a in where.axis_names if a in manual)
                options: dict[str, Any] = {"mesh": where, "axis_names": manual, "check_vma": check_vma}
                return shard_map(observed, in_specs=tuple(specs), out_specs=PartitionSpec(axes), **options)(*leaves)

            observer = DeviceValues(where, manual, check_vma, run)
        with manual_axes_in_scope(sizes, check_vma), Scope(states["mesh"], mesh_inside(where, manual)):
            jaxpr, constants = stage(
                body,
                local,
                where=f"{get_name(function)}, shard_map at {user_line()}",
                names=paths,
                name=get_name(function),
                observer=observer,
            )
        out_leaves = result_specs(function, out_specs, out.treedef)
        check_specs("out_specs", out_leaves, where, manual, check_vma)
        check_results_fit(function, jaxpr, out_leaves, out.treedef)
        if check_vma:
            check_varying(function, jaxpr, out_leaves, manual, out.treedef, list(zip(paths, specs, strict=True)))
        results = shard_map_primitive(
            *constants,
            *leaves,
            jaxpr=constants_to_arguments(jaxpr),
            mesh=where,
            in_specs=(PartitionSpec(),) * len(constants) + tuple(specs),
            out_specs=tuple(out_leaves),
            manual_axes=manual,
            check_vma=check_vma,
        )
        return tree.unflatten(out.treedef, results)

    return function_of_arrays


def manual_axes_from(mesh: AnyMesh, axis_names: Any) -> frozenset[Any]:
    """Return the manual axes: those passed, or all that are not manual already."""
    names = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    unknown = sorted(map(str, names - set(mesh.axis_names)))
    if unknown:
        raise ArgumentError(
            f"shard_map: axis_names has {', '.join(unknown)}, which the mesh does not have.",
            received=f"{mesh}",
            fix=f"some of {mesh.axis_names}",
        )
    taken = frozenset(mesh.manual_axes) | context.device_axes
    again = sorted(map(str, names & taken))
    if again:
        raise ArgumentError(
            f"shard_map: a shard_map around this one splits along {', '.join(again)} already.",
            received=f"axis_names={set(map(str, names))}",
            fix="axis_names of the others",
        )
    return frozenset(names or (a for a in mesh.axis_names if a not in taken))


def check_mesh_around(mesh: AnyMesh) -> None:
    """Raise unless a nested shard_map is over axes of the same mesh."""
    around = config.mesh
    if context.device_axes and around is not None and around.shape_tuple != mesh.shape_tuple:
        raise ArgumentError(
            "shard_map: inside of another shard_map, or of pmap, it must be over other axes of the same mesh.",
            received=f"{mesh} inside of {around}",
            fix="leave mesh out",
        )


def check_same_mesh(function: Callable[..., Any], mesh: AnyMesh, leaves: Sequence[Any], paths: Sequence[str]) -> None:
    """Raise unless the arguments are on devices that fit an abstract mesh."""
    if not isinstance(mesh, AbstractMesh):
        return
    if is_eager(leaves) and not context.device_axes and not isinstance(config.mesh, Mesh):
        if leaves and not any(isinstance(leaf, ShardedArray) for leaf in leaves):
            raise ArgumentError(
                f"shard_map of {get_name(function)}: an AbstractMesh has no devices, so an argument must have a"
                " NamedSharding.",
                received=", ".join(f"{path}: {described(leaf)}" for path, leaf in zip(paths, leaves, strict=True)),
                fix=("mesh= a mesh with devices", "weft.device_put(x, NamedSharding(mesh, P(...)))"),
                jax="Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` when passing"
                " `AbstractMesh` to the mesh argument.",
            )
    for leaf, path in zip(leaves, paths, strict=True):
        own = getattr(leaf.sharding, "mesh", None) if isinstance(leaf, ShardedArray) else None
        if own is not None and own.shape_tuple != mesh.shape_tuple:
            raise ArgumentError(
                f"shard_map of {get_name(function)}: Mesh shape of the input `{path}` does not match the mesh shape"
                " passed to shard_map, whose devices must be those of its arguments.",
                received=f"{leaf.sharding} for {mesh}",
                fix=("a mesh with devices", f"weft.device_put({path}, ...) onto a mesh of that shape"),
            )


def mesh_inside(mesh: AnyMesh, manual: frozenset[Any]) -> AnyMesh:
    """Return the mesh that is set inside of the body, with its manual axes marked."""
    types = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update(axis_types=[AxisType.Manual if name in manual else kind for name, kind in types])


def spec_leaf(value: Any) -> bool:
    """Return whether a value is a spec or None."""
    return value is None or isinstance(value, PartitionSpec)


def spec_prefix(what: str, specs: Any, value: Any) -> list[PartitionSpec | None]:
    """Return the spec, or None, of each leaf of a value, from a tree of specs that is a prefix of it."""
    if spec_leaf(specs):
        found: Sequence[Any] = [specs] * len(tree.leaves(value))
    else:
        found = tree.broadcast_prefix(specs, value, is_leaf=spec_leaf)
    result = []
    for spec in found:
        if not spec_leaf(spec):
            raise ArgumentTypeError(
                f"{what} must be a tree of PartitionSpecs.", received=described(spec), fix="P('x', None)"
            )
        result.append(spec)
    return result


def argument_specs(
    function: Callable[..., Any],
    in_specs: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
    manual: frozenset[Any],
) -> list[PartitionSpec | None]:
    """Return a spec for each leaf of the arguments, None for static ones; keyword arguments have the specs of their own
    types."""
    name = f"in_specs of shard_map of {get_name(function)}"
    count = len(tree.leaves(args))
    positional = count if in_specs is not INFER else 0
    own: list[PartitionSpec | None] = [manual_spec(leaf, manual) for leaf in leaves[positional:]]
    if in_specs is INFER:
        return own
    if isinstance(in_specs, (tuple, list)) and len(in_specs) != len(args):
        raise ArgumentError(
            f"{name} must have one entry for each positional argument, got {len(in_specs)} for {len(args)}.",
            received=f"{in_specs}",
            fix="one entry for each positional argument, or one spec for all",
        )
    try:
        found = spec_prefix(name, tuple(in_specs) if isinstance(in_specs, list) else in_specs, args)
    except ValueError as error:
        raise ArgumentError(f"{name} must be a prefix of the arguments.", received=str(error)) from None
    return found + own


def manual_spec(leaf: Any, manual: frozenset[Any]) -> PartitionSpec:
    """Return the manual axes of an argument's type, which must come first in each entry."""
    aval = get_aval(leaf) if is_value(leaf) else None
    if not isinstance(aval, ArrayType):
        return PartitionSpec()
    entries = []
    spec = aval.spec
    for axes in map(entry_axes, spec.partitions):
        own = tuple(a for a in axes if a in manual)
        if own != axes[: len(own)]:
            raise ArgumentError(
                "shard_map: without in_specs, manual axes must be the first ones of a dimension.",
                received=f"{spec} for axis_names={set(map(str, manual))}",
                fix="reshard the argument, with the manual axes first",
            )
        entries.append(own)
    return spec.update(partitions=tuple(entries))


def result_specs(function: Callable[..., Any], out_specs: Any, out_tree: Any) -> list[PartitionSpec]:
    """Return a spec for each leaf of the result."""
    name = f"out_specs of shard_map of {get_name(function)}"
    try:
        found = spec_prefix(name, out_specs, tree.unflatten(out_tree, [0] * out_tree.num_leaves))
        return [PartitionSpec() if spec is None else spec for spec in found]
    except ValueError as error:
        raise ArgumentError(f"{name} must be a prefix of the result.", received=str(error)) from None


def vary_as(value: Any, spec: PartitionSpec, manual: frozenset[Any]) -> Any:
    """Cast a result to varying along the axes of its spec, so that its cotangent has the type that the transposed body
    takes, and to unreduced and reduced along the spec's unreduced and reduced axes."""
    axes = manual.intersection(split_axes(spec.partitions))
    value = apply_casts(value, casts_to(manual_state(get_aval(value)), axes, frozenset()))
    terms = tuple(sorted(spec.unreduced & manual_state(get_aval(value)).varying, key=str))
    value = vary_unreduced_cast(value, axes=terms) if terms else value
    alike = spec.reduced - manual_state(get_aval(value)).vur
    return apply_casts(value, casts_to(manual_state(get_aval(value)), frozenset(), alike)) if alike else value


def check_specs(
    what: str, specs: Sequence[PartitionSpec], mesh: AnyMesh, manual: frozenset[Any], check_vma: bool
) -> None:
    """Raise unless specs name manual axes of the mesh, each once, and their unreduced and reduced axes are Explicit
    outside."""
    for spec in specs:
        named = (*split_axes(spec.partitions), *spec.unreduced, *spec.reduced)
        wrong = sorted(map(str, (spec.unreduced | spec.reduced) - set(mesh.explicit_axes)))
        if wrong or ((spec.unreduced or spec.reduced) and not check_vma):
            raise ArgumentError(
                f"shard_map: {what} can be unreduced and reduced only over Explicit axes, with check_vma.",
                received=f"{spec} on {mesh}, check_vma={check_vma}",
                fix=(
                    "axis_types=(AxisType.Explicit,) of the mesh",
                    "lax.psum of what is unreduced, inside",
                    "lax.pcast(x, axis, to='reduced') inside",
                ),
            )
        for axis in named:
            if axis not in manual:
                why = "is not one of axis_names" if axis in mesh.axis_names else "is not an axis of the mesh"
                why = "a shard_map around this one splits along already" if axis in context.device_axes else why
                raise ArgumentError(
                    f"shard_map: {what} cannot name {axis!r}, which {why}.",
                    received=f"{spec} on {mesh}",
                    fix=f"axes of {tuple(a for a in mesh.axis_names if a in manual)}",
                )
            if named.count(axis) > 1:
                raise ArgumentError(f"shard_map: {what} names {axis!r} twice.", received=f"{spec}", fix="name it once")
        if any(entry is UNCONSTRAINED for entry in spec.partitions):
            raise ArgumentError(f"shard_map: {what} must have no UNCONSTRAINED entries.", received=f"{spec}")


def check_own_split(
    function: Callable[..., Any], path: str, aval: ArrayType, spec: PartitionSpec, manual: frozenset[Any]
) -> None:
    """Raise unless an argument whose type is split over manual axes is split as `in_specs` say: shard_map never
    reshards."""
    if aval.explicit_sharding is None and not (spec.unreduced or spec.reduced):
        return
    for state in ("unreduced", "reduced"):
        said, typed = getattr(spec, state), getattr(aval.spec, state) & manual
        if said != typed:
            raise ArgumentError(
                f"shard_map of {get_name(function)}: `{path}` must be {state} as in_specs say.",
                received=f"{aval.short()} for {spec}",
                fix=f"{state}={set(typed) or '()'} in the spec, or weft.reshard({path}, {spec})",
            )
    own = [tuple(a for a in entry_axes(e) if a in manual) for e in aval.spec.partitions]
    wanted = [entry_axes(spec[i]) if i < len(spec) else () for i in range(aval.ndim)]
    if any(own) and own != wanted:
        raise ArgumentError(
            f"shard_map of {get_name(function)}: `{path}` is split otherwise than in_specs say.",
            received=f"{aval.short()} for {spec}",
            fix=(
                f"weft.reshard({path}, {spec})",
                "shard_map without in_specs, which takes arguments as they are split",
            ),
        )


def check_results_fit(
    function: Callable[..., Any], jaxpr: Jaxpr, specs: Sequence[PartitionSpec], out_tree: Any
) -> None:
    """Raise if a spec has more entries than a result has dimensions."""
    for i, (v, spec) in enumerate(zip(jaxpr.outvars, specs, strict=True)):
        aval: Any = v.aval
        if len(spec) > aval.ndim:
            raise ArgumentError(
                f"shard_map of {get_name(function)}: out_specs has {len(spec)} entries for {result_name(out_tree, i)},"
                f" of rank {aval.ndim}.",
                received=f"{spec} for {aval.short()}",
                fix=(
                    "at most one entry for each dimension",
                    "x[None] inside, to put what the devices have together along a new dimension",
                ),
            )


def result_name(out_tree: Any, i: int) -> str:
    """Return the name of a leaf of the result."""
    paths = [p for p, _ in tree.leaves_with_path(tree.unflatten(out_tree, range(out_tree.num_leaves)))]
    return f"result{tree.keystr(paths[i])}" if paths[i] else "the result"


def check_varying(
    function: Callable[..., Any],
    jaxpr: Jaxpr,
    specs: Sequence[PartitionSpec],
    manual: frozenset[Any],
    out_tree: Any,
    arguments: Sequence[tuple[str, PartitionSpec]],
) -> None:
    """Raise if the type of a result varies along an axis that its spec does not name. `arguments` are the names and
    specs of the arguments."""
    for i, (v, spec) in enumerate(zip(jaxpr.outvars, specs, strict=True)):
        aval: Any = v.aval
        named = {*split_axes(spec.partitions), *spec.unreduced}
        extra = sorted(((aval.vma | aval.manual.unreduced) & manual) - named, key=str)
        check_state(function, aval, spec, result_name(out_tree, i))
        if extra:
            axes = extra[0] if len(extra) == 1 else tuple(extra)
            raise ArgumentError(
                f"shard_map of {get_name(function)}: {result_name(out_tree, i)} is to be the same on all devices along "
                f"{axes!r}, but it varies along {'it' if len(extra) == 1 else 'them'}."
                f"{where_from(jaxpr, v, extra, arguments)}",
                received=(
                    f"{aval.short()} for out_specs that require replication, which is not statically inferred:"
                    f" out_specs is {spec} which implies that the output value is only varying across mesh axes"
                    f" {_axes_text(named)} and not {_axes_text(extra)}, but it was inferred to be possibly"
                    f" varying over {_axes_text(aval.vma | aval.manual.unreduced)}"
                ),
                fix=(
                    f"lax.psum(x, {axes!r}) or lax.pmean(x, {axes!r})   to combine what the devices have",
                    f"P({axes!r}) in out_specs   to put the parts of the devices together",
                    "check_vma=False   if you know that it is the same",
                ),
            )


def _axes_text(axes: Iterable[Any]) -> str:
    """Return a set of axes as text: `{x,y}`."""
    return f"{{{','.join(sorted(map(str, axes)))}}}"


def check_state(function: Callable[..., Any], aval: Any, spec: PartitionSpec, name: str) -> None:
    """Raise unless a result is unreduced and reduced along the axes of its spec."""
    for state in ("unreduced", "reduced"):
        wrong = sorted(getattr(spec, state) - getattr(aval.manual, state), key=str)
        if wrong:
            raise ArgumentError(
                f"shard_map of {get_name(function)}: {name} must be {state} along {wrong[0]!r}, as out_specs say.",
                received=f"{aval.short()} for out_specs {spec}",
                fix=f"lax.pcast(x, {wrong[0]!r}, to={state!r})   for what {STATES[state]}",
            )


# Values that can be cast to a state.
STATES = {"unreduced": "differs between devices", "reduced": "is the same on all devices"}


def where_from(jaxpr: Jaxpr, result: Any, axes: Sequence[Any], arguments: Sequence[tuple[str, PartitionSpec]]) -> str:
    """Describe why a result varies: the line of the first operation on its path whose operands do not, or the arguments
    that are split and the first line that reads one."""
    defining = {v: e for e in jaxpr.eqns for v in e.outvars}
    split = dict(zip(jaxpr.invars, arguments, strict=True))
    seen: set[Any] = set()
    waiting = [result]
    while waiting:
        v = waiting.pop()
        equation = defining.get(v)
        if v in seen or (equation is not None and isinstance(equation.primitive, ManualCast)):
            continue
        seen.add(v)
        if equation is None:
            continue
        varying = [a for a in equation.invars if set(axes) & getattr(a.aval, "vma", frozenset())]
        if not varying and equation.source is not None:
            return f" It varies from {equation.source.describe()} on ({equation.primitive.name})."
        waiting.extend(varying)
    found = {v: split[v] for v in jaxpr.invars if v in seen}
    if not found:
        return ""
    texts = ", ".join(f"`{path}` ({spec})" for path, spec in found.values())
    first = next((e for e in jaxpr.eqns if any(a in found for a in e.invars) and seen.intersection(e.outvars)), None)
    line = f", from {first.source.describe()} on ({first.primitive.name})" if first is not None and first.source else ""
    return f" It depends on {texts}, which {'are' if len(found) > 1 else 'is'} split{line}."


def smap(f: Callable[..., Any] | None = None, /, *, in_axes: Any = INFER, out_axes: Any, axis_name: Any) -> Any:
    """Apply `shard_map` over one axis of the mesh that is set, with dimensions named as for `vmap`.

    `in_axes` is the dimension of each argument that is split over `axis_name` (None: it is replicated), as a tree that
    is a prefix of the arguments; by default it is taken from their types, over an Explicit axis. `out_axes` is the
    dimension of the results that is split. The compiler partitions over the other axes of the mesh. Without `f` it
    returns a decorator.

    >>> import weft, weft.numpy as np
    >>> with weft.set_mesh(weft.make_mesh((1,), ("x",), axis_types=(weft.sharding.AxisType.Auto,))):
    ...     total = weft.smap(lambda v: weft.lax.psum(v, "x"), in_axes=0, out_axes=None, axis_name="x")
    ...     print(total(np.arange(3.0)))
    [0. 1. 2.]
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    check_callable(f, "smap")
    function = f
    is_axis = lambda axis: axis is None or isinstance(axis, int)

    def spec(axis: int | None, ndim: int | None = None) -> PartitionSpec:
        if axis is None:
            return PartitionSpec()
        if axis < 0:
            if ndim is None:
                what = "smap: out_axes must not be negative."
                raise ArgumentError(what, received=f"out_axes={out_axes!r}", fix="an integer of at least 0")
            axis += ndim
        return PartitionSpec(*[None] * axis, axis_name)

    out_specs = tree.map(spec, out_axes, is_leaf=is_axis)

    @boundary
    @wraps(function)
    def function_of_arrays(*args: Any) -> Any:
        in_specs = INFER
        if in_axes is not INFER:
            leaves, structure = tree.flatten(args)
            prefix = in_axes if is_axis(in_axes) else tuple(in_axes)
            axes = tree.broadcast_prefix(prefix, args, is_leaf=is_axis)
            specs = [spec(axis, np.ndim(leaf)) for axis, leaf in zip(axes, leaves, strict=True)]
            in_specs = tree.unflatten(structure, specs)
        called = shard_map(function, in_specs=in_specs, out_specs=out_specs, axis_names={axis_name})
        return called(*args)

    return function_of_arrays
