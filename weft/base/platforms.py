"""Check the platform at import, so that unsupported ones fail with a clear error instead of a crash later."""

from __future__ import annotations

import sys

# Operating systems that machine code, threads and memory management support.
SYSTEMS = ("linux", "darwin")


def missing() -> str | None:
    """Describe the requirement that this Python or this system does not meet; None if it meets all."""
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
    """Raise ImportError if a requirement is not met."""
    found = missing()
    if found is not None:
        raise ImportError(f"Weft does not run here: {found}.")
