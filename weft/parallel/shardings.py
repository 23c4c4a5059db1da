"""Shardings of trees of arrays: by their first dimension, by their largest, or by rules on their paths."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import lax, tree_util
from weft.errors import ArgumentError
from weft.sharding import NamedSharding, PartitionSpec

Mesh = Any


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Return shardings that replicate every array on every device."""
    return tree_util.tree_map(lambda _: NamedSharding(mesh, PartitionSpec()), tree)


def data_parallel(batch: Any, mesh: Mesh, axis: Any = "data", dim: int = 0) -> Any:
    """Return shardings of a batch: dimension `dim` of each array is split over an axis (or a tuple of axes) of the
    mesh. The split may be uneven: then the last devices have fewer examples.

    With parameters that are whole on every device, gradients are summed over the axis where they are used.
    """
    _size(mesh, axis)  # raises unless the mesh has the axis

    def one(path: Any, leaf: Any) -> NamedSharding:
        shape = np.shape(leaf)
        if len(shape) <= dim:
            raise ArgumentError(
                f"data_parallel: {tree_util.keystr(path) or 'the batch'} has no dimension {dim} to be split.",
                received=f"shape {shape}",
                fix="arrays whose examples are along one dimension",
            )
        return NamedSharding(mesh, PartitionSpec(*[None] * dim, axis))

    return tree_util.tree_map_with_path(one, batch)


def fsdp(state: Any, mesh: Mesh, axis: Any = "data", base: Any = None, min_size: int = 0) -> Any:
    """Return shardings of state: each array is split over an axis (or a tuple of axes) along the largest dimension that
    the axis divides. It is replicated if no dimension fits or it has fewer than `min_size` elements.

    `base` is a tree of shardings to start from, such as those of `tensor_parallel`: then the axis is added to them.
    Parameters and optimizer state are stored this way; programs gather parameters where they use them, and scatter
    sums of gradients.
    """
    count = _size(mesh, axis)
    axes = axis if isinstance(axis, tuple) else (axis,)

    def one(leaf: Any, start: NamedSharding) -> NamedSharding:
        shape = np.shape(leaf)
        entries = [*start.spec, *[None] * (len(shape) - len(start.spec))]
        taken = [_names(entry) for entry in entries]
        if int(np.prod(shape)) < min_size or any(a in names for names in taken for a in axes):
            return start
        local = [size // _size(mesh, names) for size, names in zip(shape, taken, strict=True)]
        fitting = [d for d, size in enumerate(local) if size % count == 0 and size >= count]
        if not fitting:
            return start
        largest = max(fitting, key=lambda d: (local[d], -d))
        names = (*taken[largest], *axes)
        entries[largest] = names[0] if len(names) == 1 else names
        return NamedSharding(mesh, PartitionSpec(*entries))

    return tree_util.tree_map(one, state, replicated(state, mesh) if base is None else base)


def tensor_parallel(params: Any, mesh: Mesh, rules: Mapping[str, Any]) -> Any:
    """Return shardings by rules on paths. `rules` maps regular expressions to `PartitionSpec`s; an array whose path
    (its keys joined by slashes, `layers/0/up`) matches one has that spec, all others are replicated.

    A pattern that matches nothing is an error, and so is a path that two match, since either means that a name has
    changed or a rule is wrong.
    """
    used: set[str] = set()
    paths: list[str] = []

    def one(path: Any, leaf: Any) -> NamedSharding:
        name = path_text(path)
        paths.append(name)
        matching = [pattern for pattern in rules if re.search(pattern, name)]
        if len(matching) > 1:
            raise ArgumentError(
                f"tensor_parallel: at most one pattern must match {name!r}.",
                received=" and ".join(map(repr, matching)),
                fix="patterns that match one path each: '^' and '$' match the ends of a path",
            )
        used.update(matching)
        spec = rules[matching[0]] if matching else PartitionSpec()
        sharding = NamedSharding(mesh, spec)
        shape = np.shape(leaf)
        if len(spec) > len(shape):
            raise ArgumentError(
                f"tensor_parallel: {spec} must have at most one entry per dimension of {name!r}.",
                received=f"shape {shape}",
            )
        return sharding

    found = tree_util.tree_map_with_path(one, params)
    for pattern in rules:
        if pattern not in used:
            near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3) or paths[:3]
            raise ArgumentError(
                f"tensor_parallel: the pattern {pattern!r} matches no path.",
                received=f"paths such as {', '.join(map(repr, near))}",
                fix="a pattern that fits a path, or leave it out",
            )
    return found


def sequence_parallel(x: Any, mesh: Mesh, axis: Any = "model", dim: int = 1, batch_axis: Any = None) -> Any:
    """Split an activation along its sequence, dimension `dim`, over an axis: between matmuls that are split over the
    same axis, e.g. in norms and residual sums.

    Then each device has a part of the sequence there, sums of partial results are scattered along it, and what the next
    matmul needs is gathered, which sends as much as the sums alone would and stores less.
    """
    entries = [None] * x.ndim
    entries[dim] = axis
    if batch_axis is not None:
        entries[0] = batch_axis
    return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*entries)))


def path_text(path: Any) -> str:
    """Join the keys of a path by slashes."""
    return tree_util.keystr(path, simple=True, separator="/")


def _names(entry: Any) -> tuple[Any, ...]:
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def _size(mesh: Mesh, axis: Any) -> int:
    """Return the number of parts into which an axis, or several, split a dimension."""
    sizes = dict(mesh.shape)
    for name in _names(axis):
        if name not in sizes:
            raise ArgumentError(
                f"The mesh has no axis {name!r}.", received=", ".join(map(str, sizes)), fix="one of its axes"
            )
    return int(np.prod([sizes[name] for name in _names(axis)], dtype=np.int64))
