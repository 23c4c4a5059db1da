"""One way to say each thing.

Elementwise operands are of the shape of the result, with one exception: literals stay scalars, because an emitter
writes them into the code, where a broadcast of one would be a value of its own. So a broadcast literal next to a whole
operand becomes the literal, and any other scalar becomes a broadcast.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.passes.moves import MOVES
from weft.compiler.rewrite import (
    Match,
    Rules,
    everywhere,
    literal,
    make_literal,
    operands,
    operation,
    rewrite,
    rule,
)
from weft.ir.jaxpr import Atom, Jaxpr, Literal, Var
from weft.primitives.elementwise.convert import converted
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.shape import broadcast_in_dim

x, y = operands("x y")
c = literal("c")


@rule(operation(Elementwise)())
def one_shape(m: Match) -> Any:
    """Scalars are spread to the shape of the result; spread literals are literals again."""
    equation = m.equation
    shape = equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    if not shape:
        return None
    given = equation.invars
    whole, small, spread = False, False, False
    for atom in given:
        if type(atom) is Literal:
            continue
        if not atom.aval.shape:  # type: ignore[attr-defined]
            small = True
        elif spread_literal(m, atom) is not None:
            spread = True
        else:
            whole = True
    if not small and not (spread and whole):
        return None
    changed: list[Atom] = []
    for atom in given:
        if type(atom) is Var:
            if not atom.aval.shape:  # type: ignore[attr-defined]
                atom = m.broadcast(atom, shape)
            elif whole or small:
                atom = spread_literal(m, atom) or atom
        changed.append(atom)
    return m.make(equation.primitive.name, *changed, **equation.params)


@rule(operation("threefry2x32")())
def one_shape_of_cipher(m: Match) -> Any:
    """The operands of the cipher may also have dimensions of size 1."""
    shape, given = m.shape, m.equation.invars
    changed: list[Atom] = []
    for atom in given:
        own = atom.aval.shape  # type: ignore[attr-defined]
        if type(atom) is Var and own != shape:
            placed = tuple(range(len(own)))
            atom = m.make("broadcast_in_dim", atom, shape=shape, broadcast_dimensions=placed)
        changed.append(atom)
    if not m.new_equations:
        return None
    m.make("threefry2x32", *changed)
    return list(m.new_equations[-1].outvars)


def spread_literal(m: Match, atom: Atom) -> Literal | None:
    """The literal of which an operand is copies."""
    found = m.definitions.get(atom)
    if found is None or found.primitive is not broadcast_in_dim:
        return None
    scalar = found.invars[0]
    return scalar if type(scalar) is Literal else None


@rule(operation(Elementwise)(c, x))
def constant_right(m: Match, c: Literal, x: Atom) -> Any:
    """Literals are second operands, where that makes no difference to the bits."""
    card: Any = m.equation.primitive
    name = card.mirrored(c.val) if type(x) is Var else None
    return None if name is None else m.make(name, x, c, **m.params)


@rule(operation("convert_element_type")(x))
def convert_to_same(m: Match, x: Atom) -> Any:
    """Weakness is a matter of promotion, which is over."""
    return x if x.aval.dtype == m.params["new_dtype"] else None  # type: ignore[attr-defined]


@rule(operation("convert_element_type")(c))
def convert_literal(m: Match, c: Literal) -> Any:
    return make_literal(converted(c.val, m.type.dtype), m.type.dtype)


CANONICAL = Rules(
    one_shape,
    one_shape_of_cipher,
    constant_right,
    convert_to_same,
    convert_literal,
    MOVES,
)


@everywhere
def canonicalize(jaxpr: Jaxpr) -> Jaxpr:
    """Make broadcasts explicit, put literals right, and remove movements that do nothing.

    Needs: primitives only. Makes: the canonical form.
    """
    return rewrite(jaxpr, CANONICAL)
