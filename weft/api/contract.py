"""Contracts: limits on the communication and the replication of a program for many devices, checked before it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.api.communication import Communication, format_row
from weft.base.arguments import described
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError, CommunicationError
from weft.base.source import user_line
from weft.base.text import bytes_text
from weft.runtime.execute import array_bytes

KINDS = ("all_gather", "all_to_all", "pmax", "pmin", "ppermute", "psum", "reduce_scatter")
MOST_SHOWN = 8
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class Contract:
    """Limits of a program: `counts` on the number of collectives of a kind, `bytes` on what each device sends in
    collectives of a kind (None: of all kinds), `replicated` on the bytes of arguments and results that are replicated
    on every device."""

    counts: tuple[tuple[str, int], ...] = ()
    bytes: tuple[tuple[str | None, int], ...] = ()
    replicated: int | None = None

    def check(self, partitioned: Any, names: tuple[str, ...]) -> None:
        """Raise unless a partitioned program keeps the contract; `names` are those of its arguments."""
        sent = Communication(partitioned.communication)
        counts = sent.counts()
        by_kind: dict[str | None, float] = {None: sent.total_bytes}
        by_kind.update(sent.by_kind())
        for kind, most in self.counts:
            if counts.get(kind, 0) > most:
                rows = [row for row in sent if row.kind == kind]
                fail(f"comm allows {most} {kind}, and the program has {len(rows)}.", rows)
        for limited, size in self.bytes:
            if by_kind.get(limited, 0.0) > size:
                rows = [row for row in sent if limited in (None, row.kind)]
                kinds = "" if limited is None else f" in {limited}"
                total = bytes_text(by_kind[limited])
                fail(f"comm allows each device to send {bytes_text(size)}{kinds}, and the program sends {total}.", rows)
        if self.replicated is not None:
            self.check_copies(partitioned, names, self.replicated)

    def check_copies(self, partitioned: Any, names: tuple[str, ...], most: int) -> None:
        """Raise if more than `most` bytes of arguments and results are replicated."""
        found: list[tuple[float, str]] = []
        arguments = zip(partitioned.in_types, partitioned.in_shardings, strict=True)
        for i, (aval, sharding) in enumerate(arguments):
            if sharding.is_fully_replicated:
                found.append((array_bytes(aval), names[i] if i < len(names) else f"argument {i}"))
        for i, (aval, sharding) in enumerate(zip(partitioned.out_types, partitioned.out_shardings, strict=True)):
            if sharding.is_fully_replicated:
                found.append((array_bytes(aval), f"result {i}"))
        total = sum(size for size, _ in found)
        if total > most:
            largest = sorted(found, reverse=True, key=lambda pair: pair[0])[:MOST_SHOWN]
            raise CommunicationError(
                f"At most {bytes_text(most)} (max_replicated) may be replicated on every device, and the program "
                f"replicates {bytes_text(total)}.",
                received="\n".join(f"{name}: {bytes_text(size)}" for size, name in largest),
                fix="split them over an axis of the mesh: weft.device_put(x, weft.NamedSharding(mesh, spec))",
                at=user_line(),
            )


def fail(what: str, rows: list[Any]) -> None:
    """Raise an error that lists the largest of some collectives."""
    largest = sorted(rows, key=lambda row: -row.total_bytes)[:MOST_SHOWN]
    lines = []
    for row in largest:
        kind, axis, size, value, line, reason = format_row(row)
        lines.append(f"{kind} over {axis} of {value}, {size}, for {line or 'a result'}: {reason}")
    if len(rows) > len(largest):
        lines.append(f"and {len(rows) - len(largest)} more")
    raise CommunicationError(
        what,
        received="\n".join(lines),
        fix=(
            "change the shardings that the reasons name",
            "weft.lax.with_sharding_constraint(x, sharding)   where a value is to be split in another way",
            "allow more: .lower(...).compile().communication without the contract lists all collectives",
        ),
        at=user_line(),
    )


def make_contract(comm: Any, max_replicated: Any) -> Contract | None:
    """Return the contract for arguments of `jit`, or None if neither is passed."""
    if comm is None and max_replicated is None:
        return None
    replicated = None if max_replicated is None else parse_bytes("max_replicated", max_replicated)
    if comm is None:
        return Contract(replicated=replicated)
    if not isinstance(comm, Mapping):
        return Contract((), ((None, parse_bytes("comm", comm)),), replicated)
    counts: list[tuple[str, int]] = []
    limits: list[tuple[str | None, int]] = []
    for kind, most in comm.items():
        if kind not in KINDS:
            raise ArgumentError(
                "jit: the keys of comm must be kinds of collectives.",
                received=repr(kind),
                fix=f"one of {', '.join(map(repr, KINDS))}",
            )
        if isinstance(most, int) and not isinstance(most, bool):
            counts.append((kind, most))
        else:
            limits.append((kind, parse_bytes("comm", most)))
    return Contract(tuple(counts), tuple(limits), replicated)


def parse_bytes(name: str, size: Any) -> int:
    """Return a size in bytes, from a number or a text such as `100MB` or `1.5 GiB`."""
    if isinstance(size, (int, float)) and not isinstance(size, bool):
        return int(size)
    found = (
        re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", size, re.IGNORECASE) if isinstance(size, str) else None
    )
    if found is None or found[2].lower() not in UNITS:
        raise ArgumentError(
            f"{name} must be a number of bytes.", received=described(size), fix=f"{name}='100MB', '1.5GiB' or 1_000_000"
        )
    return int(float(found[1]) * UNITS[found[2].lower()])
