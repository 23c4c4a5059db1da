"""Run a kernel on NumPy arrays: what compiled code is compared with.

A value is an array without dimensions, or in a loop over lanes of one: the lanes that take part. In the tail these are
fewer, which is what the masks of compiled code come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    Constant,
    Expect,
    Fold,
    If,
    Index,
    Kernel,
    Kind,
    Last,
    Load,
    Loop,
    Position,
    Shift,
    Shuffle,
    Statement,
    Store,
    Value,
    Variable,
)
from weft.compiler.kernel.operations import evaluate


def run(kernel: Kernel, arrays: Sequence[np.ndarray], begin: int = 0, end: int | None = None) -> None:
    """Run a kernel, which changes the arrays of written buffers. Of a loop over threads, turns `begin` to `end`."""
    flat: dict[Buffer, np.ndarray] = {}
    for buffer, array in zip(kernel.buffers, arrays, strict=True):
        if array.dtype != buffer.dtype or array.size != buffer.size or not array.flags.c_contiguous:
            raise InternalError(
                f"The buffer {buffer.name} needs {buffer.size} contiguous {buffer.dtype}, "
                f"got {array.dtype}{array.shape}."
            )
        flat[buffer] = array.reshape(-1)
    with np.errstate(all="ignore"):
        _Run(flat, begin, end).block(kernel.body)


class _Run:
    """Values and variables as they are now."""

    def __init__(self, buffers: dict[Buffer, np.ndarray], begin: int, end: int | None) -> None:
        self.buffers = buffers
        self.begin, self.end = begin, end
        self.values: dict[Value, np.ndarray] = {}
        self.variables: dict[Variable, Any] = {}
        self.active = 1  # lanes that take part in the turn of a loop over lanes

    def block(self, body: Iterable[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Any) -> None:
        match statement:
            case Constant(result, number):
                self.values[result] = np.asarray(number, result.dtype)
            case Position(result, index):
                self.values[result] = np.asarray(self.index(index)).astype(result.dtype)
            case Load(result, buffer, index, condition, otherwise):
                self.values[result] = self.load(buffer, index, condition, otherwise)
            case Store(buffer, index, value, condition):
                self.store(buffer, index, value, condition)
            case Expect():
                pass
            case Compute(result, op, operands, params):
                self.values[result] = self.apply(op, [self.values[v] for v in operands], params, result.dtype)
            case Fold(result, op, vector, width):
                lanes = np.broadcast_to(self.values[vector], width)
                while len(lanes) > 1:
                    half = len(lanes) // 2
                    lanes = self.apply(op, [lanes[:half], lanes[half:]], {}, result.dtype)
                self.values[result] = lanes[0]
            case Shuffle(result, vectors, chosen):
                self.values[result] = np.concatenate([self.values[v] for v in vectors])[list(chosen)]
            case Shift(result, vector, by, fill):
                lanes = np.broadcast_to(self.values[vector], self.active)
                moved = np.array(np.broadcast_to(self.values[fill], lanes.shape))
                moved[by:] = lanes[: max(0, len(lanes) - by)]
                self.values[result] = moved
            case Last(result, vector):
                lanes = np.broadcast_to(self.values[vector], self.active)
                self.values[result] = np.full(self.active, lanes[-1])
            case If(condition, body):
                if self.values[condition]:
                    self.block(body)
            case Loop():
                self.loop(statement)
            case _:
                assert_never(statement)

    def apply(self, op: str, operands: list[np.ndarray], params: Any, dtype: Any) -> np.ndarray:
        given = np.broadcast_arrays(*operands) if any(a.shape != operands[0].shape for a in operands) else operands
        made = evaluate(op, given, params)
        if made.dtype != dtype or made.shape != given[0].shape:
            raise InternalError(f"{op} gave {made.dtype}{made.shape}, expected {dtype}{given[0].shape}.")
        return made

    def index(self, index: Index) -> Any:
        total: Any = np.int64(index.constant)
        for term, coefficient in index.terms:
            number = self.variables[term] if isinstance(term, Variable) else self.values[term].astype(np.int64)
            total = total + np.int64(coefficient) * number
        return total

    def check(self, buffer: Buffer, positions: Any) -> None:
        if np.any(positions < 0) or np.any(positions >= buffer.size):
            raise InternalError(f"A kernel touches {buffer.name}[{positions}] of {buffer.size} elements.")

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> np.ndarray:
        positions = self.index(index)
        if condition is None or otherwise is None:
            self.check(buffer, positions)
            return np.asarray(self.buffers[buffer][positions])
        rest = self.values[otherwise]
        holds, positions, rest = np.broadcast_arrays(self.values[condition], positions, rest)
        self.check(buffer, positions[holds])
        made = np.array(rest)
        made[holds] = self.buffers[buffer][positions[holds]]
        return made

    def store(self, buffer: Buffer, index: Index, value: Value, condition: Value | None) -> None:
        positions, stored = self.index(index), self.values[value]
        if condition is not None:
            holds, positions, stored = np.broadcast_arrays(self.values[condition], positions, stored)
            positions, stored = positions[holds], stored[holds]
        self.check(buffer, positions)
        self.buffers[buffer][positions] = stored

    def loop(self, loop: Loop) -> None:
        count = loop.count
        if loop.limit is not None:
            count = min(count, max(0, -((loop.start - int(self.index(loop.limit))) // loop.step)))
        carried = [self.values[carry.initial] for carry in loop.carries]
        if loop.kind is Kind.LANES:
            carried = [np.array(np.broadcast_to(c, loop.width)) for c in carried]
            for first in range(0, count, loop.width):
                self.active = active = min(loop.width, count - first)
                self.variables[loop.variable] = loop.start + loop.step * np.arange(
                    first, first + active, dtype=np.int64
                )
                for carry, now in zip(loop.carries, carried, strict=True):
                    self.values[carry.inside] = now[:active].copy()
                self.block(loop.body)
                for carry, now in zip(loop.carries, carried, strict=True):
                    now[:active] = self.values[carry.final]
        else:
            begin, end = 0, count
            if loop.kind is Kind.THREADS:
                begin, end = self.begin, count if self.end is None else self.end
            for number in range(begin, end):
                self.variables[loop.variable] = np.int64(loop.start + loop.step * number)
                for carry, now in zip(loop.carries, carried, strict=True):
                    self.values[carry.inside] = now
                self.block(loop.body)
                carried = [self.values[carry.final] for carry in loop.carries]
        for carry, now in zip(loop.carries, carried, strict=True):
            self.values[carry.result] = now
