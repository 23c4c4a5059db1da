"""The fusion pass: groups the equations of a jaxpr into kernels.

Needs a jaxpr after `canonicalize` (it also takes one before, with scalars among the operands of elementwise
equations); in the result every equation is a fusion, or of a role that is not fused. The mechanisms run in this order:

1. concatenations that are computed where they are read;
2. row-wise fusion, which must see reductions before others take them apart;
3. instruction fusion, from the last equation to the first;
4. fusion merging;
5. sibling fusion;
6. producer-consumer fusion into kernels with several results;
7. results that others compute again instead of reading them, where the target says so.

Dead equations must be gone: a value without readers is fused like a result. `graph.py` states the invariants that hold
between the mechanisms.
"""

from __future__ import annotations

from typing import Any

from weft.base.compile_options import DEFAULT, CompileOptions
from weft.compiler.fuse.build import build
from weft.compiler.fuse.cost import FusionReason
from weft.compiler.fuse.fusion import fusion
from weft.compiler.fuse.graph import FusionGraph, GroupOrder
from weft.compiler.fuse.instructions import fuse_instructions
from weft.compiler.fuse.invariants import verify_graph
from weft.compiler.fuse.joins import demote_joins
from weft.compiler.fuse.merging import merge_fusions
from weft.compiler.fuse.multi_output import fuse_producers
from weft.compiler.fuse.recompute import recompute
from weft.compiler.fuse.rowwise import fuse_rows
from weft.compiler.fuse.siblings import fuse_siblings
from weft.compiler.target.target import Target
from weft.ir.fusing import CONTROL
from weft.ir.jaxpr import Equation, Jaxpr, drop_dead


def fuse(jaxpr: Jaxpr, target: Target, options: CompileOptions = DEFAULT) -> Jaxpr:
    """Group the equations of a jaxpr and of its sub-jaxprs into fusions for a machine."""
    return jaxpr.memoize(("fuse", target, options.verifies), lambda: _fuse(jaxpr, target, options)[0])


def refusals(jaxpr: Jaxpr, target: Target) -> tuple[FusionReason, ...]:
    """Return the reasons why operations of the jaxpr were not fused, in the order of the decisions."""
    return jaxpr.memoize(("fusion refusals", target), lambda: _fuse(jaxpr, target, DEFAULT)[1])


def _fuse(jaxpr: Jaxpr, target: Target, options: CompileOptions) -> tuple[Jaxpr, tuple[FusionReason, ...]]:
    """Return the fused jaxpr and the refusals."""
    alive = drop_dead(jaxpr, [True] * len(jaxpr.outvars))[0]
    graph = FusionGraph(alive, target)
    check = options.verifies
    for mechanism in (demote_joins, fuse_rows, fuse_instructions, merge_fusions):
        mechanism(graph)
        if check:
            verify_graph(graph, mechanism.__name__)
    order = GroupOrder(graph)
    for ordered_mechanism in (fuse_siblings, fuse_producers, recompute):
        ordered_mechanism(graph, order)
        if check:
            verify_graph(graph, ordered_mechanism.__name__, order)
    unfused = {n.index: inside(n.equation, target, options, n.role == CONTROL) for n in graph.nodes if n.unfused}
    return build(graph, order, unfused), tuple(graph.refusals)


def inside(equation: Equation, target: Target, options: CompileOptions, control: bool) -> Equation:
    """Fuse the sub-jaxprs of an unfused equation if it is control flow."""
    if not control or equation.primitive is fusion:
        return equation
    within = target.inside(equation)
    return equation.replace(params={name: _fuse_param(v, within, options) for name, v in equation.params.items()})


def _fuse_param(value: Any, target: Target, options: CompileOptions) -> Any:
    """Fuse the jaxprs in the value of a parameter."""
    if isinstance(value, Jaxpr):
        return fuse(value, target, options)
    if type(value) is tuple and value and all(isinstance(item, Jaxpr) for item in value):
        return tuple(fuse(item, target, options) for item in value)
    return value
