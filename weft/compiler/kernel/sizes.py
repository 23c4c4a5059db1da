"""Kernels with symbolic sizes: collect the sizes that a kernel reads at run time, and specialise a kernel to concrete
sizes.

Expressions take the place of integers in indices, bounds of loops and sizes of buffers. The last buffer of such a
kernel has the values of its `sizes`, the distinct expressions that its code depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.compiler.kernel.ir import (
    Buffer,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    Matmul,
    Position,
    Prefetch,
    Statement,
    Store,
)
from weft.indexing.expression import Expression


def with_sizes(kernel: Kernel) -> Kernel:
    """Return the kernel with a buffer for the sizes that it depends on, or the kernel itself if it depends on none."""
    found: dict[Expression, None] = {}
    _collect(kernel.body, found)
    if not found:
        return kernel
    buffer = Buffer("sizes", np.dtype(np.int64), len(found))
    return replace(kernel, buffers=(*kernel.buffers, buffer), sizes=tuple(found))


def _collect(body: Iterable[Statement], found: dict[Expression, None]) -> None:
    def add(*values: Any) -> None:
        found.update((value, None) for value in values if isinstance(value, Expression))

    def index(i: Index) -> None:
        add(i.constant, *(c for _, c in i.terms))

    for statement in body:
        match statement:
            case Load() | Store() | Prefetch() | Position():
                index(statement.index)
            case Matmul():
                for i in statement.indices():
                    index(i)
            case Loop():
                add(statement.start, statement.stop)
                if statement.limit is not None:
                    index(statement.limit)
                _collect(statement.body, found)
            case If():
                _collect(statement.body, found)


def at_values(kernel: Kernel, values: Mapping[Expression, int], elements: Sequence[int]) -> Kernel:
    """Specialise a kernel to concrete values of its sizes, without the buffer for them. `elements` are the sizes of its
    buffers.
    """

    def of(x: Any) -> int:
        return values[x] if isinstance(x, Expression) else x

    others = kernel.buffers[: len(kernel.buffers) - bool(kernel.sizes)]
    signature = {b: replace(b, size=size) for b, size in zip(others, elements, strict=True)}
    buffers = signature | {b: b for b in kernel.local}

    def index(i: Index) -> Index:
        return Index(of(i.constant), tuple((t, c) for t, c in ((t, of(c)) for t, c in i.terms) if c))

    def block(body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(map(statement, body))

    def statement(s: Statement) -> Statement:
        match s:
            case Load() | Store() | Prefetch():
                return replace(s, buffer=buffers[s.buffer], index=index(s.index))
            case Position():
                return replace(s, index=index(s.index))
            case Matmul():
                return s.changed(index, buffers)
            case Loop():
                limit = None if s.limit is None else index(s.limit)
                return replace(s, start=of(s.start), stop=of(s.stop), limit=limit, body=block(s.body))
            case If():
                return replace(s, body=block(s.body))
            case _:
                return s

    return Kernel(kernel.name, tuple(signature.values()), block(kernel.body), local=kernel.local)
