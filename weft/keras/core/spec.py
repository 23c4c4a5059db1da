"""Shapes with unknown sizes, and what a layer accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core.config import standardize_dtype
from weft.keras.core.context import type_text

Size = int | None
Shape = tuple[Size, ...]

# Integers that are tried in place of unknown sizes in a trace for shapes only; see graph/shapes.py.
stand_ins: ContextVar[frozenset[int]] = ContextVar("weft_keras_stand_ins", default=frozenset())


def check_positive(least: int = 1, **values: Any) -> None:
    """Raise an error for arguments, given by name, that are not integers of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise ArgumentError(f"`{name}` must be {kind}.", received=f"{name}={value!r}")


def is_shape(value: Any) -> bool:
    """Return whether a value is a shape rather than a list of shapes."""
    return isinstance(value, (list, tuple)) and all(size is None or isinstance(size, int) for size in value)


def standardize_shape(shape: Any) -> Shape:
    """Convert a shape to a tuple of integers and None; symbolic sizes become None."""
    if not isinstance(shape, Iterable):
        raise ArgumentError("A shape must be a tuple of sizes.", received=f"shape={shape!r}")
    sizes: list[Size] = []
    unknown = stand_ins.get()
    for size in shape:
        if size is None or not isinstance(size, int) or size in unknown:
            sizes.append(_known(size))
        elif size < 0:
            raise ArgumentError("Sizes are not negative.", received=f"shape={tuple(shape)!r}")
        else:
            sizes.append(int(size))
    return tuple(sizes)


def _known(size: Any) -> Size:
    if size is None or size in stand_ins.get():
        return None
    try:
        return size.__index__()
    except (AttributeError, TypeError, ValueError, weft.errors.WeftError):
        return None


class InputSpec:
    """What an argument of a layer must look like.

    Args:
        dtype: its dtype.
        shape: its shape; None is any size.
        ndim: how many axes it has.
        max_ndim: how many it has at most.
        min_ndim: how many it has at least.
        axes: sizes of some axes, by index.
        allow_last_axis_squeeze: accept a last axis of size 1 more or less than `shape` says.
        name: the key of the argument where the layer takes a dict.
        optional: whether it may be None.

    Example:
        >>> from weft import keras
        >>> keras.InputSpec(ndim=4, axes={-1: 3})
        InputSpec(ndim=4, axes={-1: 3})
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Sequence[int | None] | None = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: Mapping[int, int | None] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype = None if dtype is None else standardize_dtype(dtype)
        self.shape = None if shape is None else standardize_shape(shape)
        self.ndim = ndim if self.shape is None else len(self.shape)
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = {int(axis): size for axis, size in (axes or {}).items()}
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name = name
        self.optional = optional
        most = self.ndim if self.ndim is not None else self.max_ndim
        if most is not None and any(axis >= most for axis in self.axes):
            raise ArgumentError(f"An axis is at least {most}, the count of axes.", received=f"axes={self.axes}")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            "dtype": self.dtype,
            "shape": self.shape,
            "ndim": self.ndim,
            "max_ndim": self.max_ndim,
            "min_ndim": self.min_ndim,
            "axes": self.axes,
            "allow_last_axis_squeeze": self.allow_last_axis_squeeze,
            "name": self.name,
            "optional": self.optional,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """Construct a spec from a config of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        parts = [f"{name}={value}" for name, value in self.get_config().items() if value not in (None, {}, False)]
        return f"InputSpec({', '.join(parts)})"


def check_input(spec: Any, inputs: Any, layer: str) -> None:
    """Raise where the inputs of a layer are not what its spec says. `layer` names it in the message.

    Args:
        spec: None, an `InputSpec`, or a list or dict of them, like the inputs.
        inputs: the first argument of the layer.
        layer: the name of the layer.
    """
    if spec is None:
        return
    if isinstance(inputs, dict) and isinstance(spec, (list, tuple)) and all(part.name for part in spec):
        missing = [part.name for part in spec if part.name not in inputs]
        if missing:
            raise ArgumentError(
                f"The input of layer {layer} must be a dict with the keys {[part.name for part in spec]}.",
                received=f"keys {sorted(inputs)}",
            )
        inputs = [inputs[part.name] for part in spec]
    specs = weft.tree.leaves(spec, is_leaf=lambda part: isinstance(part, InputSpec))
    values = weft.tree.leaves(inputs, is_leaf=lambda part: part is None or hasattr(part, "shape"))
    if len(specs) != len(values):
        raise ArgumentError(
            f"Layer {layer} must be called with {len(specs)} inputs.", received=f"{len(values)}: {type_text(inputs)}"
        )
    for i, (part, value) in enumerate(zip(specs, values, strict=True)):
        complaint = _complaint(part, value)
        if complaint:
            which = f"input {i} of layer {layer}" if len(specs) > 1 else f"the input of layer {layer}"
            raise ShapeMismatchError(f"{which[0].upper()}{which[1:]} {complaint}.", received=type_text(value))


def _complaint(spec: InputSpec, value: Any) -> str:
    """Describe how a value violates a spec; "" if it does not."""
    if value is None:
        return "" if spec.optional else "is None, and it is not optional"
    if not hasattr(value, "shape"):
        return "is no array"
    shape = standardize_shape(value.shape)
    ndim = len(shape)
    squeezable = spec.allow_last_axis_squeeze and spec.ndim is not None and abs(ndim - spec.ndim) == 1
    if spec.ndim is not None and ndim != spec.ndim and not squeezable:
        return f"must have {spec.ndim} axes, and has {ndim}"
    if spec.max_ndim is not None and ndim > spec.max_ndim:
        return f"must have at most {spec.max_ndim} axes, and has {ndim}"
    if spec.min_ndim is not None and ndim < spec.min_ndim:
        return f"must have at least {spec.min_ndim} axes, and has {ndim}"
    if spec.dtype is not None and standardize_dtype(value.dtype) != spec.dtype:
        return f"must have dtype {spec.dtype}"
    for axis, size in spec.axes.items():
        if size is not None and -ndim <= axis < ndim and shape[axis] not in (size, None):
            return f"must have size {size} on axis {axis}, and has {shape[axis]}"
    if spec.shape is not None:
        wanted = spec.shape
        if spec.allow_last_axis_squeeze:
            longer = len(shape) - len(wanted)
            shape = shape[:-1] if longer == 1 and shape[-1] == 1 else shape
            wanted = wanted[:-1] if longer == -1 and wanted[-1] == 1 else wanted
        if len(shape) != len(wanted) or any(
            size is not None and found is not None and size != found for size, found in zip(wanted, shape, strict=True)
        ):
            return f"must have the shape {spec.shape}"
    return ""
