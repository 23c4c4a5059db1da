"""What the calls of layers share: `training`, the path of layers, losses that were added, and masks of values."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, ConcretizationTypeError, TracerIntegerConversionError


class Frame:
    """One call of a layer that is running.

    `training` is what it was called with (None: nobody said), `compute_dtype` the dtype that its variables are cast to
    when read (None: not at all), `parent` the frame of the layer that called it, and `root` that of the outermost.
    """

    __slots__ = ("compute_dtype", "layer", "parent", "root", "token", "training")

    def __init__(
        self, layer: Any, parent: Frame | None = None, training: Any = None, compute_dtype: str | None = None
    ) -> None:
        self.layer = layer
        self.parent = parent
        self.training = training
        self.compute_dtype = compute_dtype
        self.root: Frame = self if parent is None else parent.root
        self.token = object()  # which call this is, without holding its layer

    @property
    def path(self) -> str:
        """The names of the layers from the outermost call to this one."""
        names: list[str] = []
        frame: Frame | None = self
        while frame is not None:
            names.append(frame.layer.name)
            frame = frame.parent
        return "/".join(reversed(names))


_frame: ContextVar[Frame | None] = ContextVar("weft_keras_frame", default=None)


def current_frame() -> Frame | None:
    """Return the innermost layer call that is running in this thread, or None."""
    return _frame.get()


@contextmanager
def calling(frame: Frame) -> Iterator[Frame]:
    """Run a layer's `call`: `frame` is the current one inside."""
    token = _frame.set(frame)
    try:
        yield frame
    finally:
        _frame.reset(token)


@contextmanager
def autocast(dtype: str | None) -> Iterator[None]:
    """Cast variables that are read within the block to `dtype`; None disables casting."""
    outer = _frame.get()
    if outer is None:
        yield
        return
    frame = Frame(outer.layer, outer.parent, outer.training, dtype)
    frame.root = outer.root if outer.root is not outer else frame
    frame.token = outer.token
    with calling(frame):
        yield


def is_tracer(value: Any) -> bool:
    """Return whether a value belongs to a function that is being traced or transformed."""
    return isinstance(value, weft.core.Tracer)


def learning_phase() -> Any:
    """Return the argument `training` of the enclosing layer call; None without one."""
    frame = _frame.get()
    return None if frame is None else frame.training


# --------------------------------------------------------------------------------------------------------------- errors


def type_text(value: Any) -> str:
    """Format a value for errors: `float32[2, 4]` for arrays, and trees of these."""
    if isinstance(value, (list, tuple)):
        parts = ", ".join(type_text(item) for item in value)
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {type_text(item)}" for key, item in value.items()) + "}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(str(size) for size in value.shape)}]"
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return repr(value)
    return type(value).__name__


def explain_error(error: BaseException, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note on an error that left a layer's `call`: which layer, by path, and what it was called with. Once an error has
    such a note, enclosing layers add none."""
    if any(note.startswith("in layer ") for note in getattr(error, "__notes__", ())):
        return
    if isinstance(error, ConcretizationTypeError | TracerIntegerConversionError):
        _advise(error, frame)
    inputs = [type_text(value) for value in args]
    inputs += [f"{name}={type_text(value)}" for name, value in kwargs.items() if value is not None]
    error.add_note(f"in layer {frame.path} ({type(frame.layer).__name__}), called with {', '.join(inputs)}")


_ADVICE = {
    "where(": "ops.where(c, a, b)   per element",
    "lax.cond(": "ops.cond(c, lambda: a, lambda: b)   per batch",
    "lax.while_loop(": "ops.while_loop(cond, body, loop_vars)",
    "lax.fori_loop(": "ops.fori_loop(0, n, body, start)   for n iterations",
    "keep it an array": "keep it a tensor: ops.cast(x, dtype), ops.take(x, i)",
    "static_arg": "compile(run_eagerly=True) to run a model's Python code for each batch",
}
"""Fixes for values that are not known while a layer is traced, by the beginning of the fix of a function's user."""


def _advise(error: ConcretizationTypeError | TracerIntegerConversionError, frame: Frame) -> None:
    """Replace the fixes of a traced value's error by those that the author of a layer can write."""
    fixes = (error.fix,) if isinstance(error.fix, str) else error.fix or ()
    known = [next((text for start, text in _ADVICE.items() if fix.startswith(start)), fix) for fix in fixes]
    error.fix = list(dict.fromkeys([*known, _ADVICE["static_arg"]]))
    if error.received is not None:
        error.received = re.sub(r"inside \S+,", f"inside {type(frame.layer).__name__}.call,", error.received)


# --------------------------------------------------------------------------------------------------------------- losses


_TRACED = object()  # where a loss was that belongs to a trace


class Losses:
    """The losses that layers added in their last calls. Each outermost call of a layer begins anew."""

    __slots__ = ("_by_layer",)

    def __init__(self) -> None:
        # By layer: the outermost call that it was in, the layer of that, and the losses.
        self._by_layer: weakref.WeakKeyDictionary[Any, tuple[object, int, list[Any]]] = weakref.WeakKeyDictionary()

    def begin(self, frame: Frame) -> None:
        """Forget what was added in the last outermost call of a layer."""
        if self._by_layer:
            for layer, (_, entry, _losses) in list(self._by_layer.items()):
                if entry == id(frame.layer):
                    del self._by_layer[layer]

    def add(self, layer: Any, loss: Any) -> None:
        """Add a loss of a layer, in the call that runs now."""
        frame = _frame.get()
        # Holding the frame itself would hold the layer, which is the key.
        call, entry = (None, 0) if frame is None else (frame.root.token, id(frame.root.layer))
        old = self._by_layer.get(layer)
        if old is None or old[0] is not call:
            self._by_layer[layer] = (call, entry, [loss])
        else:
            old[2].append(loss)

    def of(self, layer: Any) -> list[Any]:
        """Return the losses that the layer itself added."""
        found = self._by_layer.get(layer)
        if found is not None and any(loss is _TRACED for loss in found[2]):
            raise ArgumentError(
                f"The losses of layer {layer.name} were added in a traced function and cannot be read outside of it.",
                fix="inside of jit and grad call `layer.stateless_call(..., return_losses=True)`",
            )
        return [] if found is None else list(found[2])

    def end(self, frame: Frame) -> None:
        """Discard values of a trace at the end of an outermost call, which these losses outlive."""
        for _, entry, losses in self._by_layer.values():
            if entry == id(frame.layer):
                losses[:] = [_TRACED if is_tracer(loss) else loss for loss in losses]

    def items(self) -> list[tuple[Any, Any]]:
        """Return the pairs of layer and loss that were added."""
        return [(layer, loss) for layer in self._by_layer for loss in self.of(layer)]

    def forget(self, layer: Any) -> None:
        """Forget the losses of one layer."""
        self._by_layer.pop(layer, None)


class _ThreadLosses(threading.local):
    def __init__(self) -> None:
        self.losses = Losses()


_thread = _ThreadLosses()
# A scope has losses of its own, so that a traced value does not outlive it.
scope_losses: ContextVar[Losses | None] = ContextVar("weft_keras_losses", default=None)


def current_losses() -> Losses:
    """Return where losses are recorded now: in the innermost scope, else in the thread."""
    return scope_losses.get() or _thread.losses


def end_of_call(frame: Frame) -> None:
    """Clean up at the end of an outermost call: what the thread holds must not belong to a trace."""
    if scope_losses.get() is None:
        _thread.losses.end(frame)


# ---------------------------------------------------------------------------------------------------------------- masks

_masks: dict[int, tuple[weakref.ref[Any], Any]] = {}


def get_keras_mask(value: Any) -> Any:
    """Return the mask of a value (an array, a tracer or a KerasTensor), or None.

    Masks belong to the object: the result of an operation on a masked value has no mask unless a layer sets one.
    """
    found = _masks.get(id(value))
    return found[1] if found is not None and found[0]() is value else None


def any_masks() -> bool:
    """Return whether any value has a mask now."""
    return bool(_masks)


def set_keras_mask(value: Any, mask: Any) -> None:
    """Set the mask of a value, as long as the value lives. None takes it away."""
    key = id(value)
    if mask is None:
        _masks.pop(key, None)
        return

    def forget(reference: weakref.ref[Any]) -> None:
        found = _masks.get(key)
        if found is not None and found[0] is reference:
            del _masks[key]

    _masks[key] = (weakref.ref(value, forget), mask)


# Keras's own attribute of a masked tensor, for programs that read or set it.
weft.Array._keras_mask = property(get_keras_mask, set_keras_mask)  # type: ignore[attr-defined]
