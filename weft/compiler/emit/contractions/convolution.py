"""The convolution emitter: windows contracted with a kernel. Hero: `conv_general_dilated`.

A convolution is a contraction whose left operand is read at `position * stride + window element * dilation`. Where
windows reach beyond the operand they read a padded copy of it. A dilated operand is not dilated in memory: the results
whose windows hit the same elements of the kernel, every `dilation`th one, are a contraction of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    operand_value,
    sum_dtype,
)
from weft.compiler.emit.contractions.group_contraction import emit_contraction_by_groups, group_plan
from weft.compiler.emit.contractions.microkernel import copies_along, emit_contraction_kernels, result_pairs
from weft.compiler.emit.contractions.packing import rearrange
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, storage
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.ir import Index, LoopKind, Value, Variable
from weft.primitives.contraction.convolution import conv_general_dilated
from weft.primitives.contraction.convolution_shapes import Window, dilate_size

# Reader of an operand at an index of its copy.
Reader = Callable[[KernelWriter, tuple[Index, ...]], Value]
# Feature axis of the result.
OUT = "out"


@dataclass(frozen=True)
class Phase:
    """Results along one dimension that read the same elements of the window. The result `first + i * apart`, for i
    below `count`, is the sum over j below `taps` of the window's element `first_tap + j * apart` times the operand's
    at `i * stride + j * dilation + offset`."""

    count: int
    taps: int
    apart: int
    first: int
    first_tap: int
    stride: int
    dilation: int
    offset: int

    @property
    def last(self) -> int:
        """The last index of the operand that is read."""
        return (self.count - 1) * self.stride + (self.taps - 1) * self.dilation + self.offset


@dataclass(frozen=True)
class Border:
    """One dimension of the padded copy of an operand: zeros before it, elements `dilation` apart, zeros after it."""

    size: int
    before: int
    after: int
    dilation: int

    @property
    def padded(self) -> int:
        inside: Any = dilate_size(self.size, self.dilation)
        return int(self.before + inside + self.after)

    @property
    def plain(self) -> bool:
        return not self.before and not self.after and self.dilation == 1


def split_phases(window: Window) -> tuple[list[Phase], int]:
    """Split the windows of a dimension into phases; also return the dilation that the operand's copy needs."""
    w: Any = window
    step = w.lhs_dilation
    if step == 1 or w.stride != 1 or w.rhs_dilation != 1 or w.size == 0:
        return [Phase(w.count, w.window, 1, 0, 0, w.stride, w.rhs_dilation, -w.low)], step
    result = []
    for first in range(min(step, w.count)):
        tap = (w.low - first) % step
        count, taps = -(-(w.count - first) // step), max(0, -(-(w.window - tap) // step))
        result.append(Phase(count, taps, step, first, tap, 1, 1, (first + tap - w.low) // step))
    return result, 1


def get_border(window: Window, phases: Sequence[Phase], dilation: int) -> Border:
    """Compute the padding of a dimension in the operand's copy."""
    size: Any = window.size
    asked = [p for p in phases if p.count and p.taps]
    before = max(0, *(-p.offset for p in asked), 0)
    end: Any = dilate_size(size, dilation) - 1
    after = max(0, *(p.last - end for p in asked), 0)
    return Border(size, before, after, dilation)


def emit_convolution(fusion: Fusion) -> Emission:
    """Emit the kernels of a jaxpr with one convolution, whose operands are in memory, and a pointwise epilogue."""
    hero = fusion.hero
    assert hero is not None
    lhs, rhs = hero.invars
    types: Any = (lhs.aval, rhs.aval)
    form: Any = conv_general_dilated.canonical(*types, **hero.params)
    if not prod(form.shape):
        return fusion.finish()
    found = [split_phases(w) for w in form.windows]
    borders = [get_border(w, phases, dilation) for w, (phases, dilation) in zip(form.windows, found, strict=True)]
    read = _operand(fusion, form, lhs, borders)
    phases = list(itertools.product(*(phases for phases, _ in found)))
    window = _window(form, rhs)
    contractions = [_contraction(form, chosen, borders, read, window) for chosen in phases]
    largest = max(contractions, key=lambda p: p.multiplications)
    if len(phases) > 1 and copies_along(fusion, largest, OUT):
        # All phases read one copy of the window: separate copies would need a kernel each.
        window = _copy_window(fusion, form, window)
        contractions = [_contraction(form, chosen, borders, read, window) for chosen in phases]
    for one in contractions:
        if not _emit_by_groups(fusion, one):
            emit_contraction_kernels(fusion, one)
    return fusion.finish(in_place=result_pairs(fusion))


def _emit_by_groups(fusion: Fusion, contraction: ContractionLoops) -> bool:
    """Emit a kernel in which groups of threads share sums, if the target has such; return whether it did.

    Threads side by side are along the axis that is contiguous in the result, or else along another one of the window.
    """
    if not fusion.target.group_lanes:
        return False
    hero: Any = fusion.hero
    shape = hero.outvars[0].aval.shape

    def stride(axis: ContractionAxis) -> Any:
        variable = Variable(axis.name)
        return row_major(shape, contraction.result_index({axis: Index.of(variable)})).coefficient(variable)

    free = sorted(contraction.free, key=stride, reverse=True)
    for last in reversed(free):
        ordered = replace(contraction, free=(*(axis for axis in free if axis is not last), last))
        plan = group_plan(fusion, ordered)
        if plan is not None:
            emit_contraction_by_groups(fusion, ordered, plan)
            return True
    return False


def _window(form: Any, rhs: Any) -> Reader:
    """Return a reader of the kernel at (output feature, input feature, *taps)."""

    def read(writer: KernelWriter, index: tuple[Index, ...]) -> Value:
        return operand_value(writer, writer.values.at(rhs, _permute(index, form.rhs_axes)), form.compute)

    return read


def _copy_window(fusion: Fusion, form: Any, window: Reader) -> Reader:
    """Copy the kernel with output features last; return a reader of the copy."""
    inside, outside = ContractionAxis("in", form.in_features), ContractionAxis(OUT, form.groups * form.out_features)
    taps = [ContractionAxis(f"tap{n}", w.window) for n, w in enumerate(form.windows)]

    def element(writer: KernelWriter, coords: Coordinates) -> Value:
        return window(writer, tuple(at(coords.indices, axis) for axis in (outside, inside, *taps)))

    copy = rearrange(fusion, element, (*taps, inside, outside), sum_dtype(form.compute))
    return lambda writer, index: copy(writer, Coordinates(dict(zip((outside, inside, *taps), index, strict=True))))


def _contraction(
    form: Any, phases: Sequence[Phase], borders: Sequence[Border], read: Any, window: Reader
) -> ContractionLoops:
    """Build the contraction of one phase in each dimension."""
    group, batch = ContractionAxis("group", form.groups), ContractionAxis("batch", form.batch)
    inside, outside = ContractionAxis("in", form.in_features), ContractionAxis(OUT, form.out_features)
    positions = [ContractionAxis(f"position{n}", p.count) for n, p in enumerate(phases)]
    taps = [ContractionAxis(f"tap{n}", p.taps) for n, p in enumerate(phases)]

    def features(coords: Coordinates) -> Index:
        result: Index = at(coords.indices, group) * form.out_features + at(coords.indices, outside)
        return result

    def left(writer: KernelWriter, coords: Coordinates) -> Value:
        batched, featured = at(coords.indices, batch), at(coords.indices, inside)
        if form.batch_groups:
            batched = at(coords.indices, group) * form.batch + batched
        else:
            featured = at(coords.indices, group) * form.in_features + featured
        spatial = [
            at(coords.indices, axis) * p.stride + at(coords.indices, tap) * p.dilation + (p.offset + border.before)
            for axis, tap, p, border in zip(positions, taps, phases, borders, strict=True)
        ]
        result: Value = read(writer, _permute((batched, featured, *spatial), form.lhs_axes))
        return result

    def right(writer: KernelWriter, coords: Coordinates) -> Value:
        spatial = [at(coords.indices, tap) * p.apart + p.first_tap for tap, p in zip(taps, phases, strict=True)]
        return window(writer, (features(coords), at(coords.indices, inside), *spatial))

    def result_index(where: dict[ContractionAxis, Index]) -> tuple[Index, ...]:
        spatial = [at(where, axis) * p.apart + p.first for axis, p in zip(positions, phases, strict=True)]
        return _permute((at(where, batch), features(Coordinates(where)), *spatial), form.out_axes)

    return ContractionLoops(
        free=tuple(a for a in (group, batch, *positions, outside) if a.size != 1),
        k_axes=tuple(a for a in (*taps, inside) if a.size != 1),
        left=left,
        right=right,
        result_index=result_index,
        compute=form.compute,
        exact=form.result,
        shape=form.shape,
        whole=all(p.apart == 1 for p in phases),
    )


def at(indices: dict[ContractionAxis, Index], axis: ContractionAxis) -> Index:
    """Return the index along an axis; an axis of size 1 has no entry and index 0."""
    return indices.get(axis, Index())


def _permute(index: Sequence[Index], axes: Sequence[int]) -> tuple[Index, ...]:
    result = [Index()] * len(axes)
    for i, axis in zip(index, axes, strict=True):
        result[axis] = i
    return tuple(result)


# ------------------------------------------------------------------------------------------------------ the operand


def _operand(fusion: Fusion, form: Any, lhs: Any, borders: Sequence[Border]) -> Reader:
    """Return a reader of the left operand: of a padded copy if one is needed, else of the operand itself."""
    dtype = sum_dtype(form.compute)
    if not prod(lhs.aval.shape):
        return lambda writer, index: writer.k.constant(0, dtype)  # windows read padding only
    if all(border.plain for border in borders) and storage(lhs) == dtype:
        return lambda writer, index: writer.values.at(lhs, index)
    shape = list(lhs.aval.shape)
    by_axis = dict(zip(form.lhs_axes[2:], borders, strict=True))
    for axis, border in by_axis.items():
        shape[axis] = border.padded
    scratch = fusion.new_scratch(dtype, prod(shape))
    writer = fusion.writer("pad")
    k = writer.k

    def body(index: tuple[Index, ...]) -> None:
        source, conditions = list(index), []
        for axis, border in by_axis.items():
            if border.plain:
                continue
            inside = index[axis] - border.before
            position = k.position(inside)
            low, high = k.constant(0, "int64"), k.constant(dilate_size(border.size, border.dilation), "int64")
            conditions += [k.compute("ge", position, low), k.compute("lt", position, high)]
            if border.dilation > 1:
                step = k.constant(border.dilation, "int64")
                conditions.append(k.compute("eq", k.compute("rem", position, step), low))
                inside = Index.of(k.compute("div", position, step))
            source[axis] = inside
        holds = None
        for condition in conditions:
            holds = condition if holds is None else k.compute("and", holds, condition)
        value = operand_value(writer, writer.values.at(lhs, tuple(source), holds), form.compute)
        k.store(writer.scratch(scratch), row_major(shape, index), value)

    _loops(writer, shape, body)
    return lambda reader, index: reader.k.load(reader.scratch_input(scratch), row_major(shape, index))


def _loops(writer: KernelWriter, shape: Sequence[int], body: Callable[[tuple[Index, ...]], None]) -> None:
    """Emit loops over the dimensions of `shape` that are longer than 1; the last of them has the lanes."""
    k = writer.k
    long = [axis for axis, size in enumerate(shape) if size > 1]

    def inner(left: list[int], index: tuple[Index, ...]) -> None:
        if not left:
            body(index)
            return
        axis, *rest = left
        kind = LoopKind.LANES if not rest else LoopKind.THREADS if axis == long[0] else LoopKind.SERIAL
        with k.loop(shape[axis], kind=kind, width=writer.lanes if not rest else 1) as i:
            inner(rest, (*index[:axis], Index.of(i), *index[axis + 1 :]))

    inner(long, (Index(),) * len(shape))
