"""Interpret a kernel on NumPy arrays: the reference for compiled code, which also checks every memory access.

A value is an array without dimensions, or in a loop over lanes one with an element for each active lane. In the tail
these are fewer, like under the masks of compiled code.

An `InternalError` names kernel, buffer, index and loops if an access is out of bounds (for a padded buffer, also a lane
beyond the bound of the loop), reads an element that was not written, or conflicts with a write by another iteration of
the loop over threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.group_matmuls import group_matmul
from weft.compiler.kernel.ir import (
    RANKED_LANES,
    TILE_BYTES,
    TILE_ROW_BYTES,
    TILE_ROWS,
    Accumulate,
    Buffer,
    Compute,
    Constant,
    GroupMatmul,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Position,
    Prefetch,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
)
from weft.compiler.kernel.operations import evaluate
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.tiles import tile_matmul

# Stand for an iteration in the tables of readers and writers: none so far, or more than one.
NOBODY, SEVERAL = -1, -2


def run(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    begin: int = 0,
    end: int | None = None,
    written: Sequence[np.ndarray | None] | None = None,
) -> None:
    """Run a kernel, which updates the arrays of written buffers. Of a loop over threads, run iterations `begin` to
    `end`.

    `written` has for each buffer an array (size, itemsize) of bools that tells which bytes have a value, updated by
    stores; None means all of them.
    """
    flat: dict[Buffer, np.ndarray] = {}
    for buffer, array in zip(kernel.buffers, arrays, strict=True):
        if array.dtype != buffer.dtype or array.size != buffer.size or not array.flags.c_contiguous:
            raise InternalError(
                f"The buffer {buffer.name} needs {buffer.size} contiguous {buffer.dtype}, "
                f"got {array.dtype}{array.shape}."
            )
        flat[buffer] = array.reshape(-1)
    known = zip(kernel.buffers, written or [None] * len(flat), strict=True)
    with np.errstate(all="ignore"):
        _Run(kernel, flat, {b: w for b, w in known if w is not None}, begin, end).block(kernel.body)


class _Run:
    """State of a run: current values and variables."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: dict[Buffer, np.ndarray],
        written: dict[Buffer, np.ndarray],
        begin: int,
        end: int | None,
    ) -> None:
        self.kernel = kernel
        self.buffers, self.written = buffers, written
        self.begin, self.end = begin, end
        self.values: dict[Value, np.ndarray] = {}
        self.variables: dict[Variable, Any] = {}
        self.active = 1  # number of active lanes in this iteration of a loop over lanes
        self.beyond: Any = 0  # distance from the last active lane to the last lane of a whole vector, in loop steps
        self.lanes: Variable | None = None
        self.iteration = -1  # of the loop over threads
        self.users = _users(kernel, buffers)
        self.begin_iteration()

    def begin_iteration(self) -> None:
        """Clear local memory at the beginning of an iteration of the loop over threads."""
        for buffer in self.kernel.local:
            self.buffers[buffer] = np.zeros(int(buffer.size), buffer.dtype)
            self.written[buffer] = np.zeros((int(buffer.size), buffer.dtype.itemsize), bool)

    def block(self, body: Iterable[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Any) -> None:
        match statement:
            case Constant(result, value):
                self.values[result] = np.asarray(value, result.dtype)
            case Position(result, index):
                self.values[result] = np.asarray(self.index(index)).astype(result.dtype)
            case Load(result, buffer, index, condition, otherwise):
                self.values[result] = self.load(buffer, index, condition, otherwise)
            case Store(buffer, index, value, condition):
                self.store(buffer, index, value, condition)
            case Prefetch():
                pass
            case Compute(result, op, operands, params):
                self.values[result] = self.apply(op, [self.values[v] for v in operands], params, result.dtype)
            case ReduceLanes(result, op, vector, width):
                lanes = np.broadcast_to(self.values[vector], width)
                while len(lanes) > 1:
                    half = len(lanes) // 2
                    lanes = self.apply(op, [lanes[:half], lanes[half:]], {}, result.dtype)
                self.values[result] = lanes[0]
            case Shuffle(result, vectors, chosen):
                self.values[result] = np.concatenate([self.values[v] for v in vectors])[list(chosen)]
            case Shift(result, vector, by, fill):
                lanes = np.broadcast_to(self.values[vector], self.active)
                shifted = np.array(np.broadcast_to(self.values[fill], lanes.shape))
                shifted[by:] = lanes[: max(0, len(lanes) - by)]
                self.values[result] = shifted
            case Last(result, vector):
                lanes = np.broadcast_to(self.values[vector], self.active)
                self.values[result] = np.full(self.active, lanes[-1])
            case Accumulate(buffer, index, value):
                positions, added = np.broadcast_arrays(self.index(index), self.values[value])
                self.check_read(buffer, positions)
                np.add.at(self.buffers[buffer], positions, added)
            case Rank():
                self.values[statement.result] = self.rank(statement)
            case TileMatmul():
                self.tile_matmul(statement)
            case GroupMatmul():
                self.group_matmul(statement)
            case If(condition, body):
                if self.values[condition]:
                    self.block(body)
            case Loop():
                self.loop(statement)
            case _:
                assert_never(statement)

    def apply(self, op: str, operands: list[np.ndarray], params: Any, dtype: Any) -> np.ndarray:
        arrays = np.broadcast_arrays(*operands) if any(a.shape != operands[0].shape for a in operands) else operands
        out = evaluate(op, arrays, params)
        if out.dtype != dtype or out.shape != arrays[0].shape:
            raise InternalError(f"{op} returned {out.dtype}{out.shape}, expected {dtype}{arrays[0].shape}.")
        return out

    def index(self, index: Index) -> Any:
        total: Any = np.int64(index.constant)
        for term, coefficient in index.terms:
            now = self.variables[term] if isinstance(term, Variable) else self.values[term].astype(np.int64)
            total = total + np.int64(coefficient) * now
        return total

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> np.ndarray:
        positions = self.index(index)
        if condition is None or otherwise is None:
            if buffer.padded and self.lanes is not None:
                self.check(buffer, positions + index.coefficient(self.lanes) * self.beyond, "reads")
            self.check_read(buffer, positions)
            return np.asarray(self.buffers[buffer][positions])
        rest = self.values[otherwise]
        holds, positions, rest = np.broadcast_arrays(self.values[condition], positions, rest)
        self.check_read(buffer, positions[holds])
        out = np.array(rest)
        out[holds] = self.buffers[buffer][positions[holds]]
        return out

    def store(self, buffer: Buffer, index: Index, value: Value, condition: Value | None) -> None:
        positions, stored = self.index(index), self.values[value]
        if condition is not None:
            holds, positions, stored = np.broadcast_arrays(self.values[condition], positions, stored)
            positions, stored = positions[holds], stored[holds]
        self.write(buffer, positions, stored)

    # -- checks ----------------------------------------------------------------------------------------------------

    def check(self, buffer: Buffer, positions: Any, does: str) -> None:
        """Fail if a position is out of the buffer's bounds."""
        outside = (positions < 0) | (positions >= buffer.size)
        if outside.any():
            self.fail(buffer, positions, outside, does, f"it has {buffer.size} elements")

    def check_read(self, buffer: Buffer, positions: Any) -> None:
        """Fail if a position is out of bounds, has no value, or is written by another thread."""
        self.check(buffer, positions, "reads")
        if buffer in self.written:
            missing = ~self.written[buffer][positions].all(-1)
            if missing.any():
                self.fail(buffer, positions, missing, "reads", "that was not written before")
        self.check_alone(buffer, positions, "reads")

    def check_alone(self, buffer: Buffer, positions: Any, does: str) -> None:
        """Fail if an element that one iteration of the loop over threads writes is accessed by another one."""
        if self.iteration < 0 or buffer not in self.users:
            return
        writers, readers = self.users[buffer]
        touched = (writers, readers) if does == "writes" else (writers,)
        for users in touched:
            found = users[positions]
            others = (found != NOBODY) & (found != self.iteration)
            if others.any():
                verb = "writes" if users is writers else "reads"
                self.fail(buffer, positions, others, does, f"another iteration of the loop over threads {verb} that")
        mine = writers if does == "writes" else readers
        before = mine[positions]
        mine[positions] = np.where((before == NOBODY) | (before == self.iteration), self.iteration, SEVERAL)

    def fail(self, buffer: Buffer, positions: Any, wrong: Any, does: str, why: str) -> NoReturn:
        """Raise an error that names the access: the first wrong position and the present iteration of all loops."""
        first = int(np.asarray(positions)[wrong].reshape(-1)[0])
        loops = [f"{variable.name} = {_range_text(now)}" for variable, now in self.variables.items()]
        where = f" (at {', '.join(loops)})" if loops else ""
        raise InternalError(
            f"The kernel {self.kernel.name} {does} {buffer.name}[{first}]; {why}{where}.",
            stage=f"kernel {self.kernel.name}",
            text=to_text(self.kernel),
        )

    def rank(self, s: Rank) -> np.ndarray:
        """Return for each lane how often its position was counted before, in the order of lanes."""
        digit = np.broadcast_to(self.values[s.digit], self.active).astype(np.int64)
        positions = np.broadcast_to(self.index(s.index), self.active) + digit
        self.check_read(s.buffer, positions)
        order = np.argsort(positions, kind="stable")
        ordered, runs = positions[order], order // RANKED_LANES
        begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        firsts = np.maximum.accumulate(np.where(begins, np.arange(self.active), 0))
        wrong = np.empty(self.active, bool)
        wrong[order] = runs != runs[firsts]
        if (digit >> s.bits).any() or wrong.any():
            self.fail(s.buffer, positions, (digit >> s.bits != 0) | wrong, "ranks", "other lanes count that")
        before = np.empty(self.active, np.int64)
        before[order] = np.arange(self.active) - firsts
        result: np.ndarray = self.buffers[s.buffer][positions] + before.astype(s.buffer.dtype)
        np.add.at(self.buffers[s.buffer], positions, s.buffer.dtype.type(1))
        return result

    def tile_matmul(self, s: TileMatmul) -> None:
        """Multiply tiles step by step, accumulating into zeros or into the contents of `out`."""
        size, row_size = (count // s.left.dtype.itemsize for count in (TILE_BYTES, TILE_ROW_BYTES))
        of_left = np.arange(TILE_ROWS)[:, None] * s.left_row + np.arange(row_size)
        begin, first, second = (int(self.index(i)) for i in (s.index, s.left_index, s.right_index))
        for row, column in np.ndindex(s.rows, s.columns):
            corner = begin + row * TILE_ROWS * s.stride + column * TILE_ROWS
            positions = corner + np.arange(TILE_ROWS)[:, None] * s.stride + np.arange(TILE_ROWS)
            total = self.read(s.out, positions) if s.accumulate else np.zeros(positions.shape, s.out.dtype)
            for step in range(s.steps):
                tile = np.arange(step * size, (step + 1) * size)
                left = self.read(s.left, first + row * s.left_stride + step * s.left_step + of_left)
                right = self.read(s.right, second + column * s.right_stride + tile).reshape(TILE_ROWS, TILE_ROWS, -1)
                total = tile_matmul(total, left, right, s.dtypes)
            self.write(s.out, positions, total)

    def group_matmul(self, s: GroupMatmul) -> None:
        """Multiply operands, padded by zeros to the rows and columns of the statement."""
        operands = []
        for operand, count in ((s.left, s.rows), (s.right, s.columns)):
            there = count if operand.limit is None else min(count, int(self.index(operand.limit)))
            own, k = np.arange(there)[:, None] * operand.stride, np.arange(s.k_size) * operand.k_stride
            full = np.zeros((count, s.k_size), operand.buffer.dtype)
            full[:there] = self.read(operand.buffer, int(self.index(operand.index)) + own + k)
            operands.append(full)
        positions = np.arange(s.rows)[:, None] * s.stride + np.arange(s.columns)
        self.write(s.out, positions, group_matmul(operands[0], operands[1].T))

    def read(self, buffer: Buffer, positions: np.ndarray) -> np.ndarray:
        self.check_read(buffer, positions)
        result: np.ndarray = self.buffers[buffer][positions]
        return result

    def write(self, buffer: Buffer, positions: Any, stored: np.ndarray) -> None:
        self.check(buffer, positions, "writes")
        self.check_alone(buffer, positions, "writes")
        self.buffers[buffer][positions] = stored
        if buffer in self.written:
            self.written[buffer][positions] = True

    def loop(self, loop: Loop) -> None:
        count = int(loop.count)
        if loop.limit is not None:
            count = min(count, max(0, -((loop.start - int(self.index(loop.limit))) // loop.step)))
        initial = [self.values[carry.initial] for carry in loop.carries]
        finals = (self.lane_iterations if loop.kind is LoopKind.LANES else self.iterations)(loop, count, initial)
        self.variables.pop(loop.variable, None)
        for carry, final in zip(loop.carries, finals, strict=True):
            self.values[carry.result] = final

    def lane_iterations(self, loop: Loop, count: int, carried: list[np.ndarray]) -> list[np.ndarray]:
        """Run the iterations in vectors (the last one may have fewer lanes), and return the final carries."""
        carried = [np.array(np.broadcast_to(c, loop.width)) for c in carried]
        self.lanes = loop.variable
        for first in range(0, count, loop.width):
            self.active = active = min(loop.width, count - first)
            self.beyond = loop.step * (loop.width - active)
            self.variables[loop.variable] = loop.start + loop.step * np.arange(first, first + active, dtype=np.int64)
            for carry, now in zip(loop.carries, carried, strict=True):
                self.values[carry.inside] = now[:active].copy()
            self.block(loop.body)
            for carry, now in zip(loop.carries, carried, strict=True):
                now[:active] = self.values[carry.final]
        self.lanes = None
        return carried

    def iterations(self, loop: Loop, count: int, carried: list[np.ndarray]) -> list[np.ndarray]:
        """Run one iteration after the other; return the final carries."""
        threads = loop.kind is LoopKind.THREADS
        begin, end = (self.begin, count if self.end is None else self.end) if threads else (0, count)
        for iteration in range(begin, end):
            if threads:
                self.iteration = iteration
                self.begin_iteration()
            self.variables[loop.variable] = np.int64(loop.start + loop.step * iteration)
            for carry, now in zip(loop.carries, carried, strict=True):
                self.values[carry.inside] = now
            self.block(loop.body)
            carried = [self.values[carry.final] for carry in loop.carries]
        if threads:
            self.iteration = -1
        return carried


def _users(kernel: Kernel, buffers: dict[Buffer, np.ndarray]) -> dict[Buffer, tuple[np.ndarray, np.ndarray]]:
    """Return arrays (writers, readers) with an iteration of the loop over threads for each element, for written buffers
    and others that share their memory.
    """
    if kernel.parallel is None:
        return {}
    found: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
    keys = {b: (buffers[b].ctypes.data, b.dtype.itemsize, b.size) for b in kernel.buffers if b.size}
    for buffer, key in keys.items():
        if buffer.written and key not in found:
            found[key] = np.full(buffer.size, NOBODY), np.full(buffer.size, NOBODY)
    return {buffer: found[key] for buffer, key in keys.items() if key in found}


def _range_text(now: Any) -> str:
    """Format a loop variable; in a loop over lanes from the first to the last lane."""
    lanes = np.asarray(now).reshape(-1)
    return str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]} to {lanes[-1]}"
