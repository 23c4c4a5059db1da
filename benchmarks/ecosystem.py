"""Step times of programs written with libraries for JAX, on Weft and on JAX, which alternate.

    python benchmarks/ecosystem.py [NAME ...] [--repetitions 60] [--rounds 1] [--json build/ecosystem.json]

Each program of tests/ecosystem/programs runs in two processes, one on Weft and one on JAX, which alternate every few
milliseconds. Columns are the smallest wall time of a step and its ratio, which other work on the machine disturbs
least, then the median CPU time of a step over all threads and its ratio. Several rounds start the processes anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.ecosystem.references import ROOT, command_of
from tests.ecosystem.run import PROGRAMS

SIDES = {"weft": True, "jax": False}
# Seconds after which no other repetition is begun.
LONGEST = 60.0


class Side:
    """Program in a process of its own, which runs steps on request."""

    def __init__(self, name: str, *, on_weft: bool, warm: float) -> None:
        self.command = command_of(name, "--time", "--warm", str(warm), on_weft=on_weft)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def read(self) -> dict[str, float]:
        """Return the next line that is JSON: libraries print lines of their own."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(line)
        raise RuntimeError(f"{' '.join(self.command)} ended with code {self.process.wait()}")

    def run_steps(self, seconds: float) -> dict[str, float]:
        """Run steps for about the given seconds; return {"wall": milliseconds of a step, "cpu": ...}."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, repetitions: int, seconds: float, warm: float) -> dict[str, list[dict[str, float]]]:
    """Return the times of each side, which alternate; fewer for programs with slow steps."""
    sides = {side: Side(name, on_weft=on_weft, warm=warm) for side, on_weft in SIDES.items()}
    for side in sides.values():
        side.read()
    times: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    start = time.perf_counter()
    for _ in range(repetitions):
        for side, process in sides.items():
            times[side].append(process.run_steps(seconds))
        if time.perf_counter() - start > LONGEST:
            break
    for process in sides.values():
        process.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.02, help="how long each repetition is")
    parser.add_argument("--warm", type=float, default=3.0)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = {}
    print(f"{'program':<22}{'Weft ms':>10}{'JAX ms':>10}{'ratio':>7}{'Weft CPU':>10}{'JAX CPU':>10}{'ratio':>7}")
    for name in options.programs or PROGRAMS:
        times: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side, more in measure(name, options.repetitions, options.seconds, options.warm).items():
                times[side] += more
        row = {f"{side}_ms": min(one["wall"] for one in times[side]) for side in SIDES}
        row |= {f"{side}_cpu_ms": statistics.median(one["cpu"] for one in times[side]) for side in SIDES}
        row["ratio"], row["cpu_ratio"] = row["weft_ms"] / row["jax_ms"], row["weft_cpu_ms"] / row["jax_cpu_ms"]
        rows[name] = row
        wall = f"{row['weft_ms']:>10.3f}{row['jax_ms']:>10.3f}{row['ratio']:>7.2f}"
        processor = f"{row['weft_cpu_ms']:>10.3f}{row['jax_cpu_ms']:>10.3f}{row['cpu_ratio']:>7.2f}"
        print(f"{name:<22}{wall}{processor}", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
