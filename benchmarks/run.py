"""`make bench`: Weft against JAX, NumPy and, if it is installed, PyTorch, in one run.

Prints a table, marks benchmarks that exceed their bound or are slower than NumPy, compares with the last release, and
writes the results as JSON.

python benchmarks/run.py [--json FILE] [--quick] [--check] [--only GROUP ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import lines
import models
import newton_cg
import processes
import programs
from bench import Bench
from libraries import PEERS, TITLES, installed, versions
from measure import Line, Result, compare
from report import last_release, losses, newton_table, text_table

GROUPS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "tracing": programs.tracing,
    "calling": programs.calling,
    "maps": lines.maps,
    "reductions": lines.reductions,
    "orders": lines.orders,
    "data_movement": lines.data_movement,
    "matmuls": lines.matmuls,
    "convolutions": lines.convolutions,
    "loops": programs.loops,
    "routines": programs.routines,
    "steps": programs.steps,
}
# Groups that compare with libraries built on JAX.
WITH_PEERS = {"optimizer_update": ("optax",), "linen_step": ("optax", "flax")}
# Groups measured in separate processes, and the above.
FRESH = ("imports", "first_calls", "second_processes", *WITH_PEERS, "newton_cg")


def fresh_results(group: str, peers: tuple[str, ...], quick: bool, small: bool) -> Iterator[Result]:
    sides = ("weft", *(peer for peer in peers if peer == "jax"))
    repeats = 1 if quick or small else 5
    if group == "imports":
        yield processes.imports(sides, repeats)
    elif group == "first_calls":
        yield from processes.first_calls(sides, repeats, (1,) if small else (4, 8) if quick else (4, 12, 24))
    elif group == "second_processes":
        yield from processes.second_processes(sides, repeats)
    elif small or "jax" not in sides:
        return
    elif group in WITH_PEERS and all(installed(peer) for peer in WITH_PEERS[group]):
        yield from importlib.import_module(group).results(quick)


def budgets(bench: Bench) -> list[str]:
    """Return the cost of tracing in Weft, and its budget."""
    f = bench.weft
    loss, arguments = models.mlp(f), programs.own(f, models.mlp_arguments())

    def median_of(function: Callable[[], Any]) -> float:
        function()
        times = []
        for _ in range(20):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    forward = median_of(lambda: f.top.make_jaxpr(lambda *a: loss(*a))(*arguments))
    equations = len(f.top.make_jaxpr(loss)(*arguments).eqns)
    both = median_of(lambda: f.top.make_jaxpr(f.top.value_and_grad(lambda *a: loss(*a)))(*arguments))
    return [
        f"trace: {forward / equations * 1e6:.1f} us per equation (budget 30)",
        f"jvp and transpose: {(both - forward) / forward:.1f} x trace (budget 3)",
    ]


def processor() -> str:
    """Return the name of the processor, if the system has it."""
    try:
        rows = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    return names[0] if names else platform.machine()


def load() -> float | None:
    """Return the load average of the last minute per core, or None if the system does not have it."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None


def main() -> None:
    # Idle threads of PyTorch must not spin on the cores of the library that runs next.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Weft's arrays are on the CPU unless told otherwise; JAX's are on a GPU where there is one.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="few repeats, fewer layers")
    parser.add_argument("--check", action="store_true", help="tiny arrays: check that all libraries compute the same")
    parser.add_argument("--only", nargs="+", choices=(*FRESH, *GROUPS), help="time nothing else")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="leave out the others")
    args = parser.parse_args()
    bench = Bench(args.peers, args.check)
    missing = [TITLES[peer] for peer in args.peers if peer not in bench.peers]
    if missing:
        print(f"Not installed, and skipped: {', '.join(missing)}.", file=sys.stderr)
    busy = load()
    if busy is not None and busy > 0.5:
        print(f"This machine is busy ({busy:.1f} processes per core): compare work instead of time.", file=sys.stderr)
    wanted = args.only or (*FRESH, *GROUPS)
    results: list[Result] = []

    def keep(result: Result, group: str) -> None:
        results.append(dataclasses.replace(result, group=group))
        print(text_table(results[-1:]).splitlines()[-1], flush=True)

    for group in FRESH:
        if group in wanted:
            for result in fresh_results(group, bench.peers, args.quick, args.check):
                keep(result, group)
    for group, make in GROUPS.items():
        if group in wanted:
            for line in make(bench):  # lazily, so that the memory of one is free for the next
                if args.check and group not in ("tracing", "calling"):
                    bench.check(line)
                keep(compare(line, 1 if args.check else 5 if args.quick else None), group)
    fits = newton_cg.fits(bench.peers, args.quick or args.check, args.check) if "newton_cg" in wanted else []
    print(f"\n{', '.join(f'{TITLES[k]} {v}' for k, v in versions(('weft', *bench.peers)).items())}\n")
    print(text_table(results))
    if fits:
        print("\nTruncated Newton-CG on one thread:")
        print(newton_table(fits, page=False))
    print()
    for text in budgets(bench) if "tracing" in wanted else []:
        print(text)
    short = sum(result.falls_short for result in results)
    bounded = sum(result.at_most is not None and result.ratio() is not None for result in results)
    print(f"{short} of {bounded} lines exceed their bound.")
    before = last_release()
    for text in losses(results, before) if before and not args.check else []:
        print(f"slower than in {before['versions']['weft']}: {text}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {
            "python": platform.python_version(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "load": busy,
        }
        written = {
            "versions": versions(("weft", *bench.peers)),
            "machine": machine,
            "lines": [result.as_json() for result in results],
            "newton_cg": fits,
        }
        args.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
