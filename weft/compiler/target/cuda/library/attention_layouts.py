"""Layouts of the arrays that contractions of attention read and write: batch, heads, positions and head dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.dataclass import dataclass
from weft.compiler.target.cuda.library.composites import JaxprReader, is_literal, is_operation
from weft.compiler.target.cuda.library.views import ArrayView, dense_view, find_view, reshape_strides
from weft.compiler.target.matmuls import get_strides
from weft.ir.jaxpr import Equation, Var
from weft.primitives.contraction.contract import free_axes

# Alignment of vectors in elements.
MULTIPLE = 8


class AttentionLayout(NamedTuple):
    """Layout of an array in a contraction: sizes of batch dimensions, positions and width (the head dimension), and
    the strides of batch, heads and positions."""

    batch: tuple[int, ...]
    positions: int
    width: int
    strides: tuple[int, int, int]


def get_layout(
    shape: Sequence[int], strides: Sequence[int], batch: Sequence[int], positions: Sequence[int], width: Sequence[int]
) -> AttentionLayout | None:
    """Return the layout of an array given its axes, or None if it has none: at most two batch dimensions, one of
    positions, and a contiguous width; dimensions of size 1 do not count."""
    batched, along, across = ([n for n in axes if shape[n] != 1] for axes in (batch, positions, width))
    if len(batched) > 2 or len(along) != 1 or len(across) != 1 or strides[across[0]] != 1:
        return None
    sizes = tuple(shape[n] for n in batched)
    steps = [strides[n] for n in batched]
    head = steps[-1] if steps else shape[along[0]] * shape[across[0]]
    first = steps[0] if len(steps) == 2 else head * math.prod(sizes)
    return AttentionLayout(sizes, shape[along[0]], shape[across[0]], (first, head, strides[along[0]]))


class ContractionAxes(NamedTuple):
    """Axes of an operand of a contraction: batch axes in the order of the result, contracted, and free."""

    batch: tuple[int, ...]
    contracted: tuple[int, ...]
    free: tuple[int, ...]


def get_axes(contraction: Equation, side: int) -> ContractionAxes:
    """Return the axes of the operand on one side of a contraction."""
    dimensions = contraction.params["dimension_numbers"]
    ranks = [len(a.aval.shape) for a in contraction.invars]  # type: ignore[attr-defined]
    return ContractionAxes(dimensions[1][side], dimensions[0][side], free_axes(ranks[0], ranks[1], dimensions)[side])


def wide_axes(atom: Any, axes: Sequence[int]) -> list[int]:
    """Return the axes of an operand that are longer than 1."""
    return [n for n in axes if atom.aval.shape[n] != 1]


# ------------------------------------------------------------------------------------------------------------- operands


@dataclass(frozen=True)
class AttentionOperand:
    """Array of vectors that a contraction reads; equal operands are the same vectors in the same memory."""

    array: Var
    first: int
    layout: AttentionLayout

    @property
    def dtype(self) -> Any:
        return self.array.aval.dtype  # type: ignore[attr-defined]


class AttentionOperands:
    """Operands of a jaxpr's contractions, each analysed once."""

    def __init__(self, reader: JaxprReader) -> None:
        self.reader = reader
        self.contractions = [e for e in reader.jaxpr.eqns if is_operation(e, "dot_general")]
        self._known: dict[tuple[int, int, str], tuple[AttentionOperand, tuple[Equation, ...]] | None] = {}

    def operand(self, contraction: Equation, side: int, positions: str) -> AttentionOperand | None:
        """Return an operand whose positions are on its `contracted` or `free` axes; the width is on the others."""
        found = self._found(contraction, side, positions)
        return None if found is None else found[0]

    def equations(self, contraction: Equation, side: int, positions: str) -> tuple[Equation, ...]:
        """Return the equations by which the operand is a view of its array."""
        found = self._found(contraction, side, positions)
        return () if found is None else found[1]

    def _found(
        self, contraction: Equation, side: int, positions: str
    ) -> tuple[AttentionOperand, tuple[Equation, ...]] | None:
        key = (id(contraction), side, positions)
        if key not in self._known:
            self._known[key] = self._look(contraction, side, positions)
        return self._known[key]

    def _look(
        self, contraction: Equation, side: int, positions: str
    ) -> tuple[AttentionOperand, tuple[Equation, ...]] | None:
        atom = contraction.invars[side]
        if type(atom) is not Var:
            return None
        shape: Any = atom.aval.shape  # type: ignore[attr-defined]
        axes = get_axes(contraction, side)
        along, across = (axes.contracted, axes.free) if positions == "contracted" else (axes.free, axes.contracted)
        for view in (find_view(self.reader, atom), dense_view(atom)):
            layout = get_layout(shape, view.strides, axes.batch, along, across)
            if layout is not None and _is_aligned(view, layout):
                return AttentionOperand(view.array, view.first, layout), view.equations
        return None


def _is_aligned(view: ArrayView, layout: AttentionLayout) -> bool:
    return not any(n % MULTIPLE for n in (view.first, *layout.strides)) and type(view.array) is Var


# -------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class AttentionResult:
    """Result of a contraction after the equations that follow it: the array it is written to, the first element, the
    layout, and the equations."""

    value: Var
    first: int
    layout: AttentionLayout
    equations: tuple[Equation, ...]
    contraction: Equation
    # Axis of the contraction's result for each dimension of the array, and the operand side of the positions.
    order: tuple[int, ...]
    positions_side: int


def find_result(reader: JaxprReader, contraction: Equation, dtype: Any, positions_side: int) -> AttentionResult | None:
    """Return a result after the transposes and conversions that follow it, if no other equation reads the values
    before them. Positions are the free axes of the operand on one side, the width those of the other."""
    (result,) = contraction.outvars
    value, order, after = result, list(range(len(result.aval.shape))), []  # type: ignore[attr-defined]
    while (equation := reader.only_reader(value)) is not None:
        if is_operation(equation, "transpose"):
            order = [order[n] for n in equation.params["permutation"]]
        elif not is_operation(equation, "convert_element_type") or equation.params["new_dtype"] != dtype:
            break
        after.append(equation)
        value = equation.outvars[0]
    if value.aval.dtype != dtype:  # type: ignore[attr-defined]
        return None
    layout = _written(contraction, order, positions_side, get_strides(value.aval.shape))  # type: ignore[attr-defined]
    if layout is None:
        return None
    return AttentionResult(value, 0, layout, tuple(after), contraction, tuple(order), positions_side)


def _written(
    contraction: Equation, order: Sequence[int], positions_side: int, value_strides: Sequence[int]
) -> AttentionLayout | None:
    """Return the layout in which a contraction writes its result, given the order and strides of dimensions."""
    strides = [0] * len(order)
    for axis, stride in zip(order, value_strides, strict=True):
        strides[axis] = stride
    first, second = (get_axes(contraction, side) for side in (0, 1))
    batch = len(first.batch)
    free = [
        range(batch, batch + len(first.free)),
        range(batch + len(first.free), batch + len(first.free) + len(second.free)),
    ]
    sizes: Any = contraction.outvars[0].aval.shape  # type: ignore[attr-defined]
    return get_layout(sizes, strides, range(batch), free[positions_side], free[1 - positions_side])


def pack(reader: JaxprReader, results: Sequence[AttentionResult]) -> list[AttentionResult]:
    """Combine results that are zero-padded and added into one array, each covering a slice of it (the cotangents of
    slices), into writes to that array. Otherwise return the results unchanged."""
    pads = [pad for pad in (_find_pad(reader, result) for result in results) if pad is not None]
    if len(pads) < len(results) or not _covers([pad for pad, _ in pads]):
        return list(results)
    whole, additions = _sum(reader, {pad.outvars[0] for pad, _ in pads})
    if whole is None:
        return list(results)
    strides = get_strides(whole.aval.shape)
    found: list[AttentionResult] = []
    for result, (pad, reshapes) in zip(results, pads, strict=True):
        low = [before for before, _, _ in pad.params["padding_config"]]
        first = sum(n * stride for n, stride in zip(low, strides, strict=True))
        inside: Any = pad.invars[0].aval.shape  # type: ignore[attr-defined]
        shaped = reshape_strides(inside, strides, result.value.aval.shape)  # type: ignore[attr-defined]
        layout = shaped and _written(result.contraction, result.order, result.positions_side, shaped)
        if not layout or any(n % MULTIPLE for n in (first, *layout.strides)):
            return list(results)
        equations = (*result.equations, *reshapes, pad, *additions)
        found.append(
            AttentionResult(whole, first, layout, equations, result.contraction, result.order, result.positions_side)
        )
    return found


def _find_pad(reader: JaxprReader, result: AttentionResult) -> tuple[Equation, list[Equation]] | None:
    """Return the equation that pads a result with zeros, its only reader, and the reshapes before."""
    value, reshapes = result.value, []
    while (found := reader.only_reader(value, "reshape")) is not None:
        reshapes.append(found)
        value = found.outvars[0]
    pad = reader.only_reader(value, "pad")
    if pad is None or not is_literal(pad.invars[1], 0.0):
        return None
    regular = all(low >= 0 and high >= 0 and not inner for low, high, inner in pad.params["padding_config"])
    return (pad, reshapes) if regular else None


def _sum(reader: JaxprReader, wanted: set[Any]) -> tuple[Any, list[Equation]]:
    """Return the sum of exactly these values, with its additions; or None."""
    for start in wanted:
        value, seen, additions = start, {start}, []
        while seen != wanted and (addition := reader.only_reader(value, "add")) is not None:
            other = next((a for a in addition.invars if a is not value), None)
            if other not in wanted or other in seen or reader.only_reader(other) is not addition:
                break
            seen.add(other)
            additions.append(addition)
            value = addition.outvars[0]
        if seen == wanted:
            return value, additions
    return None, []


def _covers(pads: Sequence[Equation]) -> bool:
    """Return whether padded slices cover each element exactly once."""
    configurations = [pad.params["padding_config"] for pad in pads]
    axes = {n for one in configurations for n, (low, high, _) in enumerate(one) if low or high}
    if len(axes) != 1:
        return False
    (axis,) = axes
    reached = 0
    for pad in sorted(pads, key=lambda pad: pad.params["padding_config"][axis][0]):
        if pad.params["padding_config"][axis][0] != reached:
            return False
        reached += pad.invars[0].aval.shape[axis]  # type: ignore[attr-defined]
    return bool(reached == pads[0].outvars[0].aval.shape[axis])  # type: ignore[attr-defined]
