"""The emitter of several slices of one array: each result has loops of its own. Hero: `slice`."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.emission import Emission, Fusion, KernelWriter
from weft.compiler.emit.result_slices import ResultSlice, store_slices
from weft.compiler.emit.values import MultiIndex, expand, get_space
from weft.ir.jaxpr import Equation


def emit_slices(fusion: Fusion) -> Emission:
    """Emit kernels that store every result."""
    results = fusion.jaxpr.outvars
    defined: dict[Any, Equation] = {v: e for e in fusion.jaxpr.eqns for v in e.outvars}
    spaces = [get_space(v) for v in results]
    shared = 0
    while all(shared < len(s) and s[shared] == spaces[0][shared] for s in spaces):
        shared += 1
    slices = [ResultSlice(get_space(v), _count_strided_dims(defined[v], v), _storing(v)) for v in results]
    # If the results share all dimensions, lanes run along the last one.
    store_slices(fusion, "slices", slices, min(shared, len(spaces[0]) - 1) if spaces[0] else 0)
    return fusion.finish()


def _count_strided_dims(equation: Equation, v: Any) -> int:
    """Return how many leading dimensions of a result, ignoring those of size 1, are not contiguous in the operand
    with the dimensions after them.
    """
    shape = equation.invars[0].aval.shape  # type: ignore[attr-defined]
    cut = [axis for axis, (a, b) in enumerate(zip(shape, v.aval.shape, strict=True)) if a != b]
    return sum(1 for d in v.aval.shape[: cut[-1] if cut else 0] if d != 1)


def _storing(v: Any) -> Any:
    def store(writer: KernelWriter, index: MultiIndex) -> None:
        writer.store(v, index, writer.values.at(v, expand(v, index)))

    return store
