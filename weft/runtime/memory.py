"""What messages say about memory, whichever device it is of; `runtime/cpu/memory.py` is the CPU's."""

from __future__ import annotations

from weft.base.errors import OutOfMemoryError


def out_of_memory(what: str, size: int, received: str | None = None) -> OutOfMemoryError:
    """The error for memory that was asked for something and is not there."""
    return OutOfMemoryError(
        f"There is no memory for {what}: {in_units(size)} were asked for.",
        received=received,
        fix=("work on parts of it (lax.map, smaller batches)", "donate what is not needed any more (donate_argnums)"),
    )


def in_units(size: int) -> str:
    """A number of bytes, to be read."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1 << 10 * power:
            return f"{size / (1 << 10 * power):.1f} {unit}"
    return f"{size} bytes"
