"""`make bench`: Weft beside JAX, NumPy and, where it is installed, PyTorch, in one run.

Prints a table, marks what falls short of its bound or behind NumPy, says what was lost since the last release, and
writes the numbers as JSON.

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
from faces import PEERS, TITLES, installed, versions
from measure import Line, Result, compare
from report import last_release, losses, newton_table, text_table

GROUPS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "tracing": programs.tracing,
    "calling": programs.calling,
    "maps": lines.maps,
    "folds": lines.folds,
    "orders": lines.orders,
    "moves": lines.moves,
    "products": lines.products,
    "convolutions": lines.convolutions,
    "loops": programs.loops,
    "routines": programs.routines,
    "steps": programs.steps,
}
# Groups that are compared with what builds on JAX.
WITH_PEERS = {"optimizer_update": ("optax",), "linen_step": ("optax", "flax")}
# Groups measured in processes of their own, and those.
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
    """What tracing costs, measured on Weft alone, beside what the design allows."""
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
        f"trace: {forward / equations * 1e6:.1f} us an equation (budget 30)",
        f"jvp and transpose: {(both - forward) / forward:.1f} x trace (budget 3)",
    ]


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        rows = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    return names[0] if names else platform.machine()


def load() -> float | None:
    """How many processes wanted to run in the last minute, for each core, or None where the system does not tell."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None


def main() -> None:
    # Threads of PyTorch that wait for work must not take the cores of the side that runs next.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--json", type=pathlib.Path, help="write the numbers to this file")
    ask.add_argument("--quick", action="store_true", help="few repeats, fewer layers")
    ask.add_argument(
        "--check", action="store_true", help="tiny arrays: do all sides compute the same? Times mean nothing"
    )
    ask.add_argument("--only", nargs="+", choices=(*FRESH, *GROUPS), help="time nothing else")
    ask.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="leave out the others")
    given = ask.parse_args()
    bench = Bench(given.peers, given.check)
    missing = [TITLES[peer] for peer in given.peers if peer not in bench.peers]
    if missing:
        print(f"Not installed here, and so not in the table: {', '.join(missing)}.", file=sys.stderr)
    busy = load()
    if busy is not None and busy > 0.5:
        print(f"This machine is busy ({busy:.1f} processes a core): look at work rather than at time.", file=sys.stderr)
    wanted = given.only or (*FRESH, *GROUPS)
    results: list[Result] = []

    def keep(result: Result, group: str) -> None:
        results.append(dataclasses.replace(result, group=group))
        print(text_table(results[-1:]).splitlines()[-1], flush=True)

    for group in FRESH:
        if group in wanted:
            for result in fresh_results(group, bench.peers, given.quick, given.check):
                keep(result, group)
    for group, make in GROUPS.items():
        if group in wanted:
            for line in make(bench):  # made one after the other, so that memory of one is free for the next
                if given.check and group not in ("tracing", "calling"):
                    bench.check(line)
                keep(compare(line, 1 if given.check else 5 if given.quick else None), group)
    fits = newton_cg.fits(bench.peers, given.quick or given.check, given.check) if "newton_cg" in wanted else []
    print(f"\n{', '.join(f'{TITLES[k]} {v}' for k, v in versions(('weft', *bench.peers)).items())}\n")
    print(text_table(results))
    if fits:
        print("\nTruncated Newton-CG on one thread:")
        print(newton_table(fits, page=False))
    print()
    for words in budgets(bench) if "tracing" in wanted else []:
        print(words)
    short = sum(result.falls_short for result in results)
    bounded = sum(result.at_most is not None and result.ratio() is not None for result in results)
    print(f"{short} of {bounded} lines with a bound fall short of it.")
    before = last_release()
    for words in losses(results, before) if before and not given.check else []:
        print(f"lost since {before['versions']['weft']}: {words}")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
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
        given.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
