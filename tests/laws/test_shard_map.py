"""Laws of `shard_map`: a body over the parts, with its collectives, is the same program over the whole; and so are its
derivatives, and everything under `vmap`, `jvp`, `jit` and rematerialisation. The whole program is written beside each
body as a loop over the parts, without any collective."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.ir.jaxpr import Jaxpr, Var, subjaxprs
from weft.ir.types import ArrayType
from weft.ir.varying import operand_casts
from weft.sharding import AxisType, Mesh, PartitionSpec as P

PARTS = 4
X = onp.linspace(-0.6, 1.3, 8, dtype=onp.float32)
W = onp.float32(0.7)


@functools.cache
def mesh() -> Mesh:
    return weft.make_mesh((PARTS, 2), ("x", "y"), (AxisType.Auto,) * 2)


def by_parts(one: Callable[..., Any]) -> Callable[..., Any]:
    """Sum, over the parts of the first argument, a function of a part, its index and the second argument."""

    def whole(x: Any, w: Any) -> Any:
        return sum(one(part, i, w) for i, part in enumerate(x.reshape(PARTS, -1)))

    return whole


def summed(one: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same sum as the body of a `shard_map` over x."""
    return lambda x, w: lax.psum(one(x, lax.axis_index("x"), w), "x")


# Functions of a part, its index and a number that all parts share: what is done with values that vary and others.


def scan_carry(x: Any, i: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (np.sin(c * w + x[0]), None), w * 1.0, None, length=3)[0]


def scan_chain(x: Any, i: Any, w: Any) -> Any:
    step = lambda c, y: ((c[1] * w, np.sin(c[0] + x[0]) * y), c[0])
    (a, b), ys = lax.scan(step, (w, 1.0), np.arange(4.0))
    return a + b + ys.sum()


def fori(x: Any, i: Any, w: Any) -> Any:
    return lax.fori_loop(0, 3, lambda k, c: c * w + x.sum() * k, 1.0)


def while_same(x: Any, i: Any, w: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np.sin(c[1] * w) + x[0]), (0, w))[1]


def while_own(x: Any, i: Any, w: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, np.sin(c[1] * w) + x[0]), (0, w))[1]


def cond_own(x: Any, i: Any, w: Any) -> Any:
    return lax.cond(x[0] > 0, lambda: w * x[1] * 2.0, lambda: w * w)


def cond_same(x: Any, i: Any, w: Any) -> Any:
    return lax.cond(w > 0, lambda a: w * x[1] * a, lambda a: a * 2, w)


def switch_own(x: Any, i: Any, w: Any) -> Any:
    return lax.switch(i, [lambda a: a * w, lambda a: np.sin(a) * w, lambda a: w, lambda a: 3.0], x[0])


def calls(x: Any, i: Any, w: Any) -> Any:
    inner = weft.jit(lambda a, b: np.sin(a * b) + b * w)
    return inner(x, w).sum()


def remat(x: Any, i: Any, w: Any) -> Any:
    return weft.checkpoint(lambda a, b: np.sin(np.cos(a * b) * b * w))(x, w).sum()


def remat_dots(x: Any, i: Any, w: Any) -> Any:
    policy = weft.checkpoint_policies.dots_saveable
    return weft.checkpoint(lambda a, b: np.sin((a * b) @ a), policy=policy)(x, w)


def remat_scan(x: Any, i: Any, w: Any) -> Any:
    return lax.scan(weft.checkpoint(lambda c, y: (np.sin(c * w + y), None)), w, x)[0]


@weft.custom_jvp
def sine(a: Any, b: Any) -> Any:
    return np.sin(a * b)


@sine.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    return sine(a, b), np.cos(a * b) * (da * b + a * db)


def custom_jvp(x: Any, i: Any, w: Any) -> Any:
    return sine(x, w).sum()


@weft.custom_vjp
def ratio(a: Any, b: Any) -> Any:
    return a / b


def ratio_bwd(residuals: Any, ct: Any) -> Any:
    a, b = residuals
    return ct / b, -(ct * a / (b * b)).sum()


ratio.defvjp(lambda a, b: (a / b, (a, b)), ratio_bwd)


def custom_vjp(x: Any, i: Any, w: Any) -> Any:
    return ratio(np.sin(x), w).sum()


def prefixes(x: Any, i: Any, w: Any) -> Any:
    return lax.associative_scan(lambda p, q: p * w + q, x).sum()


def linear_solve(x: Any, i: Any, w: Any) -> Any:
    diagonal, right = x + 2, np.ones(2) * w
    return lax.custom_linear_solve(lambda v: diagonal * v, right, lambda _, v: v / diagonal, symmetric=True).sum()


def derivative_inside(x: Any, i: Any, w: Any) -> Any:
    return weft.grad(lambda a: np.sin(a * w).sum())(x).sum() * w


def mapped_inside(x: Any, i: Any, w: Any) -> Any:
    return weft.vmap(lambda a: np.sin(a * w), in_axes=0)(x).sum()


def loop_in_loop(x: Any, i: Any, w: Any) -> Any:
    inner = lambda c: lax.fori_loop(0, 2, lambda k, d: d * w + x[0], c)
    return lax.scan(lambda c, y: (inner(c) + y, c), 0.5, x)[1].sum()


ONES: list[Callable[..., Any]] = [
    scan_carry, scan_chain, fori, while_same, while_own, cond_own, cond_same, switch_own, calls, remat, remat_dots,
    remat_scan, custom_jvp, custom_vjp, prefixes, linear_solve, derivative_inside, mapped_inside, loop_in_loop,
]  # fmt: skip
FORWARD_TOO = [one for one in ONES if one is not custom_vjp]
each = pytest.mark.parametrize("one", ONES, ids=lambda f: f.__name__)
checked = pytest.mark.parametrize("check_vma", [True, False], ids=["checked", "unchecked"])


def split(one: Callable[..., Any], check_vma: bool) -> Any:
    return weft.shard_map(
        summed(one), mesh=mesh(), in_specs=(P("x"), P()), out_specs=P(), check_vma=check_vma, axis_names={"x"}
    )


def close(actual: Any, expected: Any) -> None:
    weft.tree.map(lambda a, b: onp.testing.assert_allclose(a, b, rtol=3e-5, atol=1e-5), actual, expected)


@each
@checked
def test_values_and_gradients_are_those_of_the_whole(one: Callable[..., Any], check_vma: bool) -> None:
    found, whole = split(one, check_vma), by_parts(one)
    value = weft.value_and_grad(whole, (0, 1))
    expected = value(X, W)
    close(weft.value_and_grad(found, (0, 1))(X, W), expected)
    close(weft.jit(weft.value_and_grad(found, (0, 1)))(X, W), expected)


@pytest.mark.parametrize("one", FORWARD_TOO, ids=lambda f: f.__name__)
def test_tangents_and_second_derivatives(one: Callable[..., Any]) -> None:
    found, whole = split(one, True), by_parts(one)
    tangents = (onp.cos(X), onp.float32(0.3))
    close(weft.jvp(found, (X, W), tangents), weft.jvp(whole, (X, W), tangents))
    second = lambda f: weft.jvp(weft.grad(f, 1), (X, W), tangents)[1]
    close(second(found), second(whole))


@each
def test_a_batch_is_a_loop(one: Callable[..., Any]) -> None:
    found, whole = split(one, True), by_parts(one)
    xs, ws = onp.stack([X, X * 1.2 - 0.1]), onp.float32([0.7, 0.9])
    close(weft.vmap(found)(xs, ws), [whole(x, w) for x, w in zip(xs, ws, strict=True)])
    gradients = weft.vmap(weft.grad(found, 1), in_axes=(0, None))(xs, W)
    close(gradients, [weft.grad(whole, 1)(x, W) for x in xs])


@each
@checked
def test_a_batch_inside_is_a_loop(one: Callable[..., Any], check_vma: bool) -> None:
    """What lanes of a batch decide each for itself, devices decide too."""
    lines = onp.stack([X, 0.4 - X], 1)
    inside = lambda x, i, w: weft.vmap(lambda line: one(line, i, w), in_axes=1)(x).sum()
    whole = lambda x, w: sum(by_parts(one)(x[:, k], w) for k in range(2))
    found = weft.jit(weft.value_and_grad(split(inside, check_vma), (0, 1)))(lines, W)
    close(found, weft.value_and_grad(whole, (0, 1))(lines, W))


@each
def test_gradients_inside_are_summed(one: Callable[..., Any]) -> None:
    """The derivative, inside, of what each device computes in a value that all share is that of the sum."""
    inside = lambda x, w: weft.grad(lambda w: one(x, lax.axis_index("x"), w))(w)
    found = weft.shard_map(inside, mesh=mesh(), in_specs=(P("x"), P()), out_specs=P())(X, W)
    close(found, weft.grad(by_parts(one), 1)(X, W))


@each
def test_rematerialised(one: Callable[..., Any]) -> None:
    found, whole = weft.checkpoint(split(one, True)), by_parts(one)
    close(weft.grad(found, (0, 1))(X, W), weft.grad(whole, (0, 1))(X, W))


def equations(jaxpr: Jaxpr) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        for inner in subjaxprs(equation.params):
            yield from equations(inner)


@each
def test_no_operand_waits_for_a_cast(one: Callable[..., Any]) -> None:
    """What is passed for a value that varies varies by its type, in the program and its derivatives: otherwise
    cotangents of what all devices share would not be summed."""
    for function in (split(one, True), weft.grad(split(one, True), (0, 1))):
        for equation in equations(weft.make_jaxpr(function)(X, W)):
            casts = operand_casts(equation.primitive, [a.aval for a in equation.invars], equation.params) or []
            waiting = [a for a, c in zip(equation.invars, casts, strict=False) if c and type(a) is Var]
            assert not [a for a in waiting if isinstance(a.aval, ArrayType) and a.aval.dtype.kind == "f"], equation


# ----------------------------------------------------------------------------------------- collectives in each state


class Collective(NamedTuple):
    """Body that is linear in its operand, the shardings of operand and result, and the operand."""

    body: Callable[[Any], Any]
    in_spec: P
    out_spec: P
    shape: tuple[int, ...] = (8, 4)


GROUPS = [[0, 2], [3, 1]]
UNEVEN = [[0], [1, 2, 3]]
RING = [(i, (i + 1) % PARTS) for i in range(PARTS)]
WIDE = [(i, (3 * i + 5) % 8) for i in range(8) if i != 2]
COLLECTIVES: dict[str, Collective] = {
    "psum": Collective(lambda x: lax.psum(x, "x"), P("x"), P()),
    "psum of two": Collective(lambda x: lax.psum(x, ("y", "x")), P("x", "y"), P()),
    "psum invariant": Collective(lambda x: lax.psum(x, "x"), P(), P()),
    "psum groups": Collective(lambda x: lax.psum(x, "x", axis_index_groups=GROUPS), P("x"), P("x")),
    "psum uneven groups": Collective(lambda x: lax.psum(x, "x", axis_index_groups=UNEVEN), P("x"), P("x")),
    "pmean": Collective(lambda x: lax.pmean(x, ("x", "y")), P("x"), P()),
    "pmean uneven groups": Collective(lambda x: lax.pmean(x, "x", axis_index_groups=UNEVEN), P("x"), P("x")),
    "psum unreduced": Collective(lambda x: lax.psum(lax.pcast(x, "x", to="unreduced") * 2.0, "x"), P("x"), P()),
    "pvary": Collective(lambda x: lax.pcast(x, ("x", "y"), to="varying"), P(), P(("x", "y"))),
    "reduced": Collective(lambda x: lax.psum(lax.pcast(x, "x", to="reduced") * lax.axis_index("x"), "x"), P(), P()),
    "all_gather": Collective(lambda x: lax.all_gather(x, "x"), P("x"), P("x")),
    "all_gather tiled": Collective(lambda x: lax.all_gather(x, "x", axis=1, tiled=True), P("x"), P("x")),
    "all_gather of two": Collective(lambda x: lax.all_gather(x, ("y", "x"), tiled=True), P("x", "y"), P("x", "y")),
    "all_gather last": Collective(lambda x: lax.all_gather(x, ("x", "y"), axis=-1), P("x", "y"), P("x", "y")),
    "all_gather groups": Collective(lambda x: lax.all_gather(x, "x", axis_index_groups=GROUPS), P("x"), P("x")),
    "all_gather invariant": Collective(lambda x: lax.all_gather(x, "x", to="invarying"), P("x"), P()),
    "all_gather invariant tiled": Collective(
        lambda x: lax.all_gather(x, ("x", "y"), axis=1, tiled=True, to="invarying"), P("x", "y"), P()
    ),
    "all_gather reduced": Collective(
        lambda x: lax.psum_scatter(lax.all_gather(x, "x", to="reduced", tiled=True) * 3.0, "x", tiled=True),
        P("x"),
        P("x"),
    ),
    "psum_scatter": Collective(lambda x: lax.psum_scatter(x, "x"), P(None, "x"), P("x"), (4, 8)),
    "psum_scatter of two": Collective(
        lambda x: lax.psum_scatter(x, ("y", "x"), scatter_dimension=1, tiled=True), P("x", None), P("x", "y"), (8, 16)
    ),
    "psum_scatter not tiled": Collective(lambda x: lax.psum_scatter(x, ("x", "y")), P(None, "x"), P(("x", "y"))),
    "psum_scatter groups": Collective(
        lambda x: lax.psum_scatter(x, "x", axis_index_groups=GROUPS, tiled=True), P("x"), P("x")
    ),
    "psum_scatter unreduced": Collective(
        lambda x: lax.psum_scatter(lax.pcast(x, "x", to="unreduced"), "x", tiled=True), P(None, "x"), P("x"), (4, 8)
    ),
    "all_to_all": Collective(lambda x: lax.all_to_all(x, "x", 1, 0), P("x"), P("x")),
    "all_to_all tiled": Collective(
        lambda x: lax.all_to_all(x, ("y", "x"), 1, 0, tiled=True), P(("x", "y")), P(("x", "y")), (8, 8)
    ),
    "all_to_all groups": Collective(
        lambda x: lax.all_to_all(x, "x", 0, 1, axis_index_groups=GROUPS, tiled=True), P("x"), P("x")
    ),
    "ppermute": Collective(lambda x: lax.ppermute(x, "x", RING[:3]), P("x"), P("x")),
    "ppermute of two": Collective(lambda x: lax.ppermute(x, ("x", "y"), WIDE), P("x", "y"), P("x", "y")),
    "ppermute none": Collective(lambda x: lax.ppermute(x, ("x", "y"), []), P("x", "y"), P("x", "y")),
    "pshuffle": Collective(lambda x: lax.pshuffle(x, "x", [2, 0, 3, 1]), P("x"), P("x")),
    "pswapaxes": Collective(lambda x: lax.pswapaxes(x, "x", 1), P("x"), P("x")),
    "pbroadcast": Collective(lambda x: lax.pbroadcast(x, "x", 2), P("x"), P("x")),
    "ragged_all_to_all": Collective(
        lambda x: lax.ragged_all_to_all(
            x, x * 0.5, np.int32([0, 1, 0, 1]), np.int32([1, 1, 1, 0]),
            np.zeros(4, int) + lax.axis_index("x") % 2, np.int32([1, 1, 1, 0]), axis_name="x",
        ),
        P("x"),
        P("x"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLECTIVES)
@checked
def test_transposes_are_adjoints(name: str, check_vma: bool) -> None:
    body, in_spec, out_spec, shape = COLLECTIVES[name]
    f = weft.jit(weft.shard_map(body, mesh=mesh(), in_specs=in_spec, out_specs=out_spec, check_vma=check_vma))
    x = onp.cos(onp.arange(onp.prod(shape)), dtype=onp.float32).reshape(shape)
    y, pull = weft.vjp(f, x)
    ct = onp.sin(onp.arange(y.size), dtype=onp.float32).reshape(y.shape)
    (back,) = pull(ct)
    onp.testing.assert_allclose((ct * y).sum(), (back * x).sum(), rtol=1e-4, atol=1e-5)
    tangent = onp.sin(x * 3)
    onp.testing.assert_allclose(weft.jvp(f, (x,), (tangent,))[1], f(tangent), rtol=1e-5, atol=1e-6)
    both = onp.stack([x, tangent])
    close(weft.vmap(f)(both), onp.stack([f(b) for b in both]))
    again = weft.vjp(lambda ct: pull(ct)[0], ct)[1](x)[0]  # the transpose of the transpose
    onp.testing.assert_allclose(again, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_states_make_no_difference_to_values(name: str) -> None:
    """Devices that run, types that are not checked, and `vmap` over parts that are stacked agree to the bit."""
    body, in_spec, out_spec, shape = COLLECTIVES[name]
    x = onp.cos(onp.arange(onp.prod(shape)), dtype=onp.float32).reshape(shape)
    options: dict[str, Any] = {"mesh": mesh(), "in_specs": in_spec, "out_specs": out_spec}
    f = weft.shard_map(body, **options)
    on_devices = f(weft.device_put(x, weft.NamedSharding(mesh(), in_spec)))
    for other in (f(x), weft.shard_map(body, check_vma=False, **options)(x), weft.jit(f)(x)):
        onp.testing.assert_allclose(on_devices, other, rtol=1e-6, atol=1e-6)


def names_both_axes(collective: Collective) -> bool:
    return "'y'" in f"{collective.body.__code__.co_consts}{collective.in_spec}{collective.out_spec}"


@pytest.mark.parametrize("name", [name for name, c in COLLECTIVES.items() if not names_both_axes(c)])
@checked
def test_types_over_other_axes_make_no_difference(name: str, check_vma: bool) -> None:
    """A body along one axis of operands that types split over another one too: values and derivatives are those of
    operands that are whole along it."""
    body, in_spec, out_spec, shape = COLLECTIVES[name]
    x = onp.cos(onp.arange(2 * onp.prod(shape)), dtype=onp.float32).reshape(*shape, 2)
    explicit = weft.make_mesh((PARTS, 2), ("x", "z"), (AxisType.Explicit,) * 2)
    entries = [*in_spec.partitions, *[None] * (len(shape) - len(in_spec))]
    found = []
    for mesh, spec in ((explicit, P(*entries, "z")), (explicit.update(axis_types=(AxisType.Auto,) * 2), P())):
        split = weft.device_put(x, weft.NamedSharding(mesh, spec))
        f = weft.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=check_vma, axis_names={"x"})
        loss = lambda x, f=f: np.sin(f(x)).sum()
        second = lambda x, loss=loss: np.cos(weft.grad(loss)(x)).sum()
        found.append([weft.jit(g)(split) for g in (f, weft.grad(loss), weft.grad(second))])
    close(*found)
