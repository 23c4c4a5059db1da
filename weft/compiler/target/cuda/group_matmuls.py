"""Matrix products by tensor cores (`GroupMatmul` of the kernel language), as LLVM text.

The threads of a group, four warps or eight, copy chunks of both operands along K to shared memory (`cp.async`), a few
chunks ahead of the multiplication. A line of a copied panel is contiguous in the operand: a row or column along K, or
one element of K of all rows or columns. Lines are padded, so that the eight threads that read an 8 x 16-byte matrix
access different banks. Each warp accumulates a part of the tile in registers (`mma`) until the end, when the sums are
written to shared memory in place of the chunks.

Of each 16 x 8 tile of sums, lane l holds two pairs: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and 2 (l % 4) + 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.kernel.group_matmuls import STEP_BYTES, UNIT_COLUMNS, UNIT_ROWS, k_step
from weft.compiler.kernel.ir import GroupMatmul, MatmulOperand
from weft.compiler.target import llvm
from weft.compiler.target.cuda.thread import thread_of_block
from weft.compiler.target.llvm import constant, float_, half, i8, i16, i32, i64

if TYPE_CHECKING:
    from weft.compiler.target.cuda.groups import GroupLowering

WARP = 32
# Largest segment in bytes that a thread copies at once, and the padding of lines; the padding where threads load single
# words, which puts those of a warp in different banks.
SEGMENT, PADDING, WORD_PADDING = 16, 16, 32
# Copies of a thread up to which they are unrolled; more are a loop.
MOST_COPIES = 16
# For `wgmma`: bytes and elements of a line, and the alignment of swizzled memory.
LINE, LINE_ELEMENTS, SWIZZLED = 128, 64, 1024
WARPGROUP = 128
# Address spaces.
GLOBAL, SHARED = 1, 3
# Instruction and register type of its operands, by dtype.
_INSTRUCTIONS: dict[str, tuple[str, llvm.Type]] = {
    "bfloat16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", i32),
    "float16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", llvm.vector(half, 2)),
    "float32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", i32),
}


@dataclass(frozen=True)
class _Panel:
    """Chunk of an operand in shared memory, `begin` bytes after the start of its copy."""

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
        return self.line_bytes + (WORD_PADDING if self.reads_elements else PADDING)

    @property
    def reads_elements(self) -> bool:
        """Whether threads load single elements: `ldmatrix` cannot transpose elements of four bytes."""
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
    """Return the bytes of shared memory: copies of chunks, reused for the sums."""
    result: int = max(s.copies * _panels(s)[1].end, int(s.out.size) * s.out.dtype.itemsize)
    return result


def write(lowering: GroupLowering, s: GroupMatmul) -> None:
    """Multiply and store the sums to shared memory, where other threads may read them after a barrier."""
    (_OfWarpgroup if _is_of_warpgroup(lowering, s) else _OfWarps)(lowering, s).write()


def _is_of_warpgroup(lowering: GroupLowering, s: GroupMatmul) -> bool:
    """Return whether `wgmma` applies: four warps multiply as one, for 16-bit floats with lines of 128 bytes."""
    dtype = s.left.buffer.dtype
    lines = s.chunk * dtype.itemsize == LINE and not (s.rows % (s.threads // 2) or s.columns % LINE_ELEMENTS)
    return s.columns <= lowering.target.matrices.warpgroups and dtype.itemsize == 2 and lines


class _MatmulLowering(ABC):
    """Code of one thread of the group. Its warp has 16 rows from `first_row` on, then every `row_step`, and
    `columns` columns."""

    first_row: llvm.Value
    first_column: llvm.Value
    row_step: int
    columns: int

    def __init__(self, lowering: GroupLowering, s: GroupMatmul) -> None:
        self.lowering, self.s, self.f = lowering, s, lowering.f
        f = self.f
        self.memory = self.chunks_at = lowering.local[s.out]
        self.panels = _panels(s)
        self.copy_bytes = self.panels[1].end
        self.chunks = -(-s.k_size // s.chunk)
        self.thread = f.urem(thread_of_block(f), constant(s.threads, i32))
        self.lane = f.and_(self.thread, self.integer(WARP - 1))
        self.warp = f.lshr(self.thread, self.integer(5))
        self.sources = [self.source(panel) for panel in self.panels]
        limits = [panel.operand.limit for panel in self.panels]
        self.limits = [None if i is None else f.trunc(lowering.scalar(i.constant, i.terms), i32) for i in limits]

    def integer(self, value: int) -> llvm.Value:
        return constant(value, i32)

    def call(self, name: str, returns: llvm.Type, *arguments: llvm.Value) -> llvm.Value:
        found = self.f.call(name, returns, *arguments)
        assert found is not None
        return found

    def write(self) -> None:
        f, s = self.f, self.s
        ahead = self.ahead
        for n in range(ahead):
            if n < self.chunks:
                self.copy(self.integer(n), self.integer(n * self.copy_bytes))
            f.call("llvm.nvvm.cp.async.commit.group", llvm.void)
        zeros = [constant(0.0, float_)] * (s.rows * s.columns // s.threads)
        starts = [self.integer(0), self.integer(ahead * self.copy_bytes)]
        with f.loop(self.integer(0), self.integer(self.chunks), 1, carried=[*zeros, *starts]) as chunk:
            *sums, read, written = chunk.values
            f.call("llvm.nvvm.cp.async.wait.group", llvm.void, self.integer(ahead - 1))
            self.publish()
            self.lowering.wait()  # until all copies of this chunk are there and no thread reads the previous one
            following = f.add(chunk, self.integer(ahead))
            with f.when(f.icmp("slt", following, self.integer(self.chunks))):
                self.copy(following, written)
            f.call("llvm.nvvm.cp.async.commit.group", llvm.void)
            sums = self.multiply(read, sums)
            chunk.give(*sums, self.after(read), self.after(written))
        results = self.finish(chunk.results[: len(zeros)])
        f.call("llvm.nvvm.cp.async.wait.group", llvm.void, self.integer(0))
        self.lowering.wait()  # until no thread reads the last chunk
        self.store(results)

    @property
    def ahead(self) -> int:
        """Number of chunks whose copies are in flight before the one that is multiplied."""
        return self.s.copies - 1

    def finish(self, sums: Sequence[llvm.Value]) -> Sequence[llvm.Value]:
        """Wait for outstanding products and return the sums."""
        return sums

    @abstractmethod
    def publish(self) -> None:
        """Make this thread's copies visible to the multiplying threads after the next barrier."""

    @abstractmethod
    def multiply(self, start: llvm.Value, sums: Sequence[llvm.Value]) -> list[llvm.Value]:
        """Accumulate the products of the chunk at `start`. Sums come in fours, one four per 16 x 8 tile, row by row."""

    def inside(self, panel: _Panel, line: llvm.Value, along: llvm.Value) -> llvm.Value:
        """Return the offset of the first byte of a segment in a line of a panel."""
        return self.f.add(self.f.mul(line, self.integer(panel.pitch)), along)

    def after(self, start: llvm.Value) -> llvm.Value:
        """Return the start of the next copy in the ring."""
        f = self.f
        following = f.add(start, self.integer(self.copy_bytes))
        is_end = f.icmp("eq", following, self.integer(self.s.copies * self.copy_bytes))
        return f.select(is_end, self.integer(0), following)

    # -- copies ----------------------------------------------------------------------------------------------------

    def source(self, panel: _Panel) -> llvm.Value:
        """Return the address of an operand in global memory."""
        _, access = self.lowering.access(panel.operand.buffer, panel.operand.index, safe=True)
        return self.f.in_space(access.base, llvm.pointer(GLOBAL))

    def copy(self, chunk: llvm.Value, start: llvm.Value) -> None:
        """Start the asynchronous copies of this thread's segments of a chunk of both operands."""
        for panel, source, limit in zip(self.panels, self.sources, self.limits, strict=True):
            self.copy_panel(panel, source, limit, chunk, start)

    def copy_panel(
        self, panel: _Panel, source: llvm.Value, limit: llvm.Value | None, chunk: llvm.Value, start: llvm.Value
    ) -> None:
        f, s, operand = self.f, self.s, panel.operand
        segment = math.gcd(SEGMENT, self.lowering.alignment(operand.buffer, operand.index), panel.line_stride)
        each = panel.line_bytes // segment  # segments per line
        begin = f.add(start, self.integer(panel.begin))
        step = s.chunk * operand.k_stride * panel.itemsize
        first = f.offset(source, i8, f.mul(f.zext(chunk, i64), constant(step, i64)))
        # Elements of K from this chunk on; None if chunks divide K.
        left = None
        if s.k_size % s.chunk:
            left = f.sub(self.integer(s.k_size), f.mul(chunk, self.integer(s.chunk)))
        lines, elements = (limit, left) if operand.along_k else (left, limit)

        def copy(i: llvm.Value) -> None:
            if each <= s.threads:
                line = f.udiv(self.thread, self.integer(each))
                line = f.add(line, f.mul(i, self.integer(s.threads // each)))
                along = f.urem(self.thread, self.integer(each))
            else:
                line = f.udiv(i, self.integer(each // s.threads))
                along = f.urem(i, self.integer(each // s.threads))
                along = f.add(self.thread, f.mul(along, self.integer(s.threads)))
            along = f.mul(along, self.integer(segment))
            away = f.add(f.mul(f.zext(line, i64), constant(panel.line_stride, i64)), f.zext(along, i64))
            target = f.add(begin, self.inside(panel, line, along))
            there: llvm.Value | None = None
            if elements is not None:
                there = f.sub(f.mul(elements, self.integer(panel.itemsize)), along)
                there = f.smin(f.smax(there, self.integer(0)), self.integer(segment))
            if lines is not None:
                is_there = f.icmp("slt", line, lines)
                there = f.select(is_there, self.integer(segment) if there is None else there, self.integer(0))
            address = f.offset(first, i8, away)
            if there is not None:  # the address must be valid even if no byte is read
                address = f.select(f.icmp("sgt", there, self.integer(0)), address, source)
            self.copy_segment(f.offset(self.chunks_at, i8, target), address, segment, there)

        count = -(-panel.lines * each // s.threads)
        if count <= MOST_COPIES:
            for n in range(count):
                copy(self.integer(n))
        else:
            with f.loop(self.integer(0), self.integer(count), 1) as i:
                copy(i)
                i.give()

    def copy_segment(self, target: llvm.Value, source: llvm.Value, size: int, there: llvm.Value | None) -> None:
        """Copy `size` bytes; if only `there` of them exist, fill the rest with zeros."""
        f = self.f
        if size < 4:
            with f.when(
                constant(True, llvm.i1) if there is None else f.icmp("sgt", there, self.integer(0)), constant(0, i16)
            ) as region:
                region.give(f.load(i16, source, 2))
            f.store(region.results[0], target, 2)
            return
        name = f"llvm.nvvm.cp.async.{'cg' if size == SEGMENT else 'ca'}.shared.global.{size}"
        if there is None:
            f.call(name, llvm.void, target, source)
        else:
            f.call(f"{name}.s", llvm.void, target, source, there)

    def store(self, sums: Sequence[llvm.Value]) -> None:
        """Store this thread's sums in pairs."""
        f, s = self.f, self.s
        row = f.add(self.first_row, f.lshr(self.lane, self.integer(2)))
        column = f.add(self.first_column, f.mul(f.and_(self.lane, self.integer(3)), self.integer(2)))
        corner = f.add(f.mul(row, self.integer(s.stride)), column)
        across = self.columns // UNIT_COLUMNS
        pair = llvm.vector(float_, 2)
        for n in range(0, len(sums), 2):
            unit, lower = divmod(n // 2, 2)
            i, j = divmod(unit, across)
            away = (i * self.row_step + lower * 8) * s.stride + j * UNIT_COLUMNS
            value = f.insert(f.insert(llvm.zero(pair), sums[n], 0), sums[n + 1], 1)
            f.store(value, f.offset(self.memory, float_, f.add(corner, self.integer(away))), 8)


class _OfWarps(_MatmulLowering):
    """Products by `mma`: each warp multiplies half of the rows with half or a quarter of the columns, from shared
    memory."""

    def __init__(self, lowering: GroupLowering, s: GroupMatmul) -> None:
        super().__init__(lowering, s)
        f = self.f
        across = s.threads // WARP // 2
        self.rows, self.columns, self.row_step = s.rows // 2, s.columns // across, UNIT_ROWS
        self.first_row = f.mul(f.udiv(self.warp, self.integer(across)), self.integer(self.rows))
        self.first_column = f.mul(f.urem(self.warp, self.integer(across)), self.integer(self.columns))

    def publish(self) -> None:
        """Do nothing: `mma` reads shared memory through the threads, for which the barrier is enough."""

    def multiply(self, start: llvm.Value, sums: Sequence[llvm.Value]) -> list[llvm.Value]:
        f, (left, right) = self.f, self.panels
        memory = f.offset(self.chunks_at, i8, start)
        found = list(sums)
        name, _ = _INSTRUCTIONS[left.operand.buffer.dtype.name]
        across = self.columns // UNIT_COLUMNS
        for step in range(self.s.chunk // k_step(left.operand.buffer.dtype)):
            rows = [
                self.fragment(memory, left, step, f.add(self.first_row, self.integer(n)), is_left=True)
                for n in range(0, self.rows, UNIT_ROWS)
            ]
            pairs = [
                self.fragment(memory, right, step, f.add(self.first_column, self.integer(n)), is_left=False)
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
        """Load 16 rows or columns from `first` on for one step along K: four registers of this thread. The second
        register of the left operand is 8 rows further and the third half a step along K; of the right operand vice
        versa, so that two registers cover 8 columns."""
        f, lane = self.f, self.lane
        if panel.reads_elements:
            return self.single_elements(memory, panel, step, first, is_left)
        # `ldmatrix` takes the line addresses of each of four 8 x 16-byte matrices from eight threads.
        eight, low, high = (
            f.and_(lane, self.integer(7)),
            f.and_(f.lshr(lane, self.integer(3)), self.integer(1)),
            f.lshr(lane, self.integer(4)),
        )
        across, along = (low, high) if is_left else (high, low)
        half_step = STEP_BYTES // 2
        if panel.operand.along_k:
            line = f.add(f.add(first, eight), f.mul(across, self.integer(8)))
            inside = f.add(f.mul(along, self.integer(half_step)), self.integer(step * STEP_BYTES))
        else:
            elements = k_step(panel.operand.buffer.dtype)
            line = f.add(f.add(eight, f.mul(along, self.integer(elements // 2))), self.integer(step * elements))
            inside = f.mul(f.add(first, f.mul(across, self.integer(8))), self.integer(panel.itemsize))
        offset = f.add(f.add(f.mul(line, self.integer(panel.pitch)), inside), self.integer(panel.begin))
        transposed = "" if panel.operand.along_k else ".trans"
        found = self.call(
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{transposed}.b16.p{SHARED}",
            llvm.structure(i32, 4),
            f.offset(memory, i8, offset),
        )
        return self.registers(panel, f.fields(found, i32))

    def single_elements(
        self, memory: llvm.Value, panel: _Panel, step: int, first: llvm.Value, is_left: bool
    ) -> list[llvm.Value]:
        """Load a fragment of 4-byte elements that do not lie along K."""
        f = self.f
        elements = k_step(panel.operand.buffer.dtype)
        line = f.add(f.and_(self.lane, self.integer(3)), self.integer(step * elements))
        own = f.mul(f.add(first, f.lshr(self.lane, self.integer(2))), self.integer(panel.itemsize))
        offset = f.add(f.add(f.mul(line, self.integer(panel.pitch)), own), self.integer(panel.begin))
        near, far = 8 * panel.itemsize, elements // 2 * panel.pitch
        apart = (0, near, far, far + near) if is_left else (0, far, near, near + far)
        found = [f.load(i32, f.offset(memory, i8, f.add(offset, self.integer(n))), 4) for n in apart]
        return self.registers(panel, found)

    def registers(self, panel: _Panel, loaded: list[llvm.Value]) -> list[llvm.Value]:
        """Convert loaded words to the operand type of the instruction."""
        f, dtype = self.f, panel.operand.buffer.dtype
        if dtype == dtypes.float32:
            return [self.call("llvm.nvvm.f2tf32.rna", i32, f.bitcast(word, float_)) for word in loaded]
        _, kind = _INSTRUCTIONS[dtype.name]
        return [f.bitcast(word, kind) for word in loaded]


class _OfWarpgroup(_MatmulLowering):
    """Products by `wgmma`: four warps multiply 64 rows at a time, and the instruction reads the operands from shared
    memory. A panel consists of lines of 128 bytes: a row or column along K, or one element of K of 64 of them,
    followed by the lines of the next 64. The 16-byte segments of a line are permuted by the index of the line (the
    128-byte swizzle), so that eight lines have theirs in different banks."""

    def __init__(self, lowering: GroupLowering, s: GroupMatmul) -> None:
        super().__init__(lowering, s)
        f = self.f
        self.columns, self.row_step = s.columns, LINE_ELEMENTS
        # Rows of this warpgroup.
        self.rows = s.rows * WARPGROUP // s.threads
        self.group = f.udiv(self.thread, self.integer(WARPGROUP))
        warp = f.and_(self.warp, self.integer(WARPGROUP // WARP - 1))
        own = f.mul(self.group, self.integer(self.rows))
        self.first_row, self.first_column = f.add(own, f.mul(warp, self.integer(UNIT_ROWS))), self.integer(0)
        self.copy_bytes = (s.rows + s.columns) * LINE
        self.panels = (replace(self.panels[0], begin=0), replace(self.panels[1], begin=s.rows * LINE))
        # The swizzle uses bits of the address, so memory must be aligned.
        address = f.ptrtoint(self.memory, i32)
        aligned = f.and_(f.add(address, self.integer(SWIZZLED - 1)), self.integer(-SWIZZLED))
        self.address = aligned
        self.chunks_at = f.offset(self.memory, i8, f.sub(aligned, address))

    def inside(self, panel: _Panel, line: llvm.Value, along: llvm.Value) -> llvm.Value:
        f = self.f
        block = f.and_(along, self.integer(-LINE))  # 0 if lines run along K
        exchanged = f.shl(f.and_(line, self.integer(7)), self.integer(4))
        segment = f.xor(f.and_(along, self.integer(LINE - 1)), exchanged)
        # A block has one line for each element of K.
        first = f.mul(block, self.integer(self.s.chunk))
        return f.add(f.add(first, f.mul(line, self.integer(LINE))), segment)

    @property
    def pending(self) -> int:
        """Chunks that are still being multiplied when the next one starts: one if there are enough copies."""
        return 1 if self.s.copies > 3 else 0

    @property
    def ahead(self) -> int:
        return self.s.copies - 1 - self.pending

    def finish(self, sums: Sequence[llvm.Value]) -> Sequence[llvm.Value]:
        if not self.pending:
            return sums
        constraints = ",".join(["=f"] * len(sums) + [str(n) for n in range(len(sums))])
        returns = llvm.structure(float_, len(sums))
        found = self.f.effect("wgmma.wait_group.sync.aligned 0;", constraints, *sums, returns=returns)
        assert found is not None
        return self.f.fields(found, float_)

    def publish(self) -> None:
        self.f.effect("fence.proxy.async.shared::cta;", "")

    def multiply(self, start: llvm.Value, sums: Sequence[llvm.Value]) -> list[llvm.Value]:
        f, s = self.f, self.s
        begin = f.add(self.address, start)
        own = f.mul(self.group, self.integer(self.rows * LINE)), self.integer(self.panels[1].begin)
        described = [self.descriptor(p, f.add(begin, first)) for p, first in zip(self.panels, own, strict=True)]
        count, each = len(sums), self.columns // 2
        kind = {"bfloat16": "bf16", "float16": "f16"}[s.left.buffer.dtype.name]
        transposed = ", ".join(str(int(not panel.operand.along_k)) for panel in self.panels)
        lines = ["{ .reg .b64 left, right;", "wgmma.fence.sync.aligned;"]
        for step in range(s.chunk // k_step(s.left.buffer.dtype)):
            # Descriptors hold addresses in units of 16 bytes.
            along = [
                (STEP_BYTES if p.operand.along_k else k_step(s.left.buffer.dtype) * LINE) // 16 for p in self.panels
            ]
            lines.append(f"add.s64 right, ${2 * count + 1}, {step * along[1]};")
            for i in range(self.rows // LINE_ELEMENTS):
                registers = ",".join(f"${n}" for n in range(i * each, (i + 1) * each))
                away = step * along[0] + i * LINE_ELEMENTS * LINE // 16
                lines += [
                    f"add.s64 left, ${2 * count}, {away};",
                    f"wgmma.mma_async.sync.aligned.m64n{self.columns}k16.f32.{kind}.{kind} {{{registers}}}, "
                    f"left, right, 1, 1, 1, {transposed};",
                ]
        lines += ["wgmma.commit_group.sync.aligned;", f"wgmma.wait_group.sync.aligned {self.pending};", "}"]
        constraints = ",".join(["=f"] * count + [str(n) for n in range(count)] + ["l", "l"])
        found = f.effect(" ".join(lines), constraints, *sums, *described, returns=llvm.structure(float_, count))
        assert found is not None
        return f.fields(found, float_)

    def descriptor(self, panel: _Panel, address: llvm.Value) -> llvm.Value:
        """Return the matrix descriptor of an operand: its address, the distance between blocks of 64 elements and
        between groups of eight lines, in units of 16 bytes, and the 128-byte swizzle."""
        apart = 1 if panel.operand.along_k else self.s.chunk * LINE // 16
        fixed = apart << 16 | 8 * LINE // 16 << 32 | 1 << 62
        return self.f.or_(self.f.zext(self.f.lshr(address, self.integer(4)), i64), constant(fixed, i64))
