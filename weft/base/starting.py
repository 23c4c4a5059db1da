"""The program that this Python was started for."""

from __future__ import annotations

import sys


def program() -> str | None:
    """Return the module that `python -m` is about to run, or None if it does something else or already runs it."""
    # While Python looks for the module, and imports its package, it has this name for the program.
    if sys.argv[:1] != ["-m"]:
        return None
    # The arguments of the program are the last ones of the command line; the module is before them.
    return sys.orig_argv[-len(sys.argv)].removeprefix("-m")
