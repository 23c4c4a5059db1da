"""Which of the algorithms that a library proposes is used: the quickest of the first ones, which is pinned on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from weft.compiler import cache
from weft.compiler.schedules import get_pin, pin
from weft.compiler.target.target import ANY

# The first so many proposals are measured, each so many times in so many rounds.
MOST_MEASURED, REPETITIONS, ROUNDS = 8, 3, 3
# Those that took longer than the best by so much in the first round have lost.
HOPELESS = 1.5


def chosen(
    calls: Any,
    what: str,
    candidates: Sequence[tuple[str, Callable[..., None]]],
    sizes: Sequence[int],
    most: int = MOST_MEASURED,
) -> int:
    """The index of the quickest candidate. Each has a name, which is pinned under `what` for this GPU, and a function
    of a stream and addresses of so many bytes. At most so many of them are measured."""
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
            seconds = calls.driver.seconds_of(work, REPETITIONS, ROUNDS, HOPELESS * best)
            if seconds < best:
                best, found = seconds, i
    name = pin(key, names[found])
    return names.index(name) if name in names else found
