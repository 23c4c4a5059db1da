"""The loss of a model according to `compile(loss=...)`: one per output, weighted and summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import losses
from weft.keras.core.context import type_text
from weft.keras.losses.base import Loss, LossFunctionWrapper
from weft.keras.metrics import Mean
from weft.keras.training.outputs import (
    Path,
    align,
    align_targets,
    align_weights,
    at_path,
    classify_targets,
    entries,
    is_config,
    is_container,
    leaf_names,
    leaf_paths,
    unused_name,
)

_CROSSENTROPIES = ("BinaryCrossentropy", "SparseCategoricalCrossentropy", "CategoricalCrossentropy")


def loss_object(identifier: Any, y_true: Any, y_pred: Any) -> Loss:
    """Return the loss for an argument of `compile`; "crossentropy" depends on the shapes of targets and predictions."""
    if identifier in ("crossentropy", "ce"):
        kind = classify_targets(y_true, y_pred)
        return getattr(losses, _CROSSENTROPIES[0 if kind.binary else 1 if kind.sparse else 2])()
    found = losses.get(identifier)
    if isinstance(found, Loss):
        return found
    if not callable(found):
        raise ArgumentError(
            "A loss must be a function of (y_true, y_pred), a `Loss`, or a name.",
            received=f"{type(found).__name__}: {found!r}",
        )
    return LossFunctionWrapper(found, name=getattr(found, "__name__", type(found).__name__))


class Entry(NamedTuple):
    """The loss of one output, or of several outputs together."""

    path: Path
    name: str
    loss: Loss
    weight: Any
    tracker: Mean | None


class CompileLoss:
    """The weighted sum of the losses of all outputs.

    Args:
        loss: a loss, or a list or dict of them by output.
        loss_weights: a float, or a list or dict of them by output.
        output_names: names of the outputs, where the model knows them.

    The losses of single outputs are tracked (`metrics`) where several outputs have one.
    """

    def __init__(self, loss: Any, loss_weights: Any = None, output_names: Sequence[str] | None = None) -> None:
        self.loss = loss
        self.loss_weights = loss_weights
        self.output_names = output_names
        self.entries: list[Entry] | None = None

    @property
    def metrics(self) -> list[Mean]:
        """The means of the losses of single outputs."""
        trackers = {entry.name: entry.tracker for entry in self.entries or () if entry.tracker is not None}
        return list(trackers.values())

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Find the loss of each output. Shapes and types of arrays are enough."""
        if self.entries is not None:
            return
        names = leaf_names(y_pred, self.output_names)
        losses_at = [(path, one) for path, one in assign(self.loss, y_pred, names, "loss") if one is not None]
        weights = self._weights(losses_at, y_pred, names)
        targets = align_targets(y_true, y_pred, names, [path for path, _ in losses_at])
        found: list[Entry] = []
        several = len(losses_at) > 1
        for (path, identifier), weight in zip(losses_at, weights, strict=True):
            name = output_name(path, y_pred, names)
            target = at_path(targets, path) if targets is not None else None
            if target is None:
                raise ArgumentError(
                    f"The output {name or path!r} has a loss, so it must have targets.",
                    received="y=None" if y_true is None else f"y={type_text(y_true)}",
                    fix="fit(x, y), or a stream of batches (x, y)",
                )
            loss = loss_object(identifier, target, at_path(y_pred, path))
            if name is None:
                label = identifier if isinstance(identifier, str) else loss.name
                name = unused_name("/".join(str(part) for part in (*path[:-1], label)), [e.name for e in found])
            # Several losses of one output have one tracker: their sum is the loss of the output.
            tracker = next((entry.tracker for entry in found if entry.name == name), None)
            if several and tracker is None:
                tracker = Mean(name=f"{name}_loss")
            found.append(Entry(path, name, loss, weight, tracker))
        self.entries = found

    def _weights(self, losses_at: list[tuple[Path, Any]], y_pred: Any, names: Mapping[Path, str]) -> list[Any]:
        """Return the weight of each loss: of the same structure as the losses, or in their order."""
        structure = self.loss_weights
        if structure is None:
            return [None] * len(losses_at)
        flat = [at_path(structure, path) for path in leaf_paths(structure)]
        if len(flat) == len(losses_at) and not isinstance(structure, Mapping):
            return flat
        assigned = dict(assign(structure, y_pred, names, "loss_weights", shared=False))
        return [assigned.get(path) for path, _ in losses_at]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss of a batch, a scalar; None if no output has one."""
        self.build(y_true, y_pred)
        found = self.entries or []
        names = leaf_names(y_pred, self.output_names)
        targets = align_targets(y_true, y_pred, names, [entry.path for entry in found])
        total = None
        tracked: dict[str, tuple[Mean, Any, int]] = {}
        for entry in found:
            predicted = at_path(y_pred, entry.path)
            weight = align_weights(sample_weight, y_pred, names, entry.path)
            value = self._of_output(entry, at_path(targets, entry.path), predicted, weight)
            if entry.tracker is not None:
                before = tracked[entry.name][1] if entry.name in tracked else 0.0
                tracked[entry.name] = (entry.tracker, before + value, weft.tree.leaves(predicted)[0].shape[0])
            if entry.weight is not None:
                value = value * wnp.asarray(entry.weight, value.dtype)
            total = value if total is None else total + value
        for tracker, value, rows in tracked.values():
            tracker.update_state(value, sample_weight=rows)
        return total

    def _of_output(self, entry: Entry, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        try:
            return entry.loss(y_true, y_pred, sample_weight)
        except Exception as error:
            weights = "" if sample_weight is None else f", sample_weight {type_text(sample_weight)}"
            types = f"y_true {type_text(y_true)}, y_pred {type_text(y_pred)}{weights}"
            error.add_note(f"in loss {entry.loss.name} of output {entry.name}: {types}")
            raise


def assign(
    structure: Any, y_pred: Any, names: Mapping[Path, str], what: str, shared: bool = True, path: Path = ()
) -> list[tuple[Path, Any]]:
    """Return pairs of a path of the outputs and the loss or weight for it.

    A list whose entries do not match those of the outputs holds several losses of the same output; a loss at the path
    of nested outputs takes them together.

    Args:
        structure: a loss, or a structure of losses.
        y_pred: the outputs at `path`.
        names: the names of single outputs by path.
        what: the name of the argument in errors.
        shared: whether one loss is for each of several outputs.
        path: the path of `y_pred` in all outputs.
    """
    if isinstance(structure, Mapping) and (not is_config(structure) or isinstance(y_pred, Mapping)):
        return _assign_keys(structure, y_pred, names, what, path)
    if not isinstance(structure, list | tuple):
        if path or not is_container(y_pred):
            return [(path, structure)]
        if not shared and len(leaf_paths(y_pred)) > 1:
            align(structure, y_pred, names, what)
        return [(leaf, structure) for leaf in leaf_paths(y_pred)]
    leaves = leaf_paths(y_pred, path)
    if len(structure) == len(leaves) and not any(is_container(one) and not is_config(one) for one in structure):
        return list(zip(leaves, structure, strict=True))
    if is_container(y_pred) and not isinstance(y_pred, Mapping) and isinstance(y_pred, type(structure)):
        if len(structure) != len(y_pred):
            align(structure, y_pred, names, what)
        pairs = zip(structure, entries(y_pred), strict=True)
        return [p for one, (key, item) in pairs for p in assign(one, item, names, what, shared, (*path, key))]
    if not is_container(y_pred) and not path and not any(is_container(one) for one in structure):
        align(list(structure), [y_pred], {(0,): names.get((), "output")}, what)
    several = [p for one in structure for p in assign(one, y_pred, names, what, shared, path or ())]
    if not path and is_container(y_pred):
        # Each entry is for the outputs together.
        several = [p for one in structure for p in _together(one, y_pred, names, what)]
    return several


def _together(one: Any, y_pred: Any, names: Mapping[Path, str], what: str) -> list[tuple[Path, Any]]:
    return assign(one, y_pred, names, what) if is_container(one) else [((), one)]


def _assign_keys(
    structure: Mapping[Any, Any], y_pred: Any, names: Mapping[Path, str], what: str, path: Path
) -> list[tuple[Path, Any]]:
    if not is_container(y_pred):
        only = align(structure, [y_pred], {(0,): names.get(path, "output")}, what)[0]
        return [] if only is None else assign(only, y_pred, names, what, path=path)
    inner = entries(y_pred)
    labels = [key if isinstance(y_pred, Mapping) else names.get((*path, key), key) for key, _ in inner]
    # Unknown keys are an error of the alignment.
    align(dict.fromkeys(structure), y_pred, names, what, path)
    found: list[tuple[Path, Any]] = []
    by_label = dict(zip(labels, inner, strict=True))
    for label, one in structure.items():
        if one is not None:
            key, item = by_label[label]
            found += assign(one, item, names, what, path=(*path, key))
    return found


def output_name(path: Path, y_pred: Any, names: Mapping[Path, str]) -> str | None:
    """Return the name of the output at a path in histories, or None if neither model nor keys name it."""
    if path in names:
        # The key of a dict is the name; that of a list is the layer's.
        last = names[path] if not path or isinstance(path[-1], int) else path[-1]
        return "/".join(str(part) for part in (*path[:-1], last))
    if path:
        return None if isinstance(path[-1], int) else "/".join(str(part) for part in path)
    if not is_container(y_pred):
        return None
    keys = list(y_pred) if isinstance(y_pred, Mapping) else [names.get(leaf) for leaf in leaf_paths(y_pred)]
    return None if None in keys else "_".join(str(key) for key in keys)
