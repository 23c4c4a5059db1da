"""The contraction emitter. Hero: `dot_general`."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandReader,
    operand_value,
)
from weft.compiler.emit.contractions.group_contraction import emit_contraction_by_groups, group_plan
from weft.compiler.emit.contractions.matrix_contraction import emit_contraction_by_matrix_units, matrix_plan
from weft.compiler.emit.contractions.microkernel import emit_contraction_kernels, result_pairs
from weft.compiler.emit.contractions.thread_contraction import emit_contraction_by_threads, thread_plan
from weft.compiler.emit.contractions.tile_matrices import matrices
from weft.compiler.emit.contractions.tiles import emit_matrices_by_tiles
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter
from weft.compiler.kernel.ir import Index, Value
from weft.primitives.contraction.contract import dot_general, free_axes


def emit_contraction(fusion: Fusion) -> Emission:
    """Emit the kernels of a jaxpr with one contraction. Operands are evaluated at an index, and so is the epilogue."""
    hero = fusion.hero
    assert hero is not None
    lhs, rhs = hero.invars
    left: Any = lhs.aval
    right: Any = rhs.aval
    form: Any = dot_general.canonical(left, right, **hero.params)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = hero.params["dimension_numbers"]
    lhs_free, rhs_free = free_axes(len(left.shape), len(right.shape), hero.params["dimension_numbers"])
    batch = [ContractionAxis(f"b{n}", left.shape[i]) for n, i in enumerate(lhs_batch)]
    rows = [ContractionAxis(f"m{n}", left.shape[i]) for n, i in enumerate(lhs_free)]
    columns = [ContractionAxis(f"n{n}", right.shape[i]) for n, i in enumerate(rhs_free)]
    k_axes = [ContractionAxis(f"k{n}", left.shape[i]) for n, i in enumerate(lhs_contract)]

    def element(operand: Any, axes: dict[int, ContractionAxis]) -> OperandReader:
        """Read an operand's element in its storage dtype."""
        ordered = [axes[i] for i in range(len(axes))]

        def at(writer: KernelWriter, coords: Coordinates) -> Value:
            return writer.values.at(operand, tuple(coords.indices.get(axis, Index()) for axis in ordered))

        return at

    def convert(of: OperandReader) -> OperandReader:
        """Convert an operand's elements to the dtype of the multiplication."""
        return lambda writer, coords: operand_value(writer, of(writer, coords), form.compute)

    lhs_axes = dict(zip((*lhs_batch, *lhs_free, *lhs_contract), (*batch, *rows, *k_axes), strict=True))
    rhs_axes = dict(zip((*rhs_batch, *rhs_free, *rhs_contract), (*batch, *columns, *k_axes), strict=True))
    elements = element(lhs, lhs_axes), element(rhs, rhs_axes)
    free = (*batch, *rows, *columns)
    contraction = ContractionLoops(
        free=tuple(a for a in free if a.size != 1),
        k_axes=tuple(a for a in k_axes if a.size != 1),
        left=convert(elements[0]),
        right=convert(elements[1]),
        result_index=lambda indices: tuple(indices.get(axis, Index()) for axis in free),
        compute=form.compute,
        exact=form.result,
        shape=form.shape,
    )
    by_tiles = matrices(fusion, contraction, (lhs, rhs), elements) if fusion.target.tiles else None
    by_units = matrix_plan(fusion, contraction, (lhs, rhs), elements) if fusion.target.matrices.dtypes else None
    if by_units is not None:
        emit_contraction_by_matrix_units(fusion, contraction, by_units)
    elif (by_threads := thread_plan(fusion, contraction)) is not None:
        emit_contraction_by_threads(fusion, contraction, by_threads)
    elif (by_groups := group_plan(fusion, contraction)) is not None:
        emit_contraction_by_groups(fusion, contraction, by_groups)
    elif by_tiles is None:
        emit_contraction_kernels(fusion, contraction)
    else:
        emit_matrices_by_tiles(fusion, by_tiles)
    return fusion.finish(in_place=result_pairs(fusion))
