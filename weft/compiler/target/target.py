"""Data model of a machine to compile for.

Whatever depends on the machine takes a `Target`: passes, fusion, the choice of tiles, emitters, estimates of cost. It
need not be the machine that the process runs on. Two targets are equal if all of their fields are, and every key of
compiled code includes its target. The folders beside this file build targets (`cpu/targets.py`) and generate code for
them.
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
    """Limits on the size of a fusion, and thresholds below which recomputing a value is cheaper than storing it."""

    values: int = 256  # equations in one fusion
    operands: int = 32  # values read
    results: int = 16  # values written
    sites: int = 8  # indices at which one fusion computes a value: where slices meet again, they double
    repeated: int = 8  # code in one fusion for values at additional indices, in approximate statements
    copies: int = 8  # fusions that recompute one cheap equation
    row_bytes: int = 256 * 1024  # one row of a row-wise fusion, which must stay in cache over its passes
    single_row_bytes: int = 64 * 1024  # the same when there is one row only, which one thread works on
    prologue_repeats: int = 8  # times that a contraction may recompute an element of a fused producer
    window: int = 64  # steps between two fusions that are merged: those in between wait, and values live longer
    reach: int = 2048  # ... where nothing waits, and the values read are live anyway
    early_bytes: int = 4096  # values that are computed earlier, so that the last of two fusions may come early
    # Recomputing a value of at most this weight (an addition is 1) is cheaper than a trip to memory,
    cheap_weight: float = 4
    # ... and so is computing any value of at most this many flops in total.
    cheap_flops: float = 512
    # Consumers recompute results of fusions of at most this weight if that saves bytes; 0 disables it.
    recompute_weight: float = 0
    recompute_bytes: int = 1 << 16  # smaller results are not considered
    # Smaller transposes are read with a stride: tiles would not pay off.
    tiled_transpose_bytes: int = 16384
    # Matrices of a large batch with at most this many rows and columns are computed in lanes; larger ones by a library.
    lane_matrix: int = 16


@dataclass(frozen=True)
class MatmulCosts:
    """Cost model for choosing the tiles of contractions: cycles per vector or scalar, measured on a recent server core
    (which starts two multiply-adds a cycle), and sizes at which caches and the TLB show."""

    gather_lane: float = 1.2
    scatter_lane: float = 2.5
    far_scatter_lane: float = 4.0
    unaligned: float = 0.7  # added for a vector that straddles two cache lines
    copy: float = 0.5
    transposed_lane: float = 0.4  # added where squares are transposed in registers
    # Added for each vector, or scalar, that an iteration of the innermost loop reads from a row on a page of its own,
    # and again where that row is not in the second cache either.
    tlb_miss_vector: float = 7.0
    tlb_miss_scalar: float = 10.0
    far_tlb_miss: float = 3.0
    far_copy: float = 0.55  # per byte of a copy from beyond the second cache
    set_conflict: float = 0.2  # a scalar of rows that conflict in the first cache, but are in the second
    another_kernel: float = 3000.0
    load: float = 0.4  # the part of a load that multiply-adds do not hide
    broadcast: float = 0.5
    second_cache_load: float = 0.25  # added for a vector from the second cache
    far_load: float = 8.0  # added for a vector from beyond it
    short_sum: int = 24  # sums of at most this many terms do not wait for one another
    # Bytes that a cache retains while other data streams through it.
    first_cache: int = 32 << 10
    second_cache: int = 256 << 10
    # Bytes after which nothing is left in the second cache when they are read again.
    beyond_caches: int = 2 << 20
    # More than `conflict_rows` rows whose stride is a multiple of `conflict_stride` bytes fall into few sets of the
    # first cache. `conflict_chunk` of these rows are read at a time, along several panels.
    conflict_stride: int = 1 << 10
    conflict_rows: int = 96
    conflict_chunk: int = 64
    # Rows with a stride of more than `page_stride` bytes are not prefetched if there are more than `page_rows`.
    page_stride: int = 2 << 10
    page_rows: int = 64
    masked_vectors: int = 4  # vectors that can be masked all at once
    vector_rows: int = 8  # rows that are summed side by side in a matrix-vector product
    # Strides in elements: rows of a tile at most `near` apart share pages; rows `far` apart map to few sets of a cache.
    near: int = 1 << 9
    far: int = 1 << 12
    # Rows of a matrix that are streamed side by side in a matrix-vector product, where the second cache cannot hold the
    # matrix.
    streamed_rows: int = 16
    # Loops over threads should have about this many tasks, up to `most_tasks` where each still has `shared_work`, which
    # is also the least work (in multiply-adds) to share: threads are not equally fast, and the last task should not be
    # long.
    tasks: int = 16
    most_tasks: int = 48
    shared_work: int = 1 << 20
    # Bytes of one operand that a task reads repeatedly: a panel of lanes, and the rows of a block beside it.
    panel_bytes: int = 256 << 10
    block_bytes: int = 1536 << 10
    least_tiles: int = 8  # fewer tiles in a block read more than they compute
    block_panels: int = 8  # panels of a block whose partial sums stay in the cache
    # For sums this short, writing the results is most of the work if they do not stay in the cache. If one operand
    # stays there, results are written row by row, `row_tiles` tiles at a time.
    short_k: int = 384
    row_bytes: int = 1 << 20
    row_tiles: int = 4
    heights: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    # LLVM widens vectors of other lengths to powers of two, with unused lanes.
    vectors: tuple[int, ...] = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class KernelCosts:
    """Nanoseconds for estimating the run time of a kernel, used only for decisions that do not change what it
    computes."""

    simple: float = 0.3  # one vector by an operation of a few instructions
    fused: float = 0.17  # a vector operation that starts twice a cycle
    function: float = 6.0  # a function approximated by polynomials
    access: float = 0.08  # an access to a cache
    scattered: float = 0.4  # an element that is read or written apart from its neighbours
    line: float = 1.12  # added for each `line_bytes` transferred from or to memory, which happens once
    line_bytes: int = 64
    tile: float = 30.0  # a matmul of two tiles in tile registers
    iteration: float = 0.3
    copied_byte: float = 0.1
    launch: float = 10.0
    library_call: float = 10_000.0
    # Work that is worth waking another thread for, and the work that one of its pieces should have.
    worth_threads: float = 20_000.0
    piece: float = 6_000.0


@dataclass(frozen=True)
class Libraries:
    """Operations that libraries serve on a target.

    A contraction goes to a library from `contraction_size` multiply-adds of one matrix product on, if its operands and
    its result have dtypes in `contraction_dtypes` and our own kernels are not as fast (`own_dtypes`); a contraction of
    bytes, if rows and columns are multiples of `byte_multiple`. Convolutions go to a library if the dtypes of operands
    and results are in `convolution_dtypes`. `attention` and `attention_bias`: a library serves attention, and attention
    with a bias. `present` has the names of the libraries, where there is a choice.
    """

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
    """Matrix units that groups of threads multiply by: the dtypes of operands and the local memory in bytes that a
    group may use for them.

    `loop_bytes` is the limit in the bodies of loops: what is left of local memory where a whole loop is one kernel.
    `warpgroups`: four warps multiply as one for tiles of at most this many columns.
    """

    dtypes: frozenset[Any] = frozenset()
    local_bytes: int = 0
    loop_bytes: int = 0
    warpgroups: int = 0
    in_loops: bool = False


@dataclass(frozen=True)
class Target:
    """Machine to compile for.

    `triple`, `cpu` and `flags` are passed to LLVM. `masks`: a load or store of some lanes is one instruction, whatever
    the type. `tiles`: it has tile registers for matmuls of bfloat16 and of bytes, and the process may use them.
    `toolchain` names what generates its code, with the version.

    With `grid_bytes`, kernels run on a grid of threads that each access this many contiguous bytes, and buffers are
    aligned to it. `group_lanes` is the largest number of lanes in a block of such threads, `thread_lanes` the lanes of
    one thread, `scan_lanes` the lanes of the threads that exchange values quickly (a warp); `cluster_blocks` is the
    number of blocks that synchronise quickly with each other.
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
    # Elementwise operations that its lanes implement by name.
    operations: frozenset[str] = ELEMENTWISE

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    @cached_property
    def key(self) -> str:
        """Text of all fields, the target's part in the names of cache files."""
        return ";".join(f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))

    def inside(self, equation: Any) -> Target:
        """Return the target for the sub-jaxprs of an equation: library calls for small operations do not pay off in
        loops."""
        return self.in_loops if equation.primitive.iterates else self

    @cached_property
    def in_loops(self) -> Target:
        """Target for the bodies of loops, with the threshold for library contractions raised to
        `loop_contraction_size`."""
        known = self.libraries
        if known.contraction_size >= known.loop_contraction_size:
            return self
        own = replace(known, contraction_size=known.loop_contraction_size)
        return replace(self, libraries=own, matrices=replace(self.matrices, in_loops=True))

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register, or of one scalar if the target has no vectors."""
        return max(self.vector_bits // 8, 4)

    @property
    def accumulators(self) -> int:
        """Number of vectors that can be accumulated in registers, with some registers left for operands."""
        return 3 * self.vector_registers // 4

    def lanes(self, dtype: Any) -> int:
        """Return how many elements of a dtype one register holds in the form they are computed in: booleans are bytes,
        floats below 32 bits are float32, a complex number counts as one of its parts."""
        if not self.vector_bits:
            return 1
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        if kind == "c":
            size //= 2
        elif kind in "fV" and size < 4:
            size = 4
        return max(1, self.vector_bits // (8 * size))


# No particular machine: for properties of a program that do not depend on where it runs.
ANY = Target("any", "", "", "", 0)


def _text(value: Any) -> str:
    """Return a text of a value that is the same in every process: sets are sorted."""
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if hasattr(value, "__dataclass_fields__"):
        return "(" + ",".join(_text(getattr(value, f.name)) for f in fields(value)) + ")"
    return str(value)
