"""Timing libraries beside each other in one process, interleaved, so that noise of the machine hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# A line may be this much slower than NumPy before it is marked, whatever its bound against JAX is.
NUMPY_BOUND = 1.2


@dataclass(frozen=True)
class Line:
    """One line of the table: the same work by each library, and the ratio to JAX we aim for (None: shown only)."""

    name: str
    sides: Mapping[str, Callable[[], object]]
    at_most: float | None = None
    repeats: int = 20


@dataclass(frozen=True)
class Times:
    """Seconds of one side of a line: the median, which ratios are made of, the best, and the least time that processors
    worked for it, all threads together. The last says on a busy machine what the others cannot; it was not measured
    where it is None."""

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
        """Weft's time over a peer's, or None where one of the two was not measured."""
        if peer not in self.times or "weft" not in self.times:
            return None
        return self.times["weft"].median / self.times[peer].median

    def work_ratio(self, peer: str = "jax") -> float | None:
        """The same of the time that processors worked."""
        ours, theirs = (self.times[side].work if side in self.times else None for side in ("weft", peer))
        return None if ours is None or not theirs else ours / theirs

    @property
    def falls_short(self) -> bool:
        ratio = self.ratio()
        return self.at_most is not None and ratio is not None and ratio > self.at_most

    @property
    def marks(self) -> list[str]:
        """What is not as it should be with this line, in words."""
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
    """Time and work of one call, repeated within the clock's resolution when it is very short."""
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


# How long a rest is at a time, which part of it may be work, and how many there are at most.
REST, AT_WORK, MOST_RESTS = 2e-3, 0.2, 50


def rest() -> None:
    """Wait until no thread of this process is at work. Threads of a side that has just run look for more of it, those
    of NumPy's library for tens of milliseconds, and would take a core from the side that runs next."""
    for _ in range(MOST_RESTS):
        worked = time.process_time()
        time.sleep(REST)
        if time.process_time() - worked < REST * AT_WORK:
            return


def compare(line: Line, repeats: int | None = None) -> Result:
    """Times over interleaved repeats, after one warm-up of each side. Before each sample all threads come to rest, and
    then those of the side are woken by a call that is not counted. Each turn starts with another side."""
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
