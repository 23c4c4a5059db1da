"""What a forked process must put right: it has one thread, and locks that other threads held stay taken for ever."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in each forked process, where the system has such; to be used as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function
