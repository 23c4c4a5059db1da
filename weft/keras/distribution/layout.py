"""Layouts: which axes of a mesh the dimensions of an array are split over, and layouts by the paths of variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.layouts import as_sharding
from weft.keras.core.variable import Variable
from weft.keras.distribution.mesh import DeviceMesh
from weft.sharding import NamedSharding, PartitionSpec


class TensorLayout:
    """How an array is split: for each dimension the axis of a mesh that it is split over, or None.

    Args:
        axes: a name for each dimension, or None, or a tuple of names. Dimensions that are not named are whole.
        device_mesh: the mesh; a `LayoutMap` fills in its own where it is None.

    Example:
        >>> from weft import keras
        >>> mesh = keras.distribution.DeviceMesh((1,), ("model",), ["cpu:0"])
        >>> keras.distribution.TensorLayout([None, "model"], mesh).axes
        (None, 'model')
    """

    def __init__(self, axes: Sequence[Any], device_mesh: DeviceMesh | None = None) -> None:
        self._axes = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in axes)
        self._mesh = device_mesh
        self._check()

    @property
    def axes(self) -> tuple[Any, ...]:
        """The axis of each dimension."""
        return self._axes

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh, or None."""
        return self._mesh

    @device_mesh.setter
    def device_mesh(self, value: DeviceMesh) -> None:
        if self._mesh is not None:
            raise ArgumentError("A layout has one mesh, which does not change.", received=f"{self!r}")
        self._mesh = value
        self._check()

    @property
    def backend_layout(self) -> NamedSharding:
        """The layout as a sharding of Weft."""
        if self._mesh is None:
            raise ArgumentError(
                "A layout without a mesh is of no devices.", received=f"{self!r}", fix="TensorLayout(axes, device_mesh)"
            )
        # As programs write the shardings of their results: a call with those is the same call.
        split = [i for i, entry in enumerate(self._axes) if entry is not None]
        return NamedSharding(self._mesh.backend_mesh, PartitionSpec(*self._axes[: split[-1] + 1 if split else 0]))

    def _check(self) -> None:
        if self._mesh is None:
            return
        for entry in self._axes:
            for name in entry if isinstance(entry, tuple) else (entry,):
                if name is not None and name not in self._mesh.axis_names:
                    raise ArgumentError(
                        f"The mesh has no axis {name!r}.",
                        received=f"axes={self._axes}",
                        fix=f"its axes are {', '.join(map(repr, self._mesh.axis_names))}",
                    )

    def check_shape(self, shape: Sequence[int], what: str) -> None:
        """Raise an error if an array cannot be split so: too few dimensions, or a size that is no multiple."""
        assert self._mesh is not None
        if len(self._axes) > len(shape):
            raise ArgumentError(
                f"The layout of {what} has more axes than it has dimensions.",
                received=f"axes={self._axes}, shape {tuple(shape)}",
            )
        for dimension, (size, entry) in enumerate(zip(shape, self._axes, strict=False)):
            parts = self._mesh.part_count(entry)
            if size % parts:
                raise ArgumentError(
                    f"The axis {entry!r} has {parts} devices, which do not divide dimension {dimension} of {what}.",
                    received=f"shape {tuple(shape)}, axes={self._axes}",
                    fix=(f"a size that is a multiple of {parts}", "None for that dimension"),
                )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} axes={self._axes}, device_mesh={self._mesh}>"


class LayoutMap(MutableMapping[str, Any]):
    """Layouts by paths: keys are paths of variables (`"mlp/dense/kernel"`), or regular expressions that match them.

    A path that two patterns match is an error, and so is a pattern that matches no variable, when a model is built:
    either means that a name has changed or that a pattern is wrong. Outputs of layers have paths such as
    `"mlp/dense/output"`.

    Args:
        device_mesh: the mesh of layouts that name none.

    Example:
        >>> from weft import keras
        >>> mesh = keras.distribution.DeviceMesh((1,), ("model",), ["cpu:0"])
        >>> layouts = keras.distribution.LayoutMap(mesh)
        >>> layouts["dense.*kernel"] = (None, "model")
        >>> layouts["mlp/dense_1/kernel"].axes
        (None, 'model')
    """

    def __init__(self, device_mesh: DeviceMesh) -> None:
        if not isinstance(device_mesh, DeviceMesh):
            raise ArgumentError("`device_mesh` must be a DeviceMesh.", received=repr(device_mesh))
        self._mesh = device_mesh
        self._layouts: dict[str, TensorLayout] = {}
        self._used: set[str] = set()
        self._paths: dict[str, None] = {}  # those of variables that were asked for, in order

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh of layouts that name none."""
        return self._mesh

    def __getitem__(self, key: str) -> Any:
        """Return the layout of a path; None if no pattern matches."""
        pattern = self.find_pattern(key)
        return None if pattern is None else self._layouts[pattern]

    def find_pattern(self, path: str) -> str | None:
        """Return the key for a path: an equal one, else the pattern that matches all of it, else a part of it."""
        if path in self._layouts:
            return path
        # Keras matches whole paths; before 3.10 it matched parts.
        matching = [pattern for pattern in self._layouts if re.fullmatch(pattern, path)]
        matching = matching or [pattern for pattern in self._layouts if re.search(pattern, path)]
        if len(matching) > 1:
            raise ArgumentError(
                f"{len(matching)} patterns match the path {path!r}; at most one must.",
                received=f"{' and '.join(map(repr, matching))}{self._seen(path)}",
                fix="patterns that match each path once: '^' and '$' anchor them, and the path itself takes precedence",
            )
        return matching[0] if matching else None

    def __setitem__(self, key: str, layout: Any) -> None:
        if key in self._layouts:
            raise ArgumentError(
                "The pattern has a layout already.", received=f"{key!r}: {self._layouts[key]}", fix=f"del map[{key!r}]"
            )
        try:
            re.compile(key)
        except re.error as error:
            raise ArgumentError(f"A key must be a regular expression: {error}.", received=repr(key)) from None
        if not isinstance(layout, TensorLayout):
            if not isinstance(layout, tuple | list):
                raise ArgumentError(
                    "A layout must be a TensorLayout, or a tuple of axis names and None.",
                    received=f"{key!r}: {layout!r}",
                )
            layout = TensorLayout(layout, self._mesh)
        elif layout.device_mesh is None:
            layout.device_mesh = self._mesh
        self._layouts[key] = layout

    def __delitem__(self, key: str) -> None:
        del self._layouts[key]

    def __len__(self) -> int:
        return len(self._layouts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)

    def __contains__(self, key: object) -> bool:
        return key in self._layouts

    def get(self, key: str, default: Any = None) -> Any:
        """Return the layout of a path, or `default`."""
        found = self[key]
        return default if found is None else found

    def find(self, path: str, of_variable: bool = True) -> TensorLayout | None:
        """Return the layout of the path of an existing object, and record that its pattern was used."""
        if of_variable:
            self._paths[path] = None
        pattern = self.find_pattern(path)
        if pattern is None:
            return None
        self._used.add(pattern)
        return self._layouts[pattern]

    def check_matched(self) -> None:
        """Raise an error for a pattern that has matched no path so far, with the paths that are nearest to it."""
        for pattern in self._layouts:
            if pattern not in self._used:
                raise ArgumentError(
                    f"The pattern {pattern!r} of the LayoutMap matches no variable.",
                    received=f"the paths{self._seen(pattern)}" if self._paths else "no variables",
                    fix=("a pattern that fits a path", f"del layout_map[{pattern!r}]"),
                )

    def _seen(self, near: str) -> str:
        """Format the paths of variables that are most similar to a text."""
        paths = [path for path in self._paths if path != near]
        found = difflib.get_close_matches(near, paths, n=3, cutoff=0.3) or paths[:3]
        return f"; the nearest are {', '.join(map(repr, found))}" if found else ""


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Place an array in a layout: each device gets its part.

    Args:
        tensor: an array; inside of a traced function, a constraint on what the compiler does.
        layout: a `TensorLayout`, or a sharding of Weft.

    Returns:
        The array.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> mesh = keras.distribution.DeviceMesh((1,), ("batch",), ["cpu:0"])
        >>> layout = keras.distribution.TensorLayout(["batch", None], mesh)
        >>> keras.distribution.distribute_tensor(np.ones((2, 2)), layout).shape
        (2, 2)
    """
    return weft.device_put(tensor.value if isinstance(tensor, Variable) else tensor, as_sharding(layout))
