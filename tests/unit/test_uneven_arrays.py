"""Arrays whose dimensions do not split evenly over a mesh. Beyond the ends of parts there is garbage in these tests."""

from __future__ import annotations

import copy
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.laws.parts import poisoned
from weft.errors import ArgumentError, NonFiniteValueError
from weft.runtime import spmd
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

DEVICES = [weft.Device(i, "cpu") for i in range(8)]
MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("x", "y"), (AxisType.Auto,) * 2)
OTHER = Mesh(np.array(DEVICES[1:7]).reshape(2, 3), ("p", "q"), (AxisType.Auto,) * 2)
EXPLICIT = MESH.update(axis_types=(AxisType.Explicit,) * 2)
VALUES = np.random.RandomState(0).randn(5, 3).astype(np.float32)
SPECS = [P("x"), P("y"), P(None, "x"), P("y", "x"), P(("x", "y")), P(None, ("y", "x"))]
EMPTY = (0, 3)


def put(*spec: Any, mesh: Mesh = MESH, value: Any = VALUES) -> Any:
    return poisoned(weft.device_put(value, NamedSharding(mesh, P(*spec))))


def equal(found: Any, expected: Any) -> None:
    for a, b in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(poisoned(a), b, rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------------------------------------------------------- parts


def test_parts_have_their_true_sizes() -> None:
    array = put("x")
    shards = array.addressable_shards
    assert [s.data.shape for s in shards] == [(2, 3)] * 4 + [(1, 3)] * 2 + [EMPTY] * 2
    assert [s.index[0] for s in shards[::2]] == [slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 5)]
    assert [s.replica_id for s in shards] == [0, 1] * 4 and array.global_shards == shards
    for i, shard in enumerate(shards):
        np.testing.assert_array_equal(shard.data, VALUES[shard.index])
        part = array.addressable_data(i)
        assert part.shape == shard.data.shape and part.device == shard.device and part.committed
    assert array.sharding.shard_shape((5, 3)) == (2, 3)  # of the largest part, which all take in memory
    assert array.on_device_size_in_bytes() == 8 * 2 * 3 * 4 and array.nbytes == 5 * 3 * 4
    assert array.addressable_data(0).unsafe_buffer_pointer() == array._held[0].unsafe_buffer_pointer()


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("count", [2, 3, 4])
def test_any_size_over_any_number_of_devices(size: int, count: int) -> None:
    mesh = Mesh(np.array(DEVICES[:count]), ("x",), (AxisType.Auto,))
    value = np.arange(1, size + 1, dtype=np.float32)
    array = put("x", mesh=mesh, value=value)
    part = -(-size // count)
    sizes = [min(max(size - i * part, 0), part) for i in range(count)]
    assert [s.data.shape for s in array.addressable_shards] == [(n,) for n in sizes]
    equal(array, value)
    found = array * 2, array.sum(), array.max(), array[::-1], wnp.cumsum(array)
    equal(found, (value * 2, value.sum(), value.max(), value[::-1], np.cumsum(value)))
    assert found[0].sharding == array.sharding


def test_life_of_an_array() -> None:
    array = put("x", "y")
    text = repr(wnp.asarray(VALUES))
    assert repr(array) == text and str(array) == str(VALUES) and array.tolist() == VALUES.tolist()
    assert array.block_until_ready() is array and array.is_ready()
    for other in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        equal(other, VALUES)
    part = array.addressable_data(7)
    array.delete()
    assert array.is_deleted() and part.shape == (0, 1)
    key = weft.random.split(weft.random.key(0), 5)
    keys = weft.device_put(key, NamedSharding(MESH, P("x")))
    draw = weft.vmap(weft.random.uniform)
    equal(draw(keys), draw(key))
    assert keys.addressable_data(7).shape == (0,)
    for dtype in (np.bool_, np.int8, wnp.bfloat16, np.complex64):
        value = VALUES.astype(dtype)
        np.testing.assert_array_equal(np.asarray(put("x", value=value)), value)


def test_between_all_shardings() -> None:
    shardings = [NamedSharding(MESH, s) for s in (*SPECS, P())]
    shardings += [NamedSharding(OTHER, s) for s in (P("q"), P("q", "p"), P(("p", "q")))]
    for first in shardings:
        array = poisoned(weft.device_put(VALUES, first))
        for second in shardings:
            found = poisoned(weft.device_put(array, second))
            assert found.sharding == second
            np.testing.assert_array_equal(found, VALUES)


def test_assembled_of_parts() -> None:
    sharding = NamedSharding(MESH, P("x", "y"))
    calls: list[Any] = []

    def part(index: Any) -> np.ndarray:
        calls.append(index)
        return VALUES[index]

    array = weft.make_array_from_callback((5, 3), sharding, part)
    assert len(calls) == 8
    equal(array, VALUES)
    parts = [shard.data for shard in array.addressable_shards]
    equal(weft.make_array_from_single_device_arrays((5, 3), sharding, parts), VALUES)
    with pytest.raises(ArgumentError, match=r"(?s)Shard 4 does not have .*f32\[1,2\] where \(2, 2\)"):
        weft.make_array_from_single_device_arrays((6, 3), sharding, parts)
    assert weft.process_slices(sharding, (5, 3)) == (slice(0, 5), slice(0, 3))
    equal(weft.make_array_from_process_local_data(sharding, VALUES), VALUES)
    two = np.array([weft.Device(i, "cpu", i // 4) for i in range(8)], object)  # of which one cannot be reached
    rows = NamedSharding(Mesh(two, ("x",), (AxisType.Auto,)), P("x"))
    assert weft.process_slices(rows, (5,)) == (slice(0, 4),) and weft.process_slices(rows, (3,)) == (slice(0, 3),)
    assert weft.local_to_global_shape(rows, (5,)) == (None,)
    assert wnp.zeros(5, device=NamedSharding(MESH, P("x"))).addressable_data(7).shape == (0,)
    local = weft.experimental.multihost_utils.global_array_to_host_local_array(array, MESH, P("x"))
    equal(local, VALUES)


# ------------------------------------------------------------------------------------------------------------- programs


def everything(a: Any) -> Any:
    """Apply functions that read all elements of a dimension, or could."""
    whole = (a * 10).astype(int)
    return {
        "sums": (a.sum(), a.sum(0), a.mean(1), wnp.var(a), wnp.prod(a, 0), a @ a.T, a.T @ a),
        "extremes": (a.max(0), a.min(), wnp.argmax(a, 0), wnp.argmin(a), lax.top_k(a.T, 2), wnp.sort(a, 0)),
        "logic": (wnp.any(a > 0, 0), wnp.all(a > -9), wnp.median(a, 0), wnp.unique(whole, size=15)),
        "running": (wnp.cumsum(a, 0), lax.cummax(a, 0), lax.cumlogsumexp(a, 1)),
        "moved": (a.T, a.reshape(-1), a.reshape(3, 5), wnp.concatenate([a, a]), a[::-1], wnp.pad(a, 1), a[1:4]),
        "indexed": (a[wnp.array([4, 0, 2])], a.at[wnp.array([4, 0, 4])].add(1.0), wnp.asarray(VALUES)[whole[:, 0] % 5]),
        "divided": (whole // (1 + abs(whole)), whole % 7, 7 // wnp.where(whole == 0, 1, whole)),
        "linear algebra": (wnp.linalg.inv(a.T @ a + wnp.eye(3)), wnp.fft.fft(a, axis=0)),
        "windows": lax.conv_general_dilated(a[None, None], wnp.ones((1, 1, 2, 2)), (1, 1), "SAME"),
        "random": (a + weft.random.normal(weft.random.key(0), (5, 3)), weft.random.permutation(weft.random.key(2), a)),
        "loops": (
            lax.fori_loop(0, 3, lambda i, c: c * 1.5 + i, a),
            lax.while_loop(lambda c: (c < 50).all(), lambda c: c + 1, a),
            lax.scan(lambda c, r: (c + r.sum(), c * r), 0.0, a),
            lax.cond(a.sum() > 0, wnp.sin, wnp.cos, a),
        ),
        "mapped": weft.vmap(lambda r: lax.while_loop(lambda c: c.sum() < 10, lambda c: c + 1, r))(a),
        "derivatives": (
            weft.grad(lambda a: (wnp.tanh(a @ a.T)).max())(a),
            weft.hessian(lambda a: wnp.log(abs(a).sum()))(a),
        ),
        "called": weft.pure_callback(lambda v: np.asarray(v).sum(), weft.ShapeDtypeStruct((), np.float32), a),
    }


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_nothing_is_read_from_beyond_the_end(spec: P) -> None:
    found = weft.jit(everything)(put(*spec))
    equal(found, everything(wnp.asarray(VALUES)))


def test_operations_outside_of_programs() -> None:
    array = put("x", "y")
    found = array + 1, array @ array.T, wnp.sort(array, 0), array[array.argmax() % 5], abs(array).max(), array.T
    plain = wnp.asarray(VALUES)
    equal(found, (plain + 1, plain @ plain.T, wnp.sort(plain, 0), plain[plain.argmax() % 5], abs(plain).max(), plain.T))
    assert found[0].sharding == array.sharding
    index = put("x", value=np.arange(5, dtype=np.int32) % 3)
    equal(plain[index], VALUES[np.arange(5) % 3])  # indices are checked here: those that are there


def test_computation_follows_data_by_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.jit(lambda a: wnp.tanh(a) * 2)
    for spec in SPECS:
        array = put(*spec)
        f(array), f(array)
        with monkeypatch.context() as patch:  # this call goes by the dispatcher that was written for it
            patch.setattr(spmd, "compile_for_mesh", None)
            result = f(array)
        assert result.sharding.is_equivalent_to(array.sharding, 2) and not f.lower(array).compile().communication
        equal(result, np.tanh(VALUES) * 2)
        equal(f(poisoned(result)), np.tanh(np.tanh(VALUES) * 2) * 2)


def test_shardings_of_arguments_results_and_constraints() -> None:
    rows, both = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(("x", "y")))
    f = weft.jit(lambda a, b: (a + b, a.T @ b), in_shardings=(rows, both), out_shardings=(both, rows))
    for args in ((VALUES, VALUES), (put("x"), put(("x", "y")))):
        found = f(*args)
        assert (found[0].sharding, found[1].sharding) == (both, rows)
        equal(found, (VALUES * 2, VALUES.T @ VALUES))
    constrained = weft.jit(lambda a: lax.with_sharding_constraint(a * 2, rows))
    assert constrained(VALUES).sharding == rows
    equal(constrained(put("y", "x")), VALUES * 2)
    outside = lax.with_sharding_constraint(VALUES, rows)
    assert outside.sharding == rows
    equal(outside, VALUES)
    compiled = weft.jit(lambda a: a + 1).lower(put("x")).compile()
    equal(compiled(put("x")), VALUES + 1)


def test_donated_arguments_give_their_memory() -> None:
    value = np.arange(1001 * 65, dtype=np.float32).reshape(1001, 65)
    f = weft.jit(lambda a: a + 1, donate_argnums=0)
    array = put("x", value=value)
    before = [part.unsafe_buffer_pointer() for part in array._held]
    result = f(array)
    assert array.is_deleted() and [part.unsafe_buffer_pointer() for part in result._held] == before
    equal(result, value + 1)
    shard = result.addressable_shards[7].data  # who looks at a part goes on seeing it
    seen = np.array(shard)
    equal(f(result), value + 2)
    np.testing.assert_array_equal(shard, seen)


def test_training_with_a_last_batch_that_is_short() -> None:
    def step(params: Any, batch: Any) -> Any:
        def loss(params: Any) -> Any:
            hidden = wnp.tanh(batch @ params["w"])
            return ((hidden @ params["v"]) ** 2).mean()

        value, gradients = weft.value_and_grad(loss)(params)
        return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    rng = np.random.RandomState(1)
    params = {"w": rng.randn(3, 7).astype(np.float32), "v": rng.randn(7, 2).astype(np.float32)}
    expected = weft.jit(step)(params, VALUES)
    split = {"w": put(None, "y", value=params["w"]), "v": put("y", value=params["v"])}
    found = weft.jit(step)(split, weft.device_put(VALUES, weft.parallel.data_parallel(VALUES, MESH, "x")))
    equal(found, expected)
    assert [found[0][k].sharding for k in "wv"] == [split[k].sharding for k in "wv"]


@pytest.mark.parametrize("spec", [P("x"), P("y", "x"), P(("x", "y"))], ids=str)
def test_checks_look_at_what_is_there(spec: P) -> None:
    f = weft.jit(lambda a: (1 / (a + 10), a, a @ a.T, wnp.log(abs(a)).sum(0)))
    index = put("x", value=np.arange(5, dtype=np.int32) % 3)
    with weft.debug_nans(True), weft.debug_infs(True):
        array = put(*spec)
        equal(f(array), f(VALUES))
        equal(array * 2 - 1, VALUES * 2 - 1)
        bad = VALUES.copy()
        bad[4, 2] = -11
        with pytest.raises(NonFiniteValueError):
            weft.jit(lambda a: wnp.log(a + 10))(put(*spec, value=bad))
    with weft.checks("all"):
        found = weft.jit(lambda a, i: (a[i], 7 // (i + 1)))(put(*spec), index)
        equal(found, (VALUES[[0, 1, 2, 0, 1]], np.array([7, 3, 2, 7, 3])))


@pytest.mark.parametrize("spec", [P(("x", "y")), P("y", "x")], ids=str)
def test_bodies_that_are_local_along_some_axes_only(spec: P) -> None:
    """Parts over `y` of what `shard_map` has split over `x` are no parts of the whole: a body has those rows whole."""
    value = np.arange(44, dtype=np.float32).reshape(4, 11)

    def body(a: Any) -> Any:
        a = lax.with_sharding_constraint(wnp.sin(a), NamedSharding(MESH, P("y", None)))
        return a[::-1], lax.psum(a.sum(), "x"), a.T @ a

    f = weft.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=(P("x"), P(), P("x")), axis_names={"x"})
    rows = np.sin(value)
    expected = rows, rows.sum(), np.concatenate([row[:, None] * row for row in rows])
    equal(weft.jit(f)(put(*spec, value=value)), expected)


# --------------------------------------------------------------------------------------------------- what it looks like


def test_saved_and_restored_on_any_mesh(tmp_path: pathlib.Path) -> None:
    weft.checkpointing.save(tmp_path / "a", {"a": put("x"), "b": put(("x", "y"))})
    for sharding in (NamedSharding(MESH, P("y", "x")), NamedSharding(OTHER, P("q")), NamedSharding(OTHER, P())):
        found = weft.checkpointing.restore(tmp_path / "a", shardings=sharding)
        assert found["a"].sharding == found["b"].sharding == sharding
        equal(found, {"a": VALUES, "b": VALUES})


def test_pictures_show_sizes(capsys: Any) -> None:
    weft.debug.visualize_array_sharding(put("x"))
    text = capsys.readouterr().out
    assert [line for line in ("2x3", "1x3", "0x3") if line in text] == ["2x3", "1x3", "0x3"]


def test_parts_over_several_axes_that_are_no_parts_of_those_over_one_are_gathered_together() -> None:
    """Five rows over 2 x 4 devices are one each; over the two alone they are 3 and 2."""
    array = put(("y", "x"), value=VALUES)
    rows = weft.jit(lambda a: a + 1, out_shardings=NamedSharding(MESH, P("y"))).lower(array).compile()
    assert [(c.kind, c.axis, c.bytes) for c in rows.communication] == [("all_gather", "x", 36), ("all_gather", "y", 48)]
    equal(rows(array), VALUES + 1)


def test_what_is_gathered_says_why() -> None:
    (row,) = weft.jit(lambda a: wnp.cumsum(a, 0)).lower(put("x")).compile().communication
    assert (row.kind, row.bytes) == ("all_gather", 72)  # of parts with two rows each
    assert row.reason.endswith("needs it whole: 5 elements do not split evenly into 4 parts")
    with weft.debug_nans(True):
        (row,) = weft.jit(lambda a: a * 2).lower(put("x")).compile().communication
    assert row.reason.endswith("5 elements do not split evenly into 4 parts, and all elements are checked")


def test_what_has_static_shapes_says_what_to_pad_to() -> None:
    with pytest.raises(ArgumentError, match=r"(?s)dimension 0 of size 5 is not a multiple of 4.*pad dimension 0 to 8"):
        weft.shard_map(lambda a: a, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(put("x"))
    with pytest.raises(ArgumentError, match=r"(?s)5 elements needs 5 devices.*\(4, 2, ...\), padded to 8 elements"):
        weft.pmap(lambda a: a, devices=DEVICES[:4])(VALUES)
    typed = NamedSharding(EXPLICIT, P("x"))
    whole = weft.device_put(VALUES, NamedSharding(EXPLICIT, P()))
    text = "(?s)5 elements, which do not split evenly into 4 parts.*pad dimension 0 to 8"
    for make in (
        lambda: weft.device_put(VALUES, typed),
        lambda: weft.sharding.reshard(whole, typed),
        lambda: weft.jit(lambda a: a, in_shardings=typed)(VALUES),
        lambda: weft.jit(lambda a: a, out_shardings=typed)(VALUES),
    ):
        with pytest.raises(ArgumentError, match=text):
            make()
