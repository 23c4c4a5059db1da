"""Which names of JAX a program asked for that Weft has not; printed when it ends if WEFT_COMPAT_LOG is set."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter

from weft.base.forks import held

VARIABLE = "WEFT_COMPAT_LOG"


class Report:
    """Counts of names: those that were looked up, and those of them that were used, which mostly raised."""

    def __init__(self) -> None:
        self._looked_up: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._lock = held(threading.Lock())

    def looked_up(self, name: str) -> None:
        """A placeholder was handed out for `name`."""
        with self._lock:
            self._looked_up[name] += 1

    def used(self, name: str) -> None:
        """A placeholder was called, iterated, derived from or otherwise used."""
        with self._lock:
            self._used[name] += 1

    def ignored(self, what: str) -> None:
        """Something that JAX obeys was accepted and has no effect here."""
        with self._lock:
            self._ignored[what] += 1

    def text(self) -> str:
        """The report, a name on each line."""
        with self._lock:
            parts = {"used": self._used, "only looked up": self._looked_up - self._used, "ignored": self._ignored}
            lines = ["Names of JAX that Weft has not:"]
            for title, counts in parts.items():
                lines += [f"  {title}:", *(f"    {name} ({count})" for name, count in sorted(counts.items()))]
        return "\n".join(lines)


REPORT = Report()


def print_at_exit() -> None:
    """Print the report to standard error when the process ends, if the environment asks for it."""
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        atexit.register(lambda: print(REPORT.text(), file=sys.stderr))
