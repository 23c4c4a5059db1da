"""Matmuls that a scan adds up are taken from the loop and summed at once after it.

    total = total + dot_general(x, y) in a scan    ->    total + dot_general(all x, all y), summed over iterations too

This is the gradient of a weight that every iteration of a recurrence uses. In the loop each iteration would read and
write all of the total for a matmul with a small K; after it K is large, and the operands are mostly in memory already.
The sum is rounded otherwise, so this is no part of the passes that keep bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.fuse.cost import bytes_of
from weft.compiler.passes.accumulate import addend_of, uses_in
from weft.compiler.rewrite import everywhere, new_equation
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var
from weft.primitives.contraction.contract import dot_general
from weft.primitives.control.scan import scan, stacked
from weft.primitives.movement.shape import transpose

DTYPES = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
# A matmul that sums more terms than this in an iteration makes good use of a total that it reads.
THICK = 128
# Operands of all iterations together take at most so much memory.
MAX_BYTES = 1 << 26


@everywhere
def defer(jaxpr: Jaxpr) -> Jaxpr:
    """Sum the matmuls of all iterations of a scan after it. Needs: any. Keeps: its form."""
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        equations.extend(after_loop(equation) if equation.primitive is scan else (equation,))
    if len(equations) == len(jaxpr.eqns):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def after_loop(equation: Equation) -> list[Equation]:
    """A scan without sums of matmuls, and the matmuls after it."""
    params = equation.params
    body: Jaxpr = params["jaxpr"]
    held, carries, length = params["num_consts"], params["num_carry"], params["length"]
    if type(length) is not int or length < 2:
        return [equation]
    inside: dict[Any, Equation] = {v: e for e in body.eqns for v in e.outvars}
    uses = uses_in(body)
    sources: dict[Any, Atom] = dict(zip(body.invars[held + carries :], equation.invars[held + carries :], strict=True))
    stacks: dict[Any, Var] = {}  # values of the body that are stacked, and the arrays that they become
    gone: list[int] = []
    dead: set[int] = set()
    later: list[Equation] = []
    for i in range(carries):
        total, result = body.invars[held + i], body.outvars[i]
        addend = addend_of(total, result, inside, uses)
        transposed = inside.get(addend)
        matmul = transposed
        if transposed is not None and transposed.primitive is transpose and uses[transposed.invars[0]] == 1:
            matmul = inside.get(transposed.invars[0])
        if matmul is None or not is_thin(matmul, total, sources, stacks, {*body.invars[:held]}, length):
            continue
        operands: list[Atom] = []
        for atom in matmul.invars:
            if atom not in sources and atom not in stacks:
                stacks[atom] = Var(stacked(atom.aval, length))
            operands.append(sources.get(atom) or stacks[atom])
        later.append(new_equation(matmul.primitive, operands, over_iterations(matmul), matmul))
        if transposed is not matmul and transposed is not None:
            later.append(new_equation(transposed.primitive, [later[-1].outvars[0]], transposed.params, transposed))
        sum_ = inside[result]
        both = [equation.invars[held + i] if a is total else later[-1].outvars[0] for a in sum_.invars]
        later.append(sum_.replace(invars=both, outvars=[equation.outvars[i]]))
        gone.append(i)
        dead.update((id(sum_), id(transposed), id(matmul)))
    return [without_carries(equation, gone, dead, stacks), *later] if gone else [equation]


def without_carries(equation: Equation, gone: Sequence[int], dead: set[int], stacks: dict[Any, Var]) -> Equation:
    """A scan without some of its carries and the equations of its body that summed them (by their ids); instead it
    stacks further values of its body."""
    params = equation.params
    body: Jaxpr = params["jaxpr"]
    held, carries = params["num_consts"], params["num_carry"]
    remaining = [n for n in range(carries) if n not in gone]
    smaller = body.replace(
        invars=[v for n, v in enumerate(body.invars) if n - held not in gone],
        outvars=[*(body.outvars[n] for n in remaining), *body.outvars[carries:], *stacks],
        eqns=[e for e in body.eqns if id(e) not in dead],
    )
    return equation.replace(
        invars=[a for n, a in enumerate(equation.invars) if n - held not in gone],
        outvars=[*(equation.outvars[n] for n in remaining), *equation.outvars[carries:], *stacks.values()],
        params={**params, "jaxpr": smaller, "num_carry": len(remaining)},
    )


def is_thin(
    matmul: Equation, total: Var, sources: dict[Any, Atom], stacks: dict[Any, Var], constants: set[Any], length: int
) -> bool:
    """Whether a matmul is better summed after the loop."""
    if matmul.primitive is not dot_general or any(type(a) is not Var or a in constants for a in matmul.invars):
        return False
    types: list[Any] = [a.aval for a in (*matmul.invars, matmul.outvars[0], total)]
    if any(t.dtype != types[0].dtype for t in types) or types[0].dtype not in DTYPES:
        return False
    (contracted, _), _ = matmul.params["dimension_numbers"]
    if any(type(d) is not int for t in types for d in t.shape):
        return False
    more = sum(bytes_of(a.aval) for a in {*matmul.invars} if a not in sources and a not in stacks)
    thin = math.prod(types[0].shape[axis] for axis in contracted) < THICK
    return thin and more <= bytes_of(total.aval) and more * length <= MAX_BYTES


def over_iterations(matmul: Equation) -> dict[str, Any]:
    """The parameters of a contraction that also sums over a first axis of both operands."""
    contracted, batched = matmul.params["dimension_numbers"]
    contracting = [tuple((0, *(axis + 1 for axis in axes))) for axes in contracted]
    batch = [tuple(axis + 1 for axis in axes) for axes in batched]
    return {**matmul.params, "dimension_numbers": (tuple(contracting), tuple(batch))}
