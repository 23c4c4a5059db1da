"""Meshes, specs and shardings match JAX: each row is evaluated by both, and the texts of the results agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import weft

# Names that rows use: s is the sharding module, P, N, m (a mesh of 4 x 2), e (the same, explicit) and d its devices.
SETUP = """
P, N = s.PartitionSpec, s.NamedSharding
m = s.Mesh(np.array(d).reshape(4, 2), ("x", "y"))
E = s.AxisType.Explicit
e = s.Mesh(np.array(d).reshape(4, 2), ("x", "y"), axis_types=(E, E))
a = s.AbstractMesh((4, 2), ("x", "y"))
M = s.ManualAxisType
numbers = np.arange(32, dtype=np.float32).reshape(8, 4)
put = lambda spec, mesh=m: lib.device_put(numbers, N(mesh, spec))
parts = lambda x: [(t.device, t.index, t.replica_id, np.asarray(t.data).tolist()) for t in x.addressable_shards]
"""
ROWS = [
    "m",
    "str(m)",
    "e",
    "a",
    "m.shape",
    "m.shape_tuple",
    "m.size",
    "m.axis_sizes",
    "m.axis_types",
    "m.empty",
    "m.is_scalar",
    "m.is_multi_process",
    "m.local_mesh is m",
    "m.local_devices",
    "m.device_ids",
    "m.auto_axes, e.auto_axes, m.explicit_axes, e.explicit_axes, m.manual_axes",
    "m.are_all_axes_auto, e.are_all_axes_auto, e.are_all_axes_explicit, e.are_all_axes_manual",
    "s.Mesh(d, 'x')",
    "s.Mesh(m.devices, ('x', 'y')) is m, hash(m) == hash(e), m == e",
    "s.Mesh(m.devices, 'x')",
    "s.Mesh(m.devices, ('x', 'y'), axis_types=(E,))",
    "s.Mesh(np.empty((0,), object), ('x',)).empty",
    "m.update(axis_types=(E, E))",
    "m.update(axis_names=('a', 'b'))",
    "a.size, a.empty, a.shape, s.AbstractMesh((), ()).empty",
    "a.devices",
    "a.local_mesh",
    "a.update(axis_sizes=(1, 2))",
    "s.AbstractMesh((2,), 'x', abstract_device=s.AbstractDevice('cpu', None, 'cpu'))",
    "a.update_axis_types({'x': E})",
    "a == s.AbstractMesh((4, 2), ('x', 'y')), a == s.AbstractMesh((2, 4), ('x', 'y'))",
    "isinstance(m, s.AbstractMesh), isinstance(P(), tuple)",
    "list(s.AxisType)",
    *[f"P({entries})" for entries in ("", "'x'", "'x', None, 'y'", "('x', 'y')", "None", "(), 'x'", "('x',), None")],
    *["P(P.UNCONSTRAINED, 'x')", "P(['x', 'y'])", "P('x', unreduced={'y'})", "P('x', reduced={'y'})"],
    "P(unreduced={'y', 'x'}) == P(unreduced={'x', 'y'})",
    "tuple(P('x', None)), len(P('x', None)), P('x', 'y')[0], P('x', 'y')[:1], bool(P())",
    "tuple(P('x', unreduced={'y'}))",
    "P('x') == P('x', None), P(('x',)) == P('x'), P('x') == ('x',), hash(P('x')) == hash(P(('x',)))",
    "P('x') + P('y'), ('q',) + P('x'), P('x') + ('q',)",
    "P('x', unreduced={'x'})",
    "P('x', unreduced={'y'}, reduced={'y'})",
    "P('x', unreduced='y')",
    "P(unreduced={None})",
    "P('x').update(unreduced={'z'}), P('x').update(partitions=('y', None))",
    "P(('x', 'y'), None).index(None), P('x', 'x').count('x'), P('x').partitions",
    "P('x', unreduced={'y'}).to_ct_spec(), P('x', unreduced={'y'}).to_tangent_spec()",
    *[
        f"N(m, {spec}), N(m, {spec}).shard_shape((16, 8)), N(m, {spec}).devices_indices_map((16, 8)),"
        f" N(m, {spec}).is_fully_replicated, N(m, {spec}).replicated_axes == set()"
        for spec in ("P('x', 'y')", "P(('x', 'y'))", "P(None, 'y')", "P(('y', 'x'), None)", "P()", "P('y')")
    ],
    "N(m, P('x')) == N(m, P('x')), N(m, P('x')) == N(m, P('x', None)), N(m, P('x')) == N(e, P('x'))",
    "[N(m, p).is_equivalent_to(N(m, q), 2) for p in (P('x'), P('x', None), P('y'), P(('x', 'y')))"
    " for q in (P('x', None), P('x', 'y'), P(('y', 'x')), P('y'))]",
    "N(m, P('x')).is_equivalent_to(N(e, P('x')), 2)",
    "N(m, P('x')).memory_kind, N(m, P('x')).with_memory_kind('pinned_host'), N(m, P('x'), memory_kind='pinned_host')",
    "N(m, P('x')) == N(m, P('x'), memory_kind='device')",
    "N(m, P('x'), memory_kind='none')",
    "N(m, P('x')).num_devices, N(m, P('x')).is_fully_addressable, N(m, P()).has_addressable_devices",
    "N(m, P('x')).device_set == set(d), N(m, P('x')).addressable_devices == set(d)",
    "N(m, P('x')).addressable_devices_indices_map((8,))",
    "N(m, P('x')).update(spec=P('y')), N(m, P('x')).update(memory_kind='pinned_host')",
    "N(m, P('x')).mesh is m, N(m, P('x')).spec",
    "N(m, P('z'))",
    "N(m, P('x', 'x'))",
    "N(m, P('x', 'y')).check_compatible_aval((8,))",
    "N(m, P('x', 'y')).check_compatible_aval((8, 4, 3))",
    "N(a, P('x'))",
    "N(a, P('x')).shard_shape((8,))",
    "N(a, P('x')).device_set",
    "N(a, P('x')).is_fully_addressable",
    "N(e, P('x', unreduced={'y'}))",
    "N(m, P('x', unreduced={'y'}))",
    "N(e, P('x', unreduced={'z'}))",
    "N(m, P(P.UNCONSTRAINED)).shard_shape((8,))",
    "s.SingleDeviceSharding(d[0])",
    "s.SingleDeviceSharding(d[0]).shard_shape((3, 4)), s.SingleDeviceSharding(d[0]).devices_indices_map((3, 4))",
    "s.SingleDeviceSharding(d[0]).is_equivalent_to(N(s.Mesh(d[:1], 'q'), P()), 2)",
    "s.SingleDeviceSharding(d[0]) == s.SingleDeviceSharding(d[0], memory_kind='device')",
    "s.SingleDeviceSharding(d[0]) == s.SingleDeviceSharding(d[1])",
    "s.SingleDeviceSharding(d[0], memory_kind='pinned_host')",
    "s.make_single_device_sharding(d[1], memory_kind='pinned_host')",
    "s.AbstractDevice('cpu', None, 'cpu')",
    *[f"parts(put({spec}))" for spec in ("P('x')", "P('x', 'y')", "P()", "P(('y', 'x'))", "P(None, 'y')")],
    "put(P('x'))",
    "put(P('x')).sharding, put(P('x')).committed, put(P('x')).is_fully_addressable, put(P('x')).is_fully_replicated",
    "put(P()).is_fully_replicated, sorted(map(str, put(P('x')).devices())), put(P('x')).device",
    "put(P('x', 'y')).addressable_data(5), len(put(P('x')).global_shards), put(P('x')).nbytes",
    "[put(P('x'), mesh).aval.str_short(short_dtypes=True) for mesh in (m, e)]",
    "[str(lib.typeof(put(P('x', 'y'), mesh))) for mesh in (m, e)], [lib.typeof(put(P('x'), e))]",
    "str(lib.typeof(1.0)), [lib.typeof(2)], str(lib.typeof(lib.random.key(0))), str(lib.typeof(True))",
    "np.asarray(put(P('x', 'y'))).sum(), put(P('x')).tolist() == numbers.tolist(), put(P('x')).is_deleted()",
    "put(P('x', 'y', None))",
    "lib.device_put(numbers, N(m, P('x'), memory_kind='pinned_host')).aval.str_short(short_dtypes=True)",
    "{k: v.sharding for k, v in lib.device_put({'a': numbers, 'b': numbers}, {'a': N(m, P()), 'b': d[0]}).items()}",
    "lib.device_put({'a': numbers, 'b': numbers}, {'a': N(m, P())})",
    "lib.device_put(put(P('x')), d[0]).sharding",
    "lib.device_put(put(P('x')), N(m, P('y'))).sharding",
    "parts(lib.make_array_from_callback((8, 4), N(m, P('x')), lambda i: numbers[i]))",
    "lib.make_array_from_single_device_arrays((8, 4), N(m, P('x')), [t.data for t in put(P('x')).addressable_shards])",
    "lib.make_array_from_single_device_arrays((8, 4), N(m, P('x')), [])",
    "lib.numpy.zeros((8, 4), device=N(m, P('x'))).sharding",
    "M(), M(varying={'x'}, unreduced={'y'})",
    "M(varying={'x'}, unreduced={'x'})",
    "M(varying={'x'}, unreduced={'y'}, reduced={'z'}).to_ct_mat()",
    "M(varying={'x'}).vur, M(varying={'x'}).update(unreduced={'z'}), M(varying={'x'}) == M(varying={'x'})",
    "M(varying={'x'}).invarying(a.update_axis_types({'x': s.AxisType.Manual, 'y': s.AxisType.Manual}))",
]


# Functions of operands that are split over an explicit mesh: the types of their results, or that they are refused.
TYPED = [
    ("lambda a, b: a + b", [((8, 4), P), ((8, 4), Q)])
    for P, Q in [("P('x')", "P('x')"), ("P('x')", "P()"), ("P('x')", "P(None, 'y')"), ("P('x')", "P(None, 'x')")]
    + [("P('x')", "P('y')"), ("P('x')", "P(('x', 'y'))"), ("P(('x', 'y'))", "P(('x', 'y'))")]
    + [("P(unreduced={'x'})", "P(unreduced={'x'})"), ("P(unreduced={'x'})", "P()")]
    + [("P(reduced={'x'})", "P(reduced={'x'})"), ("P(reduced={'x'})", "P()"), ("P(reduced={'x'})", "P('x')")]
]
TYPED += [
    (f"lambda a: {text}", [((8, 4), spec)])
    for text in ("np.sin(a)", "a.T", "a.sum(0)", "a.sum(1)", "a.max(0)", "np.sort(a, 0)", "np.sort(a, 1)", "a * 2.0")
    + ("np.cumsum(a, 0)", "a[:, None]", "np.broadcast_to(a, (3, 8, 4))", "a.astype(np.int32)")
    for spec in ("P('x')", "P('x', 'y')", "P(('x', 'y'))")
]
# JAX lacks rules for other operations over reduced and unreduced axes.
TYPED += [
    (f"lambda a: {text}", [((8, 4), "P(None, 'y', reduced={'x'})")])
    for text in ("np.sin(a)", "a.T", "a.sum(0)", "a.sum(1)", "a * 2.0", "a[:, None]", "np.broadcast_to(a, (3, 8, 4))")
]
TYPED += [
    (f"lambda a: {text}", [((8, 4), "P(None, 'y', unreduced={'x'})")])
    for text in ("a.T", "a.sum(0)", "a.sum(1)", "a + a", "np.sin(a)", "a * a", "a + 1")
]
TYPED += [
    ("lambda a, b: a @ b", [((8, 4), P), ((4, 6), Q)])
    for P, Q in [("P('x')", "P(None, 'y')"), ("P('x')", "P()"), ("P(None, 'x')", "P('x')"), ("P(None, 'x')", "P()")]
    + [("P('x')", "P(None, 'x')"), ("P('y', 'x')", "P(None, 'y')"), ("P('x')", "P(reduced={'x'})")]
]


def typed(lib: object, numpy: object, make_jaxpr: object, mesh: object) -> list[str]:
    """Return the type of each function's result, or that it is refused."""
    sharding = lib.sharding
    found = []
    for text, operands in TYPED:
        names = {"np": numpy, "P": sharding.PartitionSpec}
        structs = [
            lib.ShapeDtypeStruct(shape, np.float32, sharding=sharding.NamedSharding(mesh, eval(spec, names)))
            for shape, spec in operands
        ]
        try:
            (aval,) = make_jaxpr(eval(text, names))(*structs).out_avals
            found.append(aval.str_short(short_dtypes=True))
        except Exception:
            found.append("an error")
    return found


def answers(lib: object, devices: list[object]) -> list[str]:
    """Return the text of each row's result, or that it raises."""
    names = {"lib": lib, "s": lib.sharding, "d": devices, "np": np}
    exec(SETUP, names)
    found = []
    for row in ROWS:
        try:
            found.append(repr(eval(row, names)))
        except Exception:  # JAX has classes of its own, and other ones by accident
            found.append("an error")
    return found


def explicit_mesh(sharding: object, devices: list[object]) -> object:
    return sharding.Mesh(np.array(devices[:4]).reshape(2, 2), ("x", "y"), (sharding.AxisType.Explicit,) * 2)


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """JAX's answers, from a process in which it has eight devices."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    values, types = json.loads(done.stdout.splitlines()[-1])
    return {**dict(zip(ROWS, values, strict=True)), **{str(k): v for k, v in zip(TYPED, types, strict=True)}}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    devices = [weft.Device(i, "cpu") for i in range(8)]
    values = dict(zip(ROWS, answers(weft, devices), strict=True))  # type: ignore[arg-type]
    types = typed(weft, weft.numpy, weft.make_jaxpr, explicit_mesh(weft.sharding, devices))
    return {**values, **{str(k): v for k, v in zip(TYPED, types, strict=True)}}


@pytest.mark.parametrize("row", [*ROWS, *map(str, TYPED)])
def test_as_jax_says(row: str, expected: dict[str, str], found: dict[str, str]) -> None:
    assert found[row] == expected[row]


if __name__ == "__main__":
    mesh = explicit_mesh(jax.sharding, jax.devices())
    with jax.set_mesh(mesh):
        types = typed(jax, jax.numpy, jax.make_jaxpr, mesh)
    print(json.dumps([answers(jax, jax.devices()), types]))
