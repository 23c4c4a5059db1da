"""Products of matrices by tensor cores, as LLVM: `GroupMatmul` of the kernel language.

The 128 threads of a group copy chunks of both operands along K to local memory, a few of them ahead of the one that is
multiplied (`cp.async`). A line there is a row or column of an operand, or an element of K of all of them, as it lies in
memory, and lines are a few bytes further apart than they are long, so that eight threads that read a matrix of 8 x 16
bytes find it in different banks. Each of the four warps has a quarter of the sums, in registers until the end (`mma`);
then they are written to local memory, where the chunks were.

Of 16 rows by 8 columns of sums, a thread has pairs: lane l those of the rows l / 4 and l / 4 + 8, in the columns
2 (l % 4) and 2 (l % 4) + 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.base import dtypes
from weft.compiler.kernel.group_matmuls import STEP_BYTES, THREADS, UNIT_COLUMNS, UNIT_ROWS, step_of
from weft.compiler.kernel.ir import GroupMatmul, MatmulOperand
from weft.compiler.target import llvm
from weft.compiler.target.cuda.thread import thread_of_block
from weft.compiler.target.llvm import constant, float_, half, i8, i16, i32, i64

if TYPE_CHECKING:
    from weft.compiler.target.cuda.groups import GroupLowering

WARP = 32
# Bytes that a thread copies at once at most, and by how many lines are further apart than they are long; the same where
# threads read words of single elements, of which a warp then finds all in different banks.
PIECE, PADDING, WORD_PADDING = 16, 16, 32
# Pieces of a thread that are written one after the other; more of them are a loop.
MOST_PIECES = 16
# Address spaces.
GLOBAL, SHARED = 1, 3
# By dtype: the instruction that multiplies, and the type of its operands' registers.
_INSTRUCTIONS: dict[str, tuple[str, llvm.Type]] = {
    "bfloat16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", i32),
    "float16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", llvm.vector(half, 2)),
    "float32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", i32),
}


@dataclass(frozen=True)
class _Panel:
    """A chunk of an operand in local memory, `begin` bytes after the beginning of a copy."""

    operand: MatmulOperand
    count: int
    chunk: int
    begin: int

    @property
    def itemsize(self) -> int:
        return int(self.operand.buffer.dtype.itemsize)

    @property
    def lines(self) -> int:
        return self.count if self.operand.along_k else self.chunk

    @property
    def line_bytes(self) -> int:
        return (self.chunk if self.operand.along_k else self.count) * self.itemsize

    @property
    def pitch(self) -> int:
        """Bytes from one line to the next."""
        return self.line_bytes + (WORD_PADDING if self.reads_words else PADDING)

    @property
    def reads_words(self) -> bool:
        """Whether threads read single elements: there is no instruction that transposes those of four bytes."""
        return not self.operand.along_k and self.itemsize == 4

    @property
    def line_stride(self) -> int:
        """Bytes from one line to the next in the operand's own memory."""
        return (self.operand.stride if self.operand.along_k else self.operand.k_stride) * self.itemsize

    @property
    def end(self) -> int:
        return self.begin + self.lines * self.pitch


def _panels(s: GroupMatmul) -> tuple[_Panel, _Panel]:
    left = _Panel(s.left, s.rows, s.chunk, 0)
    return left, _Panel(s.right, s.columns, s.chunk, left.end)


def room(s: GroupMatmul) -> int:
    """The bytes of local memory that it takes: for copies of chunks, and afterwards for sums."""
    return max(s.copies * _panels(s)[1].end, int(s.out.size) * s.out.dtype.itemsize)


def write(lowering: GroupLowering, s: GroupMatmul) -> None:
    """Multiply, and write the sums to local memory, which others read after a barrier only."""
    _Writer(lowering, s).write()


class _Writer:
    """Writes one thread of the group."""

    def __init__(self, lowering: GroupLowering, s: GroupMatmul) -> None:
        self.lowering, self.s, self.f = lowering, s, lowering.f
        f = self.f
        self.memory = lowering.local[s.out]
        self.panels = _panels(s)
        self.copy_bytes = self.panels[1].end
        self.chunks = -(-s.depth // s.chunk)
        self.thread = f.urem(thread_of_block(f), constant(THREADS, i32))
        self.lane = f.and_(self.thread, self.number(WARP - 1))
        warp = f.lshr(self.thread, self.number(5))
        # Rows and columns of a warp, and where they begin.
        self.rows, self.columns = s.rows // 2, s.columns // 2
        self.first_row = f.mul(f.lshr(warp, self.number(1)), self.number(self.rows))
        self.first_column = f.mul(f.and_(warp, self.number(1)), self.number(self.columns))
        self.sources = [self.source(panel) for panel in self.panels]
        limits = [panel.operand.limit for panel in self.panels]
        self.limits = [None if i is None else f.trunc(lowering.scalar(i.constant, i.terms), i32) for i in limits]

    def number(self, value: int) -> llvm.Value:
        return constant(value, i32)

    def call(self, name: str, returns: llvm.Type, *arguments: llvm.Value) -> llvm.Value:
        found = self.f.call(name, returns, *arguments)
        assert found is not None
        return found

    def write(self) -> None:
        f, s = self.f, self.s
        ahead = s.copies - 1
        for n in range(ahead):
            if n < self.chunks:
                self.copy(self.number(n), self.number(n * self.copy_bytes))
            f.call("llvm.nvvm.cp.async.commit.group", llvm.void)
        zeros = [constant(0.0, float_)] * (self.rows * self.columns // WARP)
        places = [self.number(0), self.number(ahead * self.copy_bytes)]
        with f.loop(self.number(0), self.number(self.chunks), 1, carried=[*zeros, *places]) as chunk:
            *sums, read, written = chunk.values
            f.call("llvm.nvvm.cp.async.wait.group", llvm.void, self.number(ahead - 1))
            self.lowering.wait()  # until all have their part of this chunk, and nobody reads the one before it
            following = f.add(chunk, self.number(ahead))
            with f.when(f.icmp("slt", following, self.number(self.chunks))):
                self.copy(following, written)
            f.call("llvm.nvvm.cp.async.commit.group", llvm.void)
            sums = self.multiply(f.offset(self.memory, i8, read), sums)
            chunk.give(*sums, self.after(read), self.after(written))
        f.call("llvm.nvvm.cp.async.wait.group", llvm.void, self.number(0))
        self.lowering.wait()  # until nobody reads the last chunk
        self.store(chunk.results[: len(zeros)])

    def after(self, place: llvm.Value) -> llvm.Value:
        """Where the copy after one is; the first follows the last."""
        f = self.f
        following = f.add(place, self.number(self.copy_bytes))
        is_end = f.icmp("eq", following, self.number(self.s.copies * self.copy_bytes))
        return f.select(is_end, self.number(0), following)

    # -- copies ----------------------------------------------------------------------------------------------------

    def source(self, panel: _Panel) -> llvm.Value:
        """Where an operand begins."""
        _, access = self.lowering.access(panel.operand.buffer, panel.operand.index, safe=True)
        return self.f.in_space(access.base, llvm.pointer(GLOBAL))

    def copy(self, chunk: llvm.Value, place: llvm.Value) -> None:
        """Start copying this thread's pieces of a chunk of both operands."""
        for panel, source, limit in zip(self.panels, self.sources, self.limits, strict=True):
            self.copy_panel(panel, source, limit, chunk, place)

    def copy_panel(
        self, panel: _Panel, source: llvm.Value, limit: llvm.Value | None, chunk: llvm.Value, place: llvm.Value
    ) -> None:
        f, s, operand = self.f, self.s, panel.operand
        piece = math.gcd(PIECE, self.lowering.alignment(operand.buffer, operand.index), panel.line_stride)
        each = panel.line_bytes // piece  # pieces of a line
        begin = f.add(place, self.number(panel.begin))
        step = s.chunk * operand.k_stride * panel.itemsize
        first = f.offset(source, i8, f.mul(f.zext(chunk, i64), constant(step, i64)))
        # What is left of K from this chunk on; None if chunks are whole.
        left = None
        if s.depth % s.chunk:
            left = f.sub(self.number(s.depth), f.mul(chunk, self.number(s.chunk)))
        lines, elements = (limit, left) if operand.along_k else (left, limit)

        def copy(i: llvm.Value) -> None:
            if each <= THREADS:
                line = f.udiv(self.thread, self.number(each))
                line = f.add(line, f.mul(i, self.number(THREADS // each)))
                along = f.urem(self.thread, self.number(each))
            else:
                line = f.udiv(i, self.number(each // THREADS))
                along = f.urem(i, self.number(each // THREADS))
                along = f.add(self.thread, f.mul(along, self.number(THREADS)))
            along = f.mul(along, self.number(piece))
            away = f.add(f.mul(f.zext(line, i64), constant(panel.line_stride, i64)), f.zext(along, i64))
            target = f.add(f.add(begin, f.mul(line, self.number(panel.pitch))), along)
            there: llvm.Value | None = None
            if elements is not None:
                there = f.sub(f.mul(elements, self.number(panel.itemsize)), along)
                there = f.smin(f.smax(there, self.number(0)), self.number(piece))
            if lines is not None:
                is_there = f.icmp("slt", line, lines)
                there = f.select(is_there, self.number(piece) if there is None else there, self.number(0))
            address = f.offset(first, i8, away)
            if there is not None:  # what is not there is not pointed at either
                address = f.select(f.icmp("sgt", there, self.number(0)), address, source)
            self.copy_piece(f.offset(self.memory, i8, target), address, piece, there)

        count = -(-panel.lines * each // THREADS)
        if count <= MOST_PIECES:
            for n in range(count):
                copy(self.number(n))
        else:
            with f.loop(self.number(0), self.number(count), 1) as i:
                copy(i)
                i.give()

    def copy_piece(self, target: llvm.Value, source: llvm.Value, size: int, there: llvm.Value | None) -> None:
        """Copy so many bytes, of which the first so many are there, and the others are zeros."""
        f = self.f
        if size < 4:
            with f.when(
                constant(True, llvm.i1) if there is None else f.icmp("sgt", there, self.number(0)), constant(0, i16)
            ) as region:
                region.give(f.load(i16, source, 2))
            f.store(region.results[0], target, 2)
            return
        name = f"llvm.nvvm.cp.async.{'cg' if size == PIECE else 'ca'}.shared.global.{size}"
        if there is None:
            f.call(name, llvm.void, target, source)
        else:
            f.call(f"{name}.s", llvm.void, target, source, there)

    # -- products --------------------------------------------------------------------------------------------------

    def multiply(self, memory: llvm.Value, sums: Sequence[llvm.Value]) -> list[llvm.Value]:
        """The sums with the products of a chunk. They are four for each 16 rows and 8 columns, row by row of these."""
        f, (left, right) = self.f, self.panels
        found = list(sums)
        name, _ = _INSTRUCTIONS[left.operand.buffer.dtype.name]
        across = self.columns // UNIT_COLUMNS
        for step in range(self.s.chunk // step_of(left.operand.buffer.dtype)):
            rows = [
                self.fragment(memory, left, step, f.add(self.first_row, self.number(n)), is_left=True)
                for n in range(0, self.rows, UNIT_ROWS)
            ]
            pairs = [
                self.fragment(memory, right, step, f.add(self.first_column, self.number(n)), is_left=False)
                for n in range(0, self.columns, 2 * UNIT_COLUMNS)
            ]
            columns = [half_of for pair in pairs for half_of in (pair[:2], pair[2:])]
            for i, a in enumerate(rows):
                for j, b in enumerate(columns):
                    at = 4 * (i * across + j)
                    out = self.call(name, llvm.structure(float_, 4), *a, *b, *found[at : at + 4])
                    found[at : at + 4] = f.fields(out, float_)
        return found

    def fragment(
        self, memory: llvm.Value, panel: _Panel, step: int, first: llvm.Value, is_left: bool
    ) -> list[llvm.Value]:
        """What this thread has of 16 rows or columns, from the first on, and one step along K: four registers. Of the
        left operand the second one is 8 rows further and the third one half a step along K; of the right operand it is
        the other way round, so that two registers are 8 columns."""
        f, lane = self.f, self.lane
        if panel.reads_words:
            return self.words(memory, panel, step, first, is_left)
        # Eight threads say where the lines of each of four matrices are, 8 x 16 bytes.
        eight, low, high = (
            f.and_(lane, self.number(7)),
            f.and_(f.lshr(lane, self.number(3)), self.number(1)),
            f.lshr(lane, self.number(4)),
        )
        across, along = (low, high) if is_left else (high, low)
        half_step = STEP_BYTES // 2
        if panel.operand.along_k:
            line = f.add(f.add(first, eight), f.mul(across, self.number(8)))
            inside = f.add(f.mul(along, self.number(half_step)), self.number(step * STEP_BYTES))
        else:
            elements = step_of(panel.operand.buffer.dtype)
            line = f.add(f.add(eight, f.mul(along, self.number(elements // 2))), self.number(step * elements))
            inside = f.mul(f.add(first, f.mul(across, self.number(8))), self.number(panel.itemsize))
        offset = f.add(f.add(f.mul(line, self.number(panel.pitch)), inside), self.number(panel.begin))
        transposed = "" if panel.operand.along_k else ".trans"
        found = self.call(
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{transposed}.b16.p{SHARED}",
            llvm.structure(i32, 4),
            f.offset(memory, i8, offset),
        )
        return self.registers(panel, f.fields(found, i32))

    def words(self, memory: llvm.Value, panel: _Panel, step: int, first: llvm.Value, is_left: bool) -> list[llvm.Value]:
        """As `fragment`, of elements of four bytes that do not lie along K."""
        f = self.f
        elements = step_of(panel.operand.buffer.dtype)
        line = f.add(f.and_(self.lane, self.number(3)), self.number(step * elements))
        own = f.mul(f.add(first, f.lshr(self.lane, self.number(2))), self.number(panel.itemsize))
        offset = f.add(f.add(f.mul(line, self.number(panel.pitch)), own), self.number(panel.begin))
        near, far = 8 * panel.itemsize, elements // 2 * panel.pitch
        apart = (0, near, far, far + near) if is_left else (0, far, near, near + far)
        found = [f.load(i32, f.offset(memory, i8, f.add(offset, self.number(n))), 4) for n in apart]
        return self.registers(panel, found)

    def registers(self, panel: _Panel, words: list[llvm.Value]) -> list[llvm.Value]:
        """Words as the instruction that multiplies takes them."""
        f, dtype = self.f, panel.operand.buffer.dtype
        if dtype == dtypes.float32:
            return [self.call("llvm.nvvm.f2tf32.rna", i32, f.bitcast(word, float_)) for word in words]
        _, kind = _INSTRUCTIONS[dtype.name]
        return [f.bitcast(word, kind) for word in words]

    def store(self, sums: Sequence[Any]) -> None:
        """Write this thread's sums, two side by side."""
        f, s = self.f, self.s
        row = f.add(self.first_row, f.lshr(self.lane, self.number(2)))
        column = f.add(self.first_column, f.mul(f.and_(self.lane, self.number(3)), self.number(2)))
        corner = f.add(f.mul(row, self.number(s.stride)), column)
        across = self.columns // UNIT_COLUMNS
        pair = llvm.vector(float_, 2)
        for n in range(0, len(sums), 2):
            unit, lower = divmod(n // 2, 2)
            i, j = divmod(unit, across)
            away = (i * UNIT_ROWS + lower * 8) * s.stride + j * UNIT_COLUMNS
            value = f.insert(f.insert(llvm.zero(pair), sums[n], 0), sums[n + 1], 1)
            f.store(value, f.offset(self.memory, float_, f.add(corner, self.number(away))), 8)
