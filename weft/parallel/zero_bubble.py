"""Pipeline schedule without most of the bubble: the backward step of a stage is divided into the gradient of its
input, which the device before waits for, and the gradient of its parameters, which fills ticks in which a device would
wait.

A timetable says what each device does in each tick: a forward step, the gradient of an input, or the gradient of
parameters, of one microbatch. It is made by simulation, before anything is traced. Devices have different steps in one
tick, so a tick takes the time of one step, not of a forward and a backward step as in "1f1b".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax

IDLE, FORWARD, INPUT, PARAMETERS = range(4)


class Timetable(NamedTuple):
    """Steps of each device, `[tick, device]`, and their microbatches; the microbatches whose input and whose cotangent
    arrive in a tick (-1: none); and how many microbatches a device stores at once."""

    steps: np.ndarray
    rows: np.ndarray
    inputs: np.ndarray
    cotangents: np.ndarray
    stored: int

    @property
    def idle(self) -> int:
        """Largest number of ticks in which a device waits."""
        return int((self.steps == IDLE).sum(0).max())


def make_timetable(size: int, count: int) -> Timetable:
    """Make the timetable of `size` devices for `count` microbatches.

    Each device takes the gradient of an input as soon as it can, else a forward step, else the gradient of parameters.
    As in "1f1b" at most `size - i` microbatches are between device i and the end, and no device stores more than
    `size`.
    """
    finished = np.full((4, size, count), 4 * size * (count + size))  # the tick of each step
    done = np.zeros((4, size), int)
    steps: list[list[int]] = []
    rows: list[list[int]] = []
    while done[PARAMETERS].min() < count:
        tick = len(steps)
        chosen = [next_step(i, tick, done[:, i], finished, size, count) for i in range(size)]
        row = [int(done[step, i]) if step else -1 for i, step in enumerate(chosen)]
        for i, step in enumerate(chosen):
            if step:
                finished[step, i, row[i]] = tick
                done[step, i] += 1
        steps.append(chosen)
        rows.append(row)
    table, which = np.array(steps, np.int32), np.array(rows, np.int32)
    inputs, cotangents = np.full_like(which, -1), np.full_like(which, -1)
    inputs[1:, 1:] = np.where(table[:-1, :-1] == FORWARD, which[:-1, :-1], -1)
    cotangents[1:, :-1] = np.where(table[:-1, 1:] == INPUT, which[:-1, 1:], -1)
    return Timetable(table, which, inputs, cotangents, count_slots(finished, size, count))


def next_step(i: int, tick: int, done: Any, finished: Any, size: int, count: int) -> int:
    """Return what device i does in a tick."""
    forward, inputs, parameters = done[FORWARD], done[INPUT], done[PARAMETERS]
    if inputs < forward and (i == size - 1 or finished[INPUT, i + 1, inputs] < tick):
        return INPUT
    has_room = forward - inputs < size - i and forward - parameters < size
    if forward < count and has_room and (i == 0 or finished[FORWARD, i - 1, forward] < tick):
        return FORWARD
    return PARAMETERS if parameters < inputs else IDLE


def count_slots(finished: np.ndarray, size: int, count: int) -> int:
    """Return how many slots a device needs if microbatch r has slot r modulo their number, from the arrival of its
    input until the gradient of the parameters."""
    arrival = np.concatenate([finished[FORWARD, :1], finished[FORWARD, :-1] + 1])
    for slots in range(1, count):
        if (finished[PARAMETERS][:, :-slots] < arrival[:, slots:]).all():
            return slots
    return count


def run_timetable(
    stage: Any, loss: Any, params: Any, x: Any, targets: Any, size: int, axis: Any
) -> tuple[Any, Any, Any]:
    """Compute the sum of the losses of all microbatches (on the last device), the gradient of this device's stage, and
    that of the batch (on the first device)."""
    here = lax.axis_index(axis)
    table = make_timetable(size, x.shape[0])
    device = Device(stage, loss, params, x, targets, here == 0, here == size - 1, table.stored)
    down = [(i, i + 1) for i in range(size - 1)]
    up = [(i + 1, i) for i in range(size - 1)]

    def tick(carry: Any, entry: Any) -> Any:
        received, returned, state = carry
        step, row, from_before, from_after = (lax.dynamic_index_in_dim(e, here, 0, keepdims=False) for e in entry)
        state = state._replace(
            inputs=device.store(state.inputs, received, from_before, from_before >= 0),
            cotangents=device.store(state.cotangents, returned, from_after, from_after >= 0),
        )
        y, dx, state = lax.switch(
            step, [device.wait, device.forward, device.input_gradient, device.parameter_gradient], state, row
        )
        return (lax.ppermute(y, axis, down), lax.ppermute(dx, axis, up), state), None

    zero = wnp.zeros_like(x[0])
    entries = tuple(wnp.array(e) for e in table[:4])
    (_, _, state), _ = lax.scan(tick, (zero, zero, device.start()), entries)
    return state.total, state.gradients, state.dx


class State(NamedTuple):
    """State of a device: stored inputs, cotangents and residuals by slot, and what it adds up."""

    inputs: Any
    cotangents: Any
    residuals: Any
    gradients: Any
    total: Any
    dx: Any


class Device:
    """Steps of one device: functions of its state and a microbatch, which return what it sends to the device after it
    and to the one before it, and the new state."""

    def __init__(
        self, stage: Any, loss: Any, params: Any, x: Any, targets: Any, is_first: Any, is_last: Any, slots: int
    ) -> None:
        self.stage, self.loss, self.params, self.x, self.targets = stage, loss, params, x, targets
        self.is_first, self.is_last, self.slots = is_first, is_last, slots
        self.zero = wnp.zeros_like(x[0])
        # The pullback of the stage, as `forward` traces it: its structure, and which of its leaves are parameters.
        self.structure: Any = None
        self.parameters: Sequence[int | None] = ()

    def start(self) -> State:
        """Return the state before the first tick."""
        slots = wnp.zeros((self.slots, *self.zero.shape), self.zero.dtype)
        residuals = weft.eval_shape(lambda p, x: self.pull_back(p, x)[1], self.params, self.zero)
        stored = [wnp.zeros((self.slots, *r.shape), r.dtype) for r in residuals]
        gradients = weft.tree.map(wnp.zeros_like, self.params)
        return State(slots, slots, stored, gradients, wnp.zeros(()), wnp.zeros_like(self.x))

    def pull_back(self, params: Any, x: Any) -> tuple[Any, list[Any]]:
        """Apply the stage, and return the leaves of its pullback that are no parameters."""
        y, pullback = weft.vjp(self.stage, params, x)
        leaves, self.structure = weft.tree.flatten(pullback)
        own = weft.tree.leaves(params)
        self.parameters = [next((k for k, p in enumerate(own) if p is leaf), None) for leaf in leaves]
        return y, [leaf for leaf, k in zip(leaves, self.parameters, strict=True) if k is None]

    def pullback(self, state: State, slot: Any) -> Any:
        """Return the pullback of the stage at the microbatch in a slot."""
        own = weft.tree.leaves(self.params)
        stored = iter([self.read(r, slot) for r in state.residuals])
        leaves = [next(stored) if k is None else own[k] for k in self.parameters]
        return weft.tree.unflatten(self.structure, leaves)

    def read(self, values: Any, index: Any) -> Any:
        return lax.dynamic_index_in_dim(values, index, 0, keepdims=False)

    def store(self, slots: Any, value: Any, row: Any, holds: Any = True) -> Any:
        """Store a value of a microbatch in its slot if `holds`."""
        slot = row % self.slots
        value = wnp.where(holds, value, self.read(slots, slot))
        return lax.dynamic_update_index_in_dim(slots, value, slot, 0)

    def wait(self, state: State, row: Any) -> Any:
        """Do nothing in this tick."""
        return self.zero, self.zero, state

    def forward(self, state: State, row: Any) -> Any:
        """Apply the stage to a microbatch; the last device computes its loss and the cotangent of its output."""
        slot = row % self.slots
        x = wnp.where(self.is_first, self.read(self.x, row), self.read(state.inputs, slot))
        y, leaves = self.pull_back(self.params, x)
        residuals = [self.store(r, leaf, row) for r, leaf in zip(state.residuals, leaves, strict=True)]
        target = weft.tree.map(lambda leaf: self.read(leaf, row), self.targets)

        def at_the_end(y: Any) -> Any:
            value, dy = weft.value_and_grad(self.loss)(y, target)
            return wnp.asarray(value, state.total.dtype), dy

        value, dy = lax.cond(self.is_last, at_the_end, lambda y: (wnp.zeros_like(state.total), wnp.zeros_like(y)), y)
        cotangents = self.store(state.cotangents, dy, row, self.is_last)
        return y, self.zero, state._replace(residuals=residuals, cotangents=cotangents, total=state.total + value)

    def input_gradient(self, state: State, row: Any) -> Any:
        """Compute the cotangent of a microbatch's input."""
        slot = row % self.slots
        _, dx = self.pullback(state, slot)(self.read(state.cotangents, slot))
        row_dx = wnp.where(self.is_first, dx, self.read(state.dx, row))
        return self.zero, dx, state._replace(dx=lax.dynamic_update_index_in_dim(state.dx, row_dx, row, 0))

    def parameter_gradient(self, state: State, row: Any) -> Any:
        """Add the gradient of the parameters for a microbatch."""
        slot = row % self.slots
        gradients, _ = self.pullback(state, slot)(self.read(state.cotangents, slot))
        return self.zero, self.zero, state._replace(gradients=weft.tree.map(wnp.add, state.gradients, gradients))
