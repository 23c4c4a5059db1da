"""Laws of propagation: it changes nothing when it is done again, is the same each time and by any names of axes, and
what it has found out makes no difference where somebody says it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as np_
from tests.compiler.host import partition
from tests.fuzz.checks import case_of
from tests.fuzz.generator import NO_RULE, DrawError, generate
from tests.fuzz.reference import TooLong
from weft.base.settings import enable_checks
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.rules import Dims
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import ArrayType

Sizes = Mapping[Any, int]


def renamed(dims: Dims, names: Mapping[Any, Any]) -> Dims:
    return tuple(tuple(names[a] for a in axes) for axes in dims)


def program() -> tuple[Jaxpr, list[Dims]]:
    """Return a training step with a table, attention over rows, a loop and a branch, and the shardings of its
    arguments."""

    def loss(params: Any, ids: Any) -> Any:
        x = params["table"][ids]

        def layer(h: Any, w: Any) -> Any:
            h = lax.cond(h.sum() > 0, lambda a: np_.tanh(a @ w), lambda a: a @ w - 1, h)
            return h, h.max()

        h, most = lax.scan(layer, x, params["layers"])
        scores = np_.einsum("bsd,btd->bst", h, x)
        return (np_.cumsum(scores, 1) * np_.take_along_axis(scores, ids[:, :, None], 2)).sum() + most.sum()

    def step(params: Any, ids: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, ids)
        return weft.tree_util.tree_map(lambda p, g: p - g, params, gradients), value

    params = {"layers": np.ones((3, 8, 8), np.float32), "table": np.ones((16, 8), np.float32)}
    jaxpr = prepare(weft.make_jaxpr(step)(params, np.zeros((4, 6), np.int32)))
    return jaxpr, [((), ("y",), ()), (("y",), ()), (("x",), ())]


def plan(sizes: Sizes, in_dims: Sequence[Dims | None], out_dims: Sequence[Dims | None]) -> PartitionedJaxpr:
    jaxpr, _ = program()
    with enable_checks(True):
        return partition(jaxpr, sizes, in_dims, out_dims, [True, True, False])


def test_a_plan_is_the_same_each_time_and_by_any_names() -> None:
    _, in_dims = program()
    open_results: list[Dims | None] = [None] * 3
    first = plan({"x": 2, "y": 4}, in_dims, open_results)
    assert str(plan({"x": 2, "y": 4}, in_dims, open_results).jaxpr) == str(first.jaxpr)
    names = {"x": "b", "y": "a"}
    other = plan({"b": 2, "a": 4}, [renamed(d, names) for d in in_dims], open_results)
    assert other.out_dims == [renamed(d, names) for d in first.out_dims]
    assert [(c.kind, c.axis, c.bytes) for c in other.communication] == [
        (c.kind, names[c.axis], c.bytes) for c in first.communication
    ]


def test_propagation_is_idempotent_and_says_why() -> None:
    jaxpr, in_dims = program()

    def propagated(known: Mapping[Any, Dims]) -> Propagation:
        shardings = Propagation(jaxpr, {"x": 2, "y": 4})
        for v, dims in known.items():
            shardings.fix(v, dims, stored=v in jaxpr.invars[:2])
        shardings.run()
        return shardings

    first = propagated(dict(zip(jaxpr.invars, in_dims, strict=True)))
    before = dict(first.dims)
    first.run()
    assert first.dims == before
    assert propagated(before).dims == before  # what was found out, said from the beginning, changes nothing
    for v, dims in before.items():
        assert sorted((r.dim, r.axis) for r in first.reasons[v]) == sorted(
            (d, a) for d, axes in enumerate(dims) for a in axes
        )


def test_results_that_were_found_may_be_asked_for() -> None:
    _, in_dims = program()
    found = plan({"x": 2, "y": 4}, in_dims, [None] * 3)
    again = plan({"x": 2, "y": 4}, in_dims, found.out_dims)
    assert again.out_dims == found.out_dims
    assert sum(c.bytes for c in again.communication) <= sum(c.bytes for c in found.communication)


# ------------------------------------------------------------------------------------------------------ random programs


SQUARE = {"x": 2, "y": 2}


def random_dims(shape: Sequence[int], some: random.Random) -> Dims:
    entries: list[tuple[Any, ...]] = [()] * len(shape)
    for axis in SQUARE:
        fitting = [d for d, n in enumerate(shape) if n and n % 2 ** (len(entries[d]) + 1) == 0]
        if fitting and some.random() < 0.75:
            d = some.choice(fitting)
            entries[d] = (*entries[d], axis)
    return tuple(entries)


def random_program(seed: int) -> tuple[Jaxpr, dict[Var, Dims]] | None:
    """Return a program of the fuzzer, and the shardings of its arguments."""
    try:
        jaxpr = prepare(case_of(generate(seed)).jaxpr)
    except (*NO_RULE, DrawError, TooLong):
        return None
    if not all(isinstance(v.aval, ArrayType) for v in jaxpr.invars):
        return None
    some = random.Random(seed)
    return jaxpr, {v: random_dims(v.aval.shape, some) for v in jaxpr.invars}  # type: ignore[attr-defined]


def propagated(jaxpr: Jaxpr, known: Mapping[Var, Dims], sizes: Sizes = SQUARE) -> Propagation:
    shardings = Propagation(jaxpr, sizes)
    for v, dims in known.items():
        shardings.fix(v, dims)
    shardings.run()
    return shardings


def contend(shardings: Propagation) -> bool:
    """Return whether dimensions compete for an axis, so that the order decides: two unrelated dimensions with the same
    axis, or two axes that reach one dimension from different values."""
    for relation in shardings.relations:
        dims_of_axis: dict[Any, set[Any]] = {}
        axes_of_factor: dict[str, set[tuple[Any, ...]]] = {}
        for v, names in zip(relation.values, relation.rule.names, strict=True):
            for d, (name, axes) in enumerate(zip(names, shardings[v], strict=True)):
                for axis in axes:
                    dims_of_axis.setdefault(axis, set()).add((v, d) if name is None else name)
                if name is not None and axes:
                    axes_of_factor.setdefault(name, set()).add(axes)
        if any(len(found) > 1 for found in (*dims_of_axis.values(), *axes_of_factor.values())):
            return True
    return False


def check_laws(seed: int) -> str:
    found = random_program(seed)
    if found is None:
        return "no program"
    jaxpr, known = found
    first = propagated(jaxpr, known)
    before = dict(first.dims)
    first.run()
    assert first.dims == before, "done again it changes something"
    assert propagated(jaxpr, known).dims == before, "it is not the same each time"
    names = {"x": "b", "y": "a"}
    other = propagated(jaxpr, {v: renamed(d, names) for v, d in known.items()}, {"b": 2, "a": 2})
    assert other.dims == {v: renamed(d, names) for v, d in before.items()}, "it depends on names"
    assert propagated(jaxpr, before).dims == before, "all of it said, it changes something"
    if contend(first):
        return "contended"
    inferred = [v for v in before if v not in known]
    for v in random.Random(seed).sample(inferred, min(4, len(inferred))):
        assert propagated(jaxpr, {**known, v: before[v]}).dims == before, f"a constraint that says the same: {v}"
        left = {u: d for u, d in before.items() if u is not v}
        assert propagated(jaxpr, left).dims == before, f"a constraint left out: {v}"
    return "all laws"


@pytest.mark.parametrize("first", [3000, *(pytest.param(n, marks=pytest.mark.slow) for n in range(4000, 5000, 50))])
def test_random_programs(first: int) -> None:
    outcomes = []
    for seed in range(first, first + (25 if first == 3000 else 50)):
        try:
            outcomes.append(check_laws(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert outcomes.count("all laws") > len(outcomes) / 2
