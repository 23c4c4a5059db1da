"""Error messages about memory, for all platforms; `runtime/cpu/memory.py` is the CPU's allocator."""

from __future__ import annotations

from weft.base.errors import OutOfMemoryError


def out_of_memory(what: str, size: int, received: str | None = None) -> OutOfMemoryError:
    """Build the error for a failed allocation of `size` bytes for `what`."""
    return OutOfMemoryError(
        f"There is not enough memory for {what}: {in_units(size)} were requested.",
        received=received,
        fix=(
            "work on parts of it (lax.map, smaller batches)",
            "donate arguments that are not used again (donate_argnums)",
        ),
    )


def in_units(size: int) -> str:
    """Format a number of bytes in binary units."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1 << 10 * power:
            return f"{size / (1 << 10 * power):.1f} {unit}"
    return f"{size} bytes"
