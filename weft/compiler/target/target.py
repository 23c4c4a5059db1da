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
from weft.compiler.target import reference_costs
from weft.compiler.target.costs import FusionLimits, KernelCosts, MatmulCosts
from weft.ir.higher_order import Loop


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
    # Batches of at least `lane_matrix_batch` small matrices of these dtypes are factored and solved by our own kernels.
    lane_matrix_dtypes: frozenset[Any] = frozenset(dtypes.as_dtype(name) for name in ("float32", "float64"))
    lane_matrix_batch: int = 8


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
    fusion: FusionLimits = reference_costs.FUSION
    matmul: MatmulCosts = reference_costs.MATMUL
    kernel: KernelCosts = reference_costs.KERNEL
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
        return self.in_loops if isinstance(equation.primitive, Loop) else self

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
        result: int = max(1, self.vector_bits // (8 * size))
        return result


# No particular machine: for properties of a program that do not depend on where it runs.
ANY = Target("any", "", "", "", 0)


def _text(value: Any) -> str:
    """Return a text of a value that is the same in every process: sets are sorted."""
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if hasattr(value, "__dataclass_fields__"):
        return "(" + ",".join(_text(getattr(value, f.name)) for f in fields(value)) + ")"
    return str(value)
