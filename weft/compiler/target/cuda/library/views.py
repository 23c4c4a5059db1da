"""Operands of a call that are views of arrays: sliced, transposed and reshaped without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.compiler.target.cuda.library.composites import JaxprReader, is_operation
from weft.compiler.target.matmuls import get_strides
from weft.ir.jaxpr import Equation, Var

VIEWING = ("reshape", "transpose", "slice")


class ArrayView(NamedTuple):
    """Value as a view of an array in memory: its first element, its strides in elements, and the equations that
    derive it from the array."""

    array: Any
    first: int
    strides: Sequence[int]
    equations: tuple[Equation, ...]


def dense_view(atom: Any) -> ArrayView:
    """Return a value as a dense array of its own."""
    return ArrayView(atom, 0, get_strides(atom.aval.shape), ())


def find_view(reader: JaxprReader, atom: Any) -> ArrayView:
    """Return the view that a value is of the earliest array possible."""
    after: list[Equation] = []
    source = atom
    while (found := next((e for name in VIEWING if (e := reader.definition(source, name))), None)) is not None:
        if type(found.invars[0]) is not Var:
            break
        after.append(found)
        source = found.invars[0]
    if any(type(size) is not int for e in after for a in (*e.invars, *e.outvars) for size in a.aval.shape):  # type: ignore[attr-defined]
        return dense_view(atom)
    view = dense_view(source)
    for equation in reversed(after):
        through = _through(equation, view.first, view.strides)
        if through is None:
            view = dense_view(equation.outvars[0])
        else:
            view = ArrayView(view.array, *through, (*view.equations, equation))
    return view


def _through(equation: Equation, first: int, strides: Sequence[int]) -> tuple[int, Sequence[int]] | None:
    """Return the first element and the strides after an equation, or None if they are not regular."""
    before, after = (a.aval.shape for a in (equation.invars[0], equation.outvars[0]))  # type: ignore[attr-defined]
    params = equation.params
    if is_operation(equation, "transpose"):
        return first, [strides[n] for n in params["permutation"]]
    if is_operation(equation, "slice"):
        steps = params["strides"] or (1,) * len(before)
        first += sum(start * stride for start, stride in zip(params["start_indices"], strides, strict=True))
        return first, [step * stride for step, stride in zip(steps, strides, strict=True)]
    found = reshape_strides(before, strides, after) if params.get("dimensions") is None else None
    return None if found is None else (first, found)


def reshape_strides(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> list[int] | None:
    """Return the strides of a reshaped array without a copy, or None if it has none."""
    if 0 in shape:
        return None
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    found = [1] * len(new)
    wide = [n for n, size in enumerate(new) if size != 1]
    while wide:
        size, stride = old.pop()
        group = [wide.pop()]
        inner = new[group[0]]
        while inner != size:
            if inner < size:
                group.append(wide.pop())
                inner *= new[group[-1]]
            else:
                more, outer = old.pop()
                if outer != size * stride:
                    return None
                size *= more
        for n in group:
            found[n] = stride
            stride *= new[n]
    return found
