"""One long row, sorted by several threads.

First the bits in which words differ are found: the uppermost of these are the upper digit. Blocks of the row count how
often each upper digit occurs; from these counts each block knows where to put its words, in their order, so that words
with one upper digit are contiguous. They are a bucket, which fits a cache and is sorted by its other digits on its own.
All of it is stable, and nothing depends on the number of threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import KernelWriter
from weft.compiler.emit.sorts.sort_encoding import SortField, stage_bits
from weft.compiler.emit.sorts.sort_radix import (
    INT64,
    Radix,
    Range,
    choose_radix,
    count,
    extract_digit,
    fill,
    has_specials,
    restore_specials,
    run_passes,
    scatter_all,
    write_results,
)
from weft.compiler.emit.sorts.sort_rows import SortTask
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value

# Shortest rows that are worth several kernels.
LEAST = 1 << 16
# Blocks that threads share, and tiles of buckets.
BLOCKS, TILES = 16, 64
# Bits of the upper digit, and of a digit inside of a bucket: a small bucket, and one with at least MANY elements, for
# which fewer passes are worth longer tables.
UPPER, LOWER, WIDE = 11, 7, 11
MANY = 1 << 12


def fits_split(task: SortTask) -> bool:
    """Return whether a task is one long row sorted by one word, with enough bits below the upper digit."""
    rows, stages = task.rows, task.stages
    long = rows.count == 1 and task.selected == rows.length and LEAST <= rows.length < 1 << 31
    return long and len(stages) == 1 and stage_bits(stages[0]) >= UPPER + LOWER


@dataclass(frozen=True)
class SortSplit:
    """Shared state of the kernels: the radix sort, and scratch memory besides that of `radix`. `counts` has the
    digits of blocks, `starts` the first index of each bucket, `specials` the elements of each block that words
    cannot represent, `differing` the bits in which the words of each block differ from the first word."""

    radix: Radix
    stage: list[SortField]
    counts: int
    starts: int
    specials: int
    differing: int

    @property
    def length(self) -> int:
        return self.radix.length

    @property
    def block(self) -> int:
        """The elements of a block."""
        return -(-self.length // BLOCKS)

    def written_by(self, name: str) -> SortSplit:
        """Start the next kernel; return the same sort as written by it."""
        writer = self.radix.task.fusion.writer(name, final=True)
        return replace(self, radix=replace(self.radix, writer=writer))

    @property
    def writer(self) -> KernelWriter:
        return self.radix.writer

    @property
    def k(self) -> KernelBuilder:
        return self.radix.k

    @property
    def upper(self) -> Radix:
        """Sorting by the upper digit."""
        return replace(self.radix, digit=UPPER, counts=self.counts, far=True)

    def below(self) -> Value:
        """Return how many of the bits below the upper digit differ between words."""
        k, radix = self.k, self.radix
        found = self.writer.scratch_input(self.differing)
        word = found.dtype
        with k.loop(BLOCKS, carries=[k.constant(0, word)]) as (block, (bits,)):
            (bits,) = k.carry(k.compute("or", bits, k.load(found, block)))
        if radix.combined:
            bits = k.compute("shift_right_logical", bits, k.constant(32, word))
        length = k.compute("sub", k.constant(8 * word.itemsize, word), k.compute("clz", bits))
        upper = k.constant(UPPER, word)
        return k.compute("sub", k.compute("max", length, upper), upper)

    def shift(self) -> Value:
        """Return the bit offset of the upper digit in a word."""
        k, below = self.k, self.below()
        word = below.dtype
        if self.radix.combined:
            below = k.compute("add", below, k.constant(32, word))
        # The mask changes nothing, but bounds the shift by the width of the word, so that it is not checked.
        return k.compute("and", below, k.constant(8 * word.itemsize - 1, word))

    def part(self, block: Any) -> Range:
        """Return the range of elements of a block."""
        first = Index.of(block) * self.block
        return first, self.block, None if self.block * BLOCKS == self.length else Index(self.length) - first

    def block_size(self, block: Any) -> Index:
        """Return the number of elements of a block."""
        k = self.k
        left = k.position(Index(self.length) - Index.of(block) * self.block)
        return Index.of(k.compute("min", left, k.constant(self.block, INT64)))


def emit_split(task: SortTask) -> None:
    """Emit kernels that encode and count blocks, scan the counts, scatter the words, sort buckets, and restore what
    words cannot represent (NaN payloads, signs of zeros)."""
    fusion, (stage,) = task.fusion, task.stages
    # This writer is never launched: each kernel has its own.
    radix = replace(choose_radix(task, KernelWriter(fusion, "none")), digit=LOWER, bits=stage_bits(stage) - UPPER)
    counted = radix.count
    table = max(replace(radix, digit=digit).passes(stage) << digit for digit in (LOWER, WIDE))
    tables = fusion.new_scratch(counted, TILES * table)
    split = SortSplit(
        replace(radix, counts=tables),
        stage,
        fusion.new_scratch(counted, BLOCKS << UPPER),
        fusion.new_scratch(counted, (1 << UPPER) + 1),
        fusion.new_scratch(counted, BLOCKS * 3),
        fusion.new_scratch(fusion.scratch[radix.word_scratch[0]].dtype, BLOCKS),
    )
    _fill_blocks(split.written_by("sort_encode"))
    _count_blocks(split.written_by("sort_count"))
    _scan_counts(split.written_by("sort_scan"))
    _scatter_blocks(split.written_by("sort_scatter"))
    _sort_buckets(split.written_by("sort_buckets"))
    if has_specials(radix) and any(source is task.keys[0] for _, source in task.results):
        _restore(split.written_by("sort_restore"))


def _row(length: int) -> Index:
    """Return the offset of the only row."""
    return Index()


def _fill_blocks(split: SortSplit) -> None:
    """Write the words of each block, and find the bits in which they differ from the first word of all."""
    k, radix, task = split.k, split.radix, split.radix.task
    (word_buffer, *_) = radix.buffers()
    with k.loop(BLOCKS, kind=LoopKind.THREADS) as block:
        part = first, size, limit = split.part(block)
        for n, found in enumerate(fill(radix, split.stage, _row, Index(), part)):
            k.store(split.writer.scratch(split.specials), block * 3 + n, found)
        other = k.scalars.convert(task.word(split.writer, split.stage, _row, 0), word_buffer.dtype)
        if radix.combined:
            other = k.compute("shift_left", other, k.constant(32, word_buffer.dtype))
        width, none = split.writer.lanes, k.constant(0, word_buffer.dtype)
        with k.loop(size, kind=LoopKind.LANES, width=width, carries=[none], limit=limit) as (i, (bits,)):
            (bits,) = k.carry(k.compute("or", bits, k.compute("xor", k.load(word_buffer, first + i), other)))
        k.store(split.writer.scratch(split.differing), block, k.reduce_lanes("or", bits, width))


def _count_blocks(split: SortSplit) -> None:
    """Emit the kernel that counts each upper digit in each block."""
    k, radix, counts = split.k, split.upper, split.writer.scratch(split.counts)
    one, zero, shift = k.constant(1, radix.count), k.constant(0, radix.count), split.shift()
    word_buffer = split.writer.scratch_input(radix.word_scratch[0])
    with k.loop(BLOCKS, kind=LoopKind.THREADS) as block:
        own, (first, size, limit) = block * radix.buckets, split.part(block)
        with k.loop(radix.buckets, kind=LoopKind.LANES, width=split.writer.lanes) as n:
            k.store(counts, own + n, zero)
        with k.loop(size, limit=limit) as i:
            bucket = own + extract_digit(radix, k.load(word_buffer, first + i), shift)
            k.store(counts, bucket, k.compute("add", k.load(counts, bucket), one))


def _scan_counts(split: SortSplit) -> None:
    """Emit the kernel that computes where each block puts its first word with each digit, and where buckets begin."""
    k, radix = split.k, split.upper
    counts, starts = split.writer.scratch(split.counts), split.writer.scratch(split.starts)
    with k.loop(radix.buckets, carries=[k.constant(0, radix.count)]) as (digit, (total,)):
        k.store(starts, digit, total)
        with k.loop(BLOCKS, carries=[total]) as (block, (begin,)):
            held = k.load(counts, block * radix.buckets + digit)
            k.store(counts, block * radix.buckets + digit, begin)
            (begin,) = k.carry(k.compute("add", begin, held))
        (total,) = k.carry(begin)
    k.store(starts, radix.buckets, total)


def _scatter_blocks(split: SortSplit) -> None:
    """Scatter words by their upper digit into the second half of the scratch."""
    k, shift = split.k, split.shift()
    with k.loop(BLOCKS, kind=LoopKind.THREADS) as block:
        few = replace(split.upper, size=split.block_size(block))
        # As values, so that they are computed before the loops and not in them.
        own, begin = (Index.of(k.position(i)) for i in (block * few.buckets, block * split.block))
        scatter_all(few, own, shift, begin, Index(split.length))


def _sort_buckets(split: SortSplit) -> None:
    """Sort each bucket by its other digits and write its results. The buckets of a tile are far apart, since neighbours
    are often large together."""
    k, radix, starts = split.k, split.radix, split.writer.scratch_input(split.starts)
    zero, many, below = k.constant(0, radix.count), k.constant(MANY, radix.count), split.below()
    digits = {digit: _count_digits(k, below, digit) for digit in (LOWER, WIDE)}
    table = split.writer.scratch(radix.counts).size // TILES
    with k.loop(TILES, kind=LoopKind.THREADS) as tile, k.loop((1 << UPPER) // TILES) as i:
        bucket = i * TILES + tile
        start = k.load(starts, bucket)
        size = k.compute("sub", k.load(starts, bucket + 1), start)
        few = k.compute("and", k.compute("gt", size, zero), k.compute("lt", size, many))
        for digit, holds in ((LOWER, few), (WIDE, k.compute("ge", size, many))):
            with k.when(holds):
                own = replace(radix, digit=digit, size=Index.of(size), rounds=Index.of(digits[digit]))
                _sort_bucket(own, split.stage, Index.of(start), tile * table)


def _count_digits(k: KernelBuilder, bits: Value, digit: int) -> Value:
    """Return how many digits of `digit` bits hold `bits` bits."""
    more = k.compute("add", bits, k.constant(digit - 1, bits.dtype))
    return k.compute("div", more, k.constant(digit, bits.dtype))


def _sort_bucket(radix: Radix, stage: list[SortField], first: Index, table: Index) -> None:
    """Sort the bucket that begins at `first` in the second half of the scratch."""
    k = radix.k
    assert radix.size is not None and radix.rounds is not None
    half, rounds, size = k.constant(radix.length, INT64), k.position(radix.rounds), k.position(radix.size)
    # Nothing is counted if no digit is left.
    none = k.constant(0, INT64)
    counted = k.compute("select_n", k.compute("gt", rounds, none), none, size)
    count(replace(radix, size=Index.of(counted)), stage, first, half, table)
    write_results(radix, _row, first, run_passes(radix, stage, first, half, table), [], first)


def _restore(split: SortSplit) -> None:
    """Write what cannot be decoded from words."""
    k, radix = split.k, split.radix
    specials = split.writer.scratch_input(split.specials)
    found = []
    for i in range(3):
        with k.loop(BLOCKS, carries=[k.constant(0, radix.count)]) as (block, (total,)):
            (total,) = k.carry(k.compute("add", total, k.load(specials, block * 3 + i)))
        found.append(total)
    restore_specials(radix, _row, found, [v for v, source in radix.task.results if source is radix.task.keys[0]])
