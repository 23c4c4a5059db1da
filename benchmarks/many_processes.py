"""Two processes on one host beside JAX: sums between them, and a data-parallel training step.

    python benchmarks/many_processes.py [--rounds 3] [--json out.json] [--weft-python PATH] [--jax-python PATH]

Weft runs in one process, and in two that share memory or send messages of MPI; JAX runs in one, and in two with Gloo
(`jax.distributed`). All take turns, and each line shows the best of its rounds. Processes have one thread for each
core of their share. The pythons are those of environments with mpi4py and with JAX; by default both are this one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from many_devices import best, mlp, step_of

# How each column is started: the library, how many processes, and settings.
COLUMNS: dict[str, tuple[str, int, dict[str, str]]] = {
    "Weft, one": ("weft", 1, {}),
    "Weft, shared": ("weft", 2, {"WEFT_DISTRIBUTED_TRANSPORT": "shared_memory"}),
    "Weft, MPI": ("weft", 2, {"WEFT_DISTRIBUTED_TRANSPORT": "messages"}),
    "JAX, one": ("jax", 1, {}),
    "JAX, Gloo": ("jax", 2, {}),
}


def rows(lib: Any) -> Iterator[tuple[str, float]]:
    """Return the seconds of joint operations, as one of the processes sees them. Processes must make the same calls, so
    their number is fixed."""
    P, lax = lib.sharding.PartitionSpec, lib.lax
    count = lib.device_count()
    mesh = lib.make_mesh((count,), ("d",), (lib.sharding.AxisType.Auto,))
    split, whole = (lib.sharding.NamedSharding(mesh, spec) for spec in (P("d"), P()))

    def on_devices(value: np.ndarray, sharding: Any) -> Any:
        return lib.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    def mapped(body: Any) -> Any:
        return lib.jit(lib.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))

    def in_a_scan(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.psum(c * 0.1, "d"), None), x, None, length=50)[0]

    small = on_devices(np.ones((count, 8), np.float32), split)
    large = on_devices(np.ones((count, 1 << 20), np.float32), split)
    yield "psum of 32 B, a call", best(lib, mapped(lambda x: lax.psum(x, "d")), small, calls=300)
    yield "psum of 32 B, an iteration of a scan", best(lib, mapped(in_a_scan), small, calls=30) / 50
    yield "psum of 4 MB", best(lib, mapped(lambda x: lax.psum(x * 0.5, "d")), large, calls=60)
    loss, params, batch = mlp(lib)
    params = lib.tree_util.tree_map(lambda leaf: on_devices(leaf, whole), params)
    data = lib.tree_util.tree_map(lambda leaf: on_devices(leaf, split), batch)
    step = lib.jit(step_of(lib, loss), out_shardings=(whole, whole))
    yield "MLP 4 x 512, batch 256: a step", best(lib, step, params, data, calls=40)


def measure(library: str, processes: int) -> None:
    """Measure in one of the processes; the first one prints the results."""
    if library == "jax":
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax as lib

        if processes > 1:
            lib.distributed.initialize(os.environ["COORDINATOR"], processes, int(os.environ["RANK"]))
    else:
        import weft as lib  # type: ignore[no-redef]

        lib.distributed.initialize()
    found = dict(rows(lib))
    if lib.process_index() == 0:
        print(json.dumps(found), flush=True)


def run(python: str, library: str, processes: int, settings: dict[str, str]) -> dict[str, float]:
    """Start the processes of a column and return what the first one prints."""
    share = max(1, (os.cpu_count() or 1) // processes)
    threads = f"--xla_cpu_multi_thread_eigen={'true' if share > 1 else 'false'} intra_op_parallelism_threads={share}"
    environment = os.environ | {"XLA_FLAGS": threads, "WEFT_NUM_THREADS": str(share)} | settings
    command = [python, __file__, "--measure", library, str(processes)]
    if library == "weft" and processes > 1:
        command = [python, "-m", "weft.launch", "-n", str(processes), *command[1:]]
        environments = [environment]
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environments = [environment | {"COORDINATOR": address, "RANK": str(rank)} for rank in range(processes)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started: list[Any] = [subprocess.Popen(command, env=e, **pipes) for e in environments]  # type: ignore[call-overload]
    ended = [process.communicate(timeout=600) for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"{library} in {processes} processes failed:\n{ended[0][1][-3000:]}")
    return json.loads(ended[0][0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--weft-python", default=sys.executable)
    parser.add_argument("--jax-python", default=sys.executable)
    parser.add_argument("--columns", default=",".join(f"{i}" for i in range(len(COLUMNS))), help="which, by index")
    parser.add_argument("--measure", nargs=2, metavar=("LIBRARY", "PROCESSES"), help="be one of the processes")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]))
        return
    pythons = {"weft": options.weft_python, "jax": options.jax_python}
    found: dict[str, dict[str, float]] = {list(COLUMNS)[int(i)]: {} for i in options.columns.split(",")}
    for _ in range(options.rounds):
        for column, times in found.items():
            library, processes, settings = COLUMNS[column]
            for name, seconds in run(pythons[library], library, processes, settings).items():
                times[name] = min(seconds, times.get(name, seconds))
    print(f"{'':<40}" + "".join(f"{column:>15}" for column in found))
    for name in next(iter(found.values())):
        print(f"{name:<40}" + "".join(f"{times[name] * 1e6:>13.1f}us" for times in found.values()))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
