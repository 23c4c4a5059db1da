"""Emitter of concatenated arrays: each operand has its own loops, so that no element selects its source. Hero:
`concatenate`.

Elementwise operations after it are computed before an element is stored.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.emission import Emission, Fusion, KernelWriter
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.result_slices import ResultSlice, store_slices
from weft.compiler.emit.values import MultiIndex, expand, get_space
from weft.ir.fusing import squeeze_shape


def emit_concatenate(fusion: Fusion) -> Emission:
    """Emit kernels that compute the results operand by operand of the hero."""
    hero = fusion.hero
    assert hero is not None
    dimension = hero.params["dimension"]
    shared = len(squeeze_shape(hero.outvars[0].aval.shape[:dimension]))  # type: ignore[attr-defined]
    slices, before = [], 0
    for operand in hero.invars:
        slices.append(ResultSlice(get_space(operand), shared, _storing(fusion, operand, dimension, before)))
        before += operand.aval.shape[dimension]  # type: ignore[attr-defined]
    store_slices(fusion, "concatenate", slices, shared)
    return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))


def _storing(fusion: Fusion, operand: Any, dimension: int, before: int) -> Any:
    """Return a function that computes with an element of an operand and stores it at its index in the result."""
    hero: Any = fusion.hero
    out = hero.outvars[0]
    shape = out.aval.shape

    def store(writer: KernelWriter, index: MultiIndex) -> None:
        full = expand(operand, index)
        values = writer.values
        values.overrides[out] = values.at(operand, full)
        target = tuple(i + before if axis == dimension else i for axis, i in enumerate(full))
        writer.store_results(tuple(i for i, d in zip(target, shape, strict=True) if d != 1))
        del values.overrides[out]

    return store
