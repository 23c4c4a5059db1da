"""Seconds until processes run and until they have joined: weft.launch beside mpiexec, torchrun and JAX.

    python benchmarks/starting.py [--rounds 5] [--processes 2] [--peer-python PATH] [--json out.json]

All take turns, and each line shows the least of its rounds, with its ratio to weft.launch. The peer's Python has JAX
and PyTorch; rows without their package are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTHING = "pass\n"
WEFT = "import weft\nweft.distributed.initialize()\nassert weft.process_count() > 1\n"
JAX = """
import os, sys
import jax
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
assert jax.process_count() > 1
"""


def has(python: str, package: str) -> bool:
    """Return whether an interpreter can import a package."""
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def run(commands: list[list[str]]) -> float:
    """Run commands at once; return the seconds until all have ended without an error."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        running = [
            subprocess.Popen(c, env=settings, stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT) for c in commands
        ]
        codes = [process.wait() for process in running]
        seconds = time.perf_counter() - begin
        errors.seek(0)
        assert not any(codes), f"{commands} ended with {codes}\n{errors.read().decode()}"
    return seconds


def rows(folder: pathlib.Path, count: int, peer: str) -> dict[str, Callable[[], float]]:
    """Return what is measured, by name."""
    for name, text in (("nothing", NOTHING), ("by_weft", WEFT), ("by_jax", JAX)):
        (folder / f"{name}.py").write_text(text)
    mpiexec = pathlib.Path(sys.executable).with_name("mpiexec")
    launch = [sys.executable, "-m", "weft.launch", "-n", str(count)]
    found = {"run: weft.launch": lambda: run([[*launch, str(folder / "nothing.py")]])}
    if mpiexec.exists():
        by_mpi = [str(mpiexec), "-n", str(count), sys.executable]
        found["run: mpiexec"] = lambda: run([[*by_mpi, str(folder / "nothing.py")]])
    if has(peer, "torch"):
        torchrun = [peer, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
        found["run: torchrun"] = lambda: run([[*torchrun, str(folder / "nothing.py")]])
    found["joined: weft.launch"] = lambda: run([[*launch, str(folder / "by_weft.py")]])
    if mpiexec.exists():
        found["joined: mpiexec, Weft"] = lambda: run([[*by_mpi, str(folder / "by_weft.py")]])
    if has(peer, "jax"):

        def jax() -> float:
            with socket.create_server(("", 0)) as free:
                address = f"localhost:{free.getsockname()[1]}"
            return run([[peer, str(folder / "by_jax.py"), address, str(count), str(i)] for i in range(count)])

        found["joined: JAX, by hand"] = jax
    return found


def main() -> None:
    """Measure in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = rows(pathlib.Path(folder), options.processes, options.peer_python)
        least = dict.fromkeys(found, float("inf"))
        for _ in range(options.rounds):
            for name, measure in found.items():
                least[name] = min(least[name], measure())
    for name, seconds in least.items():
        reference = least[f"{name.partition(':')[0]}: weft.launch"]
        print(f"{name:24} {seconds:7.3f} s {seconds / reference:7.2f} x")
    if options.json is not None:
        options.json.write_text(json.dumps(least, indent=1))


if __name__ == "__main__":
    main()
