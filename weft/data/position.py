"""The position of a loader: the epoch and the number of delivered batches, as a dict of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError

VERSION = 1


@dataclass(frozen=True)
class Position:
    """The position after batch `batches - 1` of an epoch.

    With a `Filter` the next sample is at `offset` among the remaining samples of index block `block`. `source` is the
    state of a stateful iterable source.
    """

    epoch: int = 0
    batches: int = 0
    block: int = 0
    offset: int = 0
    source: Any = None

    def as_dict(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the position as a dict of JSON, with the settings that must be equal where it is restored."""
        found: dict[str, Any] = {"version": VERSION, "epoch": self.epoch, "batches": self.batches, **settings}
        if self.block or self.offset:
            found |= {"block": self.block, "offset": self.offset}
        if self.source is not None:
            found["source"] = self.source
        return found


def parse_position(state: dict[str, Any], settings: dict[str, Any]) -> Position:
    """Parse a dict of `as_dict` for a loader with these settings."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ArgumentError(
            f"A position must come from a loader of this version ({VERSION}).",
            received=f"version {state.get('version')!r}" if isinstance(state, dict) else repr(state),
            fix="loader.restore(loader.state())",
        )
    different = [
        f"{name}: {state.get(name)!r}, here {value!r}" for name, value in settings.items() if state.get(name) != value
    ]
    if different:
        raise ArgumentError(
            "A position must be restored in a loader with the same settings.",
            received="; ".join(different),
            fix="use the settings of the loader that returned the position",
        )
    return Position(
        state["epoch"], state["batches"], state.get("block", 0), state.get("offset", 0), state.get("source")
    )
