"""Matmuls that a scan adds up are taken out of the loop and summed at once after it.

    carry + dot_general(x, y) in a scan    ->    carry + dot_general(all x, all y), summed over iterations too

This is the gradient of a weight that every iteration of a recurrence uses. In the loop each iteration would read and
write the whole carry for a matmul with a small K; after it K is large, and the operands are mostly in memory already.
The sum is rounded otherwise, so this is no part of the passes that keep bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.fuse.cost import count_bytes
from weft.compiler.patterns import CarryMatch, carry, either, loop, operands, operation
from weft.compiler.rewrite import Match, Rules, everywhere, new_equation, rewrite, rule
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var
from weft.primitives.control.scan import stack_type

DTYPES = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
# A matmul that sums more terms than this in an iteration makes good use of a carry that it reads.
THICK = 128
# Limit of the memory for the operands of all iterations together.
MAX_BYTES = 1 << 26

x, y = operands("x y")
matmul = operation("dot_general")(x, y).named("matmul")
transposed_matmul = operation("transpose")(matmul.once).named("transposed")


@rule(loop("scan", update=(carry.once + either(matmul, transposed_matmul).once).in_any_order.once), keeps_effects=True)
def sum_after_loop(m: Match, carries: list[CarryMatch]) -> Any:
    """Stack the operands of the matmuls that a scan adds to its carries, and sum these over all iterations after it."""
    body: Jaxpr = m.params["jaxpr"]
    constants, first = m.params["num_consts"], m.params["num_consts"] + m.params["num_carry"]
    length = m.params["length"]
    if type(length) is not int or length < 2:
        return None
    outside: dict[Any, Atom] = dict(zip(body.invars[first:], m.equation.invars[first:], strict=True))
    stacks: dict[Any, Var] = {}
    deferred: list[CarryMatch] = []
    for found in carries:
        if not is_thin(found, {*outside, *stacks}, {*body.invars[:constants]}, length):
            continue
        for atom in found.bound["matmul"].invars:
            if atom not in outside and atom not in stacks:
                stacks[atom] = Var(stack_type(atom.aval, length))
        deferred.append(found)
    if not deferred:
        return None
    remaining = without_carries(m, deferred, stacks)
    results: list[Atom] = [remaining.get(v, v) for v in m.equation.outvars]
    for found in deferred:
        results[found.result] = total_of_iterations(m, found, {**outside, **stacks})
    return results


def total_of_iterations(m: Match, found: CarryMatch, arrays: dict[Any, Atom]) -> Var:
    """Add the matmuls of all iterations to the start of a carry; `arrays` has the stacked operands."""
    matmul, transposed = found.bound["matmul"], found.bound.get("transposed")
    pair = [arrays[atom] for atom in matmul.invars]
    total = m.emit(new_equation(matmul.primitive, pair, contract_iterations(matmul), matmul))
    if transposed is not None:
        total = m.emit(new_equation(transposed.primitive, [total], transposed.params, transposed))
    both = [found.start if a is found.argument else total for a in found.equation.invars]
    return m.emit(new_equation(found.equation.primitive, both, {}, found.equation))


def without_carries(m: Match, deferred: Sequence[CarryMatch], stacks: dict[Any, Var]) -> dict[Var, Var]:
    """Add the scan without some carries and the equations that update them, which stacks further values of its body;
    return the new variables of its other results."""
    body: Jaxpr = m.params["jaxpr"]
    constants, carries = m.params["num_consts"], m.params["num_carry"]
    gone = {found.result for found in deferred}
    dead = {e for found in deferred for e in (found.equation, found.bound["matmul"], found.bound.get("transposed"))}
    remaining = [n for n in range(carries) if n not in gone]
    smaller = body.replace(
        invars=[v for n, v in enumerate(body.invars) if n - constants not in gone],
        outvars=[*(body.outvars[n] for n in remaining), *body.outvars[carries:], *stacks],
        eqns=[e for e in body.eqns if e not in dead],
    )
    results = [v for n, v in enumerate(m.equation.outvars) if n not in gone]
    renamed = {v: Var(v.aval) for v in results}
    m.replace(
        invars=[a for n, a in enumerate(m.equation.invars) if n - constants not in gone],
        outvars=[*renamed.values(), *stacks.values()],
        params={**m.params, "jaxpr": smaller, "num_carry": len(remaining)},
    )
    return renamed


def is_thin(found: CarryMatch, stacked_values: set[Any], constants: set[Any], length: int) -> bool:
    """Return whether a matmul is better summed after the loop."""
    matmul = found.bound["matmul"]
    if any(type(a) is not Var or a in constants for a in matmul.invars):
        return False
    types: list[Any] = [a.aval for a in (*matmul.invars, matmul.outvars[0], found.argument)]
    if any(t.dtype != types[0].dtype for t in types) or types[0].dtype not in DTYPES:
        return False
    (contracted, _), _ = matmul.params["dimension_numbers"]
    if any(type(d) is not int for t in types for d in t.shape):
        return False
    more = sum(count_bytes(a.aval) for a in {*matmul.invars} if a not in stacked_values)
    thin = math.prod(types[0].shape[axis] for axis in contracted) < THICK
    return thin and more <= count_bytes(found.argument.aval) and more * length <= MAX_BYTES


def contract_iterations(matmul: Equation) -> dict[str, Any]:
    """Return the parameters of a contraction that also sums over a first axis of both operands."""
    contracted, batched = matmul.params["dimension_numbers"]
    contracting = [tuple((0, *(axis + 1 for axis in axes))) for axes in contracted]
    batch = [tuple(axis + 1 for axis in axes) for axes in batched]
    return {**matmul.params, "dimension_numbers": (tuple(contracting), tuple(batch))}


DEFER = Rules(sum_after_loop)


@everywhere
def defer(jaxpr: Jaxpr) -> Jaxpr:
    """Sum the matmuls of all iterations of a scan after it. Needs: any. Keeps: its form."""
    return rewrite(jaxpr, DEFER)
