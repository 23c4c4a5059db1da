"""GPU targets."""

from __future__ import annotations

import functools
from typing import Any

from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.compiler.target import native
from weft.compiler.target.cuda import costs
from weft.compiler.target.target import Libraries, MatrixUnits, Target

TRIPLE = "nvptx64-nvidia-cuda"
# PTX version for each architecture: the first with all instructions that we use, so that older drivers read it. From
# 8.0 on LLVM uses packed 16-bit integers on an H100, which the assembler of CUDA 13.0 miscompiles: sums of such pairs
# are lost (indices of tests/laws' reduce_window-4).
PTX = {75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78, 100: 86, 120: 87}

# Matmuls with fewer multiply-adds run in our own kernels, which fuse their neighbours.
LEAST_MATMUL = 32**3
# ... and in loops.
LEAST_MATMUL_IN_LOOP = 1 << 24


# Dtypes of operands and result of cuBLASLt's products and cuDNN's convolutions.
_SHORT = [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16"), ("float16", "float32")]
_SAME = [(name, name) for name in ("float32", "float64", "complex64", "complex128")]


def _pairs(names: list[tuple[str, str]]) -> frozenset[tuple[Any, Any]]:
    return frozenset((dtypes.as_dtype(first), dtypes.as_dtype(second)) for first, second in names)


# The first architecture with attention in cuDNN, and the one on which attention with a bias was checked: cuDNN accepts
# some cases that it computes wrongly (docs/design/gpu.md).
FIRST_ATTENTION, ATTENTION_BIAS = 80, 90


# The first architecture with products of 8-bit floats.
FIRST_FLOAT8 = 89
_FLOAT8 = [("float8_e4m3fn", name) for name in ("float32", "bfloat16", "float16")]


# The first architecture whose tensor cores our own kernels use, and the shared memory that a block may use for them. In
# loops that are one kernel, a block has two groups.
FIRST_MATRICES = 80
LOCAL_KILOBYTES = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 120: 99}
LOOP_BYTES = 16 << 10
# Columns of a tile up to which four warps multiply together (`wgmma`), by architecture.
WARPGROUPS = {90: 128}


def get_matrix_units(version: int) -> MatrixUnits:
    """Return the matrix units of an architecture for our own kernels."""
    if version < FIRST_MATRICES:
        return MatrixUnits()
    multiplied = frozenset(dtypes.as_dtype(name) for name in ("bfloat16", "float16", "float32"))
    return MatrixUnits(multiplied, LOCAL_KILOBYTES[version] << 10, LOOP_BYTES, warpgroups=WARPGROUPS.get(version, 0))


def get_libraries(present: frozenset[str], version: int) -> Libraries:
    """Return the operations that NVIDIA's libraries serve on an architecture, given the installed ones (names as in
    `runtime/cuda/libraries`)."""
    float8 = _FLOAT8 if version >= FIRST_FLOAT8 else []
    matmuls = _pairs([*_SHORT, *_SAME, *float8, ("int8", "int32")]) if "cublasLt" in present else frozenset()
    return Libraries(
        contraction_size=LEAST_MATMUL,
        loop_contraction_size=LEAST_MATMUL_IN_LOOP,
        contraction_dtypes=matmuls,
        convolution_dtypes=_pairs([*_SHORT, ("float32", "float32")]) if "cudnn" in present else frozenset(),
        attention="cudnn" in present and version >= FIRST_ATTENTION,
        attention_bias="cudnn" in present and version == ATTENTION_BIAS,
        lane_matrix_dtypes=frozenset(),
        present=present,
    )


@functools.cache
def of_capability(major: int, minor: int, present: frozenset[str] = frozenset()) -> Target:
    """Return the target of a compute capability, such as 9.0 for an H100 or H200, with these libraries."""
    capability = 10 * major + minor
    known = [each for each in PTX if each <= capability]
    if not known:
        raise ArgumentError(
            f"GPUs must have compute capability 7.5 or later; this one has {major}.{minor}.",
            received=f"sm_{capability}",
        )
    # PTX for an earlier GPU runs on later ones.
    version = known[-1]
    return Target(
        "cuda",
        TRIPLE,
        f"sm_{version}",
        f"+ptx{PTX[version]}",
        vector_bits=0,
        grid_bytes=16,
        group_lanes=1024,
        thread_lanes=4,
        scan_lanes=128,  # of a warp
        cluster_blocks=8 if version >= 90 else 1,
        fusion=costs.FUSION,
        kernel=costs.KERNEL,
        libraries=get_libraries(present, version),
        matrices=get_matrix_units(version),
        toolchain=native.toolchain(),
    )


def hopper(present: frozenset[str] = frozenset()) -> Target:
    """Return the target of an H100 or H200 with these libraries, on any machine."""
    return of_capability(9, 0, present)
