"""The `fusion` primitive: a call of an inner jaxpr that becomes one kernel, with its kind, its hero and the reasons.

A fusion means what its jaxpr means, so a fused jaxpr runs in the interpreter like any other. The kind says which
emitter owns the loops; the hero is the position, in the inner jaxpr, of the equation that the kind is named after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.primitive import No, Params, primitive
from weft.primitives.control.call import Call

# Every kind with what its loops run over. The full space is that of the operand of a reduction.
KINDS: dict[str, str] = {
    "loop": "one space: that of all results; no hero",
    "row": "rows (the leading dimensions, not reduced), in several passes over trailing dimensions that stay in cache",
    "column": "the full space; the reduced dimensions are not the trailing ones, so accumulators are arrays",
    "all": "the full space, reduced to scalars",
    "transpose": "the transposed space in tiles; all transposes in it have one permutation",
    "concatenate": "the space of the result, one operand after the other",
    "slices": "the space that is cut; each result is a slice",
    "dynamic_update_slice": "the update; the hero's first operand is written in place; nothing else reads it",
    "scatter": "the updates; the hero's first operand is written in place; nothing else reads it",
    "gather": "one space, that of all results; some loads have indices known at run time only",
    "cumulative": "the space of the hero, in order along its axis",
    "sort": "the space of the hero",
    "argmax": "the full space of the hero",
    "contraction": "the result's space, with the operands' producers before and pointwise work after it",
    "convolution": "the result's space, with pointwise work after it",
    "window": "the result's space and the window",
    "matrices": "the batch of the hero, a small matrix to a lane",
    "library": "no loop at all: one call of a library computes it",
    "alias": "no loop at all: the operand's bytes under another shape",
}

_REASON = "fusions are made by the last pass over a program; transform the program before it is compiled"


@primitive
class fusion(Call):
    """Call `jaxpr` as one kernel of `kind`. `hero` is the position of its hero or None, `reasons` are the decisions
    that made it. One of the kind "library" is a call of the target's `routine`."""

    jvp_through = No(_REASON)
    transpose_through = No(_REASON)
    batch_through = No(_REASON)
    opens = None  # it is compiled as it is

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Any], params: Params) -> None:
        return None

    def live_operands(self, live_results: Sequence[bool], params: Params) -> None:
        return None  # removing an equation would change the position of the hero


def is_fusion(equation: Equation) -> bool:
    """Return whether an equation is a fusion."""
    return equation.primitive is fusion


def fusions(jaxpr: Jaxpr) -> list[Equation]:
    """Return the fusions of a jaxpr in order, without those of its sub-jaxprs."""
    return [e for e in jaxpr.eqns if e.primitive is fusion]
