"""Pointwise steps of recurrent cells, after their matmuls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.nn.activations import sigmoid
from weft.numpy import tanh
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def lstm_step(
    i: Any,
    f: ArrayLike,
    g: Any,
    o: Any,
    c: ArrayLike,
    gate: Callable[[Any], Any] = sigmoid,
    activation: Callable[[Any], Any] = tanh,
) -> tuple[Array, Array]:
    """Compute c' = gate(f) · c + gate(i) · activation(g) and h' = gate(o) · activation(c'); return (h', c')."""
    cell = gate(f) * c + gate(i) * activation(g)
    return gate(o) * activation(cell), cell


def gru_step(z: ArrayLike, candidate: Any, h: ArrayLike) -> Array:
    """Compute h' = (1 - z) · candidate + z · h, where z is the value of the update gate."""
    return (1.0 - z) * candidate + z * h
