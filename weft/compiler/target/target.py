"""A machine as data: what the compiler knows of the machine that it compiles for.

Whatever depends on the machine takes a `Target`: passes, fusion, the choice of tiles, emitters, estimates of cost. It
need not be the machine that the process runs on. Two targets are equal if all of their data is, and every key of
compiled code holds its target. The folders beside this file make targets (`cpu/targets.py`) and code for them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.memo import cached_property
from weft.compiler.kernel.names import ELEMENTWISE


@dataclass(frozen=True)
class FusionLimits:
    """How large a fusion may become, and what is cheap enough to be computed again."""

    values: int = 256  # equations in one fusion
    operands: int = 32  # values read
    results: int = 16  # values written
    sites: int = 8  # indices at which one fusion computes a value: where slices meet again, they double
    repeated: int = 8  # code that one fusion has for values at further indices, in statements about
    copies: int = 8  # fusions in which a cheap equation is computed again
    row_bytes: int = 256 * 1024  # one row of a row-wise fusion, which must stay in cache over its passes
    single_row_bytes: int = 64 * 1024  # the same when there is one row only, which one thread works on
    prologue_repeats: int = 8  # how often a contraction may compute a producer's element again
    window: int = 64  # steps between two fusions that are merged: what is between waits, and values live longer
    reach: int = 2048  # ... where nothing waits, and what is read lives anyway
    early_bytes: int = 4096  # values that are computed earlier, so that the last of two fusions may come early
    # Computing a value of at most this weight (an addition is 1) again is cheaper than a trip to memory,
    cheap_weight: float = 4
    # ... and so is computing any value of at most this many flops in total.
    cheap_flops: float = 512
    # Results of fusions of at most this weight are computed by those who read them, if that saves bytes; 0 is never.
    recompute_weight: float = 0
    recompute_bytes: int = 1 << 16  # smaller results are not worth the look
    # Smaller transposes are read with a stride: tiles would not pay.
    tiled_transpose_bytes: int = 16384
    # Matrices of a large batch with at most this many rows and columns are worked on in lanes; others are a library's.
    lane_matrix: int = 16


@dataclass(frozen=True)
class MatmulCosts:
    """What tiles of contractions are chosen by: cycles of one vector or one scalar, as measured on a recent server
    core (multiply-adds are started at two a cycle), and sizes at which caches and the TLB show."""

    gather_lane: float = 1.2
    scatter_lane: float = 2.5
    far_scatter_lane: float = 4.0
    unaligned: float = 0.7  # more for a vector that lies in two cache lines
    copy: float = 0.5
    transposed_lane: float = 0.4  # more where squares are transposed in registers
    # More for what an iteration of the innermost loop reads as vectors, or as scalars, of a row that has a page of its
    # own, and where that is not in the second cache either.
    tlb_miss_vector: float = 7.0
    tlb_miss_scalar: float = 10.0
    far_tlb_miss: float = 3.0
    far_copy: float = 0.55  # a byte of a copy that comes from beyond the second cache
    set_conflict: float = 0.2  # a scalar of rows that conflict in the first cache, but are in the second
    another_kernel: float = 3000.0
    load: float = 0.4  # what of a load is not hidden behind multiply-adds
    broadcast: float = 0.5
    second_cache_load: float = 0.25  # more for a vector that comes from the second cache
    far_load: float = 8.0  # more for one that comes from beyond it
    short_sum: int = 24  # sums of so few terms do not wait for one another
    # Bytes of which a cache retains all while something else goes by.
    first_cache: int = 32 << 10
    second_cache: int = 256 << 10
    # Bytes of which nothing is in the second cache any more when they are read again.
    beyond_caches: int = 2 << 20
    # More than `conflict_rows` rows, each a multiple of `conflict_stride` bytes after the one before, fall into few
    # sets of the first cache. Of such rows `conflict_chunk` are read at a time, along several panels.
    conflict_stride: int = 1 << 10
    conflict_rows: int = 96
    conflict_chunk: int = 64
    # Rows that are more than so many bytes apart, and more than so many of them, are not prefetched.
    page_stride: int = 2 << 10
    page_rows: int = 64
    masked_vectors: int = 4  # vectors that can be masked all at once
    vector_rows: int = 8  # rows that are summed side by side in a matrix-vector product
    # Elements: rows of a tile that are near share pages; those that are far apart meet in few sets of a cache.
    near: int = 1 << 9
    far: int = 1 << 12
    # Rows of a matrix that are read side by side, where a vector is multiplied with more of them than the cache holds.
    streamed_rows: int = 16
    # Loops over threads should have about as many tasks, up to `most_tasks` where each still has `shared_work`, which
    # is also the least work (in multiply-adds) to share: threads are not equally fast, and the last task should not be
    # long.
    tasks: int = 16
    most_tasks: int = 48
    shared_work: int = 1 << 20
    # Bytes of one operand that a task reads again and again: a panel of lanes, and the rows of a block beside it.
    panel_bytes: int = 256 << 10
    block_bytes: int = 1536 << 10
    least_tiles: int = 8  # fewer tiles in a block read more than they compute
    block_panels: int = 8  # panels of a block, of which partial sums stay in the cache
    # Of sums this short the results are most of the work, if they do not stay in the cache. If one operand does, they
    # are written row by row, so many tiles at a time.
    short_k: int = 384
    row_bytes: int = 1 << 20
    row_tiles: int = 4
    heights: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    # Vectors of other lengths are widened to powers of two by LLVM, with lanes that nobody needs.
    vectors: tuple[int, ...] = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class KernelCosts:
    """Nanoseconds by which the time of a kernel is estimated: for decisions that do not change what it computes."""

    simple: float = 0.3  # one vector by an operation of a few instructions
    fused: float = 0.17  # one that is started at two a cycle
    function: float = 6.0  # a function by polynomials
    access: float = 0.08  # an access to a cache
    scattered: float = 0.4  # an element that is read or written apart from its neighbours
    line: float = 1.12  # more for `line_bytes` that come from memory or go there, which they do once
    line_bytes: int = 64
    tile: float = 30.0  # a matmul of two tiles by tile registers
    iteration: float = 0.3
    copied_byte: float = 0.1
    launch: float = 10.0
    library_call: float = 10_000.0
    # Work that is worth waking another thread for, and what one piece of it should take.
    worth_threads: float = 20_000.0
    piece: float = 6_000.0


@dataclass(frozen=True)
class Libraries:
    """Which operations libraries serve. A contraction is theirs from so many multiply-adds of one matrix product on, if
    its operands and its result have these dtypes and our own kernels are not as fast (`own_dtypes`); contractions of
    bytes, if rows and columns are multiples of `byte_multiple`. Convolutions are a library's if these operands and
    results are in `convolution_dtypes`. Attention is a library's if it serves that, with a bias if it serves that too.
    `present` are the libraries themselves, where there is a choice."""

    contraction_size: int = 384**3
    # ... in the bodies of loops, which are one kernel where no library is called.
    loop_contraction_size: int = 0
    contraction_dtypes: frozenset[tuple[Any, Any]] = frozenset(
        (dtypes.as_dtype(name), dtypes.as_dtype(name)) for name in ("float32", "float64", "complex64", "complex128")
    )
    byte_multiple: int = 16
    convolution_dtypes: frozenset[tuple[Any, Any]] = frozenset()
    attention: bool = False
    attention_bias: bool = False
    present: frozenset[str] = frozenset()
    own_dtypes: frozenset[Any] = frozenset()
    # Batches of small matrices of these dtypes are factored and solved by our own kernels.
    lane_matrix_dtypes: frozenset[Any] = frozenset(dtypes.as_dtype(name) for name in ("float32", "float64"))


@dataclass(frozen=True)
class MatrixUnits:
    """Units that groups of threads multiply matrices by: the dtypes of operands, and the local memory that a group may
    have for them; in the bodies of loops, which are one kernel where that is not much, as much as is left there.
    `warpgroups`: four warps multiply as one for tiles of at most so many columns."""

    dtypes: frozenset[Any] = frozenset()
    local_bytes: int = 0
    loop_bytes: int = 0
    warpgroups: int = 0
    in_loops: bool = False


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    `triple`, `cpu` and `flags` are what LLVM is told. `masks`: a load or store of some lanes is one instruction,
    whatever the type. `tiles`: it has tile registers for matmuls of bfloat16 and of bytes, and the process may use
    them. `toolchain` is what makes its code, with its version. With `grid_bytes`, kernels run on a grid of threads, of
    which each has so many bytes side by side, and buffers begin at multiples of that; `group_lanes` is how many lanes
    such threads have together at most, `thread_lanes` those of each, and `scan_lanes` those of as many as exchange them
    quickly; `cluster_blocks` is how many blocks of such threads wait for each other quickly.
    """

    kind: str
    triple: str
    cpu: str
    flags: str
    vector_bits: int
    vector_registers: int = 16
    masks: bool = False
    tiles: bool = False
    grid_bytes: int = 0
    group_lanes: int = 0
    thread_lanes: int = 1
    scan_lanes: int = 0
    cluster_blocks: int = 1
    memory_spaces: tuple[str, ...] = ("device",)
    toolchain: str = ""
    fusion: FusionLimits = FusionLimits()
    matmul: MatmulCosts = MatmulCosts()
    kernel: KernelCosts = KernelCosts()
    libraries: Libraries = Libraries()
    matrices: MatrixUnits = MatrixUnits()
    # Elementwise operations that its lanes know by name.
    operations: frozenset[str] = ELEMENTWISE

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    @cached_property
    def key(self) -> str:
        """All of its data as a text: its part in the names of files."""
        return ";".join(f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))

    def inside(self, equation: Any) -> Target:
        """The machine for the sub-jaxprs of an equation: what is small there is not worth the call of a library."""
        return self.in_loops if equation.primitive.iterates else self

    @cached_property
    def in_loops(self) -> Target:
        """The machine for the bodies of loops."""
        known = self.libraries
        if known.contraction_size >= known.loop_contraction_size:
            return self
        own = replace(known, contraction_size=known.loop_contraction_size)
        return replace(self, libraries=own, matrices=replace(self.matrices, in_loops=True))

    @property
    def vector_bytes(self) -> int:
        """The width of a register; that of one scalar, where there are no vectors."""
        return max(self.vector_bits // 8, 4)

    @property
    def accumulators(self) -> int:
        """How many vectors can be summed in registers, with some left for operands."""
        return 3 * self.vector_registers // 4

    def lanes(self, dtype: Any) -> int:
        """How many elements one register holds, as they are computed: bits are bytes, short floats are float32."""
        if not self.vector_bits:
            return 1
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        if kind == "c":
            size //= 2
        elif kind in "fV" and size < 4:
            size = 4
        return max(1, self.vector_bits // (8 * size))


# No machine in particular: for what is counted of a program whatever it runs on.
ANY = Target("any", "", "", "", 0)


def _text(value: Any) -> str:
    """A text that is the same in every process: sets have no order."""
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if hasattr(value, "__dataclass_fields__"):
        return "(" + ",".join(_text(getattr(value, f.name)) for f in fields(value)) + ")"
    return str(value)
