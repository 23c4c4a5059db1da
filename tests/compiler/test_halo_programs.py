"""Random windows, convolutions, slices, pads and concatenations on random meshes: parts that end early, or are empty,
dimensions over two axes, and their gradients. What devices compute is what one computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from tests.laws.test_partition import on_all_devices, split_wherever_possible, stacked
from weft.base.settings import enable_checks
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.rules import Dims
from weft.ir.context import EVALUATION, active
from weft.ir.interpreter import replay

Program = tuple[Callable[..., Any], tuple[Any, ...]]
MESHES = ({"x": 2}, {"x": 3}, {"x": 4}, {"x": 5}, {"x": 2, "y": 2}, {"x": 3, "y": 2})
TOGETHER = 15


def values(some: random.Random, *shape: int) -> onp.ndarray:
    return onp.random.RandomState(some.randrange(1 << 30)).randn(*shape).astype(onp.float32)


def convolution(some: random.Random) -> Program:
    rows, columns, features = some.randint(4, 17), some.randint(1, 4), some.randint(1, 2)
    kernel = values(some, some.randint(1, 4), 1, features, 2)
    padding = (some.randint(-1, 4), some.randint(-1, 4)), (0, 0)
    strides, dilation, spacing = some.randint(1, 3), some.choice([1, 1, 2, 3]), some.choice([1, 1, 2])

    def function(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            x, kernel, (strides, 1), padding, (dilation, 1), (spacing, 1), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    gradients = weft.grad(lambda *args: np.sin(function(*args)).sum(), (0, 1))
    return some.choice([function, gradients]), (values(some, 1, rows, columns, features), kernel)


def window(some: random.Random) -> Program:
    x = values(some, 1, some.randint(4, 17), some.randint(2, 4))
    x = onp.round(x) if some.random() < 0.3 else x  # so that several elements of a window are the largest
    operation, initial = some.choice([(lax.max, -onp.inf), (lax.min, onp.inf), (lax.add, 0), (lambda a, b: a * b, 1)])
    size, stride, padding = some.randint(1, 5), some.randint(1, 3), (some.randint(0, 4), some.randint(0, 4))
    base, spacing = some.choice([1, 1, 1, 2]), some.choice([1, 1, 1, 2])

    def function(x: Any) -> Any:
        return lax.reduce_window(
            x, onp.float32(initial), operation, (1, size, 2), (1, stride, 1), ((0, 0), padding, (0, 0)),
            base_dilation=(1, base, 1), window_dilation=(1, spacing, 1),
        )  # fmt: skip

    def derivatives(x: Any) -> Any:
        y, pullback = weft.vjp(function, x)
        return *pullback(np.cos(y)), weft.jvp(function, (x,), (x * 3,))[1]

    return some.choice([function, derivatives if operation in (lax.max, lax.min) else function]), (x,)


def shift(some: random.Random) -> Program:
    size = some.randint(4, 17)
    x, y = values(some, 1, size, 2), values(some, 1, some.randint(1, 12), 2)
    start, step, by = some.randrange(size), some.randint(1, 3), some.randint(-size, size)
    stop = some.randint(start + 1, size)
    padding = some.randint(-2, 5), some.randint(-1, 5), some.choice([0, 0, 1, 2])
    edge = some.choice([onp.float32(0), onp.float32(1.5)])
    return some.choice(
        [
            (lambda x: x[:, start:stop:step], (x,)),
            (lambda x: x.at[:, start:stop].set(2 * x[:, start:stop]), (x,)),
            (lambda x: lax.pad(x, edge, ((0, 0, 0), padding, (0, 0, 0))), (x,)),
            (lambda x: np.roll(x, by, 1), (x,)),
            (lambda *args: np.concatenate(args, 1), some.choice([(x, y), (y, x, y[:, :1])])),
            (
                lambda x: (x[:, 1:] - x[:, :-1])[:, ::2] * np.pad(x, ((0, 0), (1, 1), (0, 0)))[:, 1 : 1 + size // 2],
                (x,),
            ),
        ]
    )


def random_dims(some: random.Random, rank: int, sizes: dict[str, int]) -> Dims:
    """Axes given to dimensions, mostly to the second one."""
    axes: list[list[Any]] = [[] for _ in range(rank)]
    for axis in some.sample(list(sizes), len(sizes)):
        dim = 1 if some.random() < 0.7 else some.randrange(-1, rank)
        if dim >= 0:
            axes[dim].append(axis)
    return tuple(map(tuple, axes))


def check_seed(seed: int) -> set[str]:
    """Raise unless parts are those of the whole; the kinds of collectives that this takes."""
    some = random.Random(seed)
    function, args = some.choice([convolution, window, shift])(some)
    sizes = some.choice(MESHES)
    try:
        jaxpr = prepare(weft.make_jaxpr(function)(*args))
    except ValueError:  # padding that crops more than there is
        return set()
    ranks: list[Any] = [len(v.aval.shape) for v in jaxpr.outvars]  # type: ignore[attr-defined]
    in_dims = [random_dims(some, x.ndim, sizes if not i or some.random() < 0.5 else {}) for i, x in enumerate(args)]
    out_dims = [random_dims(some, rank, sizes) if some.random() < 0.3 else None for rank in ranks]
    with enable_checks(True), split_wherever_possible():
        result = partition(jaxpr, sizes, in_dims, out_dims)
    with active(EVALUATION), onp.errstate(all="ignore"):
        parts = [np.asarray(stacked(x, dims, sizes)) for x, dims in zip(args, result.in_dims, strict=True)]
        found = on_all_devices(lambda *a: replay(result.jaxpr, *a), sizes)(*parts)
        wholes = [onp.asarray(y) for y in replay(jaxpr, *args)]
    for y, whole, dims in zip(found, wholes, result.out_dims, strict=True):
        there = stacked(onp.ones(whole.shape, onp.uint8), dims, sizes) == 1
        expected = stacked(whole, dims, sizes)[there]
        onp.testing.assert_allclose(onp.asarray(y)[there], expected, rtol=3e-5, atol=3e-5, err_msg=f"seed {seed}")
    return {c.kind for c in result.communication}


def check_group(group: int) -> None:
    kinds = [check_seed(seed) for seed in range(TOGETHER * group, TOGETHER * (group + 1))]
    assert sum("ppermute" in found for found in kinds) >= TOGETHER / 4


@pytest.mark.parametrize("group", range(4))
def test_programs(group: int) -> None:
    check_group(group)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(4, 40))
def test_many_programs(group: int) -> None:
    check_group(group)
