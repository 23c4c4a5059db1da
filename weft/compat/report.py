"""Report on names of JAX that a program used but that Weft lacks; printed at exit if WEFT_COMPAT_LOG is set."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter

from weft.base.forks import held

VARIABLE = "WEFT_COMPAT_LOG"


class Report:
    """Counts of names that were looked up, used (which mostly raised), or ignored."""

    def __init__(self) -> None:
        self._looked_up: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._lock = held(threading.Lock())

    def count_lookup(self, name: str) -> None:
        """Count a placeholder that was handed out for `name`."""
        with self._lock:
            self._looked_up[name] += 1

    def count_use(self, name: str) -> None:
        """Count a placeholder that was called, iterated, derived from or otherwise used."""
        with self._lock:
            self._used[name] += 1

    def count_ignored(self, what: str) -> None:
        """Count an option of JAX that was accepted without effect."""
        with self._lock:
            self._ignored[what] += 1

    def text(self) -> str:
        """Return the report, with a name on each line."""
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
