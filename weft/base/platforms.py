"""Where Weft runs: what is missing elsewhere is said when it is imported, not by a crash later."""

from __future__ import annotations

import sys

# Systems that its machine code, its threads and its use of memory are written for.
SYSTEMS = ("linux", "darwin")


def missing() -> str | None:
    """What this Python or this system lacks, in words; None if all is there."""
    if sys.implementation.name != "cpython":
        return (
            f"it needs CPython, and this is {sys.implementation.name}: compiled programs use its C API, "
            "and count the references of arrays. Use CPython"
        )
    if sys.maxsize < 1 << 62:
        return "it needs a 64-bit Python, and this one has 32 bits. Install a 64-bit one"
    if sys.byteorder != "little":
        return "it needs a processor that stores the low byte of a number first (little endian), such as x86-64 or ARM"
    if not sys.platform.startswith(SYSTEMS):
        windows = sys.platform in ("win32", "cygwin")
        instead = "Use it inside of WSL 2, which is Linux, or on Linux or macOS" if windows else "Use Linux or macOS"
        return (
            f"it needs Linux or macOS, and this is {sys.platform}: the threads of compiled programs are POSIX threads, "
            f"and their code is linked for systems of that kind. {instead}"
        )
    return None


def check() -> None:
    """Raise ImportError where something is missing."""
    found = missing()
    if found is not None:
        raise ImportError(f"Weft does not run here: {found}.")
