"""Choice among the algorithms that a library proposes: the fastest of the first ones, which is pinned on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from weft.compiler import cache
from weft.compiler.schedules import get_pin, pin
from weft.compiler.target.target import ANY

# Proposals that are measured, and how often each is in each round.
MOST_MEASURED, REPETITIONS, ROUNDS = 8, 3, 3
# A proposal that takes longer than the best by this factor in the first round is dropped.
HOPELESS = 1.5


def choose_fastest(
    calls: Any,
    what: str,
    candidates: Sequence[tuple[str, Callable[..., None]]],
    sizes: Sequence[int],
    most: int = MOST_MEASURED,
) -> int:
    """Return the index of the fastest candidate.

    Each has a name, which is pinned under `what` for this GPU, and a function of a stream and addresses of memory with
    these sizes. At most `most` are measured.
    """
    key = cache.schedule_key(f"{what} on {calls.gpu}", ANY)
    names = [name for name, _ in candidates]
    before = get_pin(key)
    if before in names:
        return names.index(before)
    with ExitStack() as stack:
        addresses = [stack.enter_context(calls.driver.scratch(size)) for size in sizes]
        best, found = float("inf"), 0
        for i, (_, start) in enumerate(candidates[:most]):
            work = lambda stream, start=start: start(stream, addresses)
            seconds = calls.driver.measure_seconds(work, REPETITIONS, ROUNDS, HOPELESS * best)
            if seconds < best:
                best, found = seconds, i
    name = pin(key, names[found])
    return names.index(name) if name in names else found
