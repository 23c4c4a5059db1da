"""Large batches in little memory: functions of a batch, computed in parts."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, ArgumentTypeError


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """Combination of the results of parts: `init` from the type of one, `update` with each, then `finalize`.

    `aggregate` combines the examples within a part, over their leading axis.
    """

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], Any]
    finalize: Callable[[Any], Any]
    aggregate: Callable[[Any], Any]


class AccumulationType(enum.Enum):
    """Ways to combine the results of parts."""

    MEAN = enum.auto()
    SUM = enum.auto()
    RUNNING_MEAN = enum.auto()
    CONCAT = enum.auto()


def _accumulator(kind: Any, parts: int, done: Any) -> Accumulator:
    """Return the accumulator of a kind; `parts` is the number of parts, `done` the number computed so far."""
    if isinstance(kind, Accumulator):
        return kind
    zeros = lambda like: wnp.zeros(like.shape, like.dtype)
    mean_zeros = lambda like: wnp.zeros(like.shape, wnp.result_type(like.dtype, wnp.float32(0).dtype))
    is_float = lambda like: wnp.issubdtype(like.dtype, wnp.inexact)
    start = lambda like: zeros(like) if is_float(like) else mean_zeros(like)
    first_mean = lambda rows: wnp.mean(rows, axis=0)
    match kind:
        case AccumulationType.SUM:
            return Accumulator(
                zeros, lambda carry, value, _: carry + value, lambda carry: carry, lambda rows: wnp.sum(rows, axis=0)
            )
        case AccumulationType.MEAN:
            divided = lambda carry: carry / wnp.asarray(done, carry.dtype)
            return Accumulator(start, lambda carry, value, _: carry + value, divided, first_mean)
        case AccumulationType.RUNNING_MEAN:

            def follow(carry: Any, value: Any, index: Any) -> Any:
                return carry + (value - carry) / wnp.asarray(index + 1, carry.dtype)

            return Accumulator(start, follow, lambda carry: carry, first_mean)
        case AccumulationType.CONCAT:

            def join_rows(like: Any) -> Any:
                if not like.shape:
                    raise ArgumentError("CONCAT needs results with a first axis to concatenate along; got a scalar")
                # Along axis 1, since `reshape_batch_axis` distributes consecutive rows over parts.
                return wnp.zeros((like.shape[0], parts, *like.shape[1:]), like.dtype)

            return Accumulator(
                join_rows,
                lambda carry, value, index: carry.at[:, index].set(value),
                lambda carry: carry.reshape(carry.shape[0] * carry.shape[1], *carry.shape[2:]),
                lambda rows: rows,
            )
    raise ArgumentTypeError(f"an accumulator must be an AccumulationType or an Accumulator, got {kind!r}")


def reshape_batch_axis(tree: Any, microbatch_size: int, axis: int = 0) -> Any:
    """Split the batch axis of each leaf into (number of parts, microbatch_size).

    Part i has each (number of parts)-th row from row i on, so that rows on different devices stay there.
    """

    def leaf(x: Any) -> Any:
        where = axis % x.ndim
        size = x.shape[where]
        if size % microbatch_size:
            raise ArgumentError(
                f"microbatch_size must divide the size of the batch; got {microbatch_size} and a batch of {size}, "
                f"axis {axis} of shape {x.shape}"
            )
        split = x.reshape(*x.shape[:where], microbatch_size, size // microbatch_size, *x.shape[where + 1 :])
        return wnp.swapaxes(split, where, where + 1)

    return weft.tree.map(leaf, tree)


def _as_tuple(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _row(tree: Any, axis: int, index: Any) -> Any:
    """Return part `index` of a tree whose batch axis was split. Negative axes count from the end."""
    return weft.tree.map(lambda x: wnp.take(x, index, axis=axis if axis >= 0 else axis - 1), tree)


def _is_accumulator(node: Any) -> bool:
    return isinstance(node, Accumulator | AccumulationType)


def _batch_size(batched: Sequence[Any], axes: Sequence[int]) -> int:
    """Return the size of the leaves of batched arguments along their axes."""
    leaves = [(leaf, axis) for value, axis in zip(batched, axes, strict=True) for leaf in weft.tree.leaves(value)]
    sizes = {leaf.shape[axis] for leaf, axis in leaves}
    if len(sizes) != 1:
        raise ArgumentError(f"the batched arguments must have the same batch size, got {sorted(sizes)}")
    (size,) = sizes
    return size


def _for_each_leaf(accumulator: Any, results: Any) -> list[Any]:
    """Return the accumulator of each leaf of the results; `accumulator` applies to all, or is a prefix of their
    tree.
    """
    each = weft.tree.map(
        lambda kind, below: weft.tree.map(lambda _: kind, below), accumulator, results, is_leaf=_is_accumulator
    )
    return weft.tree.leaves(each, is_leaf=_is_accumulator)


def microbatch(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    microbatch_size: int | None,
    accumulator: Any = AccumulationType.SUM,
    *,
    argnames: str | Sequence[str] = (),
    in_axes: int | Sequence[int] = 0,
    num_real_microbatches: Any = None,
) -> Callable[..., Any]:
    """Compute `fun` on parts of `microbatch_size` rows of the given arguments, one after another.

    `accumulator` combines the results of parts: one for all, or a tree that is a prefix of the results.
    `num_real_microbatches` is the number of parts to compute, if not all.
    """
    positions = _as_tuple(argnums)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    count = len(positions) + len(names)
    axes = (in_axes,) * count if isinstance(in_axes, int) else tuple(in_axes)
    if len(axes) != count:
        raise ArgumentError(f"in_axes must have one axis for each of argnums and argnames, {count}, got {len(axes)}")

    def compute(*args: Any, **kwargs: Any) -> Any:
        batched = [args[i] for i in positions] + [kwargs[name] for name in names]
        size = _batch_size(batched, axes)
        part_size = size if microbatch_size is None else microbatch_size
        split = [reshape_batch_axis(value, part_size, axis) for value, axis in zip(batched, axes, strict=True)]
        parts = size // part_size
        done = parts if num_real_microbatches is None else num_real_microbatches

        def part(index: Any) -> Any:
            rows = [_row(value, axis, index) for value, axis in zip(split, axes, strict=True)]
            new_args = list(args)
            for position, row in zip(positions, rows, strict=False):
                new_args[position] = row
            named = dict(zip(names, rows[len(positions) :], strict=True))
            return fun(*new_args, **{**kwargs, **named})

        kinds = weft.eval_shape(part, wnp.zeros((), wnp.int32))
        kind_leaves, structure = weft.tree.flatten(kinds)
        members = [_accumulator(kind, parts, done) for kind in _for_each_leaf(accumulator, kinds)]

        def step(index: Any, carry: Any) -> Any:
            values = weft.tree.leaves(part(index))
            return [m.update(c, value, index) for m, c, value in zip(members, carry, values, strict=True)]

        start = [member.init(kind) for member, kind in zip(members, kind_leaves, strict=True)]
        carry = lax.fori_loop(0, done, step, start)
        return structure.unflatten([m.finalize(c) for m, c in zip(members, carry, strict=True)])

    return compute


def micro_vmap(
    fun: Callable[..., Any],
    in_axes: int | Sequence[Any] = 0,
    out_axes: int = 0,
    *,
    microbatch_size: int | None = None,
    vmap_fn: Callable[..., Any] = weft.vmap,
    accumulator: Any = AccumulationType.CONCAT,
    num_real_microbatches: Any = None,
) -> Callable[..., Any]:
    """Compute `weft.vmap` on parts of the batch one after another; results can be reduced instead of stacked.

    Keyword arguments are mapped over their leading axis, as by `weft.vmap`.
    """
    if out_axes != 0:
        raise ArgumentError(f"out_axes of micro_vmap must be 0, got {out_axes!r}")

    def compute(*args: Any, **kwargs: Any) -> Any:
        axes = [in_axes] * len(args) if isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(args) or any(axis is not None and not isinstance(axis, int) for axis in axes):
            raise ArgumentError(
                f"in_axes of micro_vmap must have an integer or None for each argument, got {in_axes!r}"
            )
        positions = [i for i, axis in enumerate(axes) if axis is not None]

        def map_part(*row_args: Any, kwargs: Any) -> Any:
            results = vmap_fn(fun, tuple(axes), 0)(*row_args, **kwargs)

            def aggregate_part(kind: Any, below: Any) -> Any:
                return weft.tree.map(_accumulator(kind, 1, 1).aggregate, below)

            return weft.tree.map(aggregate_part, accumulator, results, is_leaf=_is_accumulator)

        return microbatch(
            map_part,
            positions,
            microbatch_size,
            accumulator,
            argnames="kwargs",
            in_axes=[*(axes[i] for i in positions), 0],
            num_real_microbatches=num_real_microbatches,
        )(*args, kwargs=kwargs)

    return compute


class MicroGradAux(NamedTuple):
    """Results of `micro_grad` per example: values, auxiliary results of the function, and metrics."""

    values: Any
    aux: Any
    metrics: Any


def micro_grad(
    fun: Callable[..., Any],
    has_aux: bool = False,
    argnums: int | Sequence[int] = 0,
    *,
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    microbatch_size: int | None = None,
    accumulator: Any = AccumulationType.SUM,
    transform_fn: Callable[[Any], Any] = lambda grad: grad,
    metrics_fn: Callable[[Any], Any] = lambda grad: None,
    num_real_microbatches: Any = None,
) -> Callable[..., tuple[Any, MicroGradAux]]:
    """Combine transformed per-example gradients; also return values, auxiliary results and metrics per example."""
    batched = _as_tuple(batch_argnums)

    def one(*args: Any) -> Any:
        new_args = list(args)
        if keep_batch_dim:
            for i in batched:
                new_args[i] = weft.tree.map(lambda x: x[None], new_args[i])
        value, grad = weft.value_and_grad(fun, argnums, has_aux=has_aux)(*new_args)
        value, aux = value if has_aux else (value, None)
        return transform_fn(grad), MicroGradAux(value, aux, metrics_fn(grad))

    def compute(*args: Any) -> Any:
        axes = [0 if i in batched else None for i in range(len(args))]
        return micro_vmap(
            one,
            axes,
            microbatch_size=microbatch_size,
            accumulator=(accumulator, AccumulationType.CONCAT),
            num_real_microbatches=num_real_microbatches,
        )(*args)

    return compute
