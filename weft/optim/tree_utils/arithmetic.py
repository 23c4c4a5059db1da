"""Trees as vectors: sums, products, norms and casts, leaf by leaf."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.numerics import abs_sq
from weft.optim.tree_mapping import map_trees
from weft.typing import ArrayLike


@document("A tree.", 'optim.tree.add({"a": 1}, {"a": 2}) -> {\'a\': 3}', other_trees="more trees.")
def tree_add(tree_x: Any, tree_y: Any, *other_trees: Any) -> Any:
    """Return the sum of two or more trees."""
    trees = {"tree_x": tree_x, "tree_y": tree_y}
    trees |= {f"other_trees[{i}]": tree for i, tree in enumerate(other_trees)}
    add = lambda *leaves: (functools.reduce(operator.add, leaves),)
    return map_trees("tree_add", add, same_shapes=False, **trees)[0]


@document("A tree.", 'optim.tree.sub({"a": 1}, {"a": 2}) -> {\'a\': -1}')
def tree_sub(tree_x: Any, tree_y: Any) -> Any:
    """Return `tree_x - tree_y`, leaf by leaf."""
    return map_trees("tree_sub", lambda x, y: (x - y,), same_shapes=False, tree_x=tree_x, tree_y=tree_y)[0]


@document("A tree.", 'optim.tree.mul({"a": 3}, {"a": 2}) -> {\'a\': 6}')
def tree_mul(tree_x: Any, tree_y: Any) -> Any:
    """Return `tree_x * tree_y`, element by element."""
    return map_trees("tree_mul", lambda x, y: (x * y,), same_shapes=False, tree_x=tree_x, tree_y=tree_y)[0]


@document("A tree.", 'optim.tree.div({"a": 3}, {"a": 2}) -> {\'a\': 1.5}')
def tree_div(tree_x: Any, tree_y: Any) -> Any:
    """Return `tree_x / tree_y`, element by element."""
    return map_trees("tree_div", lambda x, y: (x / y,), same_shapes=False, tree_x=tree_x, tree_y=tree_y)[0]


@document("A tree.", "optim.tree.scale(2, {\"a\": 3}) -> {'a': 6}", scalar="the factor.")
def tree_scale(scalar: ArrayLike, tree: Any) -> Any:
    """Return `scalar * tree`, leaf by leaf."""
    return weft.tree.map(lambda leaf: scalar * leaf, tree)


def tree_add_scale(tree_x: Any, scalar: ArrayLike, tree_y: Any) -> Any:
    """Return tree_x + scalar * tree_y, each floating leaf in the dtype of tree_x; None in tree_x stays None."""

    def leaf(x: Any, y: Any) -> tuple[Any]:
        x, factor = wnp.asarray(x), wnp.asarray(scalar)
        return (x + (factor.astype(x.dtype) if wnp.issubdtype(x.dtype, wnp.inexact) else factor) * y,)

    return map_trees("tree_add_scale", leaf, same_shapes=False, tree_x=tree_x, tree_y=tree_y)[0]


def tree_vdot(tree_x: Any, tree_y: Any) -> Array:
    """Return the inner product conj(x) . y over all leaves, in full precision."""
    dot = functools.partial(wnp.vdot, precision=weft.lax.Precision.HIGHEST)
    products = map_trees("tree_vdot", lambda x, y: (dot(x, y),), tree_x=tree_x, tree_y=tree_y)[0]
    return tree_sum(products)


def tree_sum(tree: Any, associative_reduction: bool = False) -> Array:
    """Return the sum of all elements of all leaves; `associative_reduction` adds leaves pairwise."""
    sums = weft.tree.map(wnp.sum, tree)
    if associative_reduction:
        return weft.tree.reduce_associative(operator.add, sums, identity=0)
    return weft.tree.reduce(operator.add, sums, 0)


@document(
    "A scalar.",
    'optim.tree.max({"a": wnp.array([1, 5]), "b": wnp.array([3])}) -> Array(5., dtype=float32, weak_type=True)',
)
def tree_max(tree: Any) -> Array:
    """Return the largest element of all leaves."""
    return weft.tree.reduce(wnp.maximum, weft.tree.map(_largest, tree), -wnp.inf)


@document(
    "A scalar.",
    'optim.tree.min({"a": wnp.array([1, 5]), "b": wnp.array([3])}) -> Array(1., dtype=float32, weak_type=True)',
)
def tree_min(tree: Any) -> Array:
    """Return the smallest element of all leaves."""
    return weft.tree.reduce(wnp.minimum, weft.tree.map(_smallest, tree), wnp.inf)


def _largest(leaf: Any) -> Any:
    return wnp.max(leaf) if wnp.size(leaf) else -wnp.inf


def _smallest(leaf: Any) -> Any:
    return wnp.min(leaf) if wnp.size(leaf) else wnp.inf


@document("A Python integer.", 'optim.tree.size({"a": wnp.ones((2, 3)), "b": wnp.ones(1)}) -> 7')
def tree_size(tree: Any) -> int:
    """Return the number of elements of all leaves."""
    return sum(wnp.size(leaf) for leaf in weft.tree.leaves(tree))


def tree_conj(tree: Any) -> Any:
    """Return the complex conjugate of each leaf."""
    return weft.tree.map(wnp.conj, tree)


def tree_real(tree: Any) -> Any:
    """Return the real part of each leaf."""
    return weft.tree.map(wnp.real, tree)


def accumulator_dtype(tree: Any) -> Any:
    """Return the real dtype for norms and products over all leaves: their promoted dtype, at least float32."""
    dtypes = [leaf.dtype if hasattr(leaf, "dtype") else wnp.result_type(leaf) for leaf in weft.tree.leaves(tree)]
    floats = [wnp.finfo(dtype).dtype for dtype in dtypes if wnp.issubdtype(dtype, wnp.inexact)]
    return functools.reduce(wnp.promote_types, floats, wnp.dtype(wnp.float32))


def sum_of_squares(leaf: Any) -> Array:
    """Return `sum(|leaf|^2)`."""
    return wnp.sum(abs_sq(leaf))


def tree_norm(tree: Any, ord: int | str | float | None = None, squared: bool = False) -> Array:
    """Return the norm of all elements together: 2 (the default), 1 or infinity; with `squared`, its square."""
    if ord is None or ord == 2:
        leaves = weft.tree.leaves(tree)
        total = wnp.asarray(functools.reduce(operator.add, [sum_of_squares(leaf) for leaf in leaves], 0.0))
        return total if squared else wnp.sqrt(total)
    if ord == 1:
        norm: Any = tree_sum(weft.tree.map(wnp.abs, tree))
    elif ord in (wnp.inf, "inf", "infinity"):
        norm = tree_max(weft.tree.map(wnp.abs, tree))
    else:
        raise ArgumentError(f"tree_norm needs ord=1, 2 or inf, got {ord!r}")
    return norm**2 if squared else norm


@document(
    "A real scalar.",
    'optim.global_norm({"a": wnp.array([3.0]), "b": wnp.array([4.0])}) -> Array(5., dtype=float32)',
    updates="a tree of arrays.",
)
def global_norm(updates: Any) -> Array:
    """Return `sqrt(sum |u|^2)` over all elements of all leaves."""
    return tree_norm(updates)


def tree_full_like(tree: Any, fill_value: ArrayLike, dtype: Any = None) -> Any:
    """Return a tree of the same shapes filled with one value."""
    return weft.tree.map(lambda leaf: wnp.full_like(leaf, fill_value, dtype=dtype), tree)


@document(
    "A tree.",
    "optim.tree.ones_like({\"a\": wnp.zeros(2)}) -> {'a': Array([1., 1.], dtype=float32)}",
    dtype="another dtype than that of the leaves.",
)
def tree_ones_like(tree: Any, dtype: Any = None) -> Any:
    """Return a tree of ones of the same shapes."""
    return weft.tree.map(lambda leaf: wnp.ones_like(leaf, dtype=dtype), tree)


@document(
    "A tree.",
    "optim.tree.zeros_like({\"a\": wnp.ones(2)}) -> {'a': Array([0., 0.], dtype=float32)}",
    dtype="another dtype than that of the leaves.",
)
def tree_zeros_like(tree: Any, dtype: Any = None) -> Any:
    """Return a tree of zeros of the same shapes."""
    return weft.tree.map(lambda leaf: wnp.zeros_like(leaf, dtype=dtype), tree)


def tree_clip(tree: Any, min_value: ArrayLike | None = None, max_value: ArrayLike | None = None) -> Any:
    """Clip each element to [min_value, max_value].

    Args:
        tree: a tree of arrays.
        min_value, max_value: the limits; None for none.

    Returns:
        A tree.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.tree.clip({"a": wnp.array([-2.0, 2.0])}, -1.0, 1.0)
    {'a': Array([-1.,  1.], dtype=float32)}
    """
    return weft.tree.map(lambda leaf: wnp.clip(leaf, min_value, max_value), tree)


def tree_where(condition: Any, tree_x: Any, tree_y: Any) -> Any:
    """Return tree_x where the condition (one for all, or a tree) holds, else tree_y."""
    if weft.tree_util.all_leaves([condition]):
        choose = lambda x, y: (wnp.where(condition, x, y),)
        return map_trees("tree_where", choose, same_shapes=False, tree_x=tree_x, tree_y=tree_y)[0]
    choose_each = lambda c, x, y: (wnp.where(c, x, y),)
    trees = {"condition": condition, "tree_x": tree_x, "tree_y": tree_y}
    return map_trees("tree_where", choose_each, same_shapes=False, **trees)[0]


def tree_allclose(
    a: Any, b: Any, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> bool | Array:
    """Return whether all leaves of both trees are close."""
    close = lambda x, y: (wnp.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan),)
    return weft.tree.reduce(wnp.logical_and, map_trees("tree_allclose", close, a=a, b=b)[0], True)


def initial_copy(params: Any) -> Any:
    """Return parameters as the arrays that a state keeps; `ShapeDtypeStruct`s are returned unchanged."""
    return weft.tree.map(lambda p: p if isinstance(p, weft.ShapeDtypeStruct) else wnp.asarray(p), params)


@document(
    "A tree of arrays.",
    'optim.tree.cast({"a": wnp.ones(1)}, wnp.bfloat16)["a"].dtype -> dtype(bfloat16)',
    dtype="a dtype, or None.",
)
def tree_cast(tree: Any, dtype: Any) -> Any:
    """Cast each leaf to a dtype; None returns the tree unchanged."""
    if dtype is None:
        return tree

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, weft.ShapeDtypeStruct):
            return weft.ShapeDtypeStruct(leaf.shape, dtype)
        return wnp.asarray(leaf).astype(dtype)

    return weft.tree.map(cast, tree)


def tree_cast_like(tree: Any, other_tree: Any) -> Any:
    """Cast each leaf to the dtype of the corresponding leaf of `other_tree`."""
    cast = lambda leaf, other: (wnp.asarray(leaf).astype(wnp.asarray(other).dtype),)
    return map_trees("tree_cast_like", cast, same_shapes=False, tree=tree, other_tree=other_tree)[0]


def cast_to_dtypes(new: Any, old: Any) -> Any:
    """Cast the leaves of a new state to the dtypes of the old one; return trees of another structure unchanged."""
    leaves, structure = weft.tree.flatten(new)
    before, old_structure = weft.tree.flatten(old)
    if structure != old_structure:
        return new

    def cast(leaf: Any, was: Any) -> Any:
        dtype = getattr(was, "dtype", None)
        return leaf if dtype is None or getattr(leaf, "dtype", dtype) == dtype else leaf.astype(dtype)

    return structure.unflatten([cast(leaf, was) for leaf, was in zip(leaves, before, strict=True)])


def tree_dtype(tree: Any, mixed_dtype_handler: str | Callable[..., Any] | None = None) -> Any:
    """Return the common dtype of all leaves, or that of a Python float without leaves.

    `mixed_dtype_handler` decides for several dtypes: None raises, "promote" returns their promoted dtype, "lowest" the
    one that promotes to all others, "highest" the one that all others promote to, and a function is applied to all of
    them.
    """
    dtypes = [leaf.dtype if hasattr(leaf, "dtype") else wnp.asarray(leaf).dtype for leaf in weft.tree.leaves(tree)]
    if not dtypes:
        return wnp.asarray(1.0).dtype
    if callable(mixed_dtype_handler):
        return mixed_dtype_handler(*dtypes)
    distinct = list(dict.fromkeys(dtypes))
    if len(distinct) == 1:
        return distinct[0]
    promoted = functools.reduce(wnp.promote_types, distinct)
    match mixed_dtype_handler:
        case None:
            raise ArgumentError(
                f"the leaves must have one dtype, got {', '.join(map(str, distinct))}: "
                'pass mixed_dtype_handler="promote", "lowest" or "highest", or a function of dtypes'
            )
        case "promote":
            return promoted
        case "lowest":
            for dtype in distinct:
                if all(wnp.promote_types(dtype, other) == other for other in distinct):
                    return dtype
        case "highest":
            if promoted in distinct:
                return promoted
        case _:
            raise ArgumentError(
                'mixed_dtype_handler must be None, "promote", "lowest", "highest" or a function, '
                f"got {mixed_dtype_handler!r}"
            )
    raise ArgumentError(f"the dtypes must have a {mixed_dtype_handler} one, got {', '.join(map(str, distinct))}")


def tree_batch_shape(tree: Any, shape: tuple[int, ...] = ()) -> Any:
    """Broadcast each leaf along new leading axes of the given sizes."""
    return weft.tree.map(lambda leaf: wnp.broadcast_to(leaf, (*shape, *wnp.shape(leaf))), tree)
