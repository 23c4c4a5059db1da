"""Table of the collectives of a program for many devices."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.text import bytes_text

HEAD = ("kind", "axis", "bytes", "value", "line", "reason")


class Communication(Sequence[Any]):
    """Collectives of a program in their order, each with `kind`, `axis`, `bytes` (sent by a device each time), `times`,
    `value`, `source` (`line` in short) and `reason`."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return Communication(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    @property
    def total_bytes(self) -> float:
        """Bytes that each device sends in one run."""
        result: float = sum(row.total_bytes for row in self.rows)
        return result

    def by_kind(self) -> dict[str, float]:
        """Return the bytes that each device sends in one run, by the kind of collective."""
        found: dict[str, float] = {}
        for row in self.rows:
            found[row.kind] = found.get(row.kind, 0.0) + row.total_bytes
        return found

    def counts(self) -> dict[str, int]:
        """Return the number of collectives of each kind."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.kind] = found.get(row.kind, 0) + 1
        return found

    def _cells(self) -> list[tuple[str, ...]]:
        return [format_row(row) for row in self.rows]

    def _title(self) -> str:
        if not self.rows:
            return "nothing is sent"
        count = "1 collective" if len(self) == 1 else f"{len(self)} collectives"
        return f"{count}, {bytes_text(self.total_bytes)} sent by each device"

    def __repr__(self) -> str:
        if not self.rows:
            return self._title()
        table = [HEAD, *self._cells()]
        widths = [max(len(row[i]) for row in table) for i in range(len(HEAD) - 1)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in table]
        return "\n".join([self._title(), *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEAD)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in self._cells())
        return f"<p>{html.escape(self._title())}</p><table><tr>{head}</tr>{rows}</table>"


def format_row(row: Any) -> tuple[str, ...]:
    """Return the cells of one collective as texts."""
    times = "" if row.times == 1 else f" x {row.times:g}"
    axis = " ".join(map(str, row.axis)) if isinstance(row.axis, tuple) else str(row.axis)
    return row.kind, axis, bytes_text(row.bytes) + times, row.value, row.line, row.reason
