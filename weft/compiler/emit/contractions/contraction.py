"""The contraction emitter: products summed over shared dimensions. Hero: `dot_general`."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.contractions.microkernel import emit_products, result_pairs
from weft.compiler.emit.contractions.products import ContractionAxis, Factor, Products, Spot, as_factor
from weft.compiler.emit.contractions.tiles import emit_matrices_by_tiles, matrices
from weft.compiler.emit.emission import Emission, Fusion, Writer
from weft.compiler.kernel.ir import Index, Value
from weft.primitives.contraction.contract import dot_general, free_axes


def emit_contraction(fusion: Fusion) -> Emission:
    """Kernels for a program with one contraction; its operands are values at an index, and so is what follows."""
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
    depth = [ContractionAxis(f"k{n}", left.shape[i]) for n, i in enumerate(lhs_contract)]

    def element(operand: Any, axes: dict[int, ContractionAxis]) -> Factor:
        """The element of an operand as it is."""
        ordered = [axes[i] for i in range(len(axes))]

        def at(writer: Writer, spot: Spot) -> Value:
            return writer.values.at(operand, tuple(spot.places.get(axis, Index()) for axis in ordered))

        return at

    def factor(of: Factor) -> Factor:
        """An element as it is multiplied."""
        return lambda writer, spot: as_factor(writer, of(writer, spot), form.compute)

    lhs_axes = dict(zip((*lhs_batch, *lhs_free, *lhs_contract), (*batch, *rows, *depth), strict=True))
    rhs_axes = dict(zip((*rhs_batch, *rhs_free, *rhs_contract), (*batch, *columns, *depth), strict=True))
    elements = element(lhs, lhs_axes), element(rhs, rhs_axes)
    free = (*batch, *rows, *columns)
    products = Products(
        free=tuple(a for a in free if a.size != 1),
        depth=tuple(a for a in depth if a.size != 1),
        left=factor(elements[0]),
        right=factor(elements[1]),
        place=lambda places: tuple(places.get(axis, Index()) for axis in free),
        compute=form.compute,
        exact=form.result,
        shape=form.shape,
    )
    by_tiles = matrices(fusion, products, (lhs, rhs), elements) if fusion.target.tiles else None
    if by_tiles is None:
        emit_products(fusion, products)
    else:
        emit_matrices_by_tiles(fusion, by_tiles)
    return fusion.finish(in_place=result_pairs(fusion))
