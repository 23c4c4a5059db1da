"""Lifted transformations that call their function once: jit, remat, vmap, map_variables and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.linen.transforms.core import Target, fingerprint, lift_transform
from weft.modules import metadata
from weft.modules.filters import Filter, group, union
from weft.modules.lift import Lift
from weft.modules.scope import Call


def plain(target: Target, lift: Lift, mutable: Filter = True) -> Callable[..., Any]:
    """Return the target as a function of groups of variables and keys, which also returns the written groups."""

    def inner(groups: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        call = lift.inside(groups, keys, mutable)
        result = target.call(call, args, kwargs)
        return result, lift.collect(call, (True,))

    return inner


def _shift_argnums(argnums: Any) -> Any:
    """Convert argument numbers for the inner function, which has groups and keys but no module."""
    if isinstance(argnums, int):
        return argnums + 1
    return tuple(i + 1 for i in argnums)


# ------------------------------------------------------------------------------------------------------ remat and jit


def checkpoint(
    target: Any,
    variables: Filter = True,
    rngs: Filter = True,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: int | Sequence[int] = (),
    policy: Callable[..., Any] | None = None,
    methods: Any = None,
) -> Any:
    """Rematerialise: save only what `policy` allows for the backward pass, and recompute the rest there.

    `static_argnums` count the module itself as 0.

    Args:
        target: a module class, a module or a function of one.
        variables: the collections that the module may use.
        rngs: the streams of keys that it may use.
        concrete: accepted for compatibility.
        prevent_cse: whether to prevent common subexpression elimination between both computations.
        static_argnums: arguments that are Python values; the module is 0.
        policy: the results to save.
        methods: the methods to transform, by default `__call__`.

    Returns:
        A class, module or function like `target`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.remat(linen.Dense)(2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3)))
    >>> y.shape
    (1, 2)
    """
    return lift_transform(
        _run_checkpoint,
        "remat",
        target,
        methods,
        variables=variables,
        rngs=rngs,
        prevent_cse=prevent_cse,
        static_argnums=static_argnums,
        policy=policy,
    )


remat = checkpoint


def _run_checkpoint(
    target: Target, variables: Any, rngs: Any, prevent_cse: Any, static_argnums: Any, policy: Any
) -> Any:
    lift = target.lift([variables], [rngs])
    with lift.running():
        run = weft.checkpoint(
            plain(target, lift, variables),
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=_shift_argnums(static_argnums),
        )
        result, written = run(lift.variables, lift.rngs, *target.args, **target.kwargs)
    lift.put_back(written)
    target.finish()
    return result


def jit(
    target: Any,
    variables: Filter = True,
    rngs: Filter = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    device: Any = None,
    backend: str | None = None,
    methods: Any = None,
) -> Any:
    """Compile a module by itself, so that equal uses share one trace.

    `static_argnums` and `donate_argnums` count the module itself as 0.
    """
    cache: dict[Any, Any] = {}
    return lift_transform(
        _run_jit,
        "jit",
        target,
        methods,
        variables=variables,
        rngs=rngs,
        options={
            "static_argnums": _shift_argnums(static_argnums),
            "static_argnames": static_argnames,
            "donate_argnums": _shift_argnums(donate_argnums),
        },
        cache=cache,
    )


def _run_jit(target: Target, variables: Any, rngs: Any, options: Any, cache: dict[Any, Any]) -> Any:
    if all(module.scope is None for module in target.modules):
        return _run_unbound(target, options, cache)
    lift = target.lift([variables], [rngs])
    lift.fork_keys()
    key = _fingerprint(target, lift)
    with lift.running():
        if key is None or key not in cache:
            # The cached lift gets an empty copy of the call, so that the cache does not keep its arrays alive.
            outer, lift.call = lift.call, _without_values(lift.call)
            run = weft.jit(plain(target, lift, variables), **options)
            groups, keys, lift.variables, lift.rngs = lift.variables, lift.rngs, (), ()
            args, kwargs, target.args, target.kwargs = target.args, target.kwargs, (), {}
            result, written = run(groups, keys, *args, **kwargs)
            if key is not None:
                counts = [(lift.relative(path), stream, n) for (path, stream), n in lift.call.counters.items()]
                cache[key] = (run, [count for count in counts if count[0] is not None], target.names_inside())
            lift = _twin(lift, outer)
        else:
            run, counts, names = cache[key]
            result, written = run(lift.variables, lift.rngs, *target.args, **target.kwargs)
            for path, stream, count in counts:
                lift.call.counters[lift.absolute(path), stream] = count
            target.take_names(names)
    lift.put_back(written)
    target.finish()
    return result


def _run_unbound(target: Target, options: dict[str, Any], cache: dict[Any, Any]) -> Any:
    """Run a method of unbound modules, as a function of its other arguments."""
    key = fingerprint([target.modules, target.first], lambda path: path)
    try:
        run = cache.get(key)
    except TypeError:  # a field that is not hashable
        key, run = None, None
    if run is None:
        inner = lambda groups, keys, *args, **kwargs: target.call(None, args, kwargs)
        run = weft.jit(inner, **options)
        if key is not None:
            cache[key] = run
    return run((), (), *target.args, **target.kwargs)


def _without_values(call: Call) -> Call:
    copy = Call({}, {}, call.mutable, call.flags, call.frontend)
    copy.counters = dict(call.counters)
    return copy


def _twin(lift: Lift, call: Call) -> Lift:
    """Return a lift of the same roots on another call, to write results into it."""
    call.counters.update(lift.call.counters)
    twin = object.__new__(Lift)
    twin.__dict__.update(lift.__dict__)
    twin.call = call
    return twin


def _fingerprint(target: Target, lift: Lift) -> Any:
    """Return what a jaxpr depends on besides its arguments, or None if it is unhashable."""
    flags = tuple(lift.call.flags.items())
    counters = tuple(
        (lift.relative(path), stream, count)
        for (path, stream), count in lift.call.counters.items()
        if lift.relative(path) is not None
    )
    modules = fingerprint(target.modules, lift.relative)
    key = (modules, len(lift.roots), repr(lift.call.mutable), flags, counters, repr(target.first))
    try:
        hash(key)
    except TypeError:
        return None
    return key


# --------------------------------------------------------------------------------------------------------------- vmap


def vmap(
    target: Any,
    variable_axes: Mapping[Any, Any] = {},
    split_rngs: Mapping[Any, bool] = {},
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    spmd_axis_name: str | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Any = None,
) -> Any:
    """Map a module over an axis of its inputs.

    `variable_axes` maps collections to the axis along which their variables are stacked, one per element, or to None if
    all elements share them; `split_rngs` maps streams to whether each element gets its own key.

    Args:
        target: a module class, a module or a function of one.
        variable_axes: for each collection an axis, or None.
        split_rngs: for each stream whether keys differ.
        in_axes, out_axes: the mapped axes of arguments and results.
        axis_size: the number of elements, where no argument has the axis.
        axis_name: a name for the axis.
        spmd_axis_name: axes of a mesh to split it over.
        metadata_params: parameters of the new axis for `AxisMetadata.add_axis` of boxes.
        methods: the methods to transform, by default `__call__`.

    Returns:
        A class, module or function like `target`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> Layers = linen.vmap(linen.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
    >>> Layers(2).init(random.key(0), wnp.ones((4, 3)))["params"]["kernel"].shape
    (4, 3, 2)
    """
    return lift_transform(
        _run_vmap,
        "vmap",
        target,
        methods,
        variable_axes=dict(variable_axes),
        split_rngs=dict(split_rngs),
        in_axes=in_axes,
        out_axes=out_axes,
        axis_size=axis_size,
        axis_name=axis_name,
        metadata_params=dict(metadata_params),
    )


def size_along(trees: Sequence[Any], axes: Sequence[Any], axis_size: int | None, transformation: str) -> int:
    """Return the number of elements along the mapped axes of trees; `axes` are prefixes with None for no axis."""
    if axis_size is not None:
        return axis_size
    for tree, axis in zip(trees, axes, strict=True):
        if axis is None:
            continue
        for leaf, along in zip(*_leaves_with_axes(tree, axis), strict=True):
            if isinstance(along, int):
                return int(weft.numpy.shape(leaf)[along])
    raise ArgumentError(f"nn.{transformation} needs a mapped array to determine the axis size, or the size itself.")


def _leaves_with_axes(tree: Any, axis: Any) -> tuple[list[Any], list[Any]]:
    leaves = weft.tree.leaves(tree)
    if isinstance(axis, int):
        return leaves, [axis] * len(leaves)
    # None is a leaf among the axes but not in the tree, so it is replaced by a sentinel.
    found = weft.tree.map(lambda one: "none" if one is None else one, axis, is_leaf=lambda one: one is None)
    return leaves, weft.tree.leaves(weft.tree.broadcast(found, tree))


def _run_vmap(
    target: Target,
    variable_axes: dict[Any, Any],
    split_rngs: dict[Any, bool],
    in_axes: Any,
    out_axes: Any,
    axis_size: int | None,
    axis_name: Any,
    metadata_params: dict[Any, Any],
) -> Any:
    filters, axes = list(variable_axes), tuple(variable_axes.values())
    split = [rng for rng, split_it in split_rngs.items() if split_it]
    unsplit = [rng for rng, split_it in split_rngs.items() if not split_it]
    lift = target.lift(filters, [*split, *unsplit])
    argument_axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(target.args)
    # A box may change its value when an axis is removed, so remove it before the axis is mapped.
    shorter = tuple(
        group if axis is None else metadata.remove_axis(group, axis, metadata_params)
        for group, axis in zip(lift.variables, axes, strict=True)
    )

    size = size_along([*target.args, *shorter], [*argument_axes, *axes], axis_size, "vmap")
    keys = [lift.split(some, size) for some in lift.rngs[: len(split)]]
    key_axes = (0,) * len(split) + (None,) * len(unsplit)

    def inner(groups: Any, keys: Any, *args: Any) -> Any:
        call = lift.inside(groups, keys, union_all(filters))
        result = target.call(call, args, target.kwargs)
        return result, lift.collect(call, filters)

    with lift.running():
        mapped = weft.vmap(
            inner,
            in_axes=(axes, key_axes, *argument_axes),
            out_axes=(out_axes, axes),
            axis_size=size,
            axis_name=axis_name,
        )
        result, written = mapped(shorter, (*keys, *lift.rngs[len(split) :]), *target.args)
    lift.put_back(
        [
            group if axis is None else metadata.add_axis(group, axis, metadata_params)
            for group, axis in zip(written, axes, strict=True)
        ]
    )
    target.finish()
    return result


def union_all(filters: Sequence[Filter]) -> Filter:
    """Return the union of filters."""
    found: Filter = False
    for one in filters:
        found = union(found, one)
    return found


# ------------------------------------------------------------------------------------------- variables in other shapes


def map_variables(
    target: Any,
    mapped_collections: Filter = "params",
    trans_in_fn: Callable[..., Any] = lambda variables: variables,
    trans_out_fn: Callable[..., Any] = lambda variables: variables,
    init: bool = False,
    mutable: bool = False,
    rngs: Filter = True,
    variables: Filter = True,
    methods: Any = None,
) -> Any:
    """Transform collections: the module sees `trans_in_fn` of them, and `trans_out_fn` of its writes is stored.

    Args:
        target: a module class, a module or a function of one.
        mapped_collections: which collections.
        trans_in_fn, trans_out_fn: functions of the collections.
        init: whether they are mapped while the module is initialized.
        mutable: whether the module may write them.
        rngs: the streams of keys that it may use.
        variables: the collections that the module may use.
        methods: the methods to transform, by default `__call__`.

    Returns:
        A class, module or function like `target`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> from weft import tree
    >>> double = lambda variables: tree.map(lambda x: 2 * x, variables)
    >>> layer = linen.map_variables(linen.Dense, "params", double, init=True)(2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3)))
    >>> y.shape
    (1, 2)
    """
    return lift_transform(
        _run_map_variables,
        "map_variables",
        target,
        methods,
        mapped=mapped_collections,
        trans_in=trans_in_fn,
        trans_out=trans_out_fn,
        init=init,
        mutable=mutable,
        rngs=rngs,
        variables=variables,
    )


def _run_map_variables(
    target: Target, mapped: Any, trans_in: Any, trans_out: Any, init: bool, mutable: bool, rngs: Any, variables: Any
) -> Any:
    lift = target.lift([mapped, variables], [rngs])
    stored, others = lift.variables

    def through(function: Callable[..., Any], groups: Any) -> Any:
        """Apply a function of collections, as plain nested dicts, below each root."""
        parts = [function({name: parts[i] for name, parts in groups.items()}) for i in range(len(lift.roots))]
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: tuple(part.get(name, {}) for part in parts) for name in names}

    written: list[Any] = []
    if init and lift.call.flags.get("initializing"):
        call = lift.inside([stored, others], lift.rngs)
        with lift.running():
            target.call(call, target.args, target.kwargs)
        collected, _ = group({**lift.collect(call, (True,))[0]}, [mapped, True])
        stored = through(trans_out, collected)
        written.append(stored)
    # The functions belong to the outer module, and may create parameters of their own.
    seen = through(trans_in, stored)
    call = lift.inside([seen, others], lift.rngs)
    with lift.running():
        result = target.call(call, target.args, target.kwargs)
    changed, rest = lift.collect(call, [mapped, True])
    if mutable or written:
        # As in Flax, initialization stores the variables as the module saw them.
        written.append(through(trans_out, {**seen, **changed} if written else changed))
    lift.put_back([*written, rest])
    target.finish()
    return result


def add_metadata_axis(
    target: Any,
    variable_axes: Mapping[Any, Any] = {},
    metadata_params: Mapping[Any, Any] = {},
    methods: Any = None,
) -> Any:
    """Add an axis to the metadata of variables that the inner module does not see. Arrays are unchanged."""
    return lift_transform(
        _run_add_metadata_axis,
        "add_metadata_axis",
        target,
        methods,
        variable_axes=dict(variable_axes),
        metadata_params=dict(metadata_params),
    )


def _run_add_metadata_axis(target: Target, variable_axes: dict[Any, Any], metadata_params: dict[Any, Any]) -> Any:
    filters, axes = [*variable_axes, True], [*variable_axes.values(), None]
    lift = target.lift(filters)

    def change_groups(change: Callable[..., Any], groups: Any) -> list[Any]:
        pairs = zip(groups, axes, strict=True)
        return [one if axis is None else change(one, axis, metadata_params) for one, axis in pairs]

    call = lift.inside(change_groups(metadata.remove_axis, lift.variables), lift.rngs)
    with lift.running():
        result = target.call(call, target.args, target.kwargs)
    lift.put_back(change_groups(metadata.add_axis, lift.collect(call, filters)))
    target.finish()
    return result


def fold_rngs(target: Any, variables: Filter = True, rngs: Filter = True) -> Any:
    """Give a module streams of its own, which depend on the number of its previous calls."""
    return lift_transform(_run_fold_rngs, "fold_rngs", target, variables=variables, rngs=rngs)


def _run_fold_rngs(target: Target, variables: Any, rngs: Any) -> Any:
    lift = target.lift([variables], [rngs])
    lift.fork_keys()
    with lift.running():
        result, written = plain(target, lift, variables)(lift.variables, lift.rngs, *target.args, **target.kwargs)
    lift.put_back(written)
    target.finish()
    return result
