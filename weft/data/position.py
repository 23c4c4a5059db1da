"""Where a loader is: the epoch and how many batches of it were delivered, as a dict of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError

VERSION = 1


@dataclass(frozen=True)
class Position:
    """Behind batch `batches - 1` of an epoch.

    Where samples are left out, the next one is at `offset` of those that remain of block `block` of indices.
    `source` is the state of an iterable source that has one.
    """

    epoch: int = 0
    batches: int = 0
    block: int = 0
    offset: int = 0
    source: Any = None

    def as_dict(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The position as JSON, with what must be the same where it is restored."""
        found: dict[str, Any] = {"version": VERSION, "epoch": self.epoch, "batches": self.batches, **settings}
        if self.block or self.offset:
            found |= {"block": self.block, "offset": self.offset}
        if self.source is not None:
            found["source"] = self.source
        return found


def position_of(state: dict[str, Any], settings: dict[str, Any]) -> Position:
    """The position of a dict that `as_dict` returned, in a loader with these settings."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ArgumentError(
            "This is no position of a loader, or one of another version.",
            received=f"version {state.get('version')!r}" if isinstance(state, dict) else repr(state),
            fix="loader.restore(loader.state())",
        )
    different = [
        f"{name}: {state.get(name)!r}, here {value!r}" for name, value in settings.items() if state.get(name) != value
    ]
    if different:
        raise ArgumentError(
            "This position is that of a loader with other batches.",
            received="; ".join(different),
            fix="the settings that the loader had",
        )
    return Position(
        state["epoch"], state["batches"], state.get("block", 0), state.get("offset", 0), state.get("source")
    )
