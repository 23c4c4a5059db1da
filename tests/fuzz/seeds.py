"""Command line of a random test that is a function of a seed: named seeds, or a range of them."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterable

import weft

Check = Callable[[int], str]


def prepare() -> None:
    """Apply the settings of every process that checks seeds."""
    weft.config.update("num_cpu_devices", 8)
    weft.config.update("compilation_cache", False)


def judged(check: Check, seed: int) -> tuple[int, str]:
    return seed, check(seed)


def outcomes(check: Check, seeds: Iterable[int], processes: int) -> Iterable[tuple[int, str]]:
    """Yield each seed with its outcome."""
    one = functools.partial(judged, check)
    if processes == 1:
        prepare()
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, prepare) as pool:
        yield from pool.imap_unordered(one, seeds, 20)


def main(check: Check, description: str | None) -> None:
    """Check seeds, print failures and how often each outcome was, and exit with 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    seeds = options.seeds or range(options.first, options.first + options.count)
    for seed, found in outcomes(check, seeds, options.processes):
        counts[found.split(":")[0]] += 1
        if found.startswith("failed") or options.seeds:
            print(seed, found, flush=True)
    print(dict(sorted(counts.items())))
    sys.exit(bool(counts["failed"]))
