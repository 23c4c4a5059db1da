"""Shardings that users write: of arguments and results of jitted functions, constraints, and the mesh that is set."""

from __future__ import annotations

import threading
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError
from weft.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
)

A = onp.arange(128, dtype=onp.float32).reshape(8, 16)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)


def test_arguments_are_put_where_in_shardings_say(mesh: Mesh) -> None:
    where = NamedSharding(mesh, P("x"))
    f = weft.jit(lambda x, n, y: x * n + y, in_shardings=(where, None), static_argnums=1)
    for x in (A, np.asarray(A), weft.device_put(A, where)):
        result = f(x, 2, 1.0)
        assert result.sharding == where
        onp.testing.assert_array_equal(result, A * 2 + 1)
    with pytest.raises(
        ArgumentError, match=r"(?s)jit of <lambda>: argument x must have the sharding.*device_put\(x, sharding\)"
    ):
        f(weft.device_put(A, NamedSharding(mesh, P("y"))), 2, 1.0)
    with pytest.raises(ArgumentError, match=r"argument x of type f32\[\] cannot be split so: .* has entries for 1"):
        f(onp.ones((), onp.float32), 2, 1.0)


def test_repeated_calls_stay_on_the_mesh(mesh: Mesh) -> None:
    f = weft.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P("x")), out_shardings=NamedSharding(mesh, P("y")))
    assert {f(A).sharding for _ in range(4)} == {NamedSharding(mesh, P("y"))}
    g = weft.jit(lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P("x"))))
    assert {g(A).sharding for _ in range(4)} == {NamedSharding(mesh, P("x"))}


def test_donated_arguments_with_shardings(mesh: Mesh) -> None:
    where = NamedSharding(mesh, P("x", "y"))
    f = weft.jit(lambda x: x + 1, donate_argnums=0, in_shardings=where, out_shardings=where)
    x = weft.device_put(onp.ones((512, 512), onp.float32), where)
    before = {s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    y = f(x)
    assert x.is_deleted() and {s.data.unsafe_buffer_pointer() for s in y.addressable_shards} == before
    compiled = f.lower(weft.ShapeDtypeStruct((512, 512), onp.float32)).compile()
    z = compiled(y)
    assert y.is_deleted() and (onp.asarray(z) == 3).all()


def test_compiled_ahead_of_time(mesh: Mesh) -> None:
    where = NamedSharding(mesh, P("x"))
    struct = weft.ShapeDtypeStruct((8, 16), onp.float32, sharding=where)
    compiled = weft.jit(lambda x, w: x @ w).lower(struct, weft.ShapeDtypeStruct((16, 4), onp.float32)).compile()
    (first, _), _ = compiled.input_shardings
    assert first == where and compiled.output_shardings == where
    assert "psum" not in compiled.program and compiled.memory_analysis() is not None
    onp.testing.assert_allclose(compiled(A, A[:, :4].repeat(2, 0)), A @ A[:, :4].repeat(2, 0))
    with pytest.raises(ArgumentError, match="compiled <lambda>: argument x must have the sharding in in_shardings"):
        compiled(weft.device_put(A, NamedSharding(mesh, P("y"))), A[:, :4].repeat(2, 0))
    alone = weft.jit(lambda x: x).lower(A).compile()
    assert alone.output_shardings == SingleDeviceSharding(weft.devices()[0])


def test_shardings_under_transformations(mesh: Mesh) -> None:
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    inner = weft.jit(lambda x: np.sin(x) * x, in_shardings=rows, out_shardings=columns)
    plain = lambda x: np.sin(x) * x
    assert weft.jit(lambda x: inner(x) + 0)(A).sharding == columns
    for way in (
        lambda f: weft.jit(f),
        lambda f: weft.grad(lambda x: f(x).sum()),
        lambda f: weft.jit(weft.grad(lambda x: (f(x) ** 2).sum())),
        lambda f: lambda x: weft.jvp(f, (x,), (x,))[1],
        lambda f: lambda x: weft.vmap(f)(x[None])[0],
        lambda f: weft.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]),
    ):
        onp.testing.assert_allclose(way(inner)(A), way(plain)(A), rtol=1e-5, atol=1e-4)


def test_a_spec_needs_a_mesh(mesh: Mesh) -> None:
    f = weft.jit(lambda x: x + 1, in_shardings=P("x"))
    with pytest.raises(ArgumentError, match="PartitionSpec in in_shardings needs a mesh"):
        f(A)
    with weft.set_mesh(mesh):
        assert f(A).sharding == NamedSharding(mesh, P("x"))
    with mesh:
        assert f(A).sharding == NamedSharding(mesh, P("x"))
    other = weft.make_mesh((8,), ("x",), (AxisType.Auto,))
    with weft.set_mesh(other):
        assert f(A).sharding == NamedSharding(other, P("x"))


def test_the_mesh_that_is_set_is_one_of_the_thread(mesh: Mesh) -> None:
    assert get_mesh().empty and get_abstract_mesh().empty
    seen: list[Any] = []
    with weft.set_mesh(mesh), weft.make_mesh((8,), ("z",)) as inner:
        assert get_mesh() is inner
        thread = threading.Thread(target=lambda: seen.append(get_mesh().empty))
        thread.start()
        thread.join()
    assert get_mesh().empty and seen == [True]
    before = weft.set_mesh(mesh)  # as a statement
    try:
        assert get_mesh() is mesh
    finally:
        before.__exit__(None, None, None)
    assert get_mesh().empty


def test_arrays_of_one_device_and_of_a_mesh_do_not_mix(mesh: Mesh) -> None:
    x, y = weft.device_put(A, NamedSharding(mesh, P("x"))), weft.device_put(A, weft.devices()[1])
    with pytest.raises(ArgumentError, match="jit of <lambda> runs on a mesh, but b is committed to a single device"):
        weft.jit(lambda a, b: a + b)(x, y)
    with pytest.raises(ArgumentError, match="operand 1 is committed to a single device"):
        x + y
    assert (x + A).sharding == x.sharding


def test_device_put_between_shardings(mesh: Mesh) -> None:
    other = weft.make_mesh((2, 4), ("p", "q"), (AxisType.Auto,) * 2)
    where = [
        NamedSharding(mesh, P("x")),
        NamedSharding(other, P("q", "p")),
        weft.devices()[3],
        NamedSharding(mesh, P()),
    ]
    x = weft.device_put(A, where[0])
    for sharding in (*where, where[0]):
        x = weft.device_put(x, sharding)
        onp.testing.assert_array_equal(x, A)
    assert x.sharding == where[0]
    y = weft.device_put(x, NamedSharding(mesh, P("x", None)))  # the same parts
    assert y.addressable_data(1).unsafe_buffer_pointer() == x.addressable_data(1).unsafe_buffer_pointer()
    assert weft.jit(lambda x: weft.device_put(x * 2, where[0]))(A).sharding == where[0]


def test_arrays_of_what_a_process_has_loaded(mesh: Mesh) -> None:
    where = NamedSharding(mesh, P("x"))
    assert weft.process_slices(where, (8, 16)) == (slice(0, 8), slice(0, 16))
    assert weft.local_to_global_shape(where, (8, 16)) == (8, 16)
    arrays = weft.make_array_from_process_local_data({"a": where, "b": NamedSharding(mesh, P())}, {"a": A, "b": A[0]})
    assert arrays["a"].sharding == where and arrays["b"].is_fully_replicated
    onp.testing.assert_array_equal(arrays["a"], A)
    with pytest.raises(ArgumentError, match="Dimension 0 of the local data must be"):
        weft.make_array_from_process_local_data(where, A, (16, 16))


def test_what_processes_load_of_an_array() -> None:
    """Eight devices of two processes: this one, and one whose devices cannot be reached."""
    devices = [weft.Device(i, "cpu", i // 4) for i in range(8)]
    grid = onp.array(devices, object)
    rows = Mesh(grid.reshape(4, 2), ("x", "y"), (AxisType.Auto,) * 2)
    assert weft.process_slices(NamedSharding(rows, P("x")), (8, 16)) == (slice(0, 4), slice(0, 16))
    assert weft.process_slices(NamedSharding(rows, P("y")), (8, 16)) == (slice(0, 8), slice(0, 16))
    assert weft.local_to_global_shape(NamedSharding(rows, P("x", "y")), (4, 16)) == (8, 16)
    mixed = Mesh(grid[[0, 4, 1, 5, 2, 6, 3, 7]], ("x",), (AxisType.Auto,))
    with pytest.raises(ArgumentError, match="contiguous along dimension 0"):
        weft.process_slices(NamedSharding(mixed, P("x")), (8,))
    uneven = Mesh(onp.array(devices[1:5], object), ("x",), (AxisType.Auto,))
    assert weft.local_to_global_shape(NamedSharding(uneven, P("x")), (6,)) == (None,)


def test_layouts_and_grids_of_devices() -> None:
    layout, mesh_utils = weft.experimental.layout, weft.experimental.mesh_utils
    assert mesh_utils.create_device_mesh((4, 2)).shape == (4, 2)
    assert mesh_utils.create_hybrid_device_mesh((4, 2), (1, 1), process_is_granule=True).tolist() == [
        weft.devices()[i : i + 2] for i in range(0, 8, 2)
    ]
    two = [weft.Device(i, "cpu", i // 4) for i in range(8)]
    grid = mesh_utils.create_hybrid_device_mesh((2, 2), (1, 2), two, process_is_granule=True)
    assert [[d.id for d in row] for row in grid] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    with pytest.raises(ArgumentError, match="16 devices"):
        mesh_utils.create_device_mesh((4, 4))
    x = np.ones((2, 3))
    assert layout.with_layout_constraint(x, layout.Layout((0, 1))) is x
    with pytest.raises(ArgumentError, match="row-major"):
        layout.with_layout_constraint(x, layout.Layout((1, 0)))
    where = layout.Format(layout.Layout((0, 1)), SingleDeviceSharding(weft.devices()[2]))
    assert weft.device_put(x, where).device == weft.devices()[2]


def test_the_report_names_shardings(mesh: Mesh) -> None:
    f = weft.jit(lambda v: v * 2)
    for spec in (P("x"), P("y")):
        f(weft.device_put(A, NamedSharding(mesh, spec)))
    (miss,) = f.cache_report()
    assert [cost.shardings for cost in miss.compiles] == ["v P('x',)", "v P('y',)"]
    assert "compiling for v P('y',)" in str(miss)


def test_a_constraint_over_an_abstract_mesh_has_the_devices_of_the_mesh_that_is_set() -> None:
    mesh = weft.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
    with weft.set_mesh(mesh):
        sharding = NamedSharding(weft.sharding.get_abstract_mesh(), P("x", "y"))
        for f in (weft.jit, lambda f: f):
            result = f(lambda: lax.with_sharding_constraint(onp.ones((8, 2), "float32"), sharding))()
            assert result.sharding == NamedSharding(mesh, P("x", "y"))
