"""Programs on 8 virtual CPU devices beside JAX: dispatch, collectives, and training steps under common shardings.

    python benchmarks/many_devices.py [--only dispatch,steps] [--rounds 3] [--stored] [--json out.json]

First calls compile everything: neither library reads compiled programs from disk, unless `--stored` asks for the first
calls of a second process of Weft as well. Before them one unrelated program is compiled, so that both libraries have
loaded what compiles, and the better code that Weft compiles in the background has been waited for. Beside the time of
a first call is the CPU time of all threads of the process, which other load changes less.

JAX fixes its number of devices when it is loaded, so each library runs in a process of its own; the processes take
turns, and each line shows the best of its rounds. A ratio below 1 says that Weft is quicker.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mesh_models import LAYERS, mlp, step_of, transformer, transformer_specs

DEVICES = 8


def load(library: str, cache: str | None = None) -> Any:
    """Import JAX or Weft with its devices; Weft with a folder for compiled code, if one is given."""
    if library == "jax":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        return jax
    os.environ["WEFT_NUM_CPU_DEVICES"] = str(DEVICES)
    if cache is None:
        os.environ["WEFT_COMPILATION_CACHE"] = "0"  # first calls compile everything, as those of JAX do
    else:
        os.environ["WEFT_COMPILATION_CACHE_DIR"] = cache
    import weft

    return weft


def best(lib: Any, function: Callable[..., Any], *args: Any, seconds: float = 0.4, calls: int | None = None) -> float:
    """Return the seconds of the fastest call, among a number of calls or of seconds."""
    for _ in range(3):
        lib.block_until_ready(function(*args))
    found, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < calls if calls else count < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        lib.block_until_ready(function(*args))
        found = min(found, time.perf_counter() - start)
        count += 1
    return found


def mesh_of(lib: Any, shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
    return lib.make_mesh(shape, names, (lib.sharding.AxisType.Auto,) * len(names))


def dispatch(lib: Any) -> Iterator[tuple[str, float]]:
    """Measure calls of small programs, and collectives of 32 bytes a device."""
    lax, P = lib.lax, lib.sharding.PartitionSpec
    mesh = mesh_of(lib, (DEVICES,), ("d",))
    split = lib.sharding.NamedSharding(mesh, P("d"))
    x = lib.device_put(np.arange(8.0 * DEVICES, dtype=np.float32).reshape(DEVICES, 8), split)
    yield "jit x + 1, split", best(lib, lib.jit(lambda x: x + 1), x)
    many = [lib.device_put(np.full((DEVICES, 8), i, np.float32), split) for i in range(40)]
    yield "jit of 40 arrays, split", best(lib, lib.jit(lambda xs: [x + 1 for x in xs]), many)

    def mapped(body: Callable[..., Any], out: Any) -> Any:
        options = {"mesh": mesh, "in_specs": P("d"), "out_specs": out, "check_vma": False}
        return lib.jit(lib.shard_map(body, **options))

    yield "psum of 32 B, a call", best(lib, mapped(lambda x: lax.psum(x, "d"), P()), x)

    def in_a_row(x: Any) -> Any:
        for _ in range(20):
            x = lax.psum(x * 0.1, "d")
        return x

    yield "psum of 32 B, one of 20 in a program", best(lib, mapped(in_a_row, P()), x) / 20

    def in_a_scan(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.psum(c * 0.1, "d"), None), x, None, length=200)[0]

    yield "psum of 32 B, an iteration of a scan", best(lib, mapped(in_a_scan, P()), x) / 200
    large = lib.device_put(np.ones((DEVICES, 1 << 20), np.float32), split)
    yield "psum of 4 MB", best(lib, mapped(lambda x: lax.psum(x, "d"), P()), large)
    ring = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
    yield "ppermute of 32 B, a call", best(lib, mapped(lambda x: lax.ppermute(x, "d", ring), P("d")), x)
    if hasattr(lib, "pmap"):
        yield "pmap x + 1", best(lib, lib.pmap(lambda x: x + 1), x)
    yield from donated(lib, split)
    yield from placing(lib, mesh)


def donated(lib: Any, split: Any) -> Iterator[tuple[str, float]]:
    """Measure calls of a step that donates its state, as training loops do."""
    for what, columns in (("small arrays", 8), ("arrays of 64 KB", 2048)):
        step = lib.jit(lambda xs: [x + 1 for x in xs], donate_argnums=0)
        state = [[lib.device_put(np.full((DEVICES, columns), i, np.float32), split) for i in range(40)]]

        def call(step: Any = step, state: Any = state) -> Any:
            state[0] = step(state[0])
            return state[0]

        yield f"jit of 40 {what}, donated", best(lib, call)


def placing(lib: Any, mesh: Any) -> Iterator[tuple[str, float]]:
    """Measure moving an array of 1 MB to devices, between shardings, and back."""
    P = lib.sharding.PartitionSpec
    rows, columns, whole = (lib.sharding.NamedSharding(mesh, spec) for spec in (P("d"), P(None, "d"), P()))
    value = np.ones((DEVICES, 1 << 15), np.float32)
    yield "device_put of 1 MB to 8 devices", best(lib, lambda: lib.device_put(value, rows))
    yield "device_put of 1 MB to 8 devices, columns", best(lib, lambda: lib.device_put(value, columns))
    yield "device_put of 1 MB to 8 devices, replicated", best(lib, lambda: lib.device_put(value, whole))
    x, add = lib.device_put(value, rows), lib.jit(lambda x: x + 1)
    yield "device_put of 1 MB, rows to columns", best(lib, lambda: lib.device_put(x, columns))
    found = float("inf")
    for _ in range(100):
        y = lib.block_until_ready(add(x))
        start = time.perf_counter()
        np.asarray(y)
        found = min(found, time.perf_counter() - start)
    yield "np.asarray of 1 MB on 8 devices", found


def mlp_specs(P: Any, f: Any, t: Any) -> Any:
    """Return the axes (data, tensor) that split the parameters of the MLP."""
    even, odd = {"w": P(f, t), "b": P(t)}, {"w": P(t, f), "b": P(f)}
    return [even if i % 2 == 0 else odd for i in range(LAYERS)]


def steps(lib: Any) -> Iterator[tuple[str, float]]:
    """Measure one training step, and the time to its first result, with the usual shardings."""
    P, tree = lib.sharding.PartitionSpec, lib.tree_util
    warm(lib)
    for name, model, specs in (("MLP", mlp, mlp_specs), ("transformer", transformer, transformer_specs)):
        loss, params, batch = model(lib)
        for way, shape, axes, by, batch_spec in (
            ("DP", (DEVICES,), ("d",), (None, None), P("d")),
            ("FSDP", (DEVICES,), ("d",), ("d", None), P("d")),
            ("TP", (DEVICES,), ("t",), (None, "t"), P()),
            ("FSDP x TP", (DEVICES // 2, 2), ("d", "t"), ("d", "t"), P("d")),
        ):
            mesh = mesh_of(lib, shape, axes)
            named = lambda spec, mesh=mesh: lib.sharding.NamedSharding(mesh, spec)
            is_spec = lambda x: isinstance(x, P)
            shardings = tree.tree_map(named, specs(P, *by), is_leaf=is_spec)
            there = tree.tree_map(lib.device_put, params, shardings)
            data = lib.device_put(batch, named(batch_spec))
            step = lib.jit(step_of(lib, loss), out_shardings=(shardings, named(P())))
            wait_for_background(lib)
            start, work = time.perf_counter(), time.process_time()
            lib.block_until_ready(step(there, data))
            yield f"{name} {way}: first call", time.perf_counter() - start
            yield f"{name} {way}: first call, CPU time", time.process_time() - work
            yield f"{name} {way}: step", best(lib, step, there, data, seconds=1.0)


def warm(lib: Any) -> None:
    """Compile a program for all devices that has nothing to do with those that are measured."""
    mesh = mesh_of(lib, (DEVICES,), ("d",))
    split = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("d"))
    x = lib.device_put(np.ones((DEVICES, 3), np.float32), split)
    lib.block_until_ready(lib.jit(lambda x: lib.numpy.sin(x).sum(0) @ x.T)(x))


def wait_for_background(lib: Any) -> None:
    """Wait for what compiles in threads of the library."""
    if lib.__name__ == "weft":
        from weft.runtime.cpu import tiers

        tiers.wait()


GROUPS = {"dispatch": dispatch, "steps": steps}


def environment() -> dict[str, str]:
    """Return the environment of the processes: both libraries have their bytecode on disk, as installed packages do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def second_process() -> dict[str, float]:
    """Measure first calls of a process that finds its programs on disk, by name; another one has stored them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--library", "weft", "--only", "steps", "--cache", folder]
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: seconds for name, seconds in found.items() if ": first call" in name}


def measure(library: str, groups: list[str], cache: str | None = None) -> dict[str, float]:
    lib = load(library, cache)
    return {name: seconds for group in groups for name, seconds in GROUPS[group](lib)}


def in_process(library: str, only: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--library", library, "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise RuntimeError(f"{library} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--library", help="measure one library in this process and print JSON")
    parser.add_argument("--cache", help="a folder for compiled programs; without it first calls compile everything")
    parser.add_argument("--stored", action="store_true", help="first calls of Weft from programs on disk as well")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.only.split(","), options.cache)))
        return
    compileall.compile_dir(pathlib.Path(__file__).parents[1] / "weft", quiet=2)
    found: dict[str, dict[str, float]] = {"weft": {}, "jax": {}}
    for _ in range(options.rounds):
        for library, rows in found.items():
            for name, seconds in in_process(library, options.only).items():
                rows[name] = min(seconds, rows.get(name, seconds))
    print(f"{'':<44}{'Weft':>12}{'JAX':>12}{'ratio':>8}")
    for name, seconds in found["weft"].items():
        other = found["jax"].get(name)
        if other is not None:
            print(f"{name:<44}{seconds * 1e6:>10.1f}us{other * 1e6:>10.1f}us{seconds / other:>8.2f}")
    if options.stored:
        print("from programs that another process has stored:")
        for name, seconds in second_process().items():
            other = found["jax"].get(name, float("nan"))
            print(f"{name:<44}{seconds * 1e6:>10.1f}us{other * 1e6:>10.1f}us{seconds / other:>8.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
