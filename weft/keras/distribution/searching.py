"""Layouts that are searched for: those with which the step of a model's training is fastest on a mesh."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.experimental import multihost_utils
from weft.keras.distribution.layout import TensorLayout
from weft.keras.distribution.mesh import DeviceMesh

logger = logging.getLogger("weft")

Key = tuple[str, tuple[int, ...]]


def layout_key(variable: Any) -> Key:
    """Return the key of a variable's layout: its path and shape."""
    return variable.path, tuple(variable.shape)


def collection_names(variables: Sequence[Any]) -> list[tuple[int, str]]:
    """Return for each variable the index of a collection and a name in it, from which the search sees what belongs
    together.

    A weight and an optimizer's variables beside it have one name in several collections; weights of layers that differ
    in a count have names that differ in an index.
    """
    by_prefix = {f"{variable.path.replace('/', '_')}_": variable for variable in variables}
    taken: set[tuple[int, str]] = set()
    names: list[tuple[int, str]] = []
    for variable in variables:
        last = variable.path.rpartition("/")[2]
        like = [w for prefix, w in by_prefix.items() if last.startswith(prefix) and w.shape == variable.shape]
        beside = like[0] if like else None
        name = re.sub(r"_(\d+)(?=/|$)", r"[\1]", (variable if beside is None else beside).path)
        index = 0 if beside is None else 1
        while (index, name) in taken:
            index += 1
        taken.add((index, name))
        names.append((index, name))
    return names


def collect(names: Sequence[tuple[int, str]], values: Sequence[Any]) -> list[dict[str, Any]]:
    """Group values by their collections and names."""
    found: list[dict[str, Any]] = [{} for _ in range(1 + max((i for i, _ in names), default=0))]
    for (i, name), value in zip(names, values, strict=True):
        found[i][name] = value
    return found


class SearchedLayouts:
    """The layouts of the variables and batches of steps, found by `weft.sharding.search`.

    Args:
        mesh: the mesh.
        memory: what a device has, in bytes or as a text; None: what the machine has.
        seconds: how long to search.
    """

    def __init__(self, mesh: DeviceMesh, memory: Any, seconds: float) -> None:
        self.mesh, self.memory, self.seconds = mesh, memory, seconds
        self.variables: dict[Key, TensorLayout] = {}
        self.split: dict[str, TensorLayout] = {}  # of those that are split and no optimizer's
        self.batches: dict[tuple[int, ...], TensorLayout] = {}
        self.found: Any = None  # what the last search has found, in the first process

    def knows(self, variables: Sequence[Any]) -> bool:
        """Return whether there is a layout for each variable."""
        return all(layout_key(variable) in self.variables for variable in variables)

    def search(self, step: Any) -> None:
        """Find layouts for the variables and the batch of a step."""
        names = collection_names(step.variables)
        values = collect(names, step.value_specs())
        batch = weft.tree.map(self._even, step.batch)

        def run(values: list[dict[str, Any]], batch: Any) -> Any:
            # All values again, so that the search knows them for state, which is stored as it is split.
            result, after = step.run_without_pins([values[i][name] for i, name in names], batch)
            return collect(names, after), result

        leaves = weft.tree.leaves((values, batch))
        if weft.process_index() == 0:
            platform = self.mesh.backend_mesh.devices.flat[0].platform
            machine = "cpu" if platform == "cpu" else "h100"
            mesh = self.mesh.backend_mesh
            sharding: Any = weft.sharding  # `search` is loaded on first use
            self.found = sharding.search(
                run, values, batch, mesh=mesh, memory=self.memory, time=self.seconds, machine=machine
            )
            specs = weft.tree.leaves(self.found.specs, is_leaf=lambda spec: isinstance(spec, weft.P))
            chosen = np.stack([self._dimensions(spec) for spec in specs])
            logger.info("%s", f"Layouts found for a training step over {mesh}:\n{self.found!r}")
        else:
            chosen = np.zeros((len(leaves), len(self.mesh.axis_names)), np.int32)
        if weft.process_count() > 1:
            # How far a search comes depends on the time that it has, so one process searches for all.
            chosen = multihost_utils.broadcast_one_to_all(chosen)
        rows = weft.tree.unflatten(weft.tree.structure(values), list(chosen[: len(names)]))
        for (i, name), variable in zip(names, step.variables, strict=True):
            # Counts and states of seeds are whole: to split two integers is of no use.
            splits = wnp.issubdtype(variable._value.dtype, wnp.inexact)
            dimensions = rows[i][name] if splits else np.full(len(self.mesh.axis_names), -1)
            layout = self._layout(dimensions, variable.shape)
            self.variables[layout_key(variable)] = layout
            if i == 0 and any(layout.axes):
                self.split[variable.path] = layout
        for leaf, dimensions in zip(leaves[len(names) :], chosen[len(names) :], strict=True):
            self.batches[leaf.shape[1:]] = self._layout(dimensions, leaf.shape)

    def _even(self, leaf: Any) -> Any:
        """Round the number of rows of a batch's type up to a multiple of the number of devices."""
        count = self.mesh.devices.size
        rows = -(-leaf.shape[0] // count) * count
        return weft.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype)

    def _dimensions(self, spec: Any) -> np.ndarray:
        """Return for each axis of the mesh the dimension that it splits, or -1."""
        found = np.full(len(self.mesh.axis_names), -1, np.int32)
        for dimension, entry in enumerate(spec):
            for axis in () if entry is None else entry if isinstance(entry, tuple) else (entry,):
                found[self.mesh.axis_names.index(axis)] = dimension
        return found

    def _layout(self, dimensions: np.ndarray, shape: Sequence[int]) -> TensorLayout:
        entries: list[Any] = []
        for dimension in range(len(shape)):
            axes = tuple(a for a, d in zip(self.mesh.axis_names, dimensions, strict=True) if d == dimension)
            entries.append(None if not axes else axes[0] if len(axes) == 1 else axes)
        return TensorLayout(entries, self.mesh)
