"""Fusions that differ in the order of their equations only have the same kernels, so they share them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import weft
import weft.numpy as np
from tests.compiler.test_families import attention, normal, softmax
from weft.compiler import pipeline
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.key import fusion_key, in_order_of_use, is_written_on_demand
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.printer import to_text
from weft.compiler.target.cpu.targets import host
from weft.ir.jaxpr import Equation, Jaxpr, Literal


def shuffled(jaxpr: Jaxpr, generator: random.Random) -> list[Equation]:
    """The equations in another order in which each is after those that it needs, and those whose order counts are in
    the same: literals of floats are operands in the order of the equations."""

    def counts(e: Equation) -> bool:
        return not is_written_on_demand(e) or any(type(a) is Literal for a in e.invars)

    waiting, found, known = list(jaxpr.eqns), list[Equation](), set(jaxpr.invars)
    while waiting:
        first = next((e for e in waiting if counts(e)), None)
        ready = [e for e in waiting if all(type(a) is Literal or a in known for a in e.invars)]
        chosen = generator.choice([e for e in ready if e is first or not counts(e)])
        waiting.remove(chosen)
        found.append(chosen)
        known.update(chosen.outvars)
    return found


def mixed(x: Any) -> Any:
    """Many orders, some of which are of several reductions."""
    y = np.tanh(x) * np.arange(x.shape[1]) + x[:, ::-1] / np.exp(x.T.sum(0))[:, None]
    return (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5) + x.max(1, keepdims=True), y.min(1)


FUNCTIONS: dict[str, tuple[Any, int]] = {
    "mixed": (mixed, 1),
    "gradient": (weft.grad(lambda x: sum((p**2).sum() for p in mixed(x))), 1),
    "attention": (lambda x: attention(x[None]), 1),
    "softmax": (softmax, 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_do_not_depend_on_the_order(name: str) -> None:
    function, least = FUNCTIONS[name]
    jaxpr = weft.make_jaxpr(function)(normal(40, 24)).jaxpr
    fused: Any = pipeline.run(jaxpr, host(), pipeline.ALL_PASSES, log=[])
    generator, compared = random.Random(name), 0
    for e in fusions(fused):
        kind, inner, hero = e.params["kind"], e.params["jaxpr"], e.params["hero"]
        if kind in ("library", "alias") or len(inner.eqns) < 2:
            continue
        texts = [to_text(launch.kernel) for launch in emit(kind, inner, hero, host()).launches]
        for _ in range(8):
            equations = shuffled(inner, generator)
            other = inner.replace(eqns=equations)
            at = None if hero is None else equations.index(inner.eqns[hero])
            assert in_order_of_use(other) == in_order_of_use(inner)
            assert fusion_key(kind, other, at, host()) == fusion_key(kind, inner, hero, host())
            assert [to_text(launch.kernel) for launch in emit(kind, other, at, host()).launches] == texts
            compared += equations != list(inner.eqns)
    assert compared >= least
