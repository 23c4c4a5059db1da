"""Traces read back: planes (processes) of lines (threads) of events."""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterator
from typing import Any


class ProfileEvent:
    """Something that took time. `stats` are pairs of a name and a value."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.name: str = event["name"]
        self.category: str = event["cat"]
        self.start_ns: float = event["ts"] * 1e3
        self.duration_ns: float = event["dur"] * 1e3
        self._arguments: dict[str, Any] = event["args"]

    @property
    def end_ns(self) -> float:
        return self.start_ns + self.duration_ns

    @property
    def stats(self) -> Iterator[tuple[str, Any]]:
        return iter(self._arguments.items())

    def __repr__(self) -> str:
        return f"<{self.category} {self.name}, {self.duration_ns / 1e3:.3f} us>"


class ProfileLine:
    """Events of a thread in the order of time."""

    def __init__(self, name: str, events: list[ProfileEvent]) -> None:
        self.name, self._events = name, sorted(events, key=lambda e: (e.start_ns, -e.duration_ns))

    @property
    def events(self) -> Iterator[ProfileEvent]:
        return iter(self._events)


class ProfilePlane:
    """Threads of a process."""

    def __init__(self, name: str, lines: list[ProfileLine]) -> None:
        self.name, self._lines = name, lines

    @property
    def lines(self) -> Iterator[ProfileLine]:
        return iter(self._lines)


class ProfileData:
    """Trace that `stop_trace` wrote, from the JSON in its file."""

    def __init__(self, arg: dict[str, Any]) -> None:
        names: dict[tuple[str, int, int], str] = {}
        events: dict[int, dict[int, list[ProfileEvent]]] = {}
        for event in arg["traceEvents"]:
            if event["ph"] == "M":
                thread = 0 if event["name"] == "process_name" else event["tid"]
                names[event["name"], event["pid"], thread] = event["args"]["name"]
            elif event["ph"] == "X":
                events.setdefault(event["pid"], {}).setdefault(event["tid"], []).append(ProfileEvent(event))
        self._planes = [
            ProfilePlane(
                names.get(("process_name", process, 0), str(process)),
                [ProfileLine(names.get(("thread_name", process, t), str(t)), found) for t, found in threads.items()],
            )
            for process, threads in events.items()
        ]

    @staticmethod
    def from_file(path: str | pathlib.Path) -> ProfileData:
        """Read a trace, compressed or not."""
        content = pathlib.Path(path).read_bytes()
        return ProfileData(json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content))

    @property
    def planes(self) -> Iterator[ProfilePlane]:
        return iter(self._planes)

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        return next((plane for plane in self._planes if plane.name == name), None)
