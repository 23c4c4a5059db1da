"""Partitioned is whole: the program of one device, run for all devices, returns the parts of what the primitive does,
however its operands and results are split."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.host import partition
from tests.laws.laws import assert_close, numbers
from tests.laws.parts import Sizes, inside, stacked
from tests.laws.samples import Case, concrete, every_sample
from weft.base.settings import enable_checks
from weft.compiler.partition.bodies import BodyPartitioner
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.partition.rules import Dims
from weft.ir.context import EVALUATION, active
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.trace.closed import stage_subjaxpr

# Collectives after which results may differ in rounding.
SUMMED = {"psum", "reduce_scatter"}


def on_all_devices(function: Callable[..., Any], sizes: Sizes) -> Callable[..., Any]:
    """Map a function of one device over all of them: `vmap` over the axes of the mesh."""
    for axis in reversed(list(sizes)):
        function = weft.vmap(function, axis_name=axis, axis_size=sizes[axis])
    return function


def jaxpr_of(case: Case) -> Jaxpr:
    return prepare(stage_subjaxpr(case.alone, case.types, name=case.primitive.name))


@contextmanager
def split_wherever_possible() -> Iterator[None]:
    """Have costs say that to split is better than not to, so that small operands are split too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BodyPartitioner, "cost", lambda self, equation, rule, chosen, stays=False: -sum(map(len, chosen.values()))
        )
        yield


def check(
    case: Case,
    jaxpr: Jaxpr,
    sizes: Sizes,
    in_dims: Sequence[Dims],
    out_dims: Sequence[Dims | None],
    everywhere: bool = True,
) -> None:
    """Partition a sample, run it for all devices, and compare with the whole."""
    with enable_checks(not case.environment), split_wherever_possible() if everywhere else nullcontext():
        result = partition(jaxpr, sizes, in_dims, out_dims)
    leading = len(case.environment)
    parts = [stacked(a, d, sizes, leading) for a, d in zip(case.arrays, result.in_dims, strict=True)]

    def run(*args: Any) -> Any:
        return on_all_devices(lambda *a: replay(result.jaxpr, *a), {**case.environment, **sizes})(*args)

    with active(EVALUATION), np.errstate(all="ignore"):
        found = run(*[concrete(p) for p in parts])
        wholes = [numbers(r) for r in case.under_axes(lambda *a: replay(jaxpr, *a), *case.operands)]
    exact = is_exact(case, result)
    for i, (y, whole, dims) in enumerate(zip(found, wholes, result.out_dims, strict=True)):
        if out_dims[i] is not None:
            assert dims == out_dims[i]
        expected = stacked(whole, dims, sizes, leading)
        what = f"result {i} of {result.jaxpr} on {dict(sizes)} with operands split as {in_dims}, results as {out_dims}"
        there = inside(whole.shape, dims, sizes, leading)
        found_there, expected = numbers(y)[there], expected[there]
        if exact:
            np.testing.assert_array_equal(found_there, expected, what)
        else:
            assert_close(found_there, expected, case.tolerance, what)


def is_exact(case: Case, result: PartitionedJaxpr) -> bool:
    """Return whether parts have the bits of the whole: nothing is summed, and no element depends on several."""
    if any(c.kind in SUMMED for c in result.communication):
        return False
    return case.primitive.pointwise or bool(case.primitive.copies)


# ------------------------------------------------------------------------------------------------------------- the law


def divisors(size: Any, uneven: bool = False) -> set[int]:
    """Into how many parts a dimension can be split; one without elements into three."""
    counts = () if not isinstance(size, int) else (3,) if not size else (2, 3, 4) if uneven else (2, 3, 4, 5, 7)
    return {n for n in counts if uneven or size % n == 0}


def splits(shape: Sequence[Any], axis: Any, count: int, uneven: bool = False) -> list[Dims]:
    """Return all ways to split an array over one axis: not at all, or along a dimension of a fitting size."""
    whole: Dims = ((),) * len(shape)
    found = [whole]
    for d, size in enumerate(shape):
        if count in divisors(size, uneven):
            found.append((*whole[:d], (axis,), *whole[d + 1 :]))
    return found


def assignments(
    case: Case, uneven: bool = False
) -> list[tuple[dict[Any, int], tuple[Dims, ...], tuple[Dims | None, ...]]]:
    """Return the sizes of a mesh of one axis, the split of operands, and that of results: inferred, or given."""
    found: list[tuple[dict[Any, int], tuple[Dims, ...], tuple[Dims | None, ...]]] = []
    shapes = [t.shape for t in case.types]
    results = [t.shape for t in case.result_types]
    counts = sorted(set().union(*(divisors(n, uneven) for shape in (*shapes, *results) for n in shape)))
    for count in counts:
        if case.environment and count == 4:
            continue
        operands = list(itertools.product(*(splits(shape, "x", count, uneven) for shape in shapes)))
        forced = list(itertools.product(*(splits(shape, "x", count, uneven) for shape in results)))
        for i, in_dims in enumerate(operands):
            found.append(({"x": count}, in_dims, (None,) * len(results)))
            found.append(({"x": count}, in_dims, forced[i % len(forced)]))
        found.extend(({"x": count}, operands[i % len(operands)], out) for i, out in enumerate(forced))
    return found


def over_two_axes(
    case: Case, some: random.Random, uneven: bool = False
) -> tuple[dict[Any, int], tuple[Dims, ...], tuple[Any, ...]] | None:
    """Operands split over two axes at once, at random; unevenly, results too."""
    shapes = [t.shape for t in case.types]
    counts = [2, 3] if uneven else sorted(set().union(*(divisors(n) for shape in shapes for n in shape)))
    if not counts:
        return None
    sizes = {"x": some.choice(counts), "y": some.choice(counts)}

    def split(shape: Sequence[Any]) -> Dims:
        entries: list[list[Any]] = [[] for _ in shape]
        for axis in some.sample(list(sizes), 2):
            d = some.randrange(-1, len(shape))
            if d >= 0 and (uneven or shape[d] % math.prod(sizes[a] for a in (*entries[d], axis)) == 0):
                entries[d].append(axis)
        return tuple(map(tuple, entries))

    out = [split(t.shape) if uneven and some.random() < 0.5 else None for t in case.result_types]
    return sizes, tuple(map(split, shapes)), tuple(out)


def all_over_two_axes(case: Case, most: int) -> list[tuple[dict[Any, int], tuple[Dims, ...], tuple[Any, ...]]]:
    """Return all ways to split operands evenly over two axes of two devices, or at most `most` of them at random."""
    sizes = {"x": 2, "y": 2}
    ways: list[list[Dims]] = []
    for t in case.types:
        own = {tuple(((),) * len(t.shape)): None}
        for first, second in itertools.product(range(-1, len(t.shape)), repeat=2):
            for order in (("x", "y"), ("y", "x")):
                entries: list[list[Any]] = [[] for _ in t.shape]
                for axis, d in zip(order, (first, second), strict=True):
                    if d >= 0:
                        entries[d].append(axis)
                if all(n % 2 ** len(e) == 0 for n, e in zip(t.shape, entries, strict=True) if e):
                    own[tuple(map(tuple, entries))] = None
        ways.append(list(own))
    count, some = math.prod(map(len, ways)), random.Random(f"{case}")
    chosen = itertools.product(*ways) if count <= most else ([some.choice(w) for w in ways] for _ in range(most))
    return [(sizes, tuple(dims), (None,) * len(case.result_types)) for dims in chosen]


@every_sample(lambda case: bool(assignments(case)))
def test_partitioned_is_whole(case: Case) -> None:
    """A few of all assignments of one axis, and one of two axes, other ones for each sample."""
    some = random.Random(f"{case}")
    jaxpr = jaxpr_of(case)
    everything = assignments(case)
    for i, assignment in enumerate(some.sample(everything, min(2, len(everything)))):
        check(case, jaxpr, *assignment, everywhere=i == 0)
    uneven = some.random() < 0.5
    both = over_two_axes(case, some, uneven and not case.environment)
    if both is not None:
        check(case, jaxpr, *both)
    others = assignments(case, uneven=True)
    for assignment in some.sample(others, min(1, len(others))):
        check(case, jaxpr, *assignment)


@pytest.mark.slow
@every_sample(lambda case: bool(assignments(case)))
def test_partitioned_is_whole_for_every_sharding(case: Case) -> None:
    jaxpr = jaxpr_of(case)
    for assignment in assignments(case, uneven=True):
        check(case, jaxpr, *assignment)
    for assignment in assignments(case):
        check(case, jaxpr, *assignment, everywhere=True)
        check(case, jaxpr, *assignment, everywhere=False)
    for assignment in all_over_two_axes(case, 150):
        check(case, jaxpr, *assignment)
    some = random.Random(0)
    for i in range(20):
        both = over_two_axes(case, some, uneven=i % 2 == 1 and not case.environment)
        if both is not None:
            check(case, jaxpr, *both)
