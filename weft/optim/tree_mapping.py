"""A map over several trees of one structure, whose errors name the transformation and the tree.

An optimizer maps over gradients, moments and parameters. A map per quantity takes longer than tracing the arithmetic,
so `map_trees` computes all results of a step in one map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError, ArgumentTypeError, ShapeMismatchError, TreeMismatchError


class ParamsPlaceholder:
    """Placeholder for parameters in an `init` that is called to locate parameters in its state.

    It is a tree without leaves, so an `init` that maps over the leaves of its parameters needs no special case.
    """


weft.tree_util.register_pytree_node(ParamsPlaceholder, lambda _: ((), None), lambda _, __: ParamsPlaceholder())


class MissingParamsError(ArgumentError):
    """`update` of an optimizer was called without parameters, which one of its transformations needs."""


def need_params(where: str, params: Any) -> None:
    """Raise if the parameters that `where` needs are missing."""
    if params is None:
        raise MissingParamsError(
            f"{where} needs the parameters, and update was called without them.",
            received="params=None",
            fix="updates, state = optimizer.update(grads, state, params)",
        )


def need_extra(where: str, **arguments: Any) -> None:
    """Raise if keyword arguments of `update` that `where` needs are missing."""
    missing = [name for name, value in arguments.items() if value is None]
    if missing:
        names = ", ".join(missing)
        call = ", ".join(f"{name}={name}" for name in arguments)
        raise ArgumentTypeError(
            f"{where} needs {names} as keyword arguments of update, got none: "
            f"call optimizer.update(grads, state, params, {call})"
        )


def _is_none(node: Any) -> bool:
    return node is None


NOT_IN_STATE = ("updates", "params", "moments", "noise", "fast", "slow")


def _label(first: str, name: str) -> str:
    """Return the users' name of a tree: most trees beside updates are fields of the state."""
    return name if first != "updates" or name in NOT_IN_STATE else f"state.{name}"


def map_trees(
    where: str,
    function: Callable[..., Sequence[Any]],
    /,
    *,
    results: int = 1,
    same_shapes: bool = True,
    **trees: Any,
) -> tuple[Any, ...]:
    """Call `function` with corresponding leaves of all trees; return `results` trees of its results.

    The first tree decides the structure. Where it has None (no gradient), the results are None.
    """
    names = tuple(trees)
    first, *rest = trees.values()
    leaves, structure = weft.tree.flatten(first)
    columns = [leaves]
    for tree in rest:
        others, other_structure = weft.tree.flatten(tree)
        if other_structure is not structure and other_structure != structure:
            return _with_gaps(where, function, results, same_shapes, names, (first, *rest))
        columns.append(others)
    if same_shapes and len(columns) > 1:
        _check_shapes(where, names, columns, first)
    rows = [function(*row) for row in zip(*columns, strict=True)]
    if results == 1:
        return (structure.unflatten([row[0] for row in rows]),)
    if not rows:
        return (first,) * results
    return tuple([structure.unflatten(column) for column in zip(*rows, strict=True)])


def _with_gaps(
    where: str,
    function: Callable[..., Sequence[Any]],
    results: int,
    same_shapes: bool,
    names: tuple[str, ...],
    trees: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Map trees as `map_trees`, where the first tree may have None, or a leaf for a subtree of others."""
    leaves, structure = weft.tree.flatten(trees[0], is_leaf=_is_none)
    columns = [leaves]
    for name, tree in zip(names[1:], trees[1:], strict=True):
        columns.append(_column(where, structure, leaves, names[0], _label(names[0], name), tree))
    if same_shapes:
        _check_shapes(where, names, columns, trees[0])
    nothing = (None,) * results
    rows = [nothing if row[0] is None else function(*row) for row in zip(*columns, strict=True)]
    if not rows:
        return (trees[0],) * results
    return tuple([structure.unflatten(column) for column in zip(*rows, strict=True)])


def _column(where: str, structure: Any, first_leaves: list[Any], first: str, name: str, tree: Any) -> list[Any]:
    try:
        leaves = structure.flatten_up_to(tree)
    except TreeMismatchError as error:
        received = (error.received or "").replace("the tree", name)
        raise TreeMismatchError(
            f"{where}: {name} does not have the structure of {first}.",
            received=received or f"{first}: {structure}; {name}: {weft.tree.structure(tree)}",
            fix="give update the gradients, the state and the params of the same model; "
            "after changing the model call init again",
        ) from None
    deeper = [
        leaf
        for leaf, other in zip(leaves, first_leaves, strict=True)
        if leaf is not None and other is not None and not weft.tree_util.all_leaves([leaf])
    ]
    if deeper:
        raise TreeMismatchError(
            f"{where}: {name} does not have the structure of {first}.",
            received=f"a leaf of {first} where {name} has {weft.tree.structure(deeper[0])}",
            fix="give update the gradients, the state and the params of the same model",
        )
    return leaves


def _check_shapes(where: str, names: tuple[str, ...], columns: list[list[Any]], first: Any) -> None:
    """Raise unless all leaves of a row have one shape: broadcasting would silently change parameters or state."""
    shapes = [getattr(leaf, "shape", ()) for leaf in columns[0]]
    for name, column in zip(names[1:], columns[1:], strict=True):
        for i, (shape, leaf) in enumerate(zip(shapes, column, strict=True)):
            if getattr(leaf, "shape", ()) != shape and columns[0][i] is not None and leaf is not None:
                path = weft.tree.leaves_with_path(first, is_leaf=_is_none)[i][0]
                path_text, label = weft.tree_util.keystr(path), _label(names[0], name)
                other = getattr(leaf, "shape", ())
                raise ShapeMismatchError(
                    f"{where}: {names[0]} and {label} must have the same shapes.",
                    received=f"{names[0]}{path_text} of shape {shape}, {label}{path_text} of shape {other}",
                    fix="differentiate with respect to the same params that init was given",
                )
