"""Transformations compose: every pair, and a random sample of triples, against slow twins, over small programs.

A transformation here turns a function of a vector into another one. Its twin does the same the long way: jit,
checkpoint and staging do nothing, vmap and scan are Python loops, reverse mode is assembled from forward mode and the
other way round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

Function = Callable[[Any], Any]
SIZE = 3
DIRECTION = np.array([0.3, -0.7, 0.5])
X = np.array([0.4, 0.9, -0.3])


# -- programs ---------------------------------------------------------------------------------------------------------


def smooth(x: Any) -> Any:
    return wnp.sin(x) * x[::-1] + 0.5 * x**2


def matrix(x: Any) -> Any:
    return wnp.tanh(wnp.outer(x, x) @ x + wnp.array([1.0, 2.0, 3.0]))


def branching(x: Any) -> Any:
    return lax.cond(x.sum() > 0.2, lambda v: wnp.sin(v) * v.sum(), lambda v: wnp.cos(v) - v, x)


def scanning(x: Any) -> Any:
    carry, ys = lax.scan(lambda c, v: (c * 0.5 + wnp.sin(v), c * v), x[0], x)
    return ys + carry


def looping(x: Any) -> Any:
    """Run a loop whose length depends on the data."""
    return lax.while_loop(
        lambda s: s[1] < 2.0, lambda s: (wnp.sin(s[0]) + s[0] * x, s[1] + 0.4 + 0.1 * wnp.abs(x[0])), (x, 0.0)
    )[0]


@weft.custom_jvp
def _softened(x: Any) -> Any:
    return wnp.log1p(wnp.exp(x))


_softened.defjvps(lambda t, y, x: t / (1 + wnp.exp(-x)))


@weft.custom_vjp
def _cubed(x: Any) -> Any:
    return x**3


_cubed.defvjp(lambda x: (x**3, x), lambda x, ct: (3 * x**2 * ct,))


def custom(x: Any) -> Any:
    return _softened(x) * x.sum()


def indexing(x: Any) -> Any:
    return x.at[wnp.array([0, 2, 0])].add(wnp.cumsum(x)) * wnp.take(x, wnp.array([2, 1, 1]))


PROGRAMS = (smooth, matrix, branching, scanning, looping, custom, indexing)

# -- transformations, each with its twin
# --------------------------------------------------------------------------------


def jvp(f: Function) -> Function:
    return lambda x: weft.jvp(f, (x,), (wnp.asarray(DIRECTION),))[1]


def jvp_twin(f: Function) -> Function:
    """Forward mode assembled from rows of reverse mode."""

    def pushed(x: Any) -> Any:
        _, pull = weft.vjp(f, x)
        return wnp.stack([wnp.vdot(pull(wnp.asarray(row))[0], wnp.asarray(DIRECTION)) for row in np.eye(SIZE)])

    return pushed


def vjp(f: Function) -> Function:
    return lambda x: weft.vjp(f, x)[1](wnp.asarray(DIRECTION))[0]


def vjp_twin(f: Function) -> Function:
    """Reverse mode assembled from columns of forward mode."""

    def pulled(x: Any) -> Any:
        columns = [weft.jvp(f, (x,), (wnp.asarray(column),))[1] for column in np.eye(SIZE)]
        return wnp.stack([wnp.vdot(column, wnp.asarray(DIRECTION)) for column in columns])

    return pulled


def linearize(f: Function) -> Function:
    return lambda x: weft.linearize(f, x)[1](wnp.asarray(DIRECTION))


def grad(f: Function) -> Function:
    return lambda x: weft.grad(lambda v: wnp.sum(f(v) * wnp.asarray(DIRECTION)))(x)


def vmap(f: Function) -> Function:
    return lambda x: wnp.sum(weft.vmap(f)(wnp.stack([x, 0.5 * x])), axis=0)


def vmap_twin(f: Function) -> Function:
    return lambda x: f(x) + f(0.5 * x)


def vmap_inner(f: Function) -> Function:
    """Along the second axis, with one operand that is not batched."""
    return lambda x: weft.vmap(lambda s, v: s * f(v), in_axes=(0, None), out_axes=1)(wnp.array([1.0, 2.0]), x).sum(1)


def vmap_inner_twin(f: Function) -> Function:
    return lambda x: 3.0 * f(x)


def scan(f: Function) -> Function:
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


def scan_twin(f: Function) -> Function:
    return lambda x: f(f(x))


def same(f: Function) -> Function:
    return f


TRANSFORMATIONS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "jit": (weft.jit, same),
    "checkpoint": (weft.checkpoint, same),
    "jvp": (jvp, jvp_twin),
    "vjp": (vjp, vjp_twin),
    "linearize": (linearize, jvp_twin),
    "grad": (grad, vjp_twin),
    "vmap": (vmap, vmap_twin),
    "vmap_inner": (vmap_inner, vmap_inner_twin),
    "scan": (scan, scan_twin),
}


def check(program: Function, names: tuple[str, ...]) -> None:
    fast = slow = program
    for name in reversed(names):
        transformation, twin = TRANSFORMATIONS[name]
        fast, slow = transformation(fast), twin(slow)
    with weft.enable_x64(True):
        x = wnp.asarray(X)
        np.testing.assert_allclose(np.asarray(fast(x)), np.asarray(slow(x)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("outer", TRANSFORMATIONS)
def test_every_pair(program: Function, outer: str) -> None:
    for inner in TRANSFORMATIONS:
        check(program, (outer, inner))


def test_a_sample_of_triples(rng: np.random.Generator) -> None:
    triples = list(itertools.product(TRANSFORMATIONS, repeat=3))
    chosen = rng.choice(len(triples), 40, replace=False)
    for i in chosen:
        check(PROGRAMS[i % len(PROGRAMS)], triples[i])


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_triple(program: Function) -> None:
    for names in itertools.product(TRANSFORMATIONS, repeat=3):
        check(program, names)


def test_custom_vjp_under_reverse_mode_compositions() -> None:
    reverse = ("jit", "checkpoint", "vjp", "grad", "vmap", "vmap_inner", "scan")
    exact = {name: twin for name, (_, twin) in TRANSFORMATIONS.items()}
    with weft.enable_x64(True):
        x = wnp.asarray(X)
        for names in itertools.product(reverse, repeat=2):
            fast, slow = _cubed, lambda v: v**3
            for name in reversed(names):
                fast, slow = TRANSFORMATIONS[name][0](fast), exact[name](slow)
            np.testing.assert_allclose(np.asarray(fast(x)), np.asarray(slow(x)), rtol=1e-8)
