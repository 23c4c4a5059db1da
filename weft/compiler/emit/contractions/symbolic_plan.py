"""Plans of contractions with symbolic sizes: the reference plan, in numbers that hold for a class of sizes.

Heights and widths of tiles, the number of slices of K and the copied operands are integers; lengths of slices and
counts of tiles are expressions. Chunks and blocks, which concrete plans fit to their sizes, are powers of two here. The
order of sums is that of the concrete plan.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from weft.compiler.emit.contractions.contraction_loops import ContractionAxis, ContractionLoops, OperandAccess
from weft.compiler.emit.contractions.tiling import (
    Blocks,
    Chooser,
    SplitK,
    TilingPlan,
    part_length,
)
from weft.compiler.target.target import Target
from weft.indexing.dimension import ceil_divide
from weft.indexing.expression import Expression, maximum
from weft.indexing.guards import decide

# Fewest blocks of tiles that threads share, and panels from which a block has several.
LEAST_BLOCKS, MANY_PANELS = 8, 4


class SymbolicSplitK(NamedTuple):
    """How K is split: `parts` of it, of `wanted` (`streamed`: in whole groups of rows), and chunks along `axis` of
    `chunk` elements, or of all (0)."""

    parts: int
    wanted: int
    streamed: bool
    axis: int
    chunk: int


class SymbolicPlan(NamedTuple):
    """A plan for a class of sizes; axes are given by their positions."""

    lanes: int | None
    width: int
    tiles: tuple[tuple[int, int], ...]
    packed: tuple[bool, bool]
    k_axes: tuple[int, ...]
    lanes_along_k: bool
    split: SymbolicSplitK | None
    blocks: tuple[int, int] | None  # how many along the tiled axis, and their panels (0: all)


def is_symbolic(contraction: ContractionLoops, operands: tuple[OperandAccess, OperandAccess]) -> bool:
    """Return whether a size or a stride of a contraction is an expression."""
    sizes = [a.size for a in contraction.axes]
    return any(isinstance(i, Expression) for i in (*sizes, *(s for f in operands for s in f.strides.values())))


def symbolic_plan(
    contraction: ContractionLoops, operands: tuple[OperandAccess, OperandAccess], target: Target
) -> TilingPlan:
    """Choose a plan that holds for the whole class of sizes."""
    axes, result = contraction.axes, contraction.result_strides()
    integers = [a.size for a in axes] + [f.stride(a) for f in operands for a in axes]
    integers += [result[a] for a in contraction.free]
    works = tuple(f.work for f in operands)
    fixed = (len(contraction.free), len(axes), works, contraction.compute, contraction.whole, target)
    choice: SymbolicPlan = decide(_choice, fixed, integers)
    plan = TilingPlan(
        None if choice.lanes is None else axes[choice.lanes],
        choice.width,
        tuple((axes[n], height) for n, height in choice.tiles),
        choice.packed,
        tuple(axes[n] for n in choice.k_axes),
        choice.lanes_along_k,
    )
    if choice.split is not None:
        plan = plan._replace(split_k=_split_k(plan, choice.split))
    if choice.blocks is not None:
        ((tile, height), *_), lanes = plan.tiles, plan.lanes
        assert lanes is not None
        tiles: Any = maximum(1, ceil_divide(tile.size // height, choice.blocks[0]))
        panels: Any = choice.blocks[1] or ceil_divide(lanes.size, plan.width)
        plan = plan._replace(blocks=Blocks(tiles, panels))
    return plan


def _split_k(plan: TilingPlan, split: SymbolicSplitK) -> SplitK:
    first: Any = plan.k_axes[0].size
    if split.streamed:
        length = -(-first // (split.wanted * split.chunk)) * split.chunk
    else:
        length = part_length(first, split.wanted, plan) if split.wanted > 1 else first
    whole = length if split.axis == 0 else plan.k_axes[split.axis].size
    return SplitK(split.parts, length, split.axis, split.chunk or whole)


@lru_cache(maxsize=8192)
def _choice(fixed: Any, integers: tuple[int, ...]) -> SymbolicPlan:
    """Return the reference plan for concrete sizes and strides, in positions instead of axes."""
    free, count, works, compute, is_whole, target = fixed
    axes = [ContractionAxis(str(n), size) for n, size in enumerate(integers[:count])]
    left, right = [
        OperandAccess({a: stride for a, stride in zip(axes, integers[start:], strict=False) if stride}, work)
        for start, work in zip((count, 2 * count), works, strict=True)
    ]
    result = dict(zip(axes[:free], integers[3 * count :], strict=True))
    chooser = Chooser(tuple(axes[:free]), tuple(axes[free:]), result, (left, right), compute, is_whole, target)
    plan = chooser.reference._replace(split_k=chooser.choose_split_k(chooser.reference))
    position = {axis: n for n, axis in enumerate(axes)}
    return SymbolicPlan(
        None if plan.lanes is None else position[plan.lanes],
        plan.width,
        tuple([(position[axis], height) for axis, height in plan.tiles]),
        plan.packed,
        tuple([position[axis] for axis in plan.k_axes]),
        plan.lanes_along_k,
        _split(chooser, plan),
        _blocks(chooser, plan),
    )


def _split(chooser: Chooser, plan: TilingPlan) -> SymbolicSplitK | None:
    found = plan.split_k
    if found is None:
        return None
    if chooser.streams(chooser.reference):
        rows = chooser.costs.streamed_rows
        return SymbolicSplitK(found.parts, min(chooser.costs.tasks, chooser.terms // rows), True, 0, rows)
    whole = found.length if found.axis == 0 else plan.k_axes[found.axis].size
    chunk = 0 if found.chunk >= whole else _power(found.chunk)
    return SymbolicSplitK(found.parts, chooser.parts[2], False, found.axis, chunk)


def _blocks(chooser: Chooser, plan: TilingPlan) -> tuple[int, int] | None:
    """Choose how threads share tiles, coarsely, so that the answer is the same for many sizes: where there is little
    to share, blocks cost next to nothing.
    """
    if plan.lanes_along_k or plan.lanes is None or not plan.tiles:
        return None
    if plan.split_k is not None and plan.split_k.parts > 1:
        return None
    (tile, height), *_ = plan.tiles
    if chooser.sums // (tile.size * plan.lanes.size) >= chooser.costs.most_tasks:
        return None
    found = chooser.blocks(plan)
    if found is None:
        return LEAST_BLOCKS, 1
    tiles, panels = tile.size // height, -(-plan.lanes.size // plan.width)
    count = -(-tiles // found.tiles)
    group = 1 if found.panels < MANY_PANELS or panels <= MANY_PANELS else 0 if found.panels >= panels else MANY_PANELS
    return max(LEAST_BLOCKS, 2 * _power(max(1, count - 1))), group


def _power(size: int) -> int:
    """Round down to a power of two."""
    return 1 << (size.bit_length() - 1)
