"""Which targets, losses, weights and metrics belong to which output of a model."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError
from weft.keras.core.context import type_text

Path = tuple[Any, ...]


def is_container(value: Any) -> bool:
    """Return whether a value is a dict, list or tuple of outputs rather than a single output."""
    return isinstance(value, Mapping | list | tuple)


def is_config(value: Any) -> bool:
    """Return whether a value is the config of an object, which is a dict too."""
    return isinstance(value, Mapping) and "class_name" in value and "config" in value


def entries(value: Any) -> list[tuple[Any, Any]]:
    """Return pairs of a key and an entry of a dict, or of an index and an entry of a list."""
    return list(value.items()) if isinstance(value, Mapping) else list(enumerate(value))


def leaf_paths(tree: Any, path: Path = ()) -> list[Path]:
    """Return the paths of the single outputs of a nested structure.

    >>> leaf_paths({"a": (1, 2), "b": 3})
    [('a', 0), ('a', 1), ('b',)]
    """
    if not is_container(tree):
        return [path]
    return [found for key, item in entries(tree) for found in leaf_paths(item, (*path, key))]


def at_path(tree: Any, path: Path) -> Any:
    """Return the entry of a nested structure at a path."""
    for key in path:
        tree = tree[key]
    return tree


def leaf_names(y_pred: Any, names: Sequence[str] | None) -> dict[Path, str]:
    """Name the single outputs by the model, or by the keys of a flat dict; outputs without a name are left out.

    >>> leaf_names([1, 2], ["a", "b"]), leaf_names({"a": 1}, None), leaf_names([1, 2], None)
    ({(0,): 'a', (1,): 'b'}, {('a',): 'a'}, {})
    """
    paths = leaf_paths(y_pred)
    flat = isinstance(y_pred, Mapping) and all(len(path) == 1 for path in paths)
    if names is not None and len(names) == len(paths) and not flat:
        # The names of a model are in the order of `weft.tree`, which sorts the keys of dicts.
        return dict(zip(tree_order(paths), names, strict=True))
    return {path: str(path[0]) for path in paths} if flat else {}


def tree_order(paths: Sequence[Path]) -> list[Path]:
    """Sort paths as `weft.tree` orders leaves."""
    return sorted(paths, key=lambda path: [(isinstance(key, str), key) for key in path])


def unused_name(name: str, used: Collection[str]) -> str:
    """Return a name, with a number where it is used already.

    >>> unused_name("mse", ["mse", "mse_1"])
    'mse_2'
    """
    numbered = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    return next(candidate for candidate in numbered if candidate not in used)


def align(structure: Any, y_pred: Any, names: Mapping[Path, str], what: str, path: Path = ()) -> Any:
    """Arrange targets or weights like the outputs: by key or name from a dict, by position from a list.

    Args:
        structure: targets or weights; entries that are missing in a dict become None.
        y_pred: the outputs, possibly nested.
        names: the names of single outputs by path.
        what: the name of the argument in errors.
        path: the path of `y_pred` in all outputs.
    """
    if structure is None:
        return None
    if not is_container(y_pred):
        if isinstance(structure, Mapping) and names.get(path) in structure:
            return structure[names[path]]
        single = isinstance(structure, list | tuple) and len(structure) == 1
        return structure[0] if single else structure
    inner = entries(y_pred)
    labels = {key: key if isinstance(y_pred, Mapping) else names.get((*path, key), key) for key, _ in inner}
    shown = ", ".join(repr(label) for label in labels.values())
    if isinstance(structure, Mapping):
        unknown = [key for key in structure if key not in labels.values()]
        if unknown:
            raise ArgumentError(
                f"The keys of {what} must be outputs of the model.",
                received=", ".join(repr(key) for key in unknown),
                fix=f"the outputs are {shown}",
            )
        found = [structure.get(labels[key]) for key, _ in inner]
    elif isinstance(structure, list | tuple):
        paths = leaf_paths(y_pred)
        if len(structure) != len(inner) and len(structure) == len(paths):
            by_path = dict(zip(paths, structure, strict=True))
            return _fill(y_pred, by_path)
        if len(structure) != len(inner):
            raise ArgumentError(
                f"{what} must have as many entries as the model has outputs, {len(inner)}.",
                received=f"{len(structure)}: {type_text(structure)}",
                fix=f"a dict with the keys {shown}",
            )
        found = list(structure)
    elif len(inner) == 1:
        found = [structure]
    else:
        raise ArgumentError(
            f"The model has {len(inner)} outputs, so {what} must have an entry for each.",
            received=type_text(structure),
            fix=f"a list of {len(inner)}, or a dict with the keys {shown}",
        )
    aligned = [align(part, item, names, what, (*path, key)) for part, (key, item) in zip(found, inner, strict=True)]
    return rebuild(y_pred, aligned)


def align_targets(y_true: Any, y_pred: Any, names: Mapping[Path, str], paths: Sequence[Path]) -> Any:
    """Arrange targets like the outputs; they may be those of the outputs at `paths` only."""
    try:
        return align(y_true, y_pred, names, "y")
    except ArgumentError:
        flat = [at_path(y_true, path) for path in leaf_paths(y_true)]
        if len(flat) != len(paths) or len(set(paths)) != len(paths):
            raise
        return _partial(y_pred, dict(zip(paths, flat, strict=True)))


def _partial(y_pred: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    """Return the structure of the outputs with values at some paths, and None elsewhere."""
    if path in values or not is_container(y_pred):
        return values.get(path)
    return rebuild(y_pred, [_partial(item, values, (*path, key)) for key, item in entries(y_pred)])


def align_weights(sample_weight: Any, y_pred: Any, names: Mapping[Path, str], path: Path) -> Any:
    """Return the sample weights of the output at a path: one array is for all outputs."""
    if not is_container(sample_weight):
        return sample_weight
    weights = align(sample_weight, y_pred, names, "sample_weight")
    return None if weights is None else at_path(weights, path)


def rebuild(like: Any, items: Sequence[Any]) -> Any:
    """Return a dict, list or tuple of the kind of `like` with other entries."""
    if isinstance(like, Mapping):
        return dict(zip(like, items, strict=True))
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


def _fill(tree: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    if not is_container(tree):
        return values[path]
    return rebuild(tree, [_fill(item, values, (*path, key)) for key, item in entries(tree)])


class Kind(NamedTuple):
    """What the shapes of targets and predictions say about a classification."""

    binary: bool
    sparse: bool


def classify_targets(y_true: Any, y_pred: Any) -> Kind:
    """Classify targets and predictions: binary if the last axis of predictions is 1, sparse if targets are class
    indices.
    """
    true, predicted = np.shape(y_true), np.shape(y_pred)
    binary = bool(predicted) and predicted[-1] == 1
    sparse = len(true) < len(predicted) or (bool(true) and true[-1] == 1 and predicted[-1] > 1)
    return Kind(binary, sparse)
