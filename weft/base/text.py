"""Format quantities as text."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """Format a number of bytes: `7.35 MB`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {prefix}B"
    return f"{count:.0f} B"
