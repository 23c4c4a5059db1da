"""Chains of transformations, and different transformations for different parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import weft
from weft.errors import ArgumentError, ArgumentTypeError
from weft.optim.argument_docs import document
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    set_to_zero,
    with_extra_args_support,
)
from weft.optim.transforms.masking import MaskedState, evaluate_mask, masked
from weft.optim.tree_mapping import ParamsPlaceholder


@document("A `GradientTransformationExtraArgs`.", args="transformations.")
def chain(*args: GradientTransformation) -> GradientTransformationExtraArgs:
    """Apply transformations in order; the state is the tuple of their states.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1))
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.045,  0.089], dtype=float32)
    """
    for i, member in enumerate(args):
        if not (hasattr(member, "init") and hasattr(member, "update")):
            raise ArgumentTypeError(f"chain needs gradient transformations; argument {i} is {member!r}")
    members = [with_extra_args_support(member) for member in args]

    def init(params: Params) -> tuple[Any, ...]:
        return tuple([member.init(params) for member in members])

    def update(
        updates: Updates, state: tuple[Any, ...], params: Params | None = None, **extra_args: Any
    ) -> tuple[Updates, tuple[Any, ...]]:
        if not isinstance(state, tuple | list):
            raise ArgumentTypeError(
                f"the state of a chain must be a tuple, got {type(state).__name__}: "
                "the order is update(updates, state, params)"
            )
        if len(state) != len(members):
            raise ArgumentError(
                f"the state of a chain of {len(members)} transformations must have {len(members)} parts, got "
                f"{len(state)}: make it with init of the same chain"
            )
        states = []
        for member, part in zip(members, state, strict=True):
            updates, part = member.update(updates, part, params, **extra_args)
            states.append(part)
        return updates, tuple(states)

    return GradientTransformationExtraArgs(init, update)


def named_chain(*args: tuple[str, GradientTransformation]) -> GradientTransformationExtraArgs:
    """Apply (name, transformation) pairs in order; the state is a dict by name."""
    names = [name for name, _ in args]
    if len(set(names)) != len(names):
        raise ArgumentError(f"named_chain needs different names, got {names}")
    members = [(name, with_extra_args_support(member)) for name, member in args]

    def init(params: Params) -> dict[str, Any]:
        return {name: member.init(params) for name, member in members}

    def update(updates: Updates, state: dict[str, Any], params: Params | None = None, **extra_args: Any) -> Any:
        states = {}
        for name, member in members:
            updates, states[name] = member.update(updates, state[name], params, **extra_args)
        return updates, states

    return GradientTransformationExtraArgs(init, update)


class PartitionState(NamedTuple):
    """The state of each transformation, by label."""

    inner_states: Mapping[Hashable, Any]


MultiTransformState = PartitionState


def partition(
    transforms: Mapping[Hashable, GradientTransformation],
    param_labels: Any | Callable[[Any], Any],
    *,
    mask_compatible_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """Apply to each parameter the transformation with its label.

    `param_labels` is a tree of labels that is a prefix of the parameters, or a function that makes one from them.

    Args:
        transforms: a transformation for each label.
        param_labels: a tree of labels, or a function that makes one.
        mask_compatible_extra_args: whether extra arguments like the parameters are divided too.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optimizer = optim.multi_transform({"fast": optim.sgd(1.0), "slow": optim.sgd(0.1)}, {"w": "fast", "b": "slow"})
    >>> params = {"w": wnp.ones(1), "b": wnp.ones(1)}
    >>> optimizer.update(params, optimizer.init(params))[0]
    {'b': Array([-0.1], dtype=float32), 'w': Array([-1.], dtype=float32)}
    """
    members = {label: with_extra_args_support(member) for label, member in transforms.items()}

    def get_labels(tree: Any) -> Any:
        labels = evaluate_mask(param_labels, tree)
        for path, label in weft.tree.leaves_with_path(labels):
            if label not in members:
                where = weft.tree_util.keystr(path) or "all params"
                raise ArgumentError(
                    f"partition: {where} has the label {label!r}, but there are transformations for "
                    f"{', '.join(map(repr, members))} only"
                )
        return labels

    def part(label: Hashable, labels: Any) -> GradientTransformationExtraArgs:
        mask = weft.tree.map(lambda leaf: leaf == label, labels)
        return masked(members[label], mask, mask_compatible_extra_args=mask_compatible_extra_args)

    def init(params: Params) -> PartitionState:
        if isinstance(params, ParamsPlaceholder):
            return PartitionState({label: MaskedState(member.init(params)) for label, member in members.items()})
        labels = get_labels(params)
        return PartitionState({label: part(label, labels).init(params) for label in members})

    def update(updates: Updates, state: PartitionState, params: Params | None = None, **extra_args: Any) -> Any:
        labels = get_labels(updates)
        states = {}
        for label in members:
            inner = state.inner_states[label]
            updates, states[label] = part(label, labels).update(updates, inner, params, **extra_args)
        return updates, PartitionState(states)

    return GradientTransformationExtraArgs(init, update)


multi_transform = partition


def selective_transform(optimizer: GradientTransformation, *, freeze_mask: Any) -> GradientTransformationExtraArgs:
    """Apply `optimizer` where the mask is false; updates are zero where it is true."""

    def labels(tree: Any) -> Any:
        mask = evaluate_mask(freeze_mask, tree)
        return weft.tree.map(lambda frozen: "freeze" if frozen else "train", mask)

    return partition({"train": optimizer, "freeze": set_to_zero()}, labels)
