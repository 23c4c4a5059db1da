"""Slots: the variables that an optimizer has beside each weight, such as momentum and velocity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft.keras.core.variable import Variable


class Slot(NamedTuple):
    """A variable beside each weight.

    `initial` is a function of (shape, dtype), or the name of an initializer. Where the slot has another shape than the
    weight, or starts from it, `of` is a function of the weight that returns the first value (None: no slot).
    """

    name: str
    initial: Any = wnp.zeros
    of: Callable[[Variable], Any] | None = None


def constant(value: float) -> Callable[..., Any]:
    """Return an initializer that fills arrays with a value."""

    def fill_with(shape: Sequence[int], dtype: Any) -> Any:
        return wnp.full(tuple(shape), value, dtype)

    return fill_with


class Group:
    """Slots that are created together: `lists[j][i]` is the j-th slot of the i-th weight, or None.

    In files the slots of one weight are beside each other, weight by weight.
    """

    def __init__(self, slots: Sequence[Slot], create: Callable[[Slot, Variable], Variable | None]) -> None:
        self.slots = tuple(slots)
        self.lists: tuple[list[Variable | None], ...] = tuple([] for _ in self.slots)
        self._create = create

    def arrange(self, weights: Sequence[Variable], old: Sequence[Variable]) -> None:
        """Bring the slots in the order of `weights`, and create those of weights that are not among `old`."""
        known = {id(weight): i for i, weight in enumerate(old)}
        before = [list(slots) for slots in self.lists]
        after: list[list[Variable | None]] = [[] for _ in self.slots]
        for weight in weights:
            i = known.get(id(weight))
            for j, slot in enumerate(self.slots):
                after[j].append(before[j][i] if i is not None else self._create(slot, weight))
        for slots, new in zip(self.lists, after, strict=True):
            slots[:] = new

    @property
    def variables(self) -> list[Variable]:
        """All slots, weight by weight."""
        return [slot for of_weight in zip(*self.lists, strict=True) for slot in of_weight if slot is not None]
