"""From any sharding to any other: the right shards, the bytes of the table, and never more than gathering and slicing.

All pairs on a mesh of 2 x 2 x 2: values of two dimensions, split over axes in any order or unreduced over them.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.laws.laws import numbers
from tests.laws.parts import inside, stacked
from tests.laws.samples import concrete
from tests.laws.test_partition import on_all_devices
from weft.compiler.partition.reshard import Transfer, apply, reshard
from weft.compiler.partition.rules import Dims, count_shards
from weft.ir.context import EVALUATION, active
from weft.ir.types import array_type

SIZES = {"x": 2, "y": 2, "z": 2}
# Parts of five elements over two axes are no parts of those over one; those of seven are.
EVEN, UNEVEN = (8, 16), (5, 7)
STATES = ("whole", "first", "second", "unreduced")


class State(NamedTuple):
    """Sharding of a value of two dimensions, and the axes over which it is unreduced."""

    dims: Dims
    unreduced: tuple[Any, ...] = ()


@functools.cache
def states(unreduced: bool) -> tuple[State, ...]:
    """Return all states of a value: each axis splits a dimension, in any order with others, or is unreduced, or
    neither."""

    def all_of_them() -> Iterator[State]:
        for choice in itertools.product(STATES[: 4 if unreduced else 3], repeat=len(SIZES)):
            of = {s: [a for a, own in zip(SIZES, choice, strict=True) if own == s] for s in STATES}
            for first in itertools.permutations(of["first"]):
                for second in itertools.permutations(of["second"]):
                    yield State((first, second), tuple(of["unreduced"]))

    return tuple(all_of_them())


def sent(transfers: Sequence[Transfer], shape: Sequence[int], source: State) -> float:
    """Bytes that a device sends, by the table: it goes by the shape of what the device has before each of them, or
    after it, for what is made longer to be split evenly."""
    local = list(part_shape(shape, source.dims))
    total = 0.0
    for transfer in transfers:
        n, dim, kind = SIZES[transfer.axis], transfer.dim, transfer.kind
        if kind == "psum":
            total += 2 * 4 * math.prod(local) * (n - 1) / n
        elif kind == "all_gather":
            total += 4 * math.prod(local) * (n - 1)
            local[dim] = min(local[dim] * n, shape[dim])
        else:
            local[dim] = (
                -(-local[dim] // transfer.multiple) * transfer.multiple // n if kind == "slice" else -(-local[dim] // n)
            )
            total += 0 if kind == "slice" else 4 * math.prod(local) * (n - 1)
            if kind == "all_to_all":
                local[transfer.source] = min(local[transfer.source] * n, shape[transfer.source])
    return total


def part_shape(shape: Sequence[int], dims: Dims) -> list[int]:
    return [-(-size // count_shards(axes, SIZES)) for size, axes in zip(shape, dims, strict=True)]


def gathered(shape: Sequence[int], source: State) -> float:
    """Return the bytes that it would take to make the value whole on all devices, and then to slice."""
    gathers = [Transfer("all_gather", a, d) for d, axes in enumerate(source.dims) for a in reversed(axes)]
    return sent([*(Transfer("psum", a) for a in source.unreduced), *gathers], shape, source)


def check(source: State, goal: Dims, shape: tuple[int, ...]) -> None:
    what = f"{shape} from {source} to {goal}"
    transfers = reshard(array_type(shape, np.dtype(np.float32)), source.dims, goal, SIZES, source.unreduced)
    assert sum(t.bytes for t in transfers) == pytest.approx(sent(transfers, shape, source)), what
    assert sum(t.bytes for t in transfers) <= gathered(shape, source) * (1 + 1e-9), what
    # Terms are integers, so that sums are exact; each device along an unreduced axis has another one.
    terms = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    term = {index: terms * (1 + i) for i, index in enumerate(np.ndindex(*[SIZES[a] for a in source.unreduced]))}
    parts = np.zeros_like(stacked(terms, source.dims, SIZES))
    for at in np.ndindex(*SIZES.values()):
        own = dict(zip(SIZES, at, strict=True))
        parts[at] = stacked(term[tuple(own[a] for a in source.unreduced)], source.dims, SIZES)[at]
    with active(EVALUATION):
        found = on_all_devices(lambda a: apply(a, transfers, SIZES, shape), SIZES)(concrete(parts))
    there = inside(shape, goal, SIZES)
    np.testing.assert_array_equal(numbers(found)[there], stacked(sum(term.values()), goal, SIZES)[there], what)


def pairs() -> list[tuple[State, Dims]]:
    return [(source, goal.dims) for source in states(True) for goal in states(False)]


def test_all_states_are_there() -> None:
    assert (len(states(True)), len(states(False))) == (92, 49)


@pytest.mark.parametrize("shape", [EVEN, UNEVEN], ids=str)
def test_resharding(shape: tuple[int, ...]) -> None:
    for source, goal in random.Random(0).sample(pairs(), 120):
        check(source, goal, shape)


MESH = {"x": 4, "y": 4}


@pytest.mark.parametrize(
    ("source", "goal", "hops", "parts"),
    [
        # Slices come first, so that less is sent; `parts` is what a device sends, in 256ths of the value.
        (State((("x",), ())), ((), ("y", "x")), "slice y, all_to_all x", 12),
        (State((("x",), ())), (("y",), ("x",)), "all_to_all x, slice y", 48),
        (State((("x",), ()), ("y",)), (("x", "y"), ()), "reduce_scatter y", 48),
        (State(((), ()), ("x", "y")), ((), ("x",)), "reduce_scatter x, psum y", 192 + 96),
        (State((("x", "y"), ())), ((), ()), "all_gather y, all_gather x", 48 + 192),
        (State((("x",), ())), (("y", "x"), ()), "all_to_all x, slice y, all_to_all x", 48 + 12),
    ],
)  # fmt: skip
def test_large_values_are_sent_in_the_cheapest_way(source: State, goal: Dims, hops: str, parts: float) -> None:
    aval = array_type((4096, 4096), np.dtype(np.float32))
    transfers = reshard(aval, source.dims, goal, MESH, source.unreduced)
    assert ", ".join(f"{t.kind} {t.axis}" for t in transfers) == hops
    assert sum(t.bytes for t in transfers) == parts / 256 * 4 * 4096 * 4096


@pytest.mark.slow
@pytest.mark.parametrize("source", states(True), ids=str)
def test_resharding_from_each_state_to_all(source: State) -> None:
    for shape in (EVEN, UNEVEN):
        for state, goal in pairs():
            if state == source:
                check(source, goal, shape)
