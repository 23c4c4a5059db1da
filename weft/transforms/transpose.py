"""Transposition: from a linear program, the program that carries cotangents back from its results to its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.ir.context import context, lifted, merged_stack
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.ir.primitive import HigherOrder, accumulate, instantiate
from weft.ir.types import Type
from weft.ir.zeros import Linear, Zero
from weft.trace.closed import stage_closed


def backward(jaxpr: Jaxpr, constants: Sequence[Any], args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of the arguments that are `Linear`, None for the others.

    `args` holds a value for each argument the program is not linear in. What depends on no linear argument is computed
    first; then the linear equations are walked in reverse.
    """
    values: dict[Atom, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    linear: set[Atom] = set()
    for v, a in zip(jaxpr.invars, args, strict=True):
        if type(a) is Linear:
            linear.add(v)
        else:
            values[v] = a
    source, stack = context.source, context.stack

    def read(atom: Atom) -> Any:
        if type(atom) is Literal:
            return lifted(literal(atom))
        return Linear(atom.aval) if atom in linear else values[atom]

    try:
        pending = []
        for equation in jaxpr.eqns:
            if any(v in linear for v in equation.invars):
                linear.update(equation.outvars)
                pending.append(equation)
                continue
            context.source = equation.source or source
            context.stack = merged_stack(stack, equation.stack)
            results = context.trace.process(equation.primitive, [read(v) for v in equation.invars], equation.params)
            values.update(zip(equation.outvars, results, strict=True))

        waiting: dict[Atom, Any] = {}

        def give(atom: Atom, cotangent: Any) -> None:
            if type(atom) is Literal or cotangent is None or type(cotangent) is Zero or atom not in linear:
                return
            before = waiting.get(atom)
            waiting[atom] = cotangent if before is None else accumulate(before, cotangent)

        for result, ct in zip(jaxpr.outvars, cotangents, strict=True):
            give(result, ct if ct is None or type(ct) is Zero else lifted(ct))

        for equation in reversed(pending):
            incoming = [waiting.pop(v, None) for v in equation.outvars]
            if all(c is None for c in incoming):
                continue
            incoming = [
                Zero(v.aval.cotangent()) if c is None else c for v, c in zip(equation.outvars, incoming, strict=True)
            ]
            context.source = equation.source or source
            context.stack = merged_stack(stack, equation.stack)
            outgoing = _transposed(equation, incoming, [read(v) for v in equation.invars])
            for operand, ct in zip(equation.invars, outgoing, strict=True):
                give(operand, ct)
    finally:
        context.source, context.stack = source, stack
    return [
        (waiting.get(v) if v in waiting else Zero(v.aval.cotangent())) if type(a) is Linear else None
        for v, a in zip(jaxpr.invars, args, strict=True)
    ]


def _transposed(equation: Equation, cotangents: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    """What the card of an equation makes of the cotangents of its results: one for each operand."""
    card = equation.primitive
    if isinstance(card, HigherOrder):
        found = card.transpose_through(transpose_jaxpr, cotangents, operands, **equation.params)
    else:
        found = card.transpose(cotangents if card.multiple_results else cotangents[0], *operands, **equation.params)
    if len(found) != len(operands):
        raise InternalError(
            f"The transpose rule of {card.name} gave {len(found)} cotangents for {len(operands)} operands."
        )
    return found


def transpose_jaxpr(
    jaxpr: Jaxpr, linear: Sequence[bool], nonzero: Sequence[bool], instantiated: bool | Sequence[bool] = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The program from the arguments `jaxpr` is not linear in, followed by the nonzero cotangents of its results, to
    the nonzero cotangents of its linear arguments; and, for each linear argument, whether it is among them. Those
    marked in `instantiated` (one flag per linear argument) always are."""
    count = sum(linear)
    force = (instantiated,) * count if isinstance(instantiated, bool) else tuple(instantiated)
    key = ("transpose", tuple(linear), tuple(nonzero), force)
    return jaxpr.cached(key, lambda: _transpose_jaxpr(jaxpr, tuple(linear), tuple(nonzero), force))


def _transpose_jaxpr(
    jaxpr: Jaxpr, linear: tuple[bool, ...], nonzero: tuple[bool, ...], force: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    held: list[Type] = [v.aval for v, n in zip(jaxpr.invars, linear, strict=True) if not n]
    incoming: list[Type] = [v.aval.cotangent() for v, n in zip(jaxpr.outvars, nonzero, strict=True) if n]
    nonzero_out: list[bool] = []

    def function(*flat: Any) -> list[Any]:
        known, given = iter(flat[: len(held)]), iter(flat[len(held) :])
        args = [Linear(v.aval) if n else next(known) for v, n in zip(jaxpr.invars, linear, strict=True)]
        cts = [next(given) if n else Zero(v.aval.cotangent()) for v, n in zip(jaxpr.outvars, nonzero, strict=True)]
        outs = [ct for ct, n in zip(backward(jaxpr, jaxpr.consts, args, cts), linear, strict=True) if n]
        nonzero_out.extend(type(ct) is not Zero or f for ct, f in zip(outs, force, strict=True))
        return [instantiate(ct) for ct, n in zip(outs, nonzero_out, strict=True) if n]

    program = stage_closed(function, [*held, *incoming], name=jaxpr.name)
    return program, tuple(nonzero_out)


def backward_instantiated(jaxpr: Jaxpr, constants: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of all arguments of a program linear in all of them, as real arrays."""
    found = backward(jaxpr, constants, [Linear(v.aval) for v in jaxpr.invars], cotangents)
    return [instantiate(ct) for ct in found]
