"""Interleaved timing of several libraries in one process, so that noise of the machine affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# A benchmark that takes longer than this times NumPy's time is marked, whatever its bound against JAX is.
NUMPY_BOUND = 1.2


@dataclass(frozen=True)
class Line:
    """Line of the table: the same work in each library, and an upper bound of the ratio to JAX (or None)."""

    name: str
    sides: Mapping[str, Callable[[], object]]
    at_most: float | None = None
    repeats: int = 20


@dataclass(frozen=True)
class Times:
    """Seconds of one library: the median, which ratios use, the best, and the least CPU time of all threads, which is
    meaningful on a busy machine too (None: not measured)."""

    median: float
    best: float
    work: float | None = None

    @staticmethod
    def of(samples: list[float], work: list[float] | None = None) -> Times:
        return Times(statistics.median(samples), min(samples), min(work) if work else None)


@dataclass(frozen=True)
class Result:
    name: str
    times: Mapping[str, Times]
    at_most: float | None = None
    group: str = field(default="", kw_only=True)

    def ratio(self, peer: str = "jax") -> float | None:
        """Return Weft's time over a peer's, or None if one of the two was not measured."""
        if peer not in self.times or "weft" not in self.times:
            return None
        return self.times["weft"].median / self.times[peer].median

    def work_ratio(self, peer: str = "jax") -> float | None:
        """Return the ratio of CPU times."""
        ours, theirs = (self.times[side].work if side in self.times else None for side in ("weft", peer))
        return None if ours is None or not theirs else ours / theirs

    @property
    def falls_short(self) -> bool:
        ratio = self.ratio()
        return self.at_most is not None and ratio is not None and ratio > self.at_most

    @property
    def marks(self) -> list[str]:
        """Problems of this result, as text."""
        found = ["falls short"] if self.falls_short else []
        numpy = self.ratio("numpy")
        if numpy is not None and numpy > NUMPY_BOUND:
            found.append(f"{numpy:.1f} x NumPy")
        torch, jax = self.times.get("torch"), self.times.get("jax")
        if torch is not None and torch.median < min(self.times["weft"].median, jax.median if jax else float("inf")):
            found.append("PyTorch is first")
        return found

    def as_json(self) -> dict[str, Any]:
        times = {side: {"median": t.median, "best": t.best, "work": t.work} for side, t in self.times.items()}
        return {"name": self.name, "group": self.group, "seconds": times, "at_most": self.at_most}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Result:
        times = {side: Times(**seconds) for side, seconds in row["seconds"].items()}
        return Result(row["name"], times, row["at_most"], group=row["group"])


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Measure wall-clock and CPU time of one call; a very short one is repeated and averaged."""
    start, worked = time.perf_counter(), time.process_time()
    function()
    once, work = time.perf_counter() - start, time.process_time() - worked
    if once > 2e-4:
        return once, work
    count = max(1, int(2e-4 / max(once, 1e-7)))
    start, worked = time.perf_counter(), time.process_time()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count, (time.process_time() - worked) / count


# The length of one pause, the fraction of it that may be CPU time, and the largest number of pauses.
REST, AT_WORK, MOST_RESTS = 2e-3, 0.2, 50


def rest() -> None:
    """Wait until all threads of this process are idle. Threads of a library that has just run spin, those of NumPy's
    BLAS for tens of milliseconds, and would take a core from the library that runs next."""
    for _ in range(MOST_RESTS):
        worked = time.process_time()
        time.sleep(REST)
        if time.process_time() - worked < REST * AT_WORK:
            return


def compare(line: Line, repeats: int | None = None) -> Result:
    """Time each library in interleaved repeats, after a warm-up. Before each sample all threads are idle, and an
    untimed call wakes those of the library. Each round starts with another library."""
    for side in line.sides.values():
        side()
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in line.sides}
    order = list(line.sides)
    for _ in range(line.repeats if repeats is None else min(repeats, line.repeats)):
        for name in order:
            rest()
            line.sides[name]()
            samples[name].append(seconds(line.sides[name]))
        order.append(order.pop(0))
    times = {name: Times.of([t for t, _ in taken], [work for _, work in taken]) for name, taken in samples.items()}
    return Result(line.name, times, line.at_most)
