"""Cost constants of NVIDIA GPUs.

Written by tools/calibrate.py. The comment above a value says how the script measures it, the one beside it
when and on which machine the value was set. docs/design/costs.md explains the methods; values that are older
than the script (2026-11-19) were tuned by hand with benchmarks/matmul_grid.py and `make bench`.

Not measured by this script, which has no kernels for GPUs: benchmarks/gpu.py times whole programs.
"""

from weft.compiler.target.costs import FusionLimits, KernelCosts

FUSION = FusionLimits(
    values=256,  # 2026-11-15 as CPUs
    operands=32,  # 2026-11-15 as CPUs
    results=16,  # 2026-11-15 as CPUs
    sites=8,  # 2026-11-15 as CPUs
    repeated=8,  # 2026-11-15 as CPUs
    copies=8,  # 2026-11-15 as CPUs
    row_bytes=128 << 10,  # 2026-11-16 GPU, not recorded
    single_row_bytes=128 << 10,  # 2026-11-16 GPU, not recorded
    prologue_repeats=8,  # 2026-11-15 as CPUs
    window=64,  # 2026-11-15 as CPUs
    reach=2048,  # 2026-11-15 as CPUs
    early_bytes=4096,  # 2026-11-16 as CPUs
    cheap_weight=16,  # 2026-11-16 GPU, not recorded
    cheap_flops=512,  # 2026-11-15 as CPUs
    recompute_weight=64,  # 2026-11-16 GPU, not recorded
    recompute_bytes=1 << 16,  # 2026-11-16 as CPUs
    tiled_transpose_bytes=16 << 10,  # 2026-11-15 as CPUs
    lane_matrix=16,  # 2026-11-15 as CPUs
)

KERNEL = KernelCosts(
    simple=0.3,  # 2026-11-15 as CPUs
    fused=0.17,  # 2026-11-15 as CPUs
    function=6.0,  # 2026-11-15 as CPUs
    access=0.08,  # 2026-11-15 as CPUs
    scattered=0.4,  # 2026-11-15 as CPUs
    line=1.12,  # 2026-11-15 as CPUs
    line_bytes=64,  # 2026-11-15 as CPUs
    tile=30.0,  # 2026-11-15 as CPUs
    iteration=0.3,  # 2026-11-15 as CPUs
    copied_byte=0.1,  # 2026-11-15 as CPUs
    launch=900.0,  # 2026-11-16 GPU, not recorded
    library_call=10_000.0,  # 2026-11-15 as CPUs
    parallel_threshold=20_000.0,  # 2026-11-15 as CPUs
    least_task=6_000.0,  # 2026-11-15 as CPUs
)
