"""Every cost constant of a target: how it is measured, or why it is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from calibration import programs
from calibration.probe import FAR, FIRST, LINE, PAGE, SECOND, UNROLLED, Probe
from weft.compiler.target.costs import FusionLimits, KernelCosts, MatmulCosts
from weft.compiler.target.target import Libraries, MatrixUnits, Target

RECORDS = {
    "fusion": FusionLimits,
    "matmul": MatmulCosts,
    "kernel": KernelCosts,
    "libraries": Libraries,
    "matrices": MatrixUnits,
}
"""Fields of `Target` that hold constants, with their types."""


class Session:
    """Measurements of one run, on one target."""

    def __init__(self, target: Target, quick: bool) -> None:
        self.target, self.quick = target, quick

    @functools.cached_property
    def probe(self) -> Probe:
        """Microbenchmarks of the target."""
        return Probe(self.target, self.quick)

    def cycles(self, nanoseconds: float) -> float:
        """Convert nanoseconds to core cycles; differences below zero are noise."""
        return max(0.0, nanoseconds) * self.probe.clock

    def run_time(self, case: programs.Case) -> float:
        """Return the nanoseconds of a program on the target as it ships."""
        return programs.run_time(case, self.target, self.quick)


class Constant(NamedTuple):
    """One constant: a sentence on its measurement, and the function that measures it, or None if it keeps its value.

    The function returns the measured value, or that and a remark.
    """

    note: str
    measure: Callable[[Session], Any] | None = None


def _fixed(reason: str) -> Constant:
    return Constant(f"Not measured: {reason}.")


def _sweep(record: str, name: str, program: str, case: programs.Case) -> Constant:
    return Constant(
        f"Fastest of half, equal and double, on {program}.",
        lambda s: programs.sweep(record, name, case, s.target, s.quick),
    )


# -- microbenchmarks ---------------------------------------------------------------------------------------------------


def _strided_pages(rows: int) -> tuple[int, int]:
    """Return rows on a page of their own, at a stride that spreads them over all sets of L1."""
    return rows, PAGE + LINE


def _tlb_miss(s: Session, kind: str) -> float:
    near = s.probe.walk(kind, 256, LINE)
    return s.cycles(s.probe.walk(kind, *_strided_pages(256)) - near)


def _far_tlb_miss(s: Session) -> float:
    rows = FAR // (PAGE + LINE) // UNROLLED * UNROLLED
    near = s.probe.walk("load", *_strided_pages(256))
    return s.cycles(s.probe.walk("load", *_strided_pages(rows)) - near)


def _fit_tile(s: Session) -> np.ndarray:
    """Fit cycles of register tiles beyond their multiply-adds by a cost per load and one per broadcast."""
    tiles = [(2, 4), (4, 4), (6, 4), (8, 2), (12, 2), (14, 1)]
    tiles = [t for t in tiles if t[0] * t[1] + t[1] + 1 <= s.target.vector_registers] or [(1, 1), (2, 1)]
    hidden = 2 * s.probe.operation(_FMA, _FMA_TYPE) * s.probe.clock
    shown = [s.probe.tile(h, v) - hidden * h * v / 2 for h, v in tiles]
    found: np.ndarray = np.linalg.lstsq(np.array([(v, h) for h, v in tiles], float), np.array(shown), rcond=None)[0]
    return np.maximum(found, 0.0)


def _working_set(s: Session, factor: float) -> int:
    """Return the largest power of two in bytes that is read at most `factor` times as slowly as L1."""
    sizes = [FIRST << i for i in range(10)]
    knee = s.probe.knee(((size, s.probe.stream("load", size)) for size in sizes), factor)
    return max(FIRST, knee // 2)


def _conflict_rows(s: Session) -> int:
    stride = s.target.matmul.conflict_stride
    rows = [16, 32, 64, 96, 128, 192, 256, 384, 512]
    return s.probe.knee(((r, s.probe.walk("scalar", r, stride)) for r in rows), 1.3)


def _conflict_stride(s: Session) -> int:
    rows = 2 * s.target.matmul.conflict_rows
    strides = [LINE << i for i in range(8)]
    return s.probe.knee(((d, s.probe.walk("scalar", rows, d)) for d in strides), 1.3)


def _page_rows(s: Session) -> int:
    rows = [16, 32, 48, 64, 96, 128, 192, 256]
    return s.probe.knee(((r, s.probe.walk("load", *_strided_pages(r))) for r in rows), 1.5)


def _page_stride(s: Session) -> int:
    strides = [256, 512, 1024, 2048, 4096]
    rows = 8 * s.target.matmul.page_rows
    return s.probe.knee(((d, s.probe.walk("load", rows, d + LINE)) for d in strides), 1.5)


def _iteration(s: Session) -> float:
    """Time of one iteration of a loop with an empty body, less than which no loop takes."""
    return 1.0 / s.probe.clock


def _launch(s: Session) -> float:
    few, many = (s.run_time(programs.barriers(n, 8)) for n in (2, 34))
    return max(0.0, many - few) / 32


def _function(s: Session) -> float:
    """Time of exp beyond that of an addition, in L1, by vectors."""
    size = 4096
    add: programs.Case = (lambda x: x + 1, ((size,),))
    return (s.run_time(programs.exponential(size)) - s.run_time(add)) / (size / s.probe.lanes)


def _routine(s: Session) -> float:
    return s.run_time(programs.routine(8))


_FMA = "call {vector} @llvm.fma.v{lanes}f32({vector} {x}, {vector} {x}, {vector} {x})"
_FMA_TYPE = "declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
_MAXIMUM = "call {vector} @llvm.maximum.v{lanes}f32({vector} {x}, {vector} zeroinitializer)"
_MAXIMUM_TYPE = "declare {vector} @llvm.maximum.v{lanes}f32({vector}, {vector})"

_CODE_SIZE = _fixed("bounds the code of one kernel and its compile time")
_LIVE_RANGE = _fixed("bounds how long values stay alive, which trades memory for launches")
_SPEC = _fixed("a property of the hardware or of a library, from its documentation")

CATALOGUE: dict[str, Constant] = {
    # -- fusion
    "fusion.values": _CODE_SIZE,
    "fusion.operands": _fixed("bounds the pointers of one kernel, which stay in registers or L1"),
    "fusion.results": _fixed("bounds the pointers of one kernel, which stay in registers or L1"),
    "fusion.sites": _CODE_SIZE,
    "fusion.repeated": _CODE_SIZE,
    "fusion.copies": _CODE_SIZE,
    "fusion.row_bytes": _sweep("fusion", "row_bytes", "softmax of 64 rows of 256 KB", programs.softmax(64, 65536)),
    "fusion.single_row_bytes": _sweep("fusion", "single_row_bytes", "softmax of 64 KB", programs.softmax(1, 16384)),
    "fusion.prologue_repeats": _sweep(
        "fusion", "prologue_repeats", "tanh(a) @ b, 256 x 16 x 256", programs.prologue(256, 16, 256)
    ),
    "fusion.window": _LIVE_RANGE,
    "fusion.reach": _LIVE_RANGE,
    "fusion.early_bytes": _LIVE_RANGE,
    "fusion.cheap_weight": _sweep("fusion", "cheap_weight", "two readers of one value", programs.shared_value(512)),
    "fusion.cheap_flops": _sweep("fusion", "cheap_flops", "two readers of one value", programs.shared_value(16)),
    "fusion.recompute_weight": _fixed("0 on CPUs, whose caches keep the results; 64 on GPUs, by benchmarks/gpu.py"),
    "fusion.recompute_bytes": _fixed("only read where recompute_weight is above 0; benchmarks/gpu.py"),
    "fusion.tiled_transpose_bytes": _sweep(
        "fusion", "tiled_transpose_bytes", "a transpose of 64 x 64", programs.transpose(64)
    ),
    "fusion.lane_matrix": _sweep("fusion", "lane_matrix", "Cholesky of 1000 x 24 x 24", programs.factor(1000, 24)),
    # -- contractions
    "matmul.gather_lane": Constant(
        "Gather with a stride of two lines in L1, beyond a vector load, per lane.",
        lambda s: s.cycles(s.probe.walk("gather", 8, 2 * LINE) - s.probe.stream("load", FIRST)) / s.probe.lanes,
    ),
    "matmul.scatter_lane": Constant(
        "Scatter with a stride of two lines in L1, beyond a vector store, per lane.",
        lambda s: s.cycles(s.probe.walk("scatter", 8, 2 * LINE) - s.probe.stream("store", FIRST)) / s.probe.lanes,
    ),
    "matmul.far_scatter_lane": Constant(
        "The same with a stride of a page and a line, over 2048 rows.",
        lambda s: (
            s.cycles(s.probe.walk("scatter", 2048 // s.probe.lanes, PAGE + LINE) - s.probe.stream("store", FIRST))
            / s.probe.lanes
        ),
    ),
    "matmul.unaligned": Constant(
        "Vector loads from L1 at an offset of 4 bytes, beyond aligned ones.",
        lambda s: s.cycles(s.probe.stream("load", FIRST, 4) - s.probe.stream("load", FIRST)),
    ),
    "matmul.copy": Constant(
        "Copy within L2, per element.", lambda s: s.cycles(s.probe.stream("copy", SECOND)) / s.probe.lanes
    ),
    "matmul.transposed_lane": Constant(
        "Square transposed by shuffles in L1, beyond a copy, per element.",
        lambda s: s.cycles(s.probe.transpose() - s.probe.stream("copy", FIRST) / s.probe.lanes),
    ),
    "matmul.tlb_miss_vector": Constant(
        "Vector loads from 256 pages, beyond those from 256 lines.", lambda s: _tlb_miss(s, "load")
    ),
    "matmul.tlb_miss_scalar": Constant(
        "Scalar loads from 256 pages, beyond those from 256 lines.", lambda s: _tlb_miss(s, "scalar")
    ),
    "matmul.far_tlb_miss": Constant("Vector loads from pages of 64 MB, beyond those from 256 pages.", _far_tlb_miss),
    "matmul.far_copy": Constant(
        "Copy of 64 MB, beyond one in L1, per byte.",
        lambda s: s.cycles(s.probe.stream("copy", FAR) - s.probe.stream("copy", FIRST)) / s.probe.bytes,
    ),
    "matmul.set_conflict": Constant(
        "Scalar loads from 256 rows at conflict_stride, beyond those from 256 lines.",
        lambda s: s.cycles(
            s.probe.walk("scalar", 256, s.target.matmul.conflict_stride) - s.probe.walk("scalar", 256, LINE)
        ),
    ),
    "matmul.another_kernel": _sweep(
        "matmul", "another_kernel", "128 x 128 x 128, right side transposed", programs.matmul(128, 128, 128, "nt")
    ),
    "matmul.load": Constant(
        "Cycles of register tiles beyond their multiply-adds: least squares over six tiles, per vector load.",
        lambda s: float(_fit_tile(s)[0]),
    ),
    "matmul.broadcast": Constant("The same per broadcast.", lambda s: float(_fit_tile(s)[1])),
    "matmul.second_cache_load": Constant(
        "Vector loads along 256 KB, beyond those along 16 KB.",
        lambda s: s.cycles(s.probe.stream("load", SECOND) - s.probe.stream("load", FIRST)),
    ),
    "matmul.far_load": Constant(
        "Vector loads along 64 MB, beyond those along 16 KB.",
        lambda s: s.cycles(s.probe.stream("load", FAR) - s.probe.stream("load", FIRST)),
    ),
    "matmul.short_sum": _sweep("matmul", "short_sum", "512 x 512 x 24", programs.matmul(512, 512, 24)),
    "matmul.first_cache": Constant(
        "Largest power of two that is read at most 1.3 times as slowly as 16 KB.", lambda s: _working_set(s, 1.3)
    ),
    "matmul.second_cache": _sweep(
        "matmul", "second_cache", "a vector of 1024 by 1024 x 512", programs.matmul(1, 512, 1024)
    ),
    "matmul.beyond_caches": Constant(
        "Largest power of two that is read at most four times as slowly as 16 KB.", lambda s: _working_set(s, 4.0)
    ),
    "matmul.conflict_stride": Constant(
        "First power of two at which twice conflict_rows scalar loads are 1.3 times as slow as at a line.",
        _conflict_stride,
    ),
    "matmul.conflict_rows": Constant(
        "First number of rows at conflict_stride at which scalar loads are 1.3 times as slow.", _conflict_rows
    ),
    "matmul.conflict_chunk": _sweep(
        "matmul", "conflict_chunk", "64 x 1024 x 1024, rows 4 KB apart", programs.matmul(64, 1024, 1024)
    ),
    "matmul.page_stride": Constant(
        "First power of two at which loads from eight times page_rows rows are 1.5 times as slow.", _page_stride
    ),
    "matmul.page_rows": Constant(
        "First number of rows on pages of their own at which vector loads are 1.5 times as slow.", _page_rows
    ),
    "matmul.masked_vectors": _sweep("matmul", "masked_vectors", "256 x 100 x 256", programs.matmul(256, 100, 256)),
    "matmul.vector_rows": _sweep("matmul", "vector_rows", "1 x 2048 x 512", programs.matmul(1, 2048, 512, "nt")),
    "matmul.near": _sweep("matmul", "near", "512 cubed", programs.matmul(512, 512, 512)),
    "matmul.far": _sweep("matmul", "far", "128 x 4096 x 64", programs.matmul(128, 4096, 64)),
    "matmul.streamed_rows": _sweep(
        "matmul", "streamed_rows", "a vector of 2048 by 2048 x 2048", programs.matmul(1, 2048, 2048)
    ),
    "matmul.tasks": _sweep("matmul", "tasks", "64 x 64 x 8192", programs.matmul(64, 64, 8192)),
    "matmul.most_tasks": _sweep("matmul", "most_tasks", "1024 cubed", programs.matmul(1024, 1024, 1024)),
    "matmul.shared_work": _sweep("matmul", "shared_work", "128 cubed", programs.matmul(128, 128, 128)),
    "matmul.panel_bytes": _sweep("matmul", "panel_bytes", "256 x 512 x 4096", programs.matmul(256, 512, 4096)),
    "matmul.block_bytes": _sweep("matmul", "block_bytes", "1024 cubed", programs.matmul(1024, 1024, 1024)),
    "matmul.least_tiles": _sweep("matmul", "least_tiles", "512 cubed", programs.matmul(512, 512, 512)),
    "matmul.block_panels": _sweep("matmul", "block_panels", "1024 cubed", programs.matmul(1024, 1024, 1024)),
    "matmul.short_k": _sweep("matmul", "short_k", "1000 x 1000 x 384", programs.matmul(1000, 1000, 384)),
    "matmul.row_bytes": _sweep("matmul", "row_bytes", "1000 x 2000 x 128", programs.matmul(1000, 2000, 128)),
    "matmul.row_tiles": _sweep("matmul", "row_tiles", "2000 x 1000 x 100", programs.matmul(2000, 1000, 100)),
    "matmul.heights": _fixed("the tile heights that are considered; more would only lengthen the search"),
    "matmul.vectors": _fixed("the vector lengths that LLVM does not widen"),
    # -- kernels
    "kernel.simple": Constant(
        "Vector maximum that propagates NaN, in twelve chains.",
        lambda s: s.probe.operation(_MAXIMUM, _MAXIMUM_TYPE),
    ),
    "kernel.fused": Constant("Vector multiply-adds in twelve chains.", lambda s: s.probe.operation(_FMA, _FMA_TYPE)),
    "kernel.function": Constant("exp of 16 KB beyond an addition, per vector.", _function),
    "kernel.access": Constant("Vector loads along 16 KB.", lambda s: s.probe.stream("load", FIRST)),
    "kernel.scattered": Constant(
        "Gather with a stride of two lines in L1, per lane.",
        lambda s: s.probe.walk("gather", 8, 2 * LINE) / s.probe.lanes,
    ),
    "kernel.line": Constant(
        "Vector loads along 64 MB beyond those along 16 KB, per line.",
        lambda s: (
            max(0.0, s.probe.stream("load", FAR) - s.probe.stream("load", FIRST)) * max(1.0, LINE / s.probe.bytes)
        ),
    ),
    "kernel.line_bytes": _SPEC,
    "kernel.tile": _fixed("needs AMX; benchmarks/tile_matmul.py on a machine that has it"),
    "kernel.iteration": Constant("One cycle, less than which no iteration takes.", _iteration),
    "kernel.copied_byte": Constant("Copy of 64 MB, per byte.", lambda s: s.probe.stream("copy", FAR) / s.probe.bytes),
    "kernel.launch": Constant("Chains of 34 and 2 kernels on 8 elements: their difference, per kernel.", _launch),
    "kernel.library_call": Constant("QR factorization of 8 x 8.", _routine),
    "kernel.parallel_threshold": _sweep(
        "kernel", "parallel_threshold", "exp of 64K elements", programs.exponential(1 << 16)
    ),
    "kernel.least_task": _sweep("kernel", "least_task", "exp of 256K elements", programs.exponential(1 << 18)),
    # -- libraries
    "libraries.contraction_size": _sweep("libraries", "contraction_size", "400 cubed", programs.matmul(400, 400, 400)),
    "libraries.loop_contraction_size": _fixed("0 on CPUs; on GPUs by benchmarks/gpu.py --all"),
    "libraries.contraction_dtypes": _SPEC,
    "libraries.byte_multiple": _SPEC,
    "libraries.convolution_dtypes": _SPEC,
    "libraries.attention": _SPEC,
    "libraries.attention_bias": _SPEC,
    "libraries.present": _SPEC,
    "libraries.own_dtypes": _fixed("dtypes for which benchmarks/matmul_grid.py never found BLAS faster"),
    "libraries.lane_matrix_dtypes": _SPEC,
    "libraries.lane_matrix_batch": _fixed("the lanes of a register, below which lanes are empty"),
    # -- matrix units
    "matrices.dtypes": _SPEC,
    "matrices.local_bytes": _SPEC,
    "matrices.loop_bytes": _fixed("what two groups of a block leave of shared memory; benchmarks/gpu.py"),
    "matrices.warpgroups": _fixed("by benchmarks/gpu.py on an H200"),
    "matrices.in_loops": _fixed("a state of the target in loop bodies, not a cost"),
}
"""How each constant is measured, by the field of `Target` and the constant's name."""


def names() -> list[str]:
    """Return the names of all constants in the order of their records."""
    return [f"{record}.{field.name}" for record, kind in RECORDS.items() for field in fields(kind)]
