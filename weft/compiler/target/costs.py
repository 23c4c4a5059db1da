"""Cost models and limits of a target: the record types, with the unit and the meaning of each constant.

Values are data: `reference_costs.py` has those of CPUs, `cuda/costs.py` those of GPUs that differ. `tools/calibrate.py`
writes both files and prints measured values beside shipped ones; docs/design/costs.md says how each is measured.
None of these constants changes the bits of a result, except through the reference plan of a contraction and the forms
that fusion chooses, which depend on the target alone.
"""

from __future__ import annotations

from weft.base.dataclass import dataclass


@dataclass(frozen=True)
class FusionLimits:
    """Limits on the size of a fusion, and thresholds below which recomputing a value is cheaper than storing it.

    Weights count flops per element: an addition is 1.
    """

    values: int  # equations in one fusion
    operands: int  # values read
    results: int  # values written
    sites: int  # indices at which a fusion evaluates one value: each merge of slices can double them
    repeated: int  # copies of code in one fusion for values at additional indices, in approximate statements
    copies: int  # fusions that recompute one cheap equation
    row_bytes: int  # one row of a row-wise fusion, which must stay in L2 over its passes
    single_row_bytes: int  # the same for one row only, which one thread computes
    prologue_repeats: int  # evaluations of each element of a producer that is fused into a contraction
    window: int  # steps between two sibling fusions that merge: the steps in between wait, live ranges grow
    reach: int  # the same if no step has to wait and the values read are live anyway
    early_bytes: int  # values computed earlier than needed, so that the later of two fusions may move forward
    cheap_weight: float  # weight per element up to which recomputing a value is cheaper than a trip to memory
    cheap_flops: float  # flops in total up to which the same holds, whatever the weight
    recompute_weight: float  # weight up to which consumers recompute results that others can derive; 0 disables it
    recompute_bytes: int  # smaller results are never recomputed
    tiled_transpose_bytes: int  # smaller transposes use strided loads instead of tiles
    lane_matrix: int  # rows and columns of matrices in a batch up to which each lane factors one; a library does others


@dataclass(frozen=True)
class MatmulCosts:
    """Cost model for the tiles of contractions.

    Costs are core cycles. The model starts two vector multiply-adds a cycle; added costs come on top of a load that
    hits L1 and is hidden behind them.
    """

    gather_lane: float  # per element of a gather from L1
    scatter_lane: float  # per element of a scatter to lines that stay in L1
    far_scatter_lane: float  # per element of a scatter whose lines are evicted between two rows
    unaligned: float  # added per vector load that crosses a cache line
    copy: float  # per element packed into scratch memory
    transposed_lane: float  # added per packed element that is transposed in registers
    tlb_miss_vector: float  # added per vector load from a page of its own (L1 DTLB miss)
    tlb_miss_scalar: float  # the same per scalar load
    far_tlb_miss: float  # added to both if the operand exceeds L2 too
    far_copy: float  # added per byte packed from beyond L2
    set_conflict: float  # added per scalar load of rows that conflict in L1 sets and hit L2
    another_kernel: float  # one more launch over the thread pool
    load: float  # part of a vector load in the inner loop that multiply-adds do not hide
    broadcast: float  # the same for a scalar load that is broadcast
    second_cache_load: float  # added per vector load that hits L2
    far_load: float  # added per vector load from beyond L2
    short_sum: int  # terms up to which sums of different elements overlap, so add latency is hidden
    first_cache: int  # bytes of L1 that stay while other operands stream through it
    second_cache: int  # bytes of L2 that stay while other operands stream through it
    beyond_caches: int  # bytes after which a second pass over them misses L2
    conflict_stride: int  # rows at multiples of this stride in bytes map to few L1 sets
    conflict_rows: int  # rows at such a stride from which L1 sets overflow
    conflict_chunk: int  # rows at such a stride in one chunk of K, reused by several panels
    page_stride: int  # stride in bytes from which the prefetcher does not follow rows
    page_rows: int  # rows at such a stride from which the L1 DTLB overflows
    masked_vectors: int  # vectors with masks in one row of a tile: mask registers are few
    vector_rows: int  # rows summed side by side in a matrix-vector product
    near: int  # stride in elements up to which adjacent rows of a tile share pages
    far: int  # stride in elements from which adjacent rows of a tile conflict in cache sets
    streamed_rows: int  # rows streamed side by side in a matrix-vector product whose matrix exceeds L2
    tasks: int  # tasks of a loop over threads: more than cores, since cores differ in speed
    most_tasks: int  # tasks up to which the loop is divided while each has `shared_work`
    shared_work: int  # least multiply-adds in a task
    panel_bytes: int  # packed panel of lanes that a task rereads from L2
    block_bytes: int  # rows of the other operand that a task rereads
    least_tiles: int  # tiles per block below which loads of operands outweigh multiply-adds
    block_panels: int  # panels per block whose partial sums stay in L2
    short_k: int  # length of K up to which stores of the result dominate, so results are written row by row
    row_bytes: int  # bytes of the operand that stays in L2 meanwhile
    row_tiles: int  # tiles of the rows written at a time
    heights: tuple[int, ...]  # rows of register tiles that are considered
    vectors: tuple[int, ...]  # vectors per row of register tiles: LLVM widens other lengths to powers of two


@dataclass(frozen=True)
class KernelCosts:
    """Nanoseconds for estimating the run time of a kernel, used only for decisions that do not change what it
    computes, such as the number of tasks."""

    simple: float  # vector operation of a few instructions
    fused: float  # vector multiply-add; a core starts two a cycle
    function: float  # vector of a function approximated by polynomials
    access: float  # vector load or store that hits L1
    scattered: float  # one element of a gather or scatter
    line: float  # added per cache line of a buffer, which memory transfers once
    line_bytes: int  # bytes of a cache line
    tile: float  # product of two tiles in tile registers (AMX), 16 x 16 x 32 multiply-adds
    iteration: float  # one iteration of a loop
    copied_byte: float  # byte of a copy step
    launch: float  # start of a kernel on the calling thread
    library_call: float  # call of a library routine, whatever its size
    parallel_threshold: float  # work from which waking other threads pays off
    least_task: float  # least work of one task
