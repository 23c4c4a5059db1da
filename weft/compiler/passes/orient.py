"""Contractions read their operands as they are in memory, and write their result as it is wanted.

    dot_general(transpose(x), y)    ->    dot_general(x, y), summed over the axes as they are in x
    transpose(dot_general(x, y))    ->    dot_general(y, x), if that is all that is transposed
    dot_general(x, y) without a sum ->    x * y + 0.0, both broadcast, which fuses with anything

The sums are the same; but a library may add them up in another order, so this is no part of the passes that keep bits.
(A sum of one term starts from 0.0, so that -0.0 becomes 0.0.)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.base import dtypes
from weft.compiler.rewrite import everywhere, make_literal, new_equation, with_operands
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import lookup
from weft.primitives.contraction.contract import dot_general, free_axes
from weft.primitives.movement.shape import transpose

Axes = tuple[int, ...]


@everywhere
def orient(jaxpr: Jaxpr) -> Jaxpr:
    """Take transposes into contractions. Needs: any. Keeps: its form."""
    if not any(e.primitive is dot_general for e in jaxpr.eqns):
        return jaxpr
    uses: Counter[Any] = Counter(a for e in jaxpr.eqns for a in e.invars if type(a) is Var)
    uses.update(a for a in jaxpr.outvars if type(a) is Var)
    definitions: dict[Any, Equation] = {}
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if equation.primitive is dot_general:
            equation = with_plain_operands(equation, definitions)
        elif equation.primitive is transpose and uses[equation.invars[0]] == 1:
            equation = transposed_matmul(equation, definitions.get(equation.invars[0])) or equation
        for v in equation.outvars:
            definitions[v] = equation
        equations.append(equation)
    equations = [e for equation in equations for e in without_sum(equation)]
    if len(equations) == len(jaxpr.eqns) and all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    read = {a for e in equations for a in e.invars if type(a) is Var} | {*jaxpr.outvars}
    gone = dot_general, transpose
    return jaxpr.replace(eqns=[e for e in equations if e.primitive not in gone or e.outvars[0] in read])


def with_plain_operands(equation: Equation, definitions: dict[Any, Equation]) -> Equation:
    """The contraction of what its operands are transposes of."""
    operands: list[Atom] = list(equation.invars)
    contracted, batched = (list(pair) for pair in equation.params["dimension_numbers"])
    free = free_axes(*(len(a.aval.shape) for a in operands), equation.params["dimension_numbers"])  # type: ignore[attr-defined]
    for side in (0, 1):
        source = definitions.get(operands[side])
        if source is None or source.primitive is not transpose:
            continue
        order = source.params["permutation"]
        free_order = [order[axis] for axis in free[side]]
        if free_order == sorted(free_order):
            operands[side] = source.invars[0]
            contracted[side] = tuple(order[axis] for axis in contracted[side])
            batched[side] = tuple(order[axis] for axis in batched[side])
    if all(a is b for a, b in zip(operands, equation.invars, strict=True)):
        return equation
    dimension_numbers = (tuple(contracted), tuple(batched))
    return with_operands(equation.replace(params={**equation.params, "dimension_numbers": dimension_numbers}), operands)


def transposed_matmul(equation: Equation, matmul: Equation | None) -> Equation | None:
    """A transposed matmul as the matmul of its operands in the other order, if it is one."""
    if matmul is None or matmul.primitive is not dot_general:
        return None
    lhs, rhs = matmul.invars
    contracted, batched = matmul.params["dimension_numbers"]
    left, right = free_axes(len(lhs.aval.shape), len(rhs.aval.shape), matmul.params["dimension_numbers"])  # type: ignore[attr-defined]
    batch = len(batched[0])
    first, second = batch, batch + len(left)
    wanted = (*range(batch), *range(second, second + len(right)), *range(first, second))
    if equation.params["permutation"] != wanted:
        return None
    params = {**matmul.params, "dimension_numbers": (contracted[::-1], batched[::-1])}
    if type(params.get("precision")) is tuple:  # one for each operand
        params["precision"] = params["precision"][::-1]
    return matmul.replace(invars=[rhs, lhs], outvars=equation.outvars, params=params, source=equation.source)


def without_sum(equation: Equation) -> list[Equation]:
    """A contraction over nothing as a multiplication; any other equation as it is."""
    if equation.primitive is not dot_general:
        return [equation]
    (contracted, _), batched = equation.params["dimension_numbers"]
    (result,) = equation.outvars
    types: list[Any] = [a.aval for a in (*equation.invars, result)]
    leading = tuple(range(len(batched[0])))
    plain = all(t.dtype == types[-1].dtype and t.dtype in PLAIN for t in types)
    if contracted or batched != (leading, leading) or not plain:
        return [equation]
    new: list[Equation] = []
    rank, batch = len(types[-1].shape), len(leading)
    own = len(types[0].shape) - batch
    positions = (
        tuple(range(batch + own)),
        (*leading, *range(batch + own, rank)),
    )
    shape = types[-1].shape
    both = [broadcast_operand(a, shape, p, equation, new) for a, p in zip(equation.invars, positions, strict=True)]
    new.append(new_equation(lookup("mul"), both, {}, equation))
    zero = make_literal(0, types[-1].dtype)
    return [*new, equation.replace(primitive=lookup("add"), invars=[new[-1].outvars[0], zero], params={})]


PLAIN = frozenset({dtypes.float32, dtypes.float64})


def broadcast_operand(atom: Atom, shape: Any, positions: Axes, like: Equation, new: list[Equation]) -> Atom:
    """An operand in the shape of the result: its axes at their positions, and repeated along the others."""
    own: Any = atom.aval.shape  # type: ignore[attr-defined]
    if type(atom) is Literal or own == shape:
        return atom
    if 1 in own:
        positions = tuple(p for p, d in zip(positions, own, strict=True) if d != 1)
        sizes = tuple(d for d in own if d != 1)
        new.append(new_equation(lookup("reshape"), [atom], {"new_sizes": sizes, "dimensions": None}, like))
        atom = new[-1].outvars[0]
    params = {"shape": shape, "broadcast_dimensions": positions}
    if atom.aval.shape != shape:  # type: ignore[attr-defined]
        new.append(new_equation(lookup("broadcast_in_dim"), [atom], params, like))
    return new[-1].outvars[0]
