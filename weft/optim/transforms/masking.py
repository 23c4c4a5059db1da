"""Transformations for some of the parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
from weft.errors import ArgumentTypeError, TreeMismatchError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    Params,
    Updates,
    set_to_zero,
    with_extra_args_support,
)
from weft.optim.tree_mapping import ParamsPlaceholder


class MaskedNode(NamedTuple):
    """Placeholder for leaves that a masked transformation does not see; a tree without leaves.

    >>> from weft import optim
    >>> from weft import tree
    >>> tree.leaves(optim.MaskedNode())
    []
    """


class MaskedState(NamedTuple):
    """The state of the inner transformation.

    Args:
        inner_state: the state.

    >>> from weft import optim
    >>> state = optim.masked(optim.trace(0.9), {"w": True, "b": False}).init({"w": 1.0, "b": 2.0})
    >>> state.inner_state.trace["b"]
    MaskedNode()
    """

    inner_state: Any


def evaluate_mask(mask: Any, tree: Any) -> Any:
    """Return mask(tree) for a function, and a tree unchanged (an Equinox module is a callable tree)."""
    return mask(tree) if callable(mask) and weft.tree_util.all_leaves([mask]) else mask


def _mask_tree(where: str, mask: MaskOrFn, tree: Any) -> Any:
    """Return the mask for a tree, as a prefix of it."""
    found = evaluate_mask(mask, tree)
    for path, leaf in weft.tree.leaves_with_path(found):
        if not (isinstance(leaf, bool) or (hasattr(leaf, "dtype") and leaf.dtype == bool and leaf.ndim == 0)):
            name = weft.tree_util.keystr(path) or "the mask"
            raise ArgumentTypeError(f"{where}: a mask must be a tree of booleans, but {name} is {leaf!r}")
    return found


def _map_mask(where: str, function: Any, mask: Any, name: str, tree: Any, *rest: Any) -> Any:
    try:
        return weft.tree.map(function, mask, tree, *rest)
    except TreeMismatchError as error:
        raise TreeMismatchError(
            f"{where}: the mask is no prefix of the tree of {name}.",
            received=(error.received or "").replace("tree 2", name),
            fix="a boolean for every leaf, or one for a whole subtree; lambda params: weft.tree.map(..., params)",
        ) from None


def hidden(where: str, mask: Any, name: str, tree: Any) -> Any:
    """Replace leaves by `MaskedNode` where the mask is false."""
    return _map_mask(where, lambda keep, part: part if keep else MaskedNode(), mask, name, tree)


def masked(
    inner: GradientTransformation, mask: MaskOrFn, *, mask_compatible_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Apply `inner` where the mask is true, and return other updates unchanged.

    The mask is a tree of booleans that is a prefix of the parameters, or a function that makes one from them. With
    `mask_compatible_extra_args`, extra arguments with the tree structure of the parameters are masked too.

    Args:
        inner: a transformation.
        mask: a tree of booleans, or a function that makes one.
        mask_compatible_extra_args: whether extra arguments like the parameters are masked too.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> from weft import optim
    >>> optimizer = optim.masked(optim.scale(10.0), {"w": True, "b": False})
    >>> optimizer.update({"w": 1.0, "b": 1.0}, optimizer.init({"w": 0.0, "b": 0.0}))[0]
    {'b': 1.0, 'w': 10.0}
    """
    inner = with_extra_args_support(inner)

    def init(params: Params) -> MaskedState:
        if isinstance(params, ParamsPlaceholder):
            return MaskedState(inner.init(params))
        return MaskedState(inner.init(hidden("masked", _mask_tree("masked", mask, params), "params", params)))

    def update(updates: Updates, state: MaskedState, params: Params | None = None, **extra_args: Any) -> Any:
        tree = _mask_tree("masked", mask, updates)
        some_updates = hidden("masked", tree, "updates", updates)
        some_params = None if params is None else hidden("masked", tree, "params", params)
        if mask_compatible_extra_args:
            extra_args = {name: _hidden_if_it_fits(tree, value) for name, value in extra_args.items()}
        new, inner_state = inner.update(some_updates, state.inner_state, some_params, **extra_args)
        merge = lambda keep, changed, old: changed if keep else old
        return _map_mask("masked", merge, tree, "updates", new, updates), MaskedState(inner_state)

    return GradientTransformationExtraArgs(init, update)


def _hidden_if_it_fits(mask: Any, value: Any) -> Any:
    try:
        return weft.tree.map(lambda keep, part: part if keep else MaskedNode(), mask, value)
    except ValueError:
        return value


def freeze(mask: MaskOrFn) -> GradientTransformation:
    """Return zero updates where the mask is true, and others unchanged."""
    return masked(set_to_zero(), mask)
