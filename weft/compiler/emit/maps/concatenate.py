"""Emitter of concatenated arrays: each operand has its own loops, so that no element selects its source. Hero:
`concatenate`.

Elementwise operations after it are computed before an element is stored. Where each nest of loops is a launch of its
own, neighbours that are small or narrow share one: its elements select their operand, and are stored in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.indices import within
from weft.compiler.emit.result_slices import ResultSlice, store_slices
from weft.compiler.emit.values import MultiIndex, Values
from weft.compiler.kernel.ir import Index, Value
from weft.compiler.kernel.threads import BLOCK
from weft.ir.fusing import squeeze_shape
from weft.ir.jaxpr import Atom

# Elements of an operand that are contiguous in the result: fewer bytes are a part of a memory transaction.
NARROW_BYTES = 32
# An operand and its first index in the result.
Part = tuple[Any, int]


def emit_concatenate(fusion: Fusion) -> Emission:
    """Emit kernels that compute the results operand by operand of the hero."""
    hero = fusion.hero
    assert hero is not None
    dimension = hero.params["dimension"]
    shared = len(squeeze_shape(hero.outvars[0].aval.shape[:dimension]))  # type: ignore[attr-defined]
    slices = []
    for parts in _group_parts(fusion, _find_parts(hero.invars, dimension), dimension):
        shape = list(parts[0][0].aval.shape)
        shape[dimension] = sum(operand.aval.shape[dimension] for operand, _ in parts)
        space = squeeze_shape(shape)
        slices.append(ResultSlice(space, shared, _storing(fusion, parts, shape, dimension)))
    store_slices(fusion, "concatenate", slices, shared)
    return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))


def _find_parts(operands: Sequence[Atom], dimension: int) -> list[Part]:
    """Return the operands that have elements."""
    parts, before = [], 0
    for operand in operands:
        size = operand.aval.shape[dimension]  # type: ignore[attr-defined]
        if size:
            parts.append((operand, before))
        before += size
    return parts or [(operands[0], 0)]


def _group_parts(fusion: Fusion, parts: Sequence[Part], dimension: int) -> Iterator[list[Part]]:
    """Yield the operands that share loops: one, or neighbours."""
    group: list[Part] = []
    for operand, before in parts:
        shape = operand.aval.shape
        run = math.prod(shape[dimension:]) * storage(operand).itemsize
        joins = bool(fusion.target.grid_bytes) and (run < NARROW_BYTES or math.prod(shape) < 2 * BLOCK)
        if group and (not joins or len(group) == fusion.target.fusion.operands):
            yield group
            group = []
        group.append((operand, before))
        if not joins:
            yield group
            group = []
    if group:
        yield group


def _storing(fusion: Fusion, parts: Sequence[Part], shape: Sequence[int], dimension: int) -> Any:
    """Return a function that computes with an element of neighbouring operands, whose concatenation has this shape, and
    stores it at its index in the result."""
    hero: Any = fusion.hero
    out = hero.outvars[0]
    first = parts[0][1]

    def store(writer: KernelWriter, index: MultiIndex) -> None:
        rest = iter(index)
        full = tuple(Index() if d == 1 else next(rest) for d in shape)
        values = writer.values
        values.overrides[out] = _select(values, parts, full, dimension)
        target = tuple(i + first if axis == dimension else i for axis, i in enumerate(full))
        writer.store_results(tuple(i for i, d in zip(target, out.aval.shape, strict=True) if d != 1))
        del values.overrides[out]

    return store


def _select(values: Values, parts: Sequence[Part], index: MultiIndex, dimension: int) -> Value:
    """Return the element at an index into neighbouring operands."""
    if len(parts) == 1:
        return values.at(parts[0][0], index)
    k, result = values.k, None
    for operand, before in reversed(parts):
        low = before - parts[0][1]
        inside = within(k, index[dimension], low, low + operand.aval.shape[dimension] - 1)
        here = tuple(i - low if axis == dimension else i for axis, i in enumerate(index))
        value = values.at(operand, here, inside)
        result = value if result is None or inside is None else k.compute("select_n", inside, result, value)
    assert result is not None
    return result
