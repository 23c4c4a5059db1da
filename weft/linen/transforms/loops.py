"""Lifted control flow: scan, while_loop, cond and switch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, ArgumentTypeError
from weft.linen.transforms.calls import checkpoint, size_along, union_all
from weft.linen.transforms.core import Target, lift_transform
from weft.modules import metadata
from weft.modules.filters import Filter, matches, subtract, union


class _Broadcast:
    """Value for an axis that passes the whole value to each iteration.

    >>> import weft.numpy as wnp
    >>> from weft import linen, random
    >>> class Step(linen.Module):
    ...     @linen.compact
    ...     def __call__(self, carry, x):
    ...         return carry + x, None
    >>> Steps = linen.scan(Step, in_axes=linen.broadcast, length=3)
    >>> Steps().apply({}, 0.0, wnp.array(2.0))[0]
    Array(6., dtype=float32, weak_type=True)
    """

    def __repr__(self) -> str:
        return "broadcast"


broadcast = _Broadcast()


def scan(
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
    data_transform: Callable[..., Any] | None = None,
    metadata_params: Mapping[Any, Any] = {},
    methods: Any = None,
    _split_transpose: bool = False,
    check_constancy_invariants: bool = True,
) -> Any:
    """Transform a module with `__call__(carry, *xs) -> (carry, ys)` into a loop over an axis of xs.

    Variables are stacked along an axis, one for each iteration (`variable_axes`), the same in every iteration
    (`variable_broadcast`), or carried from one to the next (`variable_carry`). Instead of an axis of xs,
    `nn.broadcast` passes the whole value to every iteration.

    Args:
        target: a module class, a module or a function of one.
        variable_axes: the axis along which the variables of each collection are stacked.
        variable_broadcast: the collections that all iterations share.
        variable_carry: the collections that each iteration passes to the next.
        split_rngs: for each stream, whether keys differ between iterations.
        in_axes, out_axes: the loop axis of arguments and results.
        length: the number of iterations.
        reverse: whether to run from the last iteration to the first.
        unroll: the number of iterations to unroll.
        data_transform: a function of the variables inside of the loop.
        metadata_params: parameters of the new axis for `AxisMetadata.add_axis` of boxes.
        methods: the methods to transform, by default `__call__`.
        _split_transpose: accepted for compatibility.
        check_constancy_invariants: whether the body is traced once before the loop, as Flax does to check variables
            that are the same in every iteration; keys drawn then count. Weft checks these in either case.

    Returns:
        A class, module or function like `target`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> class Block(linen.Module):
    ...     @linen.compact
    ...     def __call__(self, carry, _):
    ...         return linen.Dense(3)(carry), None
    >>> Blocks = linen.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)
    >>> Blocks().init(random.key(0), wnp.ones((1, 3)), None)["params"]["Dense_0"]["kernel"].shape
    (4, 3, 3)
    """
    return lift_transform(
        _run_scan,
        "scan",
        target,
        methods,
        variable_axes=dict(variable_axes),
        variable_broadcast=variable_broadcast,
        variable_carry=variable_carry,
        split_rngs=dict(split_rngs),
        in_axes=in_axes,
        out_axes=out_axes,
        length=length,
        reverse=reverse,
        unroll=unroll,
        data_transform=data_transform,
        metadata_params=dict(metadata_params),
        check_constancy_invariants=check_constancy_invariants,
    )


def _axis_tree(axes: Any, tree: Any) -> list[Any]:
    """Return the axis of each leaf of a tree."""
    return weft.tree.leaves(weft.tree.broadcast(axes, tree))


def _slice_arguments(xs: tuple[Any, ...], in_axes: Any) -> tuple[Callable[[Sequence[Any]], Any], list[Any]]:
    """Return a function from slices to the arguments of an iteration, and the leaves of `xs` to slice.

    These leaves have the axis of the loop first; other leaves are passed whole to each iteration.
    """
    axis_of = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(xs)
    leaves, tree = weft.tree.flatten(xs)
    axes = _axis_tree(axis_of, xs) if xs else []
    fixed = [leaf if isinstance(axis, _Broadcast) else None for leaf, axis in zip(leaves, axes, strict=True)]
    moving = [wnp.moveaxis(x, axis, 0) for x, axis in zip(leaves, axes, strict=True) if isinstance(axis, int)]

    def join_arguments(slices: Sequence[Any]) -> Any:
        supply = iter(slices)
        parts = [next(supply) if isinstance(axis, int) else x for x, axis in zip(fixed, axes, strict=True)]
        return weft.tree.unflatten(tree, parts)

    return join_arguments, moving


def _along_axes(ys: Any, out_axes: Any) -> Any:
    """Move the first axis of loop results to the positions in `out_axes`."""
    leaves, tree = weft.tree.flatten(ys)
    axes = _axis_tree(out_axes, ys)
    return weft.tree.unflatten(tree, [wnp.moveaxis(y, 0, a) if a else y for y, a in zip(leaves, axes, strict=True)])


def _run_scan(
    target: Target,
    variable_axes: dict[Any, Any],
    variable_broadcast: Any,
    variable_carry: Any,
    split_rngs: dict[Any, bool],
    in_axes: Any,
    out_axes: Any,
    length: int | None,
    reverse: bool,
    unroll: int,
    data_transform: Any,
    metadata_params: dict[Any, Any],
    check_constancy_invariants: bool,
) -> Any:
    scanned = {collection: axis for collection, axis in variable_axes.items() if not isinstance(axis, _Broadcast)}
    shared = union_all([variable_broadcast, *(collection for collection in variable_axes if collection not in scanned)])
    filters, axes = list(scanned), list(scanned.values())
    split = [rng for rng, split_it in split_rngs.items() if split_it]
    unsplit = [rng for rng, split_it in split_rngs.items() if not split_it]
    lift = target.lift([variable_carry, shared, *filters], [*split, *unsplit])
    carried, constant, *boxed = lift.variables
    stacked = [metadata.remove_axis(g, axis, metadata_params) for g, axis in zip(boxed, axes, strict=True)]
    # Immutable collections are constants of the loop.
    constant = {**constant, **{name: v for name, v in carried.items() if not matches(lift.call.mutable, name)}}
    carried = {name: v for name, v in carried.items() if matches(lift.call.mutable, name)}

    carry, *xs = target.args
    join_arguments, moving = _slice_arguments(tuple(xs), in_axes)
    count = size_along([moving, *stacked], [0, *axes], length, "scan")
    rows = [
        weft.tree.map(lambda x, axis=axis: wnp.moveaxis(x, axis, 0), g) for g, axis in zip(stacked, axes, strict=True)
    ]
    keys = [lift.split(some, count) for some in lift.rngs[: len(split)]]
    writable = union_all([variable_carry, *filters])

    def iteration(carry: Any, carried: Any, constant: Any, moving: Any, rows: Any, keys: Any, mutable: Any) -> Any:
        """Call the module once; return its results and the groups it wrote."""
        groups, streams = (carried, constant, *rows), (*keys, *lift.rngs[len(split) :])
        if data_transform is not None:
            groups, streams = data_transform(groups, streams)
        call = lift.inside(groups, streams, mutable)
        result = target.call(call, (carry, *join_arguments(moving)), target.kwargs)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentTypeError(f"The function under nn.scan must return (carry, ys), got {type(result).__name__}.")
        return result, lift.collect(call, [variable_carry, shared, *filters])

    with lift.running():
        first_written: list[Any] = []
        first = lambda tree: weft.tree.map(lambda x: x[0], tree)
        if lift.call.flags.get("initializing") and count and (shared is not False or variable_carry is not False):
            # Shared and carried variables are created by a separate call before the loop.
            everything = union(writable, shared)
            _, new = iteration(carry, carried, constant, first(moving), first(rows), first(keys), everything)
            carried, constant = {**new[0], **carried}, {**constant, **new[1]}
            first_written = [constant]
        elif count and any(lift.rngs) and check_constancy_invariants:
            # Flax traces the body twice and counts keys of the first trace, so do the same for equal keys.
            traced = functools.partial(iteration, mutable=subtract(writable, shared))
            state = (carry, carried, constant, first(moving), first(rows), first(keys))
            weft.eval_shape(lambda *state: traced(*state)[0], *state)

        def body(state: Any, slices: Any) -> Any:
            carry, carried = state
            mutable = subtract(writable, shared)
            moving, rows, keys = slices
            (carry, ys), written = iteration(carry, carried, constant, moving, rows, keys, mutable)
            return (carry, written[0]), (ys, written[2:])

        slices = (moving, rows, keys)
        (carry, carried), (ys, written) = lax.scan(
            body, (carry, carried), slices, length=count, reverse=reverse, unroll=unroll
        )
    stacked_out = [
        metadata.add_axis(weft.tree.map(lambda x, axis=axis: wnp.moveaxis(x, 0, axis), g), axis, metadata_params)
        for g, axis in zip(written, axes, strict=True)
    ]
    lift.put_back([carried, *first_written, *stacked_out])
    target.finish()
    return carry, _along_axes(ys, out_axes)


def remat_scan(
    target: Any,
    lengths: Sequence[int] = (),
    policy: Callable[..., Any] | None = None,
    variable_broadcast: Filter = False,
    variable_carry: Filter = False,
    variable_axes: Mapping[Any, Any] = {True: 0},
    split_rngs: Mapping[Any, bool] = {True: True},
) -> Any:
    """Apply a module of one argument prod(lengths) times, in nested loops that save only the inputs of each level.

    The backward pass then needs memory for the sum of the lengths instead of their product.
    """
    options = {
        "variable_axes": dict(variable_axes),
        "variable_broadcast": variable_broadcast,
        "variable_carry": variable_carry,
        "split_rngs": dict(split_rngs),
    }
    return lift_transform(_run_remat_scan, "remat_scan", target, lengths=tuple(lengths), policy=policy, options=options)


def _run_remat_scan(target: Target, lengths: tuple[int, ...], policy: Any, options: dict[str, Any]) -> Any:
    function = target.fn

    def level(lengths: tuple[int, ...]) -> Callable[..., Any]:
        inner = function if len(lengths) == 1 else level(lengths[1:])

        def one(module: Any, carry: Any) -> Any:
            return inner(module, carry), ()

        rematerialized = checkpoint(one, policy=policy, prevent_cse=False)
        looped = scan(rematerialized, length=lengths[0], **options)
        return lambda module, carry: looped(module, carry)[0]

    if not lengths:
        raise ArgumentError("nn.remat_scan needs at least one length.")
    return level(lengths)(target.modules[0], *target.args)


# -------------------------------------------------------------------------------------------------- conditions, while


def _branches(target: Target, branches: Sequence[Callable[..., Any]], variables: Any, rngs: Any) -> Any:
    """Return the lift, and for each branch a function of groups and keys that also returns the written groups."""
    lift = target.lift([variables], [rngs])

    def through(branch: Callable[..., Any]) -> Callable[..., Any]:
        def run(groups: Any, keys: Any, *operands: Any) -> Any:
            call = lift.inside(groups, keys, variables)
            result = target.call(call, operands, {}, branch)
            written = lift.collect(call, (True,))[0]
            # A branch that writes nothing returns the old groups, so that all branches have one result type.
            before = {name: parts for name, parts in groups[0].items() if matches(call.mutable, name)}
            return result, ({**before, **written},)

        return run

    return lift, [through(branch) for branch in branches]


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    mdl: Any,
    *operands: Any,
    variables: Filter = True,
    rngs: Filter = True,
) -> Any:
    """Call `true_fun(mdl, *operands)` or `false_fun(mdl, *operands)`, which must create the same variables."""
    target = Target("cond", true_fun, mdl, operands, {})
    lift, (on_true, on_false) = _branches(target, [true_fun, false_fun], variables, rngs)
    with lift.running():
        result, written = lax.cond(pred, on_true, on_false, lift.variables, lift.rngs, *target.args)
    lift.put_back(written)
    target.finish()
    return result


def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    mdl: Any,
    *operands: Any,
    variables: Filter = True,
    rngs: Filter = True,
) -> Any:
    """Call the branch at `index` with `(mdl, *operands)`; all branches must create the same variables."""
    target = Target("switch", branches[0], mdl, operands, {})
    lift, functions = _branches(target, branches, variables, rngs)
    with lift.running():
        result, written = lax.switch(index, functions, lift.variables, lift.rngs, *target.args)
    lift.put_back(written)
    target.finish()
    return result


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    mdl: Any,
    init: Any,
    carry_variables: Filter = False,
    broadcast_variables: Filter = True,
    split_rngs: Mapping[Any, bool] = {},
) -> Any:
    """Loop: while `cond_fn(mdl, carry)` holds, `carry = body_fn(mdl, carry)`, with `carry_variables` in the carry.

    It creates no variables: initialize by calling the body once. Split streams have new keys in each iteration.
    """
    target = Target("while_loop", body_fn, mdl, (init,), {})
    split = [rng for rng, split_it in split_rngs.items() if split_it]
    unsplit = [rng for rng, split_it in split_rngs.items() if not split_it]
    lift = target.lift([carry_variables, broadcast_variables], [*split, *unsplit])
    carried, constant = lift.variables

    def streams(i: Any) -> tuple[Any, ...]:
        fresh = [{name: weft.random.fold_in(key, i) for name, key in some.items()} for some in lift.rngs]
        return (*fresh[: len(split)], *lift.rngs[len(split) :])

    def goes_on(state: Any) -> Any:
        i, carry, carried = state
        call = lift.inside([carried, constant], streams(-i), False)  # keys that differ from those of the body
        holds = target.call(call, (carry,), {}, cond_fn)
        lift.collect(call, [])  # keeps the counters of drawn keys
        return holds

    def body(state: Any) -> Any:
        i, carry, carried = state
        call = lift.inside([carried, constant], streams(i), carry_variables)
        carry = target.call(call, (carry,), {}, body_fn)
        (written,) = lift.collect(call, [carry_variables])
        return i + 1, carry, {**carried, **written}

    with lift.running():
        start = (wnp.asarray(0, wnp.int32), target.args[0], carried)
        _, carry, carried = lax.while_loop(goes_on, body, start)
    lift.put_back([{name: parts for name, parts in carried.items() if matches(lift.call.mutable, name)}])
    target.finish()
    return carry
