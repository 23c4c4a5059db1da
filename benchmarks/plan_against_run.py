"""Plans beside runs: memory, bytes and time of training steps on 8 virtual devices, as `weft.plan` says and as it is.

    python benchmarks/plan_against_run.py [--seconds 1]

Memory is that of temporaries of a device, bytes those that a device sends, by the steps of the program that runs. Time
is the best of some runs. The virtual devices share the cores of this machine, so what a plan says of one device counts
for as many devices as share one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from many_devices import DEVICES, best, load, mesh_of, mlp_specs
from mesh_models import mlp, step_of, transformer, transformer_specs

WAYS: tuple[tuple[str, tuple[int, ...], tuple[str, ...], tuple[Any, Any], str | None], ...] = (
    ("DP", (DEVICES,), ("d",), (None, None), "d"),
    ("FSDP", (DEVICES,), ("d",), ("d", None), "d"),
    ("TP", (DEVICES,), ("t",), (None, "t"), None),
    ("FSDP x TP", (DEVICES // 2, 2), ("d", "t"), ("d", "t"), "d"),
)


def rows(lib: Any, seconds: float) -> Iterator[tuple[Any, ...]]:
    """Return for each model and sharding its name, and memory, bytes and seconds as planned and as measured."""
    from weft.compiler.partition.reasons import wire_bytes

    P, tree = lib.sharding.PartitionSpec, lib.tree_util
    threads = min(DEVICES, os.cpu_count() or 1)
    for name, model, specs_of in (("MLP", mlp, mlp_specs), ("transformer", transformer, transformer_specs)):
        loss, params, batch = model(lib)
        step = step_of(lib, loss)
        for way, shape, axes, by, batch_axis in WAYS:
            mesh = mesh_of(lib, shape, axes)
            specs, data_spec = specs_of(P, *by), P(batch_axis) if batch_axis else P()
            shardings = tree.tree_map(
                lambda s, mesh=mesh: lib.sharding.NamedSharding(mesh, s), specs, is_leaf=lambda x: isinstance(x, P)
            )
            there = tree.tree_map(lib.device_put, params, shardings)
            data = lib.device_put(batch, lib.sharding.NamedSharding(mesh, data_spec))
            planned = lib.plan(
                step,
                params,
                batch,
                mesh=mesh,
                in_shardings=(specs, data_spec),
                out_shardings=(specs, P()),
                machine="cpu",
            )
            function = lib.jit(step, out_shardings=(shardings, lib.sharding.NamedSharding(mesh, P())))
            compiled = function.lower(there, data).compile()
            devices = compiled._partitioned.executable
            sent = sum(
                wire_bytes(s.equation.primitive.name, sum(o.size for o in s.operands), len(groups[0]))
                for s, groups in zip(devices.steps, devices.groups, strict=True)
            )
            yield (
                f"{name} {way}",
                planned.memory.temp_size_in_bytes,
                compiled.memory_analysis().temp_size_in_bytes,
                planned.communication.total_bytes,
                sent,
                planned.seconds * DEVICES / threads,
                best(lib, function, there, data, seconds=seconds),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    lib = load("weft")
    print(f"{'':<24}{'memory':>11}{'ran':>11}{'bytes':>11}{'ran':>11}{'time':>11}{'ran':>11}{'plan/run':>10}")
    for name, memory, used, size, sent, planned, measured in rows(lib, options.seconds):
        print(
            f"{name:<24}{memory / 1e3:>9.0f}kB{used / 1e3:>9.0f}kB{size / 1e3:>9.0f}kB{sent / 1e3:>9.0f}kB"
            f"{planned * 1e3:>9.2f}ms{measured * 1e3:>9.2f}ms{planned / measured:>10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
