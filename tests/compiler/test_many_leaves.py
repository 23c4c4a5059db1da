"""Programs over trees of many small arrays: one kernel per leaf, and few allocations for the results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program
from weft.compiler.program.ir import Launch

LEAVES = 100


def test_updates_of_leaves_are_fused_leaf_by_leaf() -> None:
    def update(grads: Any, means: Any, params: Any, count: Any) -> Any:
        rate = 1.0 / (count + 1.0)
        means = [0.9 * m + 0.1 * g for m, g in zip(means, grads, strict=True)]
        steps = [m * rate for m in means]
        return means, [p - s for p, s in zip(params, steps, strict=True)]

    leaves = [wnp.ones(50 + n) for n in range(LEAVES)]
    program = compile_program(weft.make_jaxpr(update)(leaves, leaves, leaves, 3.0)).program
    assert sum(isinstance(step, Launch) for step in program.all_steps()) <= LEAVES + 1


def test_shared_values_are_computed_first() -> None:
    def update(x: Any, ys: Any) -> Any:
        first = wnp.cumsum(x) * 2.0  # not an argument, whose memory would be in use until the end
        second = first + 1.0
        return [wnp.sin(y) for y in ys], wnp.cos(second) + second[::-1]

    x, ys = wnp.arange(40.0), [wnp.ones(20 + n) for n in range(LEAVES)]
    result = weft.jit(update)(x, ys)
    second = np.cumsum(np.arange(40.0)) * 2 + 1
    np.testing.assert_allclose(result[1], np.cos(second) + second[::-1], rtol=1e-4, atol=1e-3)


def test_many_small_results_do_not_overlap() -> None:
    function = weft.jit(lambda xs: [x * 2.0 for x in xs])
    sizes = [1 + 37 * n % 900 for n in range(300)]
    for iteration in range(4):  # by the general way, and by the dispatcher
        result = function([wnp.full(size, float(iteration + n), "float32") for n, size in enumerate(sizes)])
        ranges = sorted((x._pointer, x._pointer + x.nbytes) for x in result)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
        for n, (x, size) in enumerate(zip(result, sizes, strict=True)):
            np.testing.assert_array_equal(x, np.full(size, 2.0 * (iteration + n), np.float32))
