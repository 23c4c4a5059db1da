"""The GPUs that code is compiled for."""

from __future__ import annotations

import functools

from weft.base.errors import ArgumentError
from weft.compiler.target import native
from weft.compiler.target.tables import Tables, register
from weft.compiler.target.target import FusionLimits, KernelCosts, Libraries, Target

TRIPLE = "nvptx64-nvidia-cuda"
# The version of PTX that is written for each architecture: the first that has all of its instructions that are used,
# so that older drivers read it.
PTX = {75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 83, 100: 86, 120: 87}


def _tables() -> Tables:
    from weft.compiler.target.cuda.tables import TABLES

    return TABLES


register("cuda", _tables)


@functools.cache
def of_capability(major: int, minor: int) -> Target:
    """The GPUs of a compute capability, such as 9.0 for an H100 or H200."""
    capability = 10 * major + minor
    known = [each for each in PTX if each <= capability]
    if not known:
        raise ArgumentError(
            f"Code is made for GPUs of compute capability 7.5 and later; this one has {major}.{minor}.",
            received=f"sm_{capability}",
        )
    # A later GPU runs the code of an earlier one.
    version = known[-1]
    return Target(
        "cuda",
        TRIPLE,
        f"sm_{version}",
        f"+ptx{PTX[version]}",
        vector_bits=0,
        grid_bytes=16,
        group_lanes=1024,
        fusion=FusionLimits(row_bytes=128 << 10, single_row_bytes=128 << 10, cheap_weight=16),
        kernel=KernelCosts(launch=900.0),
        # Nothing is a library's yet.
        libraries=Libraries(contraction_dtypes=frozenset(), lane_matrix_dtypes=frozenset()),
        toolchain=native.toolchain(),
    )


def hopper() -> Target:
    """An H100 or H200, for which code is made wherever this is."""
    return of_capability(9, 0)
