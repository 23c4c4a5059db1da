"""Plans are what programs on meshes take, for meshes of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.api.communication import Communication
from weft.compiler.partition.reasons import wire_bytes
from weft.errors import ArgumentError
from weft.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from weft.sharding.spec import spec_dims

Struct = weft.ShapeDtypeStruct


def step(params: Any, batch: Any) -> Any:
    def loss(params: Any) -> Any:
        x, y = batch
        for w, b in params:
            x = np.tanh(x @ w + b)
        return ((x - y) ** 2).mean()

    value, gradients = weft.value_and_grad(loss)(params)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def is_spec(value: Any) -> bool:
    return isinstance(value, P)


def differences(found: Any, compiled: Any) -> list[str]:
    """In what a plan differs from the program that runs."""
    ran, planned = compiled.memory_analysis(), found.memory
    devices = compiled._partitioned.executable
    sent = [
        wire_bytes(s.equation.primitive.name, sum(o.size for o in s.operands), len(groups[0]))
        for s, groups in zip(devices.steps, devices.groups, strict=True)
    ]
    ranks = [v.aval.ndim for v in found.jaxpr.invars]
    split = lambda shardings: [spec_dims(s.spec, rank) for s, rank in zip(shardings, ranks, strict=True)]
    rows = lambda c: [(r.kind, r.axis, r.bytes, r.times, r.value) for r in c]
    pairs = {
        "temporaries": (planned.temp_size_in_bytes, ran.temp_size_in_bytes),
        "peak": (planned.peak_memory_in_bytes, ran.peak_memory_in_bytes),
        "arguments": (planned.argument_size_in_bytes, ran.argument_size_in_bytes),
        "results": (planned.output_size_in_bytes, ran.output_size_in_bytes),
        "donated": (planned.alias_size_in_bytes, ran.alias_size_in_bytes),
        "collectives": (rows(found.communication), rows(compiled.communication)),
        # ... and what is planned to be sent is what the steps of the program send.
        "bytes": (found.communication.total_bytes, pytest.approx(sum(sent))),
        "count": (len(found.communication), len(sent)),
        "shardings": (split(found.in_shardings), split(compiled._partitioned.in_shardings)),
    }
    return [name for name, (plan, run) in pairs.items() if plan != run]


@pytest.fixture(scope="module")
def planned_and_compiled() -> tuple[Any, Any]:
    mesh = weft.make_mesh((4, 2), ("d", "t"), (AxisType.Auto,) * 2)
    specs = ([(P("d", "t"), P("t")), (P("t", "d"), P())], P("d"))
    arrays = [(onp.ones((64, 128)), onp.ones(128)), (onp.ones((128, 64)), onp.ones(64))], (onp.ones((32, 64)),) * 2
    structs = weft.tree.map(lambda a: Struct(a.shape, onp.float32), arrays)
    found = weft.plan(step, *structs, mesh=mesh.abstract_mesh, in_shardings=specs, donate_argnums=0)
    arrays = weft.device_put(
        weft.tree.map(onp.float32, arrays), weft.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=is_spec)
    )
    return found, weft.jit(step, donate_argnums=0).lower(*arrays).compile()


def test_a_plan_is_what_the_program_takes(planned_and_compiled: tuple[Any, Any]) -> None:
    found, compiled = planned_and_compiled
    assert differences(found, compiled) == []
    assert found.names[:2] == ("params[0][0]", "params[0][1]")
    assert found.fits and found.seconds == found.compute_seconds + found.communication_seconds > 0
    assert max(found.compute_seconds, found.communication_seconds) * 0.99 < found.overlapped_seconds
    assert found.overlapped_seconds < found.seconds * 1.01
    assert "plan for 8 devices (d 4 x t 2) of h100" in repr(found)


def with_row(found: Any, **changes: Any) -> Any:
    first, *rest = found.communication
    return replace(found, communication=Communication([replace(first, **changes), *rest]))


def with_memory(found: Any, name: str) -> Any:
    return replace(found, memory=replace(found.memory, **{name: getattr(found.memory, name) + 64}))


MISMATCHES: dict[str, Callable[[Any], Any]] = {
    "no first collective": lambda f: replace(f, communication=Communication(f.communication[1:])),
    "one collective twice": lambda f: replace(f, communication=Communication([*f.communication, f.communication[0]])),
    "other order": lambda f: replace(f, communication=Communication(f.communication[::-1])),
    "bytes": lambda f: with_row(f, bytes=f.communication[0].bytes + 4),
    "axis": lambda f: with_row(f, axis="other"),
    "kind": lambda f: with_row(f, kind="ppermute"),
    "times": lambda f: with_row(f, times=f.communication[0].times + 1),
    "temporaries": lambda f: with_memory(f, "temp_size_in_bytes"),
    "donated": lambda f: with_memory(f, "alias_size_in_bytes"),
    "shardings": lambda f: replace(f, in_shardings=(f.in_shardings[2], *f.in_shardings[1:])),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_plan_of_something_else_is_found(name: str, planned_and_compiled: tuple[Any, Any]) -> None:
    found, compiled = planned_and_compiled
    assert differences(MISMATCHES[name](found), compiled)


def test_a_plan_for_this_machine_counts_its_kernels() -> None:
    mesh, x = AbstractMesh((2,), ("d",)), Struct((512, 512), onp.float32)
    f = lambda x, w: np.tanh(x @ w).sum()
    for shapes in ((x, x), (Struct((2048, 512), onp.float32), x)):
        here = weft.plan(f, *shapes, mesh=mesh, in_shardings=(P("d"), P()), machine="cpu")
        best = weft.plan(f, *shapes, mesh=mesh, in_shardings=(P("d"), P()), machine=replace(here.machine, kernels=None))
        # Kernels of products are about as fast as the machine, whose speed is measured beside whatever runs.
        assert 0.2 * best.compute_seconds < here.compute_seconds < 20 * best.compute_seconds
        assert here.flops == best.flops and here.communication_seconds == best.communication_seconds


@pytest.mark.parametrize("way", ["dp", "fsdp", "tp"])
def test_plans_beside_runs(way: str) -> None:
    mesh = weft.make_mesh((8,), ("d",), (AxisType.Auto,))
    specs: Any = {
        "dp": ([(P(), P())] * 2, P("d")),
        "fsdp": ([(P("d"), P("d"))] * 2, P("d")),
        "tp": ([(P(None, "d"), P("d")), (P("d"), P())], P()),
    }[way]
    arrays = [(onp.ones((64, 128)), onp.ones(128)), (onp.ones((128, 64)), onp.ones(64))], (onp.ones((32, 64)),) * 2
    arrays = weft.tree.map(onp.float32, arrays)
    found = weft.plan(step, *arrays, mesh=mesh, in_shardings=specs)
    there = weft.device_put(arrays, weft.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=is_spec))
    compiled = weft.jit(step).lower(*there).compile()
    ran = compiled.memory_analysis()
    assert found.memory.temp_size_in_bytes == pytest.approx(ran.temp_size_in_bytes, rel=0.05)
    devices = compiled._partitioned.executable
    sent = [
        wire_bytes(s.equation.primitive.name, sum(o.size for o in s.operands), len(groups[0]))
        for s, groups in zip(devices.steps, devices.groups, strict=True)
    ]
    assert sum(sent) == found.communication.total_bytes and len(sent) == len(found.communication)


def test_ten_thousand_devices_and_loops() -> None:
    mesh = AbstractMesh((1250, 8), ("d", "t"))
    layers = {"up": Struct((12, 8192, 32768), np.bfloat16), "down": Struct((12, 32768, 8192), np.bfloat16)}

    def f(layers: Any, x: Any) -> Any:
        def body(x: Any, layer: Any) -> Any:
            return x + np.maximum(x @ layer["up"], 0) @ layer["down"], None

        return lax.scan(body, x, layers)[0]

    specs = {"up": P(None, None, "t"), "down": P(None, "t")}
    x = Struct((10_000, 1024, 8192), np.bfloat16)
    found = weft.plan(f, layers, x, mesh=mesh, in_shardings=(specs, P("d")))
    (row,) = found.communication
    assert (row.kind, row.axis, row.times) == ("psum", "t", 12)
    local = 8 * 1024 * 8192 * 2
    assert row.bytes == 2 * local * 7 / 8
    assert found.memory.argument_size_in_bytes == 2 * 12 * 8192 * 32768 * 2 // 8 + local
    assert found.flops == pytest.approx(12 * 2 * 2 * 8 * 1024 * 8192 * 32768 / 8, rel=0.01)
    assert found.planning_seconds < 10
    slow = weft.plan.MACHINES["h100"].with_links(t=weft.plan.Link(1e9, 1e-5))
    slower = weft.plan(f, layers, x, mesh=mesh, in_shardings=(specs, P("d")), machine=slow)
    assert slower.communication_seconds == pytest.approx(12 * (1e-5 + row.bytes / 1e9))


def test_what_a_plan_needs() -> None:
    mesh = AbstractMesh((3,), ("d",))
    x = Struct((8, 8), onp.float32)
    uneven = weft.plan(np.sin, x, mesh=mesh, in_shardings=P("d"))  # 3, 3 and 2 rows, each in the memory of 3
    memory = uneven.memory
    assert memory.argument_size_in_bytes == memory.output_size_in_bytes == 3 * 8 * 4
    with pytest.raises(ArgumentError, match="machine is unknown"):
        weft.plan(np.sin, x, mesh=mesh, machine="abacus")
    other = Struct((9, 8), onp.float32, sharding=NamedSharding(AbstractMesh((9,), ("d",)), P("d")))
    with pytest.raises(ArgumentError, match="must be on one mesh"):
        weft.plan(np.sin, other, mesh=mesh)
