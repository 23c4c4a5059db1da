"""What follows from the pages of all processes: differences, ends that others wait for, late processes, deadlocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weft.runtime.processes.page import Difference

Pages = Mapping[int, dict[str, Any]]


class Arrival(NamedTuple):
    """A process at a barrier: since when, and the error by which it failed before."""

    time: float
    failure: str | None


# The processes at each barrier, by the name of the barrier and the number of times it was called.
Barriers = Mapping[tuple[str, int], Mapping[int, Arrival]]


class Late(NamedTuple):
    """A process that others wait for: the section, for how many seconds, and how many wait."""

    what: str
    seconds: float
    waiting: int


class Absent(NamedTuple):
    """A process that has ended while others wait for it in a section."""

    rank: int
    what: str


def find_difference(pages: Pages, is_known: Callable[[int, int], bool]) -> Difference | None:
    """Find a section in which two processes differ, unless `is_known` of the two."""
    seen: dict[tuple[Any, int], tuple[int, str, str]] = {}
    for rank, page in sorted(pages.items()):
        for ranks, entries in page["records"]:
            for count, chain, what in entries:
                before = seen.setdefault((tuple(ranks), count), (rank, chain, what))
                if before[1] != chain and not is_known(before[0], rank):
                    return Difference(tuple(ranks), count, (before[0], before[2]), (rank, what))
    return None


def find_absent(pages: Pages, barriers: Barriers) -> Absent | None:
    """Find a process that has ended while others wait for it.

    One that ended without an error has sent all messages of the sections that it took part in.
    """
    for rank, page in pages.items():
        if page["ended"] is None:
            continue
        for other in pages.values():
            if other["ended"] is None and other["wait"] and rank in other["wait"][0]:
                if page["failed"] or has_begun_more(other, page):
                    return Absent(rank, other["wait"][1])
        for (name, _), arrived in barriers.items():
            if rank not in arrived:
                return Absent(rank, f"the barrier {name!r}")
    return None


def find_late(pages: Pages, barriers: Barriers, patience: float, now: float) -> dict[int, Late]:
    """Find the processes that others wait for, longer than their patience, while they wait for nothing."""
    late: dict[int, Late] = {}
    for page in pages.values():
        if page["wait"] is None or page["wait"][2] < patience:
            continue
        for rank in page["wait"][0]:
            other = pages.get(rank)
            if other is not None and other["wait"] is None and other["ended"] is None:
                if page["wait"][3] and not other["sections"] and not has_begun_more(page, other):
                    continue  # it has started everything that the others wait for
                what, seconds, count = late.get(rank, (page["wait"][1], 0.0, 0))
                late[rank] = Late(what, max(seconds, page["wait"][2]), count + 1)
    for (name, _), arrived in barriers.items():
        seconds = now - min(arrival.time for arrival in arrived.values())
        for rank in pages if seconds >= patience else ():
            if rank not in arrived:
                late.setdefault(rank, Late(f"the barrier {name!r}", seconds, len(arrived)))
    return late


def find_deadlock(pages: Pages, size: int, patience: float) -> Late | None:
    """Return for how long all processes wait for each other, if none of them computes: messages do not arrive."""
    waits = [page["wait"] for page in pages.values() if page["ended"] is None]
    if len(pages) < size or len(waits) < 2 or not all(w is not None and w[2] >= patience and not w[3] for w in waits):
        return None
    sections = "; ".join(
        f"process {rank} waits for {_name_ranks(page['wait'][0])} in {page['wait'][1]}"
        for rank, page in sorted(pages.items())[:8]
        if page["ended"] is None
    )
    return Late(sections, min(w[2] for w in waits), len(waits))


def has_begun_more(page: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a process has begun a section with another one that the other has not begun."""
    counts = {tuple(ranks): entries[-1][0] for ranks, entries in other["records"]}
    return any(
        other["rank"] in ranks and entries[-1][0] > counts.get(tuple(ranks), 0) for ranks, entries in page["records"]
    )


def _name_ranks(ranks: Sequence[int]) -> str:
    return f"process {ranks[0]}" if len(ranks) == 1 else f"processes {', '.join(map(str, ranks))}"


def list_failures(arrived: Mapping[int, Arrival]) -> list[list[Any]]:
    """Return the ranks at a barrier that have failed, with their errors."""
    failed: Iterable[tuple[int, str | None]] = ((rank, arrival.failure) for rank, arrival in sorted(arrived.items()))
    return [[rank, failure] for rank, failure in failed if failure is not None]
