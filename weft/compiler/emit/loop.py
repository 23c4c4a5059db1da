"""The loop emitter, the default: visit every result index once and compute the values there. Hero: none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.values import Place, Values, row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, Kernel, Kind
from weft.compiler.kernel.merge import merge_loops
from weft.ir.jaxpr import Jaxpr


def signature(k: KernelBuilder, jaxpr: Jaxpr) -> tuple[dict[Any, Buffer], list[Buffer]]:
    """A buffer for each argument and each result of a fusion, in that order."""
    read = {v: k.buffer(f"in{n}", storage(v), size(v)) for n, v in enumerate(jaxpr.invars)}
    written = [k.buffer(f"out{n}", storage(v), size(v), written=True) for n, v in enumerate(jaxpr.outvars)]
    return read, written


def storage(v: Any) -> Any:
    return dtypes.storage(v.aval.dtype)


def size(v: Any) -> int:
    return int(np.prod(v.aval.shape, dtype=np.int64))


def lanes_of(jaxpr: Jaxpr, bytes_of_vector: int) -> int:
    """How many elements go together: as many as fit a register in the widest type that is computed with (at least
    four bytes)."""
    widest = max((storage(v).itemsize for e in jaxpr.eqns for v in e.outvars), default=4)
    return max(1, bytes_of_vector // max(4, min(widest, 8)))


def nest(k: KernelBuilder, shape: Sequence[int], width: int | None, body: Callable[[Place], None]) -> None:
    """Loops over a shape: the outermost over threads, the innermost over `width` lanes (None: the body has them)."""

    def inner(axis: int, index: tuple[Index, ...]) -> None:
        if axis == len(shape):
            body(index)
            return
        lanes = width if axis == len(shape) - 1 else None
        kind = Kind.LANES if lanes is not None else Kind.THREADS if axis == 0 else Kind.SERIAL
        with k.loop(shape[axis], kind=kind, width=lanes or 1) as i:
            inner(axis + 1, (*index, Index.of(i)))

    inner(0, ())


def emit_loop(name: str, jaxpr: Jaxpr, bytes_of_vector: int) -> Kernel:
    """A kernel that computes all results of `jaxpr`, which have one shape."""
    k = KernelBuilder(name)
    read, written = signature(k, jaxpr)
    values = Values(k, jaxpr, read)
    shape = jaxpr.outvars[0].aval.shape  # type: ignore[attr-defined]

    def body(index: Place) -> None:
        for v, buffer in zip(jaxpr.outvars, written, strict=True):
            k.store(buffer, row_major(shape, index), values.at(v, index))

    nest(k, shape, lanes_of(jaxpr, bytes_of_vector), body)
    return merge_loops(k.finish())
