"""The invariants of the fusion graph hold after each mechanism, and a broken one is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.fuse_programs import PROGRAMS, program, random_program
from tests.compiler.host import host, run_passes
from tests.compiler.test_fuse import DEFAULT_LIMITS, RECOMPUTING, TIGHT
from tests.compiler.test_fuse_text import NAMES, before
from weft.api.inspect import make_jaxpr
from weft.base.compile_options import CompileOptions
from weft.base.errors import InternalError
from weft.compiler.fuse import driver, graph
from weft.compiler.fuse.graph import FusionGroup, FusionNode, GroupOrder, link
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.ir.parser import parse


def check(jaxpr: Jaxpr) -> None:
    """Fuse a jaxpr and those in it, not memoized, with checks and different limits."""
    for limits in (DEFAULT_LIMITS, TIGHT, RECOMPUTING):
        driver._fuse(jaxpr, replace(host(), fusion=limits), CompileOptions(verifies=True))
    for equation in jaxpr.eqns:
        for inner in subjaxprs(equation.params):
            check(inner)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_the_invariants(name: str) -> None:
    jaxpr, _ = program(name)
    check(jaxpr)
    check(run_passes(jaxpr))


@pytest.mark.parametrize("name", NAMES)
def test_texts_keep_the_invariants(name: str) -> None:
    check(before(name)[1])


@pytest.mark.parametrize("i", range(20))
def test_random_programs_keep_the_invariants(i: int, rng: np.random.Generator) -> None:
    function, args = random_program(rng, 6 + 2 * i)
    if i % 2:
        chosen = function
        function = weft.grad(lambda *a: sum(leaf.sum() for leaf in chosen(*a)), (0, 1, 2))
    check(run_passes(make_jaxpr(function)(*args)))


ADD, ABSORB = FusionGroup.add, GroupOrder._absorb


def changed_add(change: Callable[[FusionGroup, FusionNode], Any]) -> Callable[..., None]:
    """Return `FusionGroup.add` with a mistake."""

    def add(self: FusionGroup, node: FusionNode, evaluations: float, direct: bool) -> None:
        ADD(self, node, evaluations, direct)
        change(self, node)

    return add


def wrong_hero(group: FusionGroup, node: FusionNode) -> None:
    """Make the producer of a member the hero of its group."""
    producers = [p for p in node.producers if p is not None and p.index not in group.members]
    group.hero = producers[0] if producers else group.hero


def link_one_way(first: FusionGroup, last: FusionGroup) -> None:
    """Link two groups, but only in one direction."""
    last.predecessors.add(first)


def absorb_without_owners(self: GroupOrder, first: FusionGroup, last: FusionGroup) -> None:
    """Merge two groups, but leave the values of the second one to it."""
    members = [n for n in last.members.values() if n.owner is last]
    ABSORB(self, first, last)
    for node in members:
        node.owner = last


def absorb_backwards(self: GroupOrder, first: FusionGroup, last: FusionGroup) -> None:
    """Merge two groups, and link the result to what comes after it."""
    ABSORB(self, first, last)
    after = [g for g in self.groups() if g.position > first.position]
    if after:
        link(after[0], first)


MISTAKES: dict[str, tuple[Any, str, Any, str]] = {
    "a member without its group": (FusionGroup, "add", changed_add(lambda g, n: n.groups.clear()), "one of its groups"),
    "a member that is counted twice": (
        FusionGroup,
        "add",
        changed_add(lambda g, n: setattr(g, "repeated", g.repeated + 1)),
        "`repeated`",
    ),
    "an operand that is computed": (
        FusionGroup,
        "add",
        changed_add(lambda g, n: g.operands.update(dict.fromkeys(n.equation.outvars))),
        "`operands`",
    ),
    "an operand that is forgotten": (
        FusionGroup,
        "add",
        changed_add(lambda g, n: [g.operands.pop(v, None) for v in n.operands]),
        "`operands`",
    ),
    "a member without a site": (FusionGroup, "add", changed_add(lambda g, n: g.sites.pop(n.index)), "`sites`"),
    "the wrong last member": (FusionGroup, "add", changed_add(lambda g, n: setattr(g, "last", n.index)), "`last`"),
    "a hero elsewhere": (FusionGroup, "add", changed_add(wrong_hero), "hero"),
    "links that are lost": (graph, "link", link_one_way, "must be a predecessor"),
    "owners that are lost": (GroupOrder, "_absorb", absorb_without_owners, "owner"),
    "a cycle": (GroupOrder, "_absorb", absorb_backwards, "earlier position"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_broken_invariants_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mistake, text = MISTAKES[name]
    jaxpr = parse(
        "{ lambda ; a:f32[8,16] b:f32[8,16] c:f32[]. let"
        " d:f32[8,16] = mul a b; e:f32[16] = reduce_sum[axes=(0,)] d; f:f32[8,16] = tanh d;"
        " g:f32[16,8] = transpose[permutation=(1, 0)] f; h:f32[16,8] = exp g; i:f32[8,16] = sin a;"
        " j:f32[8,16] = cos a; k:f32[16] = sort[dimension=0 is_stable=True num_keys=1] e; l:f32[16] = exp k;"
        " m:f32[16] = add k l; n:f32[8,16] = add i d"
        " in (h, i, j, e, m, n) }"
    )
    check(jaxpr)
    monkeypatch.setattr(place, attribute, mistake)
    with pytest.raises(InternalError, match=text):
        check(jaxpr)
