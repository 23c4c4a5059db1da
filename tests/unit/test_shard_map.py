"""`shard_map` on a mesh of virtual devices: values, derivatives, vmap, and the errors."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError, WeftError
from weft.ir.jaxpr import subjaxprs
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)


A = onp.arange(24, dtype=onp.float32).reshape(8, 3) / 7
W = onp.linspace(-1, 1, 9, dtype=onp.float32).reshape(3, 3)


def mean_of_sines(a: Any, w: Any) -> Any:
    return lax.pmean(np.sin(a @ w).mean(), "x")


@pytest.mark.parametrize("check_vma", [True, False])
def test_derivatives_are_those_of_the_whole(mesh: Mesh, check_vma: bool) -> None:
    f = weft.shard_map(mean_of_sines, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), check_vma=check_vma)
    whole = lambda a, w: np.sin(a @ w).mean()
    onp.testing.assert_allclose(f(A, W), whole(A, W), rtol=1e-5)
    for argnum in (0, 1):
        onp.testing.assert_allclose(weft.grad(f, argnum)(A, W), weft.grad(whole, argnum)(A, W), atol=1e-6)
    hessian = weft.hessian(f, 1)(A, W)
    onp.testing.assert_allclose(hessian, weft.hessian(whole, 1)(A, W), atol=1e-5)
    tangents = (A * 2, W + 1)
    onp.testing.assert_allclose(weft.jvp(f, (A, W), tangents)[1], weft.jvp(whole, (A, W), tangents)[1], rtol=1e-4)


def test_vmap_and_jit(mesh: Mesh) -> None:
    f = weft.shard_map(mean_of_sines, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    both = np.stack([A, A + 1])
    expected = [f(A, W), f(A + 1, W)]
    for mapped in (weft.vmap(f, in_axes=(0, None)), weft.jit(weft.vmap(f, in_axes=(0, None)))):
        onp.testing.assert_allclose(mapped(both, W), expected, rtol=1e-5)


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P(("y", "x")), P("y", "x")], ids=str)
def test_parts_over_two_axes_and_axis_index(mesh: Mesh, spec: P) -> None:
    x = onp.arange(64, dtype=onp.float32).reshape(8, 8)
    f = lambda x: x * 10 + (2 * lax.axis_index("x") + lax.axis_index("y"))
    result = weft.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)(x)
    expected = onp.empty_like(x)
    sharding = weft.NamedSharding(mesh, spec)
    for device, index in sharding.devices_indices_map(x.shape).items():
        (i,), (j,) = onp.nonzero(mesh.devices == device)
        expected[index] = x[index] * 10 + 2 * i + j
    onp.testing.assert_array_equal(result, expected)


def test_a_result_that_varies_names_value_and_line(mesh: Mesh) -> None:
    def f(rows: Any, w: Any) -> Any:
        scaled = rows * w
        return {"total": [scaled.sum()], "w": w}

    with pytest.raises(ArgumentError) as caught:
        weft.shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())(A, 2.0)
    text = str(caught.value)
    assert "result['total'][0]" in text and "`rows`" in text and "scaled = rows * w" in text
    assert text.count("\n  or ") == 2 and "lax.psum(x, 'x')" in text and "P('x') in out_specs" in text
    with pytest.raises(ArgumentError, match=r"axis_index"):
        weft.shard_map(lambda: lax.axis_index("y"), mesh=mesh, in_specs=(), out_specs=P())()


def test_errors(mesh: Mesh) -> None:
    with pytest.raises(ArgumentError, match="not a multiple of 4"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(np.ones(6))
    with pytest.raises(ArgumentError, match="not an axis of the mesh"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P("z"), out_specs=P("x"))(np.ones(8))
    with pytest.raises(TypeError, match="must be a mesh"):
        weft.shard_map(lambda x: x, mesh="x", in_specs=P("x"), out_specs=P("x"))(np.ones(8))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="needs a mesh"):
        weft.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x"))(np.ones(8))
    with weft.set_mesh(mesh):
        assert weft.shard_map(lambda x: x + 1, in_specs=P("x"), out_specs=P("x"))(np.ones(8)).shape == (8,)


@pytest.mark.parametrize(
    ("body", "in_specs", "out_specs", "options", "text"),
    [
        (lambda x: lax.psum(x, "q"), P("x"), P(), {}, r"no axis named 'q' here; in scope: 'x', 'y'"),
        (lambda x: x, (P("x"), P()), P("x"), {}, r"one entry for each positional argument, got 2 for 1"),
        (lambda x: x, ({"a": P("x")},), P("x"), {}, r"in_specs of shard_map of <lambda> must be a prefix"),
        (lambda x: x, P("x"), (P("x"), P()), {}, r"out_specs of shard_map of <lambda> must be a prefix"),
        (lambda x: x, "x", P("x"), {}, r"tree of PartitionSpecs"),
        (lambda x: x, P("x", None, None), P("x"), {}, r"has 3 entries for an operand of rank 2"),
        (lambda x: x.sum(), P("x"), P("x"), {}, r"out_specs has 1 entries for the result, of rank 0"),
        (lambda x: x.sum(), P("x"), P("x"), {"check_vma": False}, r"out_specs has 1 entries for the result, of rank 0"),
        (lambda x: x, P("y"), P("y"), {"axis_names": {"x"}}, r"which is not one of axis_names"),
        (lambda x: x, P("x"), P("x"), {"axis_names": {"q"}}, r"axis_names has q"),
        (lambda x: x, P("x"), P(unreduced={"x"}), {}, r"only over Explicit axes"),
        (lambda x: lax.pcast(x, "x", to="reduced"), P("x"), P(), {}, r"cannot become reduced along 'x'"),
        (lambda x: lax.pcast(x, "x", to="same"), P("x"), P(), {}, r"one of 'varying', 'unreduced', 'reduced'"),
        (lambda x: lax.pcast(x, "x", to="unreduced"), P("x"), P(), {}, r"it varies along it"),
        (lambda x: lax.pmax(lax.pcast(x, "x", to="unreduced"), "x"), P("x"), P(), {}, r"not linear in operand 0"),
        (lambda x: lax.ppermute(lax.pcast(x, "x", to="unreduced"), "x", ()), P("x"), P("x"), {}, r"not be unreduced"),
        (lambda x: lax.all_gather(x, "x", to="same"), P("x"), P("x"), {}, r"`to` must be one of"),
        (lambda x: lax.all_gather(x, "x", axis=4), P("x"), P("x"), {}, r"there is no dimension 4"),
        (
            lambda x: lax.cond(x[0, 0] > 0, lambda: lax.psum(x, "x"), lambda: x * 2),
            P("x"), P("x"), {}, r"(?s)the predicate varies along 'x', and `psum` at .* communicates along it",
        ),
        (
            lambda x: lax.while_loop(lambda c: c[0, 0] > 0, lambda c: c - lax.pmean(c, "x"), x),
            P("x"), P("x"), {}, r"(?s)the condition varies along 'x', and `psum`",
        ),
    ],
)  # fmt: skip
def test_mistakes(mesh: Mesh, body: Any, in_specs: Any, out_specs: Any, options: Any, text: str) -> None:
    with pytest.raises(WeftError, match=text) as caught:
        weft.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)(A)
    assert "test_shard_map.py" in str(caught.value)


def test_nested_over_other_axes(mesh: Mesh) -> None:
    def inner(x: Any) -> Any:
        own = lambda part: lax.psum(part, "y") * (1 + lax.axis_index("x"))
        return weft.shard_map(own, mesh=mesh, in_specs=P("y"), out_specs=P(), axis_names={"y"})(x)

    f = weft.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    x = onp.arange(8, dtype=onp.float32)
    expected = x.reshape(4, 2).sum(1) * onp.arange(1, 5)
    onp.testing.assert_allclose(f(x), expected)
    onp.testing.assert_allclose(weft.grad(lambda x: f(x).sum())(x), onp.repeat(onp.arange(1, 5), 2))
    again = weft.shard_map(lambda x: f(x), mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    with pytest.raises(ArgumentError, match="around this one splits along x already"):
        again(x)


def test_keys_integers_and_options_of_arguments(mesh: Mesh) -> None:
    draw = lambda k: weft.random.uniform(weft.random.fold_in(k, lax.axis_index("x")), (2,))
    key = weft.random.key(1)
    one = weft.shard_map(draw, mesh=mesh, in_specs=P(), out_specs=P("x"))(key)
    keys = weft.vmap(lambda i: weft.random.fold_in(key, i))(np.arange(4))
    two = weft.shard_map(lambda k: weft.random.uniform(k[0], (2,)), mesh=mesh, in_specs=P("x"), out_specs=P("x"))(keys)
    onp.testing.assert_array_equal(one, two)
    shifted = lambda k: lax.ppermute(k, ("x", "y"), [(i, (i + 1) % 8) for i in range(8)])
    eight = weft.random.split(key, 8)
    moved = weft.shard_map(shifted, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))(eight)
    words = onp.asarray(weft.random.key_data(eight))
    onp.testing.assert_array_equal(weft.random.key_data(moved), onp.roll(words, 1, 0))
    some = weft.vmap(lambda k: lax.ppermute(k, "i", [(0, 1)]), axis_name="i")(eight)
    onp.testing.assert_array_equal(weft.random.key_data(some)[:3], [words[0] * 0, words[0], words[0] * 0])
    groups = [[0, 2], [1, 3], [4, 5], [6, 7]]
    gathered = weft.vmap(lambda k: lax.all_gather(k, "i", axis_index_groups=groups), axis_name="i")(eight)
    onp.testing.assert_array_equal(weft.random.key_data(gathered)[2], words[[0, 2]])
    n = onp.arange(8)
    f = weft.shard_map(
        lambda x, n, k=1: lax.psum((x * n * k).sum(), "x"), mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P()
    )
    onp.testing.assert_allclose(weft.grad(f)(onp.ones(8, onp.float32), n, k=2.0), 2.0 * n)
    assert weft.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P(), out_specs=P())(3.0).aval.weak_type
    counted = weft.shard_map(lambda b: lax.psum(b, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())(n % 3 == 0)
    onp.testing.assert_array_equal(counted, [2, 1])


def test_spmd_axis_name_splits_the_batch(mesh: Mesh) -> None:
    f = weft.shard_map(lambda x, w: lax.psum(x * w, "x"), mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    batch = onp.arange(32, dtype=onp.float32).reshape(4, 8)
    mapped = weft.vmap(f, in_axes=(0, None), spmd_axis_name="y")
    assert "in_specs=(P('y', 'x'), P())" in str(weft.make_jaxpr(mapped)(batch, 2.0))
    onp.testing.assert_allclose(mapped(batch, 2.0), 2 * batch.reshape(4, 4, 2).sum(1))
    onp.testing.assert_allclose(weft.grad(lambda w: mapped(batch, w).sum())(2.0), batch.sum())
    with pytest.raises(ArgumentError, match="which the shard_map uses itself"):
        weft.vmap(f, in_axes=(0, None), spmd_axis_name="x")(batch, 2.0)
    constrained = lambda row: lax.with_sharding_constraint(row, NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match="an axis that splits another dimension"):
        weft.vmap(constrained, spmd_axis_name="x")(A)
    split = weft.jit(weft.vmap(constrained, spmd_axis_name="y"))(A)
    assert split.sharding.spec == P("y", "x")


def test_types_over_explicit_axes() -> None:
    mesh = weft.make_mesh((4, 2), ("x", "y"))
    x = weft.device_put(onp.arange(32, dtype=onp.float32).reshape(8, 4), weft.NamedSharding(mesh, P("x", "y")))
    double = lambda part: part * 2
    f = weft.shard_map(double, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    text = str(weft.make_jaxpr(f)(x))
    assert "f32[2,4@y]{V:x}" in text and "b:f32[8@x,4@y]" in text
    both = weft.shard_map(double, mesh=mesh, out_specs=P("x", "y"))  # in_specs are those of the argument
    for g in (f, both):
        result = weft.jit(lambda x, g=g: np.sin(g(x)))(x)
        assert result.sharding.spec == P("x", "y")
        gradient = weft.jit(weft.grad(lambda x, g=g: np.sin(g(x)).sum()))(x)
        onp.testing.assert_allclose(gradient, 2 * onp.cos(2 * onp.asarray(x)), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="`part` is split otherwise than in_specs say"):
        weft.shard_map(double, mesh=mesh, in_specs=P("y"), out_specs=P("y"))(x)


def test_what_a_loop_only_reads_is_summed_after_it(mesh: Mesh) -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.psum(lax.scan(lambda c, y: (np.sin(c * w + y), None), 1.0, x)[0], "x")

    mapped = weft.shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    x = onp.linspace(0, 1, 8, dtype=onp.float32)
    loops = [e for e in every_equation(weft.make_jaxpr(weft.grad(mapped, 1))(x, 2.0)) if e.primitive.name == "scan"]
    assert len(loops) == 2
    assert not [e for loop in loops for e in loop.params["jaxpr"].eqns if e.primitive.name in ("psum", "pvary")]


def every_equation(jaxpr: Any) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        for inner in subjaxprs(equation.params):
            yield from every_equation(inner)


def test_a_body_is_what_a_loop_carries(mesh: Mesh) -> None:
    """The next value of a carry is what a `shard_map` returns, of which no sum can wait."""
    one = weft.shard_map(lambda x: lax.psum(x, "x") * 0.1 + x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    own = onp.arange(8, dtype=onp.float32)
    expected = one(one(one(own)))
    scanned = weft.jit(lambda x: lax.scan(lambda c, _: (one(c), c.sum()), x, None, length=3))
    onp.testing.assert_allclose(scanned(own)[0], expected, rtol=1e-6)
    onp.testing.assert_allclose(
        weft.jit(lambda x: lax.while_loop(lambda c: c[1] < 3, lambda c: (one(c[0]), c[1] + 1), (x, 0)))(own)[0],
        expected,
        rtol=1e-6,
    )
    gradient = weft.grad(lambda x: scanned(x)[0].sum())(own)
    onp.testing.assert_allclose(gradient, weft.grad(lambda x: one(one(one(x))).sum())(own), rtol=1e-6)


@pytest.mark.parametrize("check_vma", [True, False])
def test_ragged_all_to_all(mesh: Mesh, check_vma: bool) -> None:
    """Against a loop over senders and receivers; device i sends `sizes[i, j]` rows to device j."""
    sizes = onp.array([[1, 2, 0, 1], [0, 1, 2, 1], [3, 0, 1, 0], [1, 1, 1, 1]], onp.int32)
    starts = onp.cumsum(sizes, 1, dtype=onp.int32) - sizes  # where the rows for each receiver begin
    goals = onp.cumsum(sizes, 0, dtype=onp.int32) - sizes  # behind those of the senders before
    operand = onp.arange(32, dtype=onp.float32).reshape(4, 4, 2)
    output = -onp.ones((4, 6, 2), onp.float32)
    expected = output.copy()
    for i, j in onp.ndindex(4, 4):
        expected[j, goals[i, j] : goals[i, j] + sizes[i, j]] = operand[i, starts[i, j] : starts[i, j] + sizes[i, j]]

    def body(x: Any, out: Any, start: Any, size: Any, goal: Any, received: Any) -> Any:
        parts = (x[0], out[0], start[0], size[0], goal[0], received[0])
        return lax.ragged_all_to_all(*parts, axis_name="x")[None]

    f = weft.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check_vma)
    onp.testing.assert_array_equal(f(operand, output, starts, sizes, goals, sizes.T.copy()), expected)


def test_bodies_use_the_mesh_around_them() -> None:
    """Specs, and shard_maps over the other axes, need no mesh inside; manual axes split no value there."""
    mesh = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)
    x = onp.arange(64, dtype=onp.float32).reshape(16, 4)
    options: dict[str, Any] = {"mesh": mesh, "in_specs": P("x"), "out_specs": P("x")}

    def outer(a: Any) -> Any:
        assert weft.sharding.get_abstract_mesh().manual_axes == ("x",)
        a = lax.with_sharding_constraint(a, P(None, "y"))
        return weft.shard_map(lambda b: lax.psum(b, "y"), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})(a)

    found = weft.jit(weft.shard_map(outer, axis_names={"x"}, **options))(x)
    onp.testing.assert_array_equal(found, x[:, :2] + x[:, 2:])
    nothing_left = lambda a: weft.shard_map(lambda b: b * 2, in_specs=P(), out_specs=P())(a)
    onp.testing.assert_array_equal(weft.shard_map(nothing_left, **options)(x), x * 2)
    with pytest.raises(ArgumentError, match="Inside of shard_map over 'x' each device has its own part"):
        weft.shard_map(lambda a: lax.with_sharding_constraint(a, P("x")), **options)(x)
    other = weft.make_mesh((8,), ("q",), (AxisType.Auto,))
    with pytest.raises(ArgumentError, match="must be over other axes of the same mesh"):
        weft.shard_map(lambda a: weft.shard_map(lambda b: b, mesh=other, in_specs=P(), out_specs=P())(a), **options)(x)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize(
    ("body", "in_spec", "out_spec"),
    [
        (lambda v: lax.psum(v, "x"), P("x"), P("x")),
        (lambda v: lax.pmean(np.sin(v), ("x", "y")), P("x"), P(("x", "y"))),
        (lambda v: v * 2, P(), P("x")),
        (lambda v: lax.pmax(v, "x") + v, P("x"), P(("y", "x"))),
        (lambda v: np.ones(2) + 0 * lax.psum(v, "x").sum(), P("x"), P("y")),
    ],
)
def test_gradient_where_a_result_is_invariant(
    mesh: Mesh, body: Any, in_spec: P, out_spec: P, jitted: bool, check_vma: bool
) -> None:
    """A result that is the same along an axis of its spec is repeated; the cotangents of the copies are added up."""
    f = weft.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=check_vma)
    x = onp.linspace(-1, 1, 8, dtype=onp.float32)
    weights = onp.arange(f(x).size, dtype=onp.float32)
    loss = lambda v: (f(v) * weights).sum()
    found = (weft.jit(weft.grad(loss)) if jitted else weft.grad(loss))(x)
    onp.testing.assert_allclose(found, weft.jacfwd(loss)(x), rtol=1e-5)


def test_static_arguments_and_inferred_specs(mesh: Mesh) -> None:
    """An argument without a spec is passed on as it is; without `in_specs` types say how others are split."""
    f = weft.shard_map(lambda v, text, n: v * len(text) + n, mesh=mesh, in_specs=(P("x"), None, None), out_specs=P("x"))
    onp.testing.assert_array_equal(f(np.arange(8.0), "ab", 3), onp.arange(8.0) * 2 + 3)
    explicit = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
    with weft.set_mesh(explicit):
        x = weft.device_put(onp.arange(32.0, dtype=onp.float32).reshape(4, 8), P("x", "y"))
        doubled = weft.shard_map(lambda v: v * 2, out_specs=P(None, "y"), axis_names={"y"})(x)
        onp.testing.assert_array_equal(doubled, onp.asarray(x) * 2)
        assert weft.typeof(doubled).sharding.spec == P("x", "y")
        with pytest.raises(ArgumentError, match="manual axes must be the first"):
            weft.shard_map(lambda v: v, out_specs=P("y"), axis_names={"y"})(weft.reshard(x, P(None, ("x", "y"))))


@pytest.mark.parametrize("axis_names", [{"y"}, {"x", "y"}])
def test_vmap_over_an_explicit_axis(axis_names: Any) -> None:
    """The batch stays split over the axis of its type, whether that is Explicit inside or Manual."""
    with weft.set_mesh(weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)):
        summed = weft.shard_map(
            lambda v: lax.psum(np.sin(v), "y"), in_specs=P("y"), out_specs=P(), axis_names=axis_names
        )
        x = weft.device_put(onp.arange(32.0, dtype=onp.float32).reshape(4, 8), P("x", "y"))
        loss = lambda v, w: summed(v * w).sum()
        found = weft.jit(weft.vmap(weft.grad(loss), in_axes=(0, None)))(x, 2.0)
        onp.testing.assert_allclose(found, onp.cos(2 * onp.asarray(x)) * 2, atol=1e-5)
        assert found.sharding.spec == P("x", "y")
        named = weft.vmap(summed, spmd_axis_name="x")(x)
        onp.testing.assert_allclose(named, onp.sin(onp.asarray(x)).reshape(4, 2, 4).sum(1), atol=1e-5)


def test_types_inside_say_where_values_vary(mesh: Mesh) -> None:
    def f(a: Any) -> Any:
        assert a.aval.mat.varying == {"x"} and not lax.psum(a, "x").aval.mat.varying
        return a

    weft.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(A)
    words = r"require replication.*statically inferred.*varying across mesh axes \{\} and not \{x\}"
    with pytest.raises(ArgumentError, match=words):
        weft.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P())(A)
    with pytest.raises(ArgumentError, match=r"consider using an in_specs entry of `P\(\)`"):
        weft.shard_map(f, mesh=mesh, in_specs=P(None), out_specs=P())(1.0)


def test_an_abstract_mesh_is_that_of_the_arguments(mesh: Mesh) -> None:
    other = weft.make_mesh((2,), ("z",), (AxisType.Auto,))
    a = weft.device_put(A, NamedSharding(mesh, P("x")))
    onp.testing.assert_array_equal(
        weft.shard_map(lambda a: a, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))(a), A
    )
    with pytest.raises(ArgumentError, match="Mesh shape of the input `a` does not match the mesh shape passed"):
        weft.shard_map(lambda a: a, mesh=other.abstract_mesh, in_specs=P("z"), out_specs=P("z"))(a)


def test_truth_of_one_element_that_is_traced(mesh: Mesh) -> None:
    for function in (weft.jit, lambda f: weft.jit(weft.shard_map(f, mesh=mesh, in_specs=P(), out_specs=P()))):
        with pytest.raises(weft.errors.TracerBoolConversionError):
            function(lambda a: a if a < 0 else -a)(np.ones((1, 1)))


def test_eager_bodies_read_values_that_all_devices_share(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def body(a: Any) -> Any:
        weft.debug.print("effect {}", a.sum())
        total = lax.psum(a, ("x", "y"))
        seen.append((float(total.sum()), total.sum().item(), int(total.astype(int).sum()), onp.asarray(total).shape))
        return a if total.sum() < 0 else a * total.sum().tolist()

    f = weft.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    a = np.arange(32.0).reshape(8, 4)
    onp.testing.assert_array_equal(f(a), a * 496)
    assert seen == [(496.0, 496.0, 496, (2, 2))]
    weft.effects_barrier()
    assert capsys.readouterr().out.count("effect") == 8
    with pytest.raises(weft.errors.TracerBoolConversionError):  # differs between devices
        weft.shard_map(lambda a: a if a.sum() < 0 else -a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(a)
    unchecked = {"mesh": mesh, "in_specs": P("x", "y"), "out_specs": P("x", "y"), "check_vma": False}
    onp.testing.assert_array_equal(weft.shard_map(body, **unchecked)(a), a * 496)
    with pytest.raises(weft.errors.TracerBoolConversionError):
        weft.shard_map(lambda a: a if a.sum() < 20 else -a, **unchecked)(a)
    with pytest.raises(weft.errors.ConcretizationTypeError):
        weft.jit(f)(a)


def test_eager_bodies_do_not_repeat_effects(mesh: Mesh) -> None:
    calls: list[float] = []

    def counted(a: Any) -> onp.ndarray:
        calls.append(0.0)
        return onp.float32(2)

    def body(a: Any) -> Any:
        two = weft.experimental.io_callback(counted, weft.ShapeDtypeStruct((), onp.float32), a)
        assert str(two).startswith("JitTracer")
        with pytest.raises(weft.errors.ConcretizationTypeError):
            float(lax.pmax(two, ("x", "y")))
        return a * two

    f = weft.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    onp.testing.assert_array_equal(f(np.ones((4, 2))), 2 * onp.ones((4, 2)))
    assert len(calls) == 8


def test_printing_in_an_eager_body_shows_each_device(mesh: Mesh) -> None:
    texts = []

    def body(a: Any, b: Any) -> Any:
        texts.append((str(a * 2), f"{b}"))
        return a

    outside = np.float32(3)
    f = weft.shard_map(lambda a: body(a + outside, a.sum()), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    f(np.arange(4.0))
    first, second = texts[0]
    devices = weft.devices()
    expected = [f"On {devices[2 * x + y]} at mesh coordinates (x, y) = {(x, y)}:" for x in range(4) for y in range(2)]
    assert first.splitlines()[::3] == expected and second.splitlines()[::3] == expected
    assert first.splitlines()[1::3] == [f"[{2.0 * (x + 3):.0f}.]" for x in range(4) for _ in range(2)]
    weft.jit(f)(np.arange(4.0))
    assert texts[1][0] == "JitTracer(float32[1]{V:(x,y)})" or texts[1][0].startswith("JitTracer(float32[1]")


def test_spmd_axis_name_over_an_axis_that_unchecked_bodies_do_not_use(mesh: Mesh) -> None:
    f = weft.shard_map(lambda a: np.sin(a.sum()) * a[0], mesh=mesh, in_specs=P("y"), out_specs=P(), check_vma=False)
    batch = weft.device_put(A[:, :2], NamedSharding(mesh, P("x", "y")))
    wanted = weft.vmap(weft.grad(f))(batch)
    for function in (weft.grad(f), weft.jit(weft.grad(f))):
        onp.testing.assert_array_equal(weft.vmap(function, spmd_axis_name="x")(batch), wanted)
        onp.testing.assert_array_equal(weft.jit(weft.vmap(function, spmd_axis_name="x"))(batch), wanted)


def test_an_abstract_mesh_needs_arguments_with_devices() -> None:
    mesh = weft.make_mesh((2,), ("x",), (AxisType.Auto,))
    f = weft.shard_map(lambda a: a, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    for argument in (onp.arange(8), np.arange(8)):
        with pytest.raises(ArgumentError, match="NamedSharding"):
            f(argument)
    with weft.set_mesh(mesh):
        onp.testing.assert_array_equal(f(onp.arange(8)), onp.arange(8))
