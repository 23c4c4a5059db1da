"""Loop emitter, the default: visits every result index once and computes the values there. Hero: none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.result_slices import copy_lanes
from weft.compiler.emit.values import MultiIndex, get_space
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind


def nest(k: KernelBuilder, shape: Sequence[int], width: int | None, body: Callable[[MultiIndex], None]) -> None:
    """Write loops over a shape: the outermost over threads, the innermost over `width` lanes (None: the body has its
    own lanes)."""

    def inner(axis: int, index: tuple[Index, ...]) -> None:
        if axis == len(shape):
            body(index)
            return
        lanes = width if axis == len(shape) - 1 else None
        kind = LoopKind.LANES if lanes is not None else LoopKind.THREADS if axis == 0 else LoopKind.SERIAL
        with k.loop(shape[axis], kind=kind, width=lanes or 1) as i:
            inner(axis + 1, (*index, Index.of(i)))

    inner(0, ())


def emit_loop(fusion: Fusion) -> Emission:
    """Emit a kernel that computes all results, which have the same space."""
    writer = fusion.writer("loop")
    only_copied = all(v.aval.dtype in fusion.copied for v in fusion.jaxpr.outvars)  # type: ignore[attr-defined]
    width = copy_lanes(fusion) if only_copied else writer.lanes
    nest(writer.k, get_space(fusion.jaxpr.outvars[0]), width, writer.store_results)
    return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))
