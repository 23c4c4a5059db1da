"""Asynchronous saves beside Orbax: seconds that the caller is held, CPU seconds, and memory that a save takes.

    python benchmarks/checkpoints.py [--megabytes 256] [--rounds 3] [--json out.json]

The arrays are split over 8 virtual CPU devices. JAX fixes its number of devices when it is loaded, so each library runs
in a process of its own; the processes take turns, and each line shows the best of its rounds. "donated" is a step that
donates the arrays while they are written, in milliseconds: Weft copies them then. A ratio below 1 says that Weft is
better.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from many_devices import load

ARRAYS, COLUMNS = 32, 1024


def resident() -> float:
    """Return the resident memory of this process, in MB."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(library: str, megabytes: int) -> dict[str, float]:
    """Save once to warm up, then measure a save, and a donating step while the next one is written."""
    lib = load(library)
    if library == "jax":
        import orbax.checkpoint as orbax

        saver = orbax.AsyncCheckpointer(orbax.StandardCheckpointHandler())
        save = lambda path, tree: saver.save(path, args=orbax.args.StandardSave(tree))
        wait = saver.wait_until_finished
    else:
        manager = lib.checkpointing.CheckpointManager(tempfile.mkdtemp())
        save = lambda path, tree: manager.save(int(pathlib.Path(path).name), tree)
        wait = manager.wait_until_finished
    mesh = lib.make_mesh((8,), ("x",), axis_types=(lib.sharding.AxisType.Auto,))
    split = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("x"))
    rows = megabytes * 1_000_000 // (ARRAYS * COLUMNS * 4) // 8 * 8
    tree = {f"w{i}": lib.device_put(np.full((rows, COLUMNS), i, np.float32), split) for i in range(ARRAYS)}
    step = lib.jit(lambda t: {name: a * 2 for name, a in t.items()}, donate_argnums=0)
    tree = lib.block_until_ready(step(lib.block_until_ready(step(tree))))
    folder = pathlib.Path(tempfile.mkdtemp())
    save(folder / "0", tree)
    wait()
    before, cpu, start = resident(), time.process_time(), time.perf_counter()
    save(folder / "1", tree)
    held, taken = time.perf_counter() - start, resident() - before
    wait()
    found = {"held_seconds": held, "cpu_seconds": time.process_time() - cpu, "megabytes_taken": max(taken, 0.0)}
    save(folder / "2", tree)
    start = time.perf_counter()
    lib.block_until_ready(step(tree))
    found["donated_milliseconds"] = (time.perf_counter() - start) * 1e3
    wait()
    shutil.rmtree(folder)
    if library == "weft":
        shutil.rmtree(manager.directory)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--library")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.megabytes)))
        return
    best: dict[str, dict[str, float]] = {"weft": {}, "jax": {}}
    for _ in range(options.rounds):
        for library, found in best.items():
            command = [sys.executable, __file__, "--library", library, "--megabytes", str(options.megabytes)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                found[name] = min(value, found.get(name, value))
    for name, value in best["weft"].items():
        other: Any = best["jax"][name]
        ratio = f"{value / other:.2f}" if other else "-"
        print(f"{name:22} Weft {value:9.3f}   Orbax {other:9.3f}   ratio {ratio}")
    if options.json:
        options.json.write_text(json.dumps(best))


if __name__ == "__main__":
    main()
