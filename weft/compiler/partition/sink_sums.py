"""Sums over devices that users or derivatives write are done where the summed value is smallest.

    reduce_sum(psum(x))    ->    psum(reduce_sum(x))        the gradient of what a `shard_map` broadcasts
    psum(broadcast(x))     ->    broadcast(psum(x))

Moving elements, and adding some of them up, commutes with a sum over devices; so it is done first unless the value gets
larger by it.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.patterns import operands, operation
from weft.compiler.rewrite import Match, Rules, everywhere, rewrite, rule
from weft.ir.jaxpr import Atom, Equation, Jaxpr

(x,) = operands("x")
psum = operation("psum")(x).named("sum").once


def sum_after(m: Match, x: Atom, sum: Equation) -> Any:
    """Do the operation on each device, and sum its result, which is not larger than the operand."""
    first = m.make(m.equation.primitive.name, x, **m.params)
    return m.make("psum", first, **sum.params)


@rule(operation("reduce_sum")(psum))
def reduce_before_sum(m: Match, x: Atom, sum: Equation) -> Any:
    """Reduce on each device before summing over devices."""
    return sum_after(m, x, sum)


@rule(operation("transpose")(psum))
def transpose_before_sum(m: Match, x: Atom, sum: Equation) -> Any:
    """Transpose before summing, so that a reduction that follows meets the sum."""
    return sum_after(m, x, sum)


@rule(operation("reshape")(psum))
def reshape_before_sum(m: Match, x: Atom, sum: Equation) -> Any:
    """Reshape before summing, so that a reduction that follows meets the sum."""
    return sum_after(m, x, sum)


@rule(operation("slice")(psum))
def slice_before_sum(m: Match, x: Atom, sum: Equation) -> Any:
    """Slice on each device, and sum the slice."""
    return sum_after(m, x, sum)


@rule(operation("psum")(operation("broadcast_in_dim")(x).named("broadcast")))
def sum_before_broadcast(m: Match, x: Atom, broadcast: Equation) -> Any:
    """Sum what is broadcast."""
    return m.make("broadcast_in_dim", m.make("psum", x, **m.params), **broadcast.params)


SUMS = Rules(reduce_before_sum, transpose_before_sum, reshape_before_sum, slice_before_sum, sum_before_broadcast)


@everywhere
def sink_sums(jaxpr: Jaxpr) -> Jaxpr:
    """Move sums over devices to where the summed values are smallest."""
    sunk = rewrite(jaxpr, SUMS)
    return jaxpr if sunk is jaxpr else drop_dead(sunk)
