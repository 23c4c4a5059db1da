"""Kernels that store several slices, each over its own space by its own loops.

Slices share a kernel, because a kernel costs more to compile than a loop. They may share leading dimensions, over which
threads run; without such dimensions a long slice has its own kernel, so that threads can share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter, storage
from weft.compiler.emit.values import MultiIndex
from weft.compiler.kernel.ir import Index, LoopKind
from weft.compiler.kernel.threads import BLOCK

# Fewer iterations than this are not worth a loop over threads.
FEW = 8
# Slices in one kernel, which has a pointer for each: kernels of GPUs take 500.
MOST_SLICES = 128


@dataclass(frozen=True)
class ResultSlice:
    """Iteration space, the number of its leading dimensions that are not contiguous with the rest, and the function
    that stores at an index."""

    space: tuple[int, ...]
    strided_dims: int
    store: Callable[[KernelWriter, MultiIndex], None]

    @property
    def size(self) -> int:
        return math.prod(self.space)


def copy_lanes(fusion: Fusion) -> int:
    """Return the lanes of a register for the widest results. Computed elements take at least four bytes in a
    register, copied ones do not. Indices do not count, since they are the same along a row.
    """
    results = fusion.jaxpr.outvars
    only_copied = all(v.aval.dtype in fusion.copied for v in results)  # type: ignore[attr-defined]
    widest = max((storage(v).itemsize for v in results), default=4)
    return max(1, min(fusion.target.vector_bytes // max(widest, 1 if only_copied else 4), 64))


def lane_axis(space: Sequence[int], strided_dims: int, width: int) -> int:
    """Return the dimension of lanes: the last, or the longest if a contiguous run does not fill half a register."""
    last = len(space) - 1
    if math.prod(space[strided_dims:]) * 2 >= width:
        return last
    return max(range(len(space)), key=lambda axis: (space[axis] * (1 if axis < last else 2), axis))


def visit(
    writer: KernelWriter,
    space: Sequence[int],
    axis: int | None,
    width: int,
    body: Callable[[MultiIndex], None],
    threads: bool,
) -> None:
    """Write loops over a space: the one with lanes (`axis`) innermost, the first of the others over threads."""
    order = [a for a in range(len(space)) if a != axis]
    if axis is not None:
        order.append(axis)

    def inner(position: int, indices: dict[int, Index]) -> None:
        if position == len(order):
            body(tuple(indices[a] for a in range(len(space))))
            return
        lanes = order[position] == axis
        kind = LoopKind.LANES if lanes else LoopKind.THREADS if threads and position == 0 else LoopKind.SERIAL
        with writer.k.loop(space[order[position]], kind=kind, width=width if lanes else 1) as i:
            inner(position + 1, {**indices, order[position]: Index.of(i)})

    inner(0, {})


def store_slices(fusion: Fusion, name: str, slices: Sequence[ResultSlice], shared: int) -> None:
    """Emit the kernels of all slices, which have their first `shared` dimensions in common."""
    slices = [result_slice for result_slice in slices if result_slice.size]
    rows = math.prod(slices[0].space[:shared]) if slices else 0
    if shared and rows >= FEW and len(slices) > 1:
        for start in range(0, len(slices), MOST_SLICES):
            _emit_rows(fusion, name, slices[start : start + MOST_SLICES], shared)
        return
    small = [result_slice for result_slice in slices if result_slice.size < 2 * BLOCK]
    for result_slice in slices:
        if result_slice not in small:
            _emit_alone(fusion, name, [result_slice])
    if small:
        _emit_alone(fusion, name, small)


def _emit_rows(fusion: Fusion, name: str, slices: Sequence[ResultSlice], shared: int) -> None:
    """Emit one kernel: loops over the shared dimensions, and in each iteration over the rest of every slice."""
    writer = fusion.writer(name)
    width = copy_lanes(fusion)
    common = slices[0].space[:shared]
    short = [math.prod(p.space[shared:]) * 2 < width for p in slices]
    if all(short) and common[-1] >= width:
        # Lanes run along the rows that all slices have, since each is short.
        def whole(index: MultiIndex) -> None:
            with writer.k.loop(common[-1], kind=LoopKind.LANES, width=width) as lane:
                for result_slice in slices:
                    rest = result_slice.space[shared:]
                    for i in range(math.prod(rest)):
                        result_slice.store(writer, (*index, Index.of(lane), *_unravel(i, rest)))

        visit(writer, common[:-1], None, 1, whole, threads=True)
        return

    def row(index: MultiIndex) -> None:
        for result_slice in slices:
            rest = result_slice.space[shared:]
            axis = len(rest) - 1 if rest else None

            def store(inner: MultiIndex, result_slice: ResultSlice = result_slice) -> None:
                result_slice.store(writer, (*index, *inner))

            visit(writer, rest, axis, width, store, threads=False)

    visit(writer, common, None, 1, row, threads=True)


def _unravel(flat: int, shape: Sequence[int]) -> MultiIndex:
    indices = []
    for size in reversed(shape):
        flat, i = divmod(flat, size)
        indices.append(Index(i))
    return tuple(reversed(indices))


def _emit_alone(fusion: Fusion, name: str, slices: Sequence[ResultSlice]) -> None:
    """Emit one kernel with a nest of loops for each slice, over threads if there is only one."""
    writer = fusion.writer(name)
    width = copy_lanes(fusion)
    for result_slice in slices:
        axis = lane_axis(result_slice.space, result_slice.strided_dims, width) if result_slice.space else None

        def store(index: MultiIndex, result_slice: ResultSlice = result_slice) -> None:
            result_slice.store(writer, index)

        visit(writer, result_slice.space, axis, width, store, threads=len(slices) == 1)
