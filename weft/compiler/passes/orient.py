"""Take transposes and sums of one term out of contractions.

    dot_general(transpose(x), y)    ->    dot_general(x, y), contracted over the axes as they are in x
    transpose(dot_general(x, y))    ->    dot_general(y, x), if exchanging the operands is all that it does
    dot_general(x, y) without a sum ->    x * y + 0.0, both broadcast, which fuses with anything

The sums are the same, but a library may add them up in another order, so this is no part of the passes that keep bits.
(A sum of one term starts from 0.0, so that -0.0 becomes 0.0.)
"""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.compiler.passes.data_movement import get_shape
from weft.compiler.patterns import operands, operation
from weft.compiler.rewrite import Match, Rules, drop_unread, everywhere, new_equation, rewrite, rule
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.primitives.contraction.contract import dot_general, free_axes
from weft.primitives.movement.shape import transpose

x, y = operands("x y")
dot, transposed = operation("dot_general"), operation("transpose")

# --------------------------------------------------------------------------------------------------------- transposes


@rule(dot(transposed(x).named("order"), y))
def contract_transposed_left(m: Match, x: Atom, y: Atom, order: Equation) -> Any:
    """Read the left operand as it is before its transpose."""
    return contract_sources(m, 0, [x, y], order.params["permutation"])


@rule(dot(x, transposed(y).named("order")))
def contract_transposed_right(m: Match, x: Atom, y: Atom, order: Equation) -> Any:
    """Read the right operand as it is before its transpose."""
    return contract_sources(m, 1, [x, y], order.params["permutation"])


def contract_sources(m: Match, side: int, sources: list[Atom], order: tuple[int, ...]) -> Any:
    """Contract `sources`, whose transpose is the operand on one side, unless its free axes would change their order."""
    numbers = m.params["dimension_numbers"]
    free = free_axes(*(len(get_shape(a)) for a in m.equation.invars), numbers)[side]
    free_order = [order[axis] for axis in free]
    if free_order != sorted(free_order):
        return None
    contracted, batched = (list(pair) for pair in numbers)
    contracted[side] = tuple(order[axis] for axis in contracted[side])
    batched[side] = tuple(order[axis] for axis in batched[side])
    return m.make("dot_general", *sources, **{**m.params, "dimension_numbers": (tuple(contracted), tuple(batched))})


@rule(transposed(dot(x, y).named("matmul").once))
def exchange_operands(m: Match, x: Atom, y: Atom, matmul: Equation) -> Any:
    """Compute the transpose of a matmul as the matmul of its operands in the other order."""
    contracted, batched = matmul.params["dimension_numbers"]
    left, right = free_axes(len(get_shape(x)), len(get_shape(y)), matmul.params["dimension_numbers"])
    batch = len(batched[0])
    first, second = batch, batch + len(left)
    exchanged = (*range(batch), *range(second, second + len(right)), *range(first, second))
    if m.params["permutation"] != exchanged:
        return None
    params = {**matmul.params, "dimension_numbers": (contracted[::-1], batched[::-1])}
    if type(params.get("precision")) is tuple:  # one for each operand
        params["precision"] = params["precision"][::-1]
    return m.emit(new_equation(matmul.primitive, [y, x], params, matmul.replace(source=m.equation.source)))


ORIENT = Rules(contract_transposed_left, contract_transposed_right, exchange_operands)

# ------------------------------------------------------------------------------------------------------ outer products

PLAIN = frozenset({dtypes.float32, dtypes.float64})


@rule(dot(x, y))
def multiply_outer(m: Match, x: Atom, y: Atom) -> Any:
    """Multiply broadcast operands in place of a contraction over no axes."""
    (contracted, _), batched = m.params["dimension_numbers"]
    leading = tuple(range(len(batched[0])))
    types: list[Any] = [x.aval, y.aval, m.type]
    plain = all(t.dtype == m.type.dtype and t.dtype in PLAIN for t in types)
    if contracted or batched != (leading, leading) or not plain:
        return None
    first, rank = len(get_shape(x)), len(m.shape)
    left = broadcast_operand(m, x, tuple(range(first)))
    right = broadcast_operand(m, y, (*leading, *range(first, rank)))
    return m.make("add", m.make("mul", left, right), m.literal(0))


def broadcast_operand(m: Match, atom: Atom, positions: tuple[int, ...]) -> Atom:
    """Broadcast an operand to the shape of the result, its axes at these positions."""
    shape = get_shape(atom)
    if type(atom) is Literal or shape == m.shape:
        return atom
    if 1 in shape:
        positions = tuple(p for p, n in zip(positions, shape, strict=True) if n != 1)
        atom = m.reshape(atom, [n for n in shape if n != 1])
    if get_shape(atom) == m.shape:
        return atom
    return m.make("broadcast_in_dim", atom, shape=m.shape, broadcast_dimensions=positions)


OUTER = Rules(multiply_outer)


@everywhere
def orient(jaxpr: Jaxpr) -> Jaxpr:
    """Take transposes into contractions, and make those without a sum multiplications. Needs: any. Keeps: its form."""
    if not any(e.primitive is dot_general for e in jaxpr.eqns):
        return jaxpr
    after = rewrite(jaxpr, ORIENT) if any(e.primitive is transpose for e in jaxpr.eqns) else jaxpr
    if after is not jaxpr:
        # Outer products that only a transpose read must not become multiplications.
        after = drop_unread(after, ("dot_general", "transpose"))
    return rewrite(after, OUTER) if any(is_outer(e) for e in after.eqns) else after


def is_outer(equation: Equation) -> bool:
    """Return whether an equation is a contraction over no axes."""
    return equation.primitive is dot_general and not equation.params["dimension_numbers"][0][0]
