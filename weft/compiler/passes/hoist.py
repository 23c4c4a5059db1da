"""Loop-invariant code motion.

Equations that only depend on constants of a loop (operands that its iterations share, and carries that it does not
change) are computed once before it, if that is worth a value in memory: contractions, reductions, transcendental
functions. Cheap ones stay inside, where they cost no trip to memory, and are hoisted only where something expensive
needs them, or as operands of a contraction, which are read from memory anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.compiler.fuse.classify import structure
from weft.compiler.fuse.cost import count_bytes, equation_flops
from weft.compiler.passes.merge_equal import has_tapes, merge_equal
from weft.compiler.rewrite import everywhere
from weft.compiler.target.target import Target
from weft.ir.context import join_stacks
from weft.ir.fusing import CONTROL, EXPAND, HERO, LIBRARY, LOOKUP, MOVE, POINTWISE, SYMBOLIC_SIZE
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.rules.compilation import element_cost
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan
from weft.primitives.control.while_loop import while_
from weft.primitives.families import SumOfProducts

# A value of at most this many bytes stays in the cache, however many bytes it was computed from.
SMALL = 1 << 16
# More than GROWTH bytes for each byte that is read are a broadcast, unless each byte takes FLOPS flops.
GROWTH, FLOPS = 2, 16


@everywhere
def hoist(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Hoist loop-invariant equations out of loops. Needs: any. Keeps: its form.

    Equations with effects, barriers, callbacks and tapes stay. A loop without iterations wastes the hoisted work,
    which is at most a part of one iteration; so inner loops are hoisted only if they are known to end.
    """
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        hoist_from = _LOOPS.get(equation.primitive)
        equations.extend((equation,) if hoist_from is None else hoist_from(equation, target))
    if len(equations) == len(jaxpr.eqns):
        return jaxpr
    return merge_equal(jaxpr.replace(eqns=equations))


class SplitBody(NamedTuple):
    """A loop's body without its invariant equations: its further constants, the hoisted values that these are, and the
    equations outside."""

    body: Jaxpr
    constants: list[Var]
    operands: list[Var]
    outside: list[Equation]


def split_invariants(body: Jaxpr, shared: dict[Var, Atom], caller: Equation, target: Target) -> SplitBody | None:
    """Split a body into invariant equations and the rest; None if nothing is hoisted. `shared` has the arguments that
    are the same in every iteration, with their values outside."""
    body = with_split_scans(body, shared, target)
    chosen = choose(body, shared, target)
    if not chosen:
        return None
    needed = closure(body, chosen)
    inside = [e for k, e in enumerate(body.eqns) if k not in chosen]
    # Cheap equations that hoisted ones need, and that the body reads too, are computed twice.
    for i in sorted(needed - chosen, reverse=True):
        results = body.eqns[i].outvars
        if not is_read(results, inside, body.outvars):
            inside = [e for e in inside if e is not body.eqns[i]]
    names: dict[Any, Atom] = dict(shared)
    outside = [copy_outside(body.eqns[k], names, caller) for k in sorted(needed)]
    read = {a for e in inside for a in e.invars} | set(body.outvars)
    constants = [v for k in sorted(chosen) for v in body.eqns[k].outvars if v in read]
    operands: list[Any] = [names[v] for v in constants]
    return SplitBody(body.replace(eqns=inside), constants, operands, outside)


def choose(body: Jaxpr, shared: dict[Var, Atom], target: Target) -> set[int]:
    """Return the indices of the equations worth hoisting, without those that they depend on."""
    same: set[Any] = set(shared)
    movable: set[int] = set()
    for i, equation in enumerate(body.eqns):
        if is_movable(equation) and all(type(a) is Literal or a in same for a in equation.invars):
            movable.add(i)
            same.update(equation.outvars)
    inside = [e for i, e in enumerate(body.eqns) if i not in movable]
    materialized = {
        a for e in inside if isinstance(e.primitive, SumOfProducts) for a in e.invars if type(a) is not Literal
    }
    chosen: set[int] = set()
    outside: set[Any] = set()
    for i in sorted(movable):
        equation = body.eqns[i]
        size = sum(count_bytes(v.aval) for v in equation.outvars)
        before = sum(count_bytes(a.aval) for a in {*equation.invars} if a in outside)
        needed = not materialized.isdisjoint(equation.outvars) and is_operand_worth_memory(equation, size)
        # A value that is no larger than the hoisted values it is computed from takes no more memory than they do.
        if 0 < size <= before or needed or is_worth_memory(equation, size, target):
            chosen.add(i)
            outside.update(equation.outvars)
    return chosen


def is_movable(equation: Equation) -> bool:
    """Return whether an equation may run before the loop, and any number of times."""
    if equation.effects or has_tapes(equation):
        return False
    return equation.primitive is scan or structure(equation).role in _VALUES


_VALUES = frozenset({POINTWISE, HERO, LIBRARY, LOOKUP, MOVE, EXPAND})


def is_expensive(equation: Equation, target: Target) -> bool:
    """Return whether computing a value again costs more than reading it."""
    properties = structure(equation)
    if properties.alias:
        return False
    if properties.role == POINTWISE:
        return element_cost(equation) > target.fusion.cheap_weight
    return properties.role in (HERO, LIBRARY, LOOKUP, CONTROL)


def is_worth_memory(equation: Equation, size: int, target: Target) -> bool:
    """Return whether a value is expensive, and worth its memory."""
    if not is_expensive(equation, target):
        return False
    if size <= SMALL or size <= GROWTH * sum(count_bytes(a.aval) for a in {*equation.invars}):
        return True
    if equation.primitive is scan:
        return 2 * scan_flops(equation, target) >= size
    return equation_flops(equation) >= FLOPS * size


def is_operand_worth_memory(equation: Equation, size: int) -> bool:
    """Return whether an operand of a contraction is computed from no fewer bytes than it has."""
    role = structure(equation).role
    return role == POINTWISE and size <= sum(count_bytes(a.aval) for a in {*equation.invars} if type(a) is not Literal)


def scan_flops(equation: Equation, target: Target) -> float:
    """Estimate the flops of the expensive equations of a scan, over all iterations."""
    body: Jaxpr = equation.params["jaxpr"]
    flops = 0.0
    for e in body.eqns:
        properties = structure(e)
        if properties.role != CONTROL and is_expensive(e, target):
            flops += equation_flops(e)
    length = equation.params["length"]
    return flops * (length if type(length) is int else SYMBOLIC_SIZE)


# ------------------------------------------------------------------------------------------------------ scans in loops


def with_split_scans(body: Jaxpr, shared: dict[Var, Atom], target: Target) -> Jaxpr:
    """Split scans inside of a loop's body into a loop-invariant scan and the rest. A Hessian-vector product is such a
    scan: only its vector differs."""
    same: set[Any] = set(shared)
    equations: list[Equation] = []
    for equation in body.eqns:
        parts = [equation]
        if equation.primitive is scan and is_movable(equation):
            parts = split(equation, [type(a) is not Literal and a not in same for a in equation.invars], target)
        for each in parts:
            if is_movable(each) and all(type(a) is Literal or a in same for a in each.invars):
                same.update(each.outvars)
        equations.extend(parts)
    return body if len(equations) == len(body.eqns) else body.replace(eqns=equations)


def split(equation: Equation, differs: Sequence[bool], target: Target) -> list[Equation]:
    """Split a scan into one that depends on no operand that `differs` between the iterations of the loop around it and
    one that reads its results, if that is worth the memory between them."""
    if all(differs) or not any(differs) or not scan_flops(equation, target):
        return [equation]
    primitive: Any = scan
    found = primitive.split(differs, equation.params, lambda e: not is_broadcast(e))
    between = [Var(t) for t in found.residual_types]
    results = list(zip(equation.outvars, found.unknown_out, strict=True))
    params = found.known[1]
    first_results = [v for v, u in results if not u]
    # Residuals that are results already are not stacked again.
    stacked = dict(reversed([*zip(params["jaxpr"].outvars, first_results, strict=False)][params["num_carry"] :]))
    saved = params["jaxpr"].outvars[len(first_results) :]
    new = [n for n, v in enumerate(saved) if v not in stacked]
    body = params["jaxpr"].replace(outvars=[*params["jaxpr"].outvars[: len(first_results)], *(saved[n] for n in new)])
    first = equation.replace(
        invars=[equation.invars[n] for n in found.known_in],
        outvars=[*first_results, *(between[n] for n in new)],
        params={**params, "jaxpr": body},
    )
    between = [stacked.get(v, own) for v, own in zip(saved, between, strict=True)]
    size = sum(count_bytes(v.aval) for v in first.outvars)
    if not scan_flops(first, target) or not is_worth_memory(first, size, target):
        return [equation]
    second = equation.replace(
        invars=[equation.invars[n] if n >= 0 else between[~n] for n in found.unknown_in],
        outvars=[v for v, u in results if u],
        params=found.unknown[1],
    )
    return [first, second]


def is_broadcast(equation: Equation) -> bool:
    """Return whether a value repeats a smaller one, or is another view of it."""
    properties = structure(equation)
    return properties.role == EXPAND or properties.alias


# ------------------------------------------------------------------------------------------------------------- helpers


def closure(body: Jaxpr, chosen: set[int]) -> set[int]:
    """Return the indices of the chosen equations and of all that they depend on."""
    defined_by = {v: n for n, e in enumerate(body.eqns) for v in e.outvars}
    found: set[int] = set()
    todo = list(chosen)
    while todo:
        i = todo.pop()
        if i not in found:
            found.add(i)
            todo.extend(defined_by[a] for a in body.eqns[i].invars if type(a) is Var and a in defined_by)
    return found


def is_read(values: Sequence[Var], equations: Sequence[Equation], results: Sequence[Atom]) -> bool:
    """Return whether any of the values is an operand of the equations or a result."""
    return any(v in results or any(v in e.invars for e in equations) for v in values)


def copy_outside(equation: Equation, names: dict[Any, Atom], caller: Equation) -> Equation:
    """Copy an equation to the outside of the loop, with new variables: another loop may share the body."""
    results = [Var(v.aval) for v in equation.outvars]
    operands = [names.get(a, a) for a in equation.invars]
    names.update(zip(equation.outvars, results, strict=True))
    return equation.replace(
        invars=operands,
        outvars=results,
        source=equation.source or caller.source,
        stack=join_stacks(caller.stack, equation.stack),
    )


# --------------------------------------------------------------------------------------------------------------- loops


def constant_carries(body: Jaxpr, carry: Sequence[Var]) -> list[bool]:
    """Return for each carry whether the body returns it unchanged."""
    return [after is before for before, after in zip(carry, body.outvars, strict=False)]


def loop_invariants(body: Jaxpr, operands: Sequence[Atom], first: int, constants: int, carry: int) -> dict[Any, Any]:
    """Map the arguments that are the same in every iteration (constants, and carries that never change) to the operands
    of the loop that they are."""
    start = first + constants
    unchanged = constant_carries(body, body.invars[start : start + carry])
    positions = [*range(first, start), *(start + n for n, same in enumerate(unchanged) if same)]
    return {body.invars[n]: operands[n] for n in positions}


def hoist_from_scan(equation: Equation, target: Target) -> list[Equation]:
    """Return the equations hoisted from a scan, and the scan."""
    inner, held, carry = (equation.params[name] for name in ("jaxpr", "num_consts", "num_carry"))
    found = split_invariants(inner, loop_invariants(inner, equation.invars, 0, held, carry), equation, target)
    if found is None:
        return [equation]
    body = with_constants(found, held)
    params = {**equation.params, "jaxpr": body, "num_consts": held + len(found.constants)}
    operands = [*equation.invars[:held], *found.operands, *equation.invars[held:]]
    return [*found.outside, equation.replace(invars=operands, params=params)]


def hoist_from_repeat(equation: Equation, target: Target) -> list[Equation]:
    """Return the equations hoisted from a counted loop, and the loop."""
    inner, held = equation.params["jaxpr"], equation.params["nconsts"]
    carry = len(inner.invars) - 1 - held
    found = split_invariants(inner, loop_invariants(inner, equation.invars, 1, held, carry), equation, target)
    if found is None:
        return [equation]
    params = {**equation.params, "jaxpr": with_constants(found, 1 + held), "nconsts": held + len(found.constants)}
    operands = [*equation.invars[: 1 + held], *found.operands, *equation.invars[1 + held :]]
    return [*found.outside, equation.replace(invars=operands, params=params)]


def hoist_from_while(equation: Equation, target: Target) -> list[Equation]:
    """Return the equations hoisted from the condition and the body of a while loop, and the loop."""
    params = dict(equation.params)
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["body_nconsts"]
    for_condition, for_body, carry = (
        list(equation.invars[:first]),
        list(equation.invars[first : first + second]),
        list(equation.invars[first + second :]),
    )
    same = constant_carries(body, body.invars[second:])
    outside: list[Equation] = []
    for name, inner, held in (("cond", condition, for_condition), ("body", body, for_body)):
        count = len(held)
        shared: dict[Any, Any] = dict(zip(inner.invars, held, strict=False))
        shared.update((v, a) for v, a, s in zip(inner.invars[count:], carry, same, strict=True) if s)
        found = split_invariants(inner, shared, equation, target)
        if found is not None:
            outside.extend(found.outside)
            held.extend(found.operands)
            params[f"{name}_jaxpr"], params[f"{name}_nconsts"] = with_constants(found, count), len(held)
    if not outside:
        return [equation]
    return [*outside, equation.replace(invars=[*for_condition, *for_body, *carry], params=params)]


def with_constants(found: SplitBody, position: int) -> Jaxpr:
    """Insert the further constants of a body after the others, at `position`."""
    invars = found.body.invars
    return found.body.replace(invars=[*invars[:position], *found.constants, *invars[position:]])


_LOOPS: dict[Any, Callable[[Equation, Target], list[Equation]]] = {
    scan: hoist_from_scan,
    repeat: hoist_from_repeat,
    while_: hoist_from_while,
}
