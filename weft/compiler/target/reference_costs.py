"""Cost constants of CPUs.

Written by tools/calibrate.py. The comment above a value says how the script measures it, the one beside it
when and on which machine the value was set. docs/design/costs.md explains the methods; values that are older
than the script (2026-11-19) were tuned by hand with benchmarks/matmul_grid.py and `make bench`.
"""

from weft.compiler.target.costs import FusionLimits, KernelCosts, MatmulCosts

FUSION = FusionLimits(
    # Not measured: bounds the code of one kernel and its compile time.
    values=256,  # 2026-11-15 choice
    # Not measured: bounds the pointers of one kernel, which stay in registers or L1.
    operands=32,  # 2026-11-15 choice
    # Not measured: bounds the pointers of one kernel, which stay in registers or L1.
    results=16,  # 2026-11-15 choice
    # Not measured: bounds the code of one kernel and its compile time.
    sites=8,  # 2026-11-15 choice
    # Not measured: bounds the code of one kernel and its compile time.
    repeated=8,  # 2026-11-15 choice
    # Not measured: bounds the code of one kernel and its compile time.
    copies=8,  # 2026-11-15 choice
    # Fastest of half, equal and double, on softmax of 64 rows of 256 KB.
    row_bytes=256 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on softmax of 64 KB.
    single_row_bytes=64 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on tanh(a) @ b, 256 x 16 x 256.
    prologue_repeats=8,  # 2026-11-15 AVX-512 server core
    # Not measured: bounds how long values stay alive, which trades memory for launches.
    window=64,  # 2026-11-15 choice
    # Not measured: bounds how long values stay alive, which trades memory for launches.
    reach=2048,  # 2026-11-15 choice
    # Not measured: bounds how long values stay alive, which trades memory for launches.
    early_bytes=4096,  # 2026-11-16 choice
    # Fastest of half, equal and double, on two readers of one value.
    cheap_weight=4,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on two readers of one value.
    cheap_flops=512,  # 2026-11-15 AVX-512 server core
    # Not measured: 0 on CPUs, whose caches keep the results; 64 on GPUs, by benchmarks/gpu.py.
    recompute_weight=0,  # 2026-11-16 choice
    # Not measured: only read where recompute_weight is above 0; benchmarks/gpu.py.
    recompute_bytes=1 << 16,  # 2026-11-16 choice
    # Fastest of half, equal and double, on a transpose of 64 x 64.
    tiled_transpose_bytes=16 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on Cholesky of 1000 x 24 x 24.
    lane_matrix=16,  # 2026-11-15 AVX-512 server core
)

MATMUL = MatmulCosts(
    # Gather with a stride of two lines in L1, beyond a vector load, per lane.
    gather_lane=1.2,  # 2026-11-15 AVX-512 server core
    # Scatter with a stride of two lines in L1, beyond a vector store, per lane.
    scatter_lane=2.5,  # 2026-11-15 AVX-512 server core
    # The same with a stride of a page and a line, over 2048 rows.
    far_scatter_lane=4.0,  # 2026-11-15 AVX-512 server core
    # Vector loads from L1 at an offset of 4 bytes, beyond aligned ones.
    unaligned=0.7,  # 2026-11-15 AVX-512 server core
    # Copy within L2, per element.
    copy=0.5,  # 2026-11-15 AVX-512 server core
    # Square transposed by shuffles in L1, beyond a copy, per element.
    transposed_lane=0.4,  # 2026-11-15 AVX-512 server core
    # Vector loads from 256 pages, beyond those from 256 lines.
    tlb_miss_vector=7.0,  # 2026-11-15 AVX-512 server core
    # Scalar loads from 256 pages, beyond those from 256 lines.
    tlb_miss_scalar=10.0,  # 2026-11-15 AVX-512 server core
    # Vector loads from pages of 64 MB, beyond those from 256 pages.
    far_tlb_miss=3.0,  # 2026-11-15 AVX-512 server core
    # Copy of 64 MB, beyond one in L1, per byte.
    far_copy=0.55,  # 2026-11-15 AVX-512 server core
    # Scalar loads from 256 rows at conflict_stride, beyond those from 256 lines.
    set_conflict=0.2,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 128 x 128 x 128, right side transposed.
    another_kernel=3000.0,  # 2026-11-15 AVX-512 server core
    # Cycles of register tiles beyond their multiply-adds: least squares over six tiles, per vector load.
    load=0.4,  # 2026-11-15 AVX-512 server core
    # The same per broadcast.
    broadcast=0.5,  # 2026-11-15 AVX-512 server core
    # Vector loads along 256 KB, beyond those along 16 KB.
    second_cache_load=0.25,  # 2026-11-15 AVX-512 server core
    # Vector loads along 64 MB, beyond those along 16 KB.
    far_load=8.0,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 512 x 512 x 24.
    short_sum=24,  # 2026-11-15 AVX-512 server core
    # Largest power of two that is read at most 1.3 times as slowly as 16 KB.
    first_cache=32 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on a vector of 1024 by 1024 x 512.
    second_cache=256 << 10,  # 2026-11-15 AVX-512 server core
    # Largest power of two that is read at most four times as slowly as 16 KB.
    beyond_caches=2 << 20,  # 2026-11-15 AVX-512 server core
    # First power of two at which twice conflict_rows scalar loads are 1.3 times as slow as at a line.
    conflict_stride=1 << 10,  # 2026-11-15 AVX-512 server core
    # First number of rows at conflict_stride at which scalar loads are 1.3 times as slow.
    conflict_rows=96,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 64 x 1024 x 1024, rows 4 KB apart.
    conflict_chunk=64,  # 2026-11-15 AVX-512 server core
    # First power of two at which loads from eight times page_rows rows are 1.5 times as slow.
    page_stride=2 << 10,  # 2026-11-15 AVX-512 server core
    # First number of rows on pages of their own at which vector loads are 1.5 times as slow.
    page_rows=64,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 256 x 100 x 256.
    masked_vectors=4,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1 x 2048 x 512.
    vector_rows=8,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 512 cubed.
    near=1 << 9,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 128 x 4096 x 64.
    far=1 << 12,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on a vector of 2048 by 2048 x 2048.
    streamed_rows=16,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 64 x 64 x 8192.
    tasks=16,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1024 cubed.
    most_tasks=48,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 128 cubed.
    shared_work=1 << 20,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 256 x 512 x 4096.
    panel_bytes=256 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1024 cubed.
    block_bytes=1536 << 10,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 512 cubed.
    least_tiles=8,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1024 cubed.
    block_panels=8,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1000 x 1000 x 384.
    short_k=384,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 1000 x 2000 x 128.
    row_bytes=1 << 20,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on 2000 x 1000 x 100.
    row_tiles=4,  # 2026-11-15 AVX-512 server core
    # Not measured: the tile heights that are considered; more would only lengthen the search.
    heights=(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),  # 2026-11-15 choice
    # Not measured: the vector lengths that LLVM does not widen.
    vectors=(1, 2, 4, 8, 16),  # 2026-11-15 choice
)

KERNEL = KernelCosts(
    # Vector maximum that propagates NaN, in twelve chains.
    simple=0.3,  # 2026-11-15 AVX-512 server core
    # Vector multiply-adds in twelve chains.
    fused=0.17,  # 2026-11-15 AVX-512 server core
    # exp of 16 KB beyond an addition, per vector.
    function=6.0,  # 2026-11-15 AVX-512 server core
    # Vector loads along 16 KB.
    access=0.08,  # 2026-11-15 AVX-512 server core
    # Gather with a stride of two lines in L1, per lane.
    scattered=0.4,  # 2026-11-15 AVX-512 server core
    # Vector loads along 64 MB beyond those along 16 KB, per line.
    line=1.12,  # 2026-11-15 AVX-512 server core
    # Not measured: a property of the hardware or of a library, from its documentation.
    line_bytes=64,  # 2026-11-15 choice
    # Not measured: needs AMX; benchmarks/tile_matmul.py on a machine that has it.
    tile=30.0,  # 2026-11-15 Xeon with AMX
    # One cycle, less than which no iteration takes.
    iteration=0.3,  # 2026-11-15 AVX-512 server core
    # Copy of 64 MB, per byte.
    copied_byte=0.1,  # 2026-11-15 AVX-512 server core
    # Chains of 34 and 2 kernels on 8 elements: their difference, per kernel.
    launch=10.0,  # 2026-11-15 AVX-512 server core
    # QR factorization of 8 x 8.
    library_call=10_000.0,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on exp of 64K elements.
    parallel_threshold=20_000.0,  # 2026-11-15 AVX-512 server core
    # Fastest of half, equal and double, on exp of 256K elements.
    least_task=6_000.0,  # 2026-11-15 AVX-512 server core
)
