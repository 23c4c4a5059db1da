"""Windows and shifts along split dimensions: devices exchange the edges of their parts, and nothing is gathered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from tests.compiler.test_partition import check, kinds
from weft.base.errors import CommunicationError, InternalError
from weft.base.settings import enable_checks
from weft.compiler.partition import halo as module
from weft.compiler.partition.driver import prepare
from weft.sharding.halo import Halo, Reach, needs, plan_halo

RANDOM = onp.random.RandomState(0)
X = RANDOM.randn(16, 64, 8).astype(onp.float32)
IMAGES = RANDOM.randn(2, 16, 16, 8).astype(onp.float32)
KERNEL = RANDOM.randn(3, 3, 8, 8).astype(onp.float32)
MANY = weft.sharding.AbstractMesh((128,), ("x",), (weft.sharding.AxisType.Auto,))
HALF = weft.sharding.NamedSharding(MANY, weft.P("x"))
AXES = ("NHWC", "HWIO", "NHWC")


def conv(x: Any, kernel: Any, stride: int = 1, padding: Any = "SAME", **options: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, 1), padding, dimension_numbers=AXES, **options)


def pool(
    x: Any, size: int = 3, stride: int = 2, padding: Any = "SAME", low: float = -onp.inf, by: Any = lax.max
) -> Any:
    return lax.reduce_window(x, onp.float32(low), by, (1, size, size, 1), (1, stride, stride, 1), padding)


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of a function by all its arguments."""
    return lambda *args: weft.grad(lambda *a: np.sin(function(*a)).sum(), tuple(range(len(args))))(*args)


# ---------------------------------------------------------------------------------------------------- what is exchanged


@pytest.mark.parametrize(
    ("function", "collectives"),
    [
        (lambda x: x[1:].sum(), ["ppermute", "psum"]),
        (lambda x: (x[2:] - 2 * x[1:-1] + x[:-2]).sum(), ["ppermute"] * 2 + ["psum"]),
        (lambda x: x[::2], []),
        (lambda x: x[1::2], []),
        (lambda x: x[:8], ["ppermute"] * 2),
        (lambda x: x[3], ["psum"]),
        (lambda x: np.roll(x, 1, 0), ["psum", "ppermute"]),
        (lambda x: lax.pad(x, np.float32(1.5), ((1, -1, 0), (0, 0, 0), (0, 0, 0))), ["ppermute"]),
        (lambda x: lax.pad(x, np.float32(0), ((0, 1, 1), (0, 0, 0), (0, 0, 0))), []),
        (lambda x: lax.pad(x, np.float32(2), ((-6, 2, 0), (0, 0, 0), (0, 0, 0))), ["ppermute"] * 2),
        (lambda x: np.concatenate([x[:2], x[:-2]]), ["psum", "ppermute"]),
        (lambda x: lax.cumsum(x, 0), ["all_gather"]),
        (lambda x: (x > 0)[3], ["all_gather"]),
        (lambda x: x.at[1:-1].set(2 * x[1:-1]), ["ppermute"] * 2),
    ],
)  # fmt: skip
def test_shifts(function: Any, collectives: list[str]) -> None:
    assert kinds(check(function, (X,), [("x",)])) == collectives


EDGES = ["ppermute"] * 2


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        (conv, EDGES, [*EDGES, "psum", *EDGES]),
        (lambda x, k: conv(x, k, 2), EDGES[:1], ["ppermute", "psum", "ppermute"]),
        (lambda x, k: conv(x, k[:1, :1]), [], ["psum"]),
        (lambda x, k: conv(x, k, rhs_dilation=(2, 1)), EDGES, [*EDGES, "psum", *EDGES]),
        (lambda x, k: conv(x, k, 1, ((1, 2), (1, 1)), lhs_dilation=(2, 1)), EDGES[1:], [*EDGES[1:], "psum", EDGES[0]]),
        (lambda x, k: conv(x, k[:, :, :4], feature_group_count=2), EDGES, [*EDGES, "psum", *EDGES]),
        (lambda x, k: conv(x, k, batch_group_count=2), EDGES, [*EDGES, "psum", *EDGES]),
        # Fourteen rows, of which the last device has two.
        (lambda x, k: conv(x, k, padding="VALID"), EDGES[:1], [*EDGES[:1], "psum", *EDGES[:1]]),
    ],
    ids=["same", "strided", "one", "dilated", "transposed", "feature groups", "batch groups", "valid"],
)  # fmt: skip
def test_convolutions(function: Any, forward: list[str], backward: list[str]) -> None:
    assert kinds(check(function, (IMAGES, KERNEL), [(None, "x"), ()])) == forward
    assert kinds(check(gradients(function), (IMAGES, KERNEL), [(None, "x"), ()])) == backward


def test_images_are_split_in_both_directions_and_over_two_axes() -> None:
    sizes = {"x": 2, "y": 2}
    for spec in ((None, "x", "y"), (None, ("x", "y"))):
        result = check(gradients(conv), (IMAGES, KERNEL), [spec, ()], sizes=sizes)
        assert {*kinds(result)} == {"ppermute", "psum"}
    check(gradients(lambda x: pool(x)), (IMAGES,), [(None, ("x", "y"))], sizes=sizes)


ENDS = ((0, 0), (1, 1), (1, 1), (0, 0))


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        (lambda x: pool(x, 2, 2), 0, 0),
        (lambda x: pool(x, 3, 2, ENDS), 1, 3),
        (lambda x: -pool(-x, 3, 1, "SAME", onp.inf, lax.min), 2, 6),
        (lambda x: pool(x, 3, 2, "SAME", 0, lax.add), 1, 2),
        (lambda x: pool(x, 3, 1, "SAME", 1, lambda a, b: a * b), 2, None),
    ],
    ids=["max", "padded", "min", "sum", "product"],
)
def test_pools(function: Any, forward: int, backward: int | None) -> None:
    assert kinds(check(function, (IMAGES,), [(None, "x")])) == ["ppermute"] * forward
    check(lambda x, t: weft.jvp(function, (x,), (t,)), (IMAGES, IMAGES[::-1].copy()), [(None, "x"), ()])
    if backward is not None:
        assert kinds(check(gradients(function), (IMAGES,), [(None, "x")])) == ["ppermute"] * backward


@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_never_chosen(stride: int) -> None:
    """Not even in a window whose own elements are no larger, or not numbers."""
    x = onp.full((1, 16, 4, 512), -onp.inf, onp.float32)
    x[0, 5] = x[0, 15, 1] = onp.nan
    x[0, 0, 2] = onp.finfo(onp.float32).min
    weights = onp.arange(32768 // stride, dtype=onp.float32).reshape(1, 16 // stride, 4, 512) + 1

    def function(x: Any) -> Any:
        return lax.reduce_window(x, -onp.inf, lax.max, (1, 3, 3, 1), (1, stride, 1, 1), ENDS)

    def both(x: Any, t: Any) -> Any:
        _, pullback = weft.vjp(function, x)
        return *pullback(weights), weft.jvp(function, (x,), (t,))[1]

    tangent = onp.arange(32768, dtype=onp.float32).reshape(x.shape) + 1
    result = check(both, (x, tangent), [(None, "x"), ()])
    assert {*kinds(result)} == {"ppermute"}, result.communication


# ----------------------------------------------------------------------------------------------------------- in a model


def network(params: Any, images: Any) -> Any:
    h = np.maximum(conv(images, params[0]), 0)
    h = np.tanh(conv(pool(h, 2, 2), params[1]))
    return pool(h, 3, 2, ENDS).mean((1, 2)) @ params[2]


def test_a_network_keeps_its_images_split() -> None:
    mesh = weft.make_mesh((4,), ("h",), (weft.sharding.AxisType.Auto,))
    sharding = weft.sharding.NamedSharding(mesh, weft.P(None, "h"))
    params = [KERNEL / 8, KERNEL[:, ::-1].copy() / 8, RANDOM.randn(8, 4).astype(onp.float32)]

    def step(params: Any, images: Any) -> Any:
        loss, by = weft.value_and_grad(lambda p: (network(p, images) ** 2).mean())(params)
        return [p - 0.1 * g for p, g in zip(params, by, strict=True)], loss

    # Of much smaller ones the last layers are gathered, which is one message in place of two.
    large = RANDOM.randn(2, 64, 64, 8).astype(onp.float32)
    images = weft.device_put(large, sharding)
    jitted = weft.jit(step, comm={"all_gather": 0, "all_to_all": 0})
    sent = jitted.lower(params, images).compile().communication
    assert [c.kind for c in sent].count("psum") == 3  # the features' mean, and the gradients of two kernels
    assert {c.kind for c in sent} == {"ppermute", "psum"}
    rows = [c for c in sent if c.kind == "ppermute"]
    assert all(c.bytes <= large[:, :2].nbytes for c in rows)  # two rows of all images at most
    assert "is split over h (argument); conv_general_dilated at test_halos.py:" in rows[0].reason
    assert rows[0].reason.endswith("reads 1 element before its part along dimension 1")
    found, expected = jitted(params, images), weft.jit(step)(params, large)
    for y, whole in zip(*map(weft.tree_util.tree_leaves, (found, expected)), strict=True):
        onp.testing.assert_allclose(y, whole, rtol=2e-5, atol=2e-6)
    planned = weft.plan(step, params, large, mesh=mesh, in_shardings=(None, sharding))
    assert [(c.kind, c.bytes) for c in planned.communication] == [(c.kind, c.bytes) for c in sent]
    with pytest.raises(CommunicationError, match="ppermute"):
        weft.jit(step, comm={"ppermute": 0}).lower(params, images).compile()


def rolled(u: Any) -> Any:
    return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)


def inner(u: Any) -> Any:
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * (around - 4 * u[1:-1, 1:-1]))


def framed(u: Any) -> Any:
    p = np.pad(u, 1, mode="edge")
    return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)


@pytest.mark.parametrize(("step", "most"), [(rolled, 4096), (inner, 4096), (framed, 8192)])
def test_heat(step: Any, most: int) -> None:
    """Steps of a simulation on a grid, in a loop: to the bit what one device computes, with a few rows sent."""
    mesh = weft.make_mesh((4, 2), ("x", "y"), (weft.sharding.AxisType.Auto,) * 2)
    u = RANDOM.randn(128, 128).astype(onp.float32)
    split = weft.device_put(u, weft.sharding.NamedSharding(mesh, weft.P("x", "y")))
    loop = lambda u: lax.fori_loop(0, 3, lambda i, u: step(u), u)
    jitted = weft.jit(loop, comm={"all_gather": 0, "all_to_all": 0})
    sent = jitted.lower(split).compile().communication
    assert sum(c.bytes for c in sent) <= most < u.nbytes / 4
    onp.testing.assert_array_equal(jitted(split), weft.jit(loop)(u))


def test_what_is_gathered_says_why() -> None:
    (gathered,) = check(lambda x: x[:3] * 2, (X[:4],), [("x",)]).communication
    assert gathered.reason.endswith(": 3 elements do not split into 4 parts")

    def between(x: Any) -> Any:
        return conv(x, KERNEL[:1], 3, ((0, 0), (1, 1)), lhs_dilation=(2, 1)).sum()

    gathered, *_ = check(between, (IMAGES,), [(None, "x")]).communication
    assert "devices would compute different parts" in gathered.reason
    gathered, *_ = check(lambda x: np.concatenate([x, x * 2]), (X[:4, :4],), [("x",)]).communication
    assert gathered.reason.endswith("would take longer")
    planned = weft.plan(
        lambda x: x[: x.shape[0] // 2], onp.zeros((4096, 1024), onp.float32), mesh=MANY, in_shardings=HALF
    )
    (gathered,) = planned.communication
    assert gathered.reason.endswith(": devices would have to send to too many others")


# ------------------------------------------------------------------------------------------------------------ the plans


def test_devices_get_what_they_need() -> None:
    """Random reaches: what a device reads is what the operand has there, whoever had it."""
    some = random.Random(0)
    for _ in range(400):
        step, extent, dilation = some.randint(1, 3), some.randint(1, 5), some.choice([1, 1, 2, 3])
        reach = Reach(some.randint(1, 30), some.randint(1, 30), step, some.randint(-4, 6), extent, dilation)
        parts = some.choice([2, 3, 4, 7])
        halo = plan_halo(reach, parts)
        if halo is None:
            continue
        results = -(-reach.count // parts)
        for device in range(parts):
            has = {device * halo.own + i for i in range(halo.own)}
            for m in halo.messages:
                for source, destination in m.pairs:
                    assert source == destination + m.distance
                    if destination == device:
                        has |= {source * halo.own + i for i in range(m.start, m.stop)}
            reads = range(halo.first(device), halo.first(device) + halo.width)
            assert range(device * halo.own - halo.before, device * halo.own + halo.after).start <= reads.start
            assert device * halo.own + halo.after >= reads.stop
            for o in range(device * results, min((device + 1) * results, reach.count)):
                for at in range(o * step - reach.low, o * step - reach.low + extent):
                    if at % dilation == 0 and 0 <= at // dilation < reach.size:
                        assert at // dilation in has and at // dilation in reads
                # Where the windows of a device begin among what it reads.
                local = (o - device * results) * step - halo.pad_low
                assert local == o * step - reach.low - reads.start * dilation
            assert needs(reach, parts, device)[1] <= reach.size
        assert (results - 1) * step + extent == halo.pad_low + (halo.width - 1) * dilation + 1 + halo.pad_high


def narrower(halo: Halo) -> Halo:
    return replace(halo, messages=tuple(m._replace(stop=m.stop - 1) for m in halo.messages))


def other_neighbour(halo: Halo) -> Halo:
    pairs = lambda m: tuple((d, s) for s, d in m.pairs)
    return replace(halo, messages=tuple(m._replace(pairs=pairs(m)) for m in halo.messages))


@pytest.mark.parametrize(
    "seed",
    [
        narrower,
        other_neighbour,
        lambda halo: replace(halo, messages=()),
        lambda halo: replace(halo, width=halo.width - 1),
        lambda halo: replace(halo, low=halo.low + 1),
        lambda halo: None,
    ],
    ids=["narrower", "neighbour", "nothing", "width", "low", "none"],
)
def test_the_verifier_finds_wrong_halos(seed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = prepare(weft.make_jaxpr(lambda x: x[1:] + x[:-1])(X))
    original = plan_halo
    monkeypatch.setattr(module, "plan_halo", lambda *args: seed(original(*args)))
    monkeypatch.setattr("weft.compiler.partition.bodies.fits", lambda *args: True)
    monkeypatch.setattr("weft.compiler.partition.propagate.fits", lambda *args: True)
    with enable_checks(True), pytest.raises(InternalError, match="The partitioned program is wrong"):
        partition(jaxpr, {"x": 4}, [(("x",), (), ())], [None])
