"""Timing two libraries beside each other in one process, interleaved, so that noise of the machine hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of the table: the same work in Weft and in a peer, and the ratio we aim for (None: shown only)."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    at_most: float | None = None
    repeats: int = 20


@dataclass(frozen=True)
class Result:
    name: str
    ours: float
    theirs: float
    at_most: float | None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def falls_short(self) -> bool:
        return self.at_most is not None and self.ratio > self.at_most


def seconds(function: Callable[[], object]) -> float:
    """One call, repeated within the clock's resolution when it is very short."""
    start = time.perf_counter()
    function()
    once = time.perf_counter() - start
    if once > 2e-4:
        return once
    count = max(1, int(2e-4 / max(once, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def compare(line: Line) -> Result:
    """Medians over interleaved repeats, after one warm-up of each."""
    line.ours(), line.theirs()
    ours, theirs = [], []
    for _ in range(line.repeats):
        ours.append(seconds(line.ours))
        theirs.append(seconds(line.theirs))
    return Result(line.name, statistics.median(ours), statistics.median(theirs), line.at_most)


def shown(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1 or unit == "us":
            return f"{value * scale:8.2f} {unit}"
    raise AssertionError


def table(results: list[Result], peer: str) -> str:
    """The table as text; lines above their bound are marked."""
    rows = [f"{'':44s} {'Weft':>11s} {peer:>11s} {'ratio':>7s} {'at most':>8s}"]
    for r in results:
        bound = "" if r.at_most is None else f"{r.at_most:8.2f}"
        mark = "  <- falls short" if r.falls_short else ""
        rows.append(f"{r.name:44s} {shown(r.ours):>11s} {shown(r.theirs):>11s} {r.ratio:7.2f} {bound:>8s}{mark}")
    return "\n".join(rows)
