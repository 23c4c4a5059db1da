"""Checks of indices that a scatter does itself: one in mode FILL_OR_DROP tests whether each window lies in its operand.

Users write a negative index as `where(i < 0, i + n, i)`, and a vector of indices as a concatenation of them; the check
is about `i`, so both are undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.passes.data_movement import get_shape
from weft.compiler.patterns import Bound, Definitions, literal, operands, operation
from weft.indexing.ranges import Range
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.primitives.control.check import check
from weft.primitives.movement.gather import GatherScatterMode
from weft.primitives.movement.scatter import Scatter, window_sizes

(index,) = operands("index")
zero, size = literal("zero"), literal("size")
WRAPPED = operation("select_n")(index < zero, index, index + size)


def find_scatter_checks(jaxpr: Jaxpr) -> dict[Equation, Equation]:
    """Map checks of indices to scatters that drop exactly the windows for which the check fails."""
    checks: dict[Atom, list[Equation]] = {}
    for equation in jaxpr.eqns:
        if equation.primitive is check and equation.params["kind"] == "index" and len(equation.invars) == 1:
            checks.setdefault(equation.invars[0], []).append(equation)
    definitions = Definitions()
    definitions.update((v, e) for e in jaxpr.eqns for v in e.outvars)
    found: dict[Equation, Equation] = {}
    for equation in jaxpr.eqns:
        if isinstance(equation.primitive, Scatter) and equation.params["mode"] is GatherScatterMode.FILL_OR_DROP:
            for value, passing in index_components(equation, definitions):
                for asking in checks.get(value, ()):
                    if passing_range(asking) == passing:
                        found.setdefault(asking, equation)
    return found


def passing_range(equation: Equation) -> Range:
    """Return the range of the values that pass a check of indices."""
    return Range(equation.params["low"], equation.params["high"])


def index_components(equation: Equation, definitions: Definitions) -> list[tuple[Atom, Range]]:
    """Return the components of a scatter's index vectors as the user wrote them, each with the range in which a window
    lies in the operand; an empty list if they cannot be told apart."""
    operand, indices, updates = equation.invars
    shape, dimension_numbers = get_shape(operand), equation.params["dimension_numbers"]
    sizes = window_sizes(len(shape), get_shape(updates), dimension_numbers)
    source = definitions.get(indices)
    components: Sequence[Atom] = (indices,)
    if source is not None and source.primitive.name == "concatenate":
        if source.params["dimension"] != len(get_shape(indices)) - 1 or any(
            get_shape(a)[-1] != 1 for a in source.invars
        ):
            return []
        components = source.invars
    starts = dimension_numbers.scatter_dims_to_operand_dims
    if len(components) != len(starts) or not all(type(shape[d]) is int and type(sizes[d]) is int for d in starts):
        return []
    found = []
    for component, d in zip(components, starts, strict=True):
        while (source := definitions.get(component)) is not None and source.primitive.name in SAME_ELEMENTS:
            component = source.invars[0]
        if (written := unwrap(component, shape[d], definitions)) is None:
            found.append((component, Range(0, shape[d] - sizes[d])))
        elif sizes[d] == 1:
            found.append((written, Range(-shape[d], shape[d] - 1)))
    return found


SAME_ELEMENTS = ("broadcast_in_dim", "reshape")


def unwrap(value: Atom, length: int, definitions: Definitions) -> Atom | None:
    """Return `i` of `where(i < 0, i + length, i)`, or None for any other value."""
    bound: Bound = {}
    if not WRAPPED.match(value, definitions, bound) or type(bound["index"]) is Literal:
        return None
    return bound["index"] if not bound["zero"].val and int(bound["size"].val) == length else None
