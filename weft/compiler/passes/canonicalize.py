"""The canonical form: one way to write each computation.

Operands of elementwise operations have the shape of the result, except literals: these stay scalars, because an emitter
writes them into the code, where the broadcast of one would be a separate value. So a broadcast literal next to a full
operand becomes the literal, and any other scalar becomes a broadcast.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.passes.data_movement import DATA_MOVEMENT
from weft.compiler.patterns import literal, operands, operation
from weft.compiler.rewrite import Match, Rules, everywhere, make_literal, rewrite, rule
from weft.ir.jaxpr import Atom, Jaxpr, Literal, Var
from weft.primitives.elementwise.convert import convert_values
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.shape import broadcast_in_dim

x, y = operands("x y")
c = literal("c")


@rule(operation(Elementwise)())
def one_shape(m: Match) -> Any:
    """Broadcast scalars to the shape of the result, and read broadcast literals as literals."""
    equation = m.equation
    shape = equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    if not shape:
        return None
    whole, small, repeated = False, False, False
    for atom in equation.invars:
        if type(atom) is Literal:
            continue
        if not atom.aval.shape:  # type: ignore[attr-defined]
            small = True
        elif broadcast_literal(m, atom) is not None:
            repeated = True
        else:
            whole = True
    if not small and not (repeated and whole):
        return None
    changed: list[Atom] = []
    for atom in equation.invars:
        if type(atom) is Var:
            if not atom.aval.shape:  # type: ignore[attr-defined]
                atom = m.broadcast(atom, shape)
            elif whole or small:
                atom = broadcast_literal(m, atom) or atom
        changed.append(atom)
    return m.make(equation.primitive.name, *changed, **equation.params)


@rule(operation("threefry2x32")())
def one_shape_of_hash(m: Match) -> Any:
    """Broadcast the operands of the hash, which may also have dimensions of size 1."""
    shape = m.shape
    changed: list[Atom] = []
    for atom in m.equation.invars:
        own = atom.aval.shape  # type: ignore[attr-defined]
        if type(atom) is Var and own != shape:
            placed = tuple(range(len(own)))
            atom = m.make("broadcast_in_dim", atom, shape=shape, broadcast_dimensions=placed)
        changed.append(atom)
    if not m.new_equations:
        return None
    m.make("threefry2x32", *changed)
    return list(m.new_equations[-1].outvars)


def broadcast_literal(m: Match, atom: Atom) -> Literal | None:
    """Return the literal that an operand is a broadcast of, or None."""
    found = m.definitions.get(atom)
    if found is None or found.primitive is not broadcast_in_dim:
        return None
    scalar = found.invars[0]
    return scalar if type(scalar) is Literal else None


@rule(operation(Elementwise)(c, x))
def constant_right(m: Match, c: Literal, x: Atom) -> Any:
    """Make literals second operands, where that makes no difference to the bits."""
    primitive: Any = m.equation.primitive
    name = primitive.mirror(c.val) if type(x) is Var else None
    return None if name is None else m.make(name, x, c, **m.params)


@rule(operation("convert_element_type")(x))
def convert_to_same(m: Match, x: Atom) -> Any:
    """Drop conversions that change at most the weakness of a type: it matters for promotion only, which is over."""
    return x if x.aval.dtype == m.params["new_dtype"] else None  # type: ignore[attr-defined]


@rule(operation("convert_element_type")(c))
def convert_literal(m: Match, c: Literal) -> Any:
    """Convert literals at compile time."""
    return make_literal(convert_values(c.val, m.type.dtype), m.type.dtype)


CANONICAL = Rules(
    one_shape,
    one_shape_of_hash,
    constant_right,
    convert_to_same,
    convert_literal,
    DATA_MOVEMENT,
)


@everywhere
def canonicalize(jaxpr: Jaxpr) -> Jaxpr:
    """Make broadcasts explicit, literals second operands, and remove data movement that does nothing.

    Needs: primitives only. Makes: the canonical form.
    """
    return rewrite(jaxpr, CANONICAL)
