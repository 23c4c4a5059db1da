"""Remove copies at the end of an iteration by exchanging the memory of a carry and its next value.

A carry that is still read when its next value is written has two memories, and a copy from one to the other after each
iteration. If neither memory is used otherwise, the next iteration can read the one and write the other instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import Kernel, Load, Store
from weft.compiler.program.outline import Operand, Outline, Row


class Exchange(NamedTuple):
    """Memory of a carry, memory of its next value, and the size of both in bytes."""

    carry: Operand
    new: Operand
    size: int


def last_copies(body: Sequence[Row]) -> list[Exchange]:
    """Return the copies at the end of a loop's body."""
    pairs: list[Exchange] = []
    for row in reversed(body):
        if row[0] != "copy":
            break
        pairs.insert(0, Exchange(*row[1:]))
    return pairs


def exchanging_loops(outline: Outline) -> tuple[int, ...]:
    """Return the loops of an outline, by the indices of their counters, whose last copies can be replaced by an
    exchange.
    """
    return tuple(row[1][1] for row in _loops(outline.rows) if last_copies(row[4]) and _is_exchanging(row[4], outline))


def _loops(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        match row:
            case "loop", *_, body:
                yield row
                yield from _loops(body)
            case "while", _, condition, _, body:
                yield from _loops((*condition, *body))
            case "branch", _, _, branches:
                yield from (loop for branch in branches for loop in _loops(branch))


def _is_exchanging(body: Sequence[Row], outline: Outline) -> bool:
    pairs = last_copies(body)
    rows = list(body[: len(body) - len(pairs)])
    operands = [operand for pair in pairs for operand in (pair.carry, pair.new)]
    if len(set(operands)) != len(operands) or not all(_is_whole(o, p.size, outline) for p in pairs for o in p[:2]):
        return False
    if any(_overlaps(operand, outline) for operand in operands):
        return False
    return all(_is_only_read(rows, p.carry, outline) and _is_written_first(rows, p.new, outline) for p in pairs)


def _is_whole(operand: Operand, size: int, outline: Outline) -> bool:
    """Return whether an operand is memory from outside of exactly `size` bytes from which no addresses are computed."""
    if operand[0] != "outside":
        return False
    address = outline.addresses[operand[1]]
    return outline.sizes.get(address) == size and address not in outline.fixed


def _overlaps(operand: Operand, outline: Outline) -> bool:
    """Return whether the memory of an operand overlaps that of another."""
    mine = outline.addresses[operand[1]]
    return any(
        other.register == mine.register
        and other.offset < mine.offset + outline.sizes[mine]
        and mine.offset < other.offset + outline.sizes.get(other, 1)
        for other in outline.addresses
        if other != mine
    )


def _uses(row: Row, operand: Operand, outline: Outline) -> tuple[bool, bool] | None:
    """Return whether a row reads and whether it writes an operand, or None if that is unknown."""
    match row:
        case "launch", symbol, _, operands:
            kernel = outline.kernels[symbol]
            if operand not in operands:
                return False, False
            if not isinstance(kernel, Kernel):
                return None
            buffers = {b for b, o in zip(kernel.buffers, operands, strict=True) if o == operand}
            found = [s for s, _ in accesses(kernel.body) if getattr(s, "buffer", None) in buffers]
            return any(isinstance(s, Load) for s in found), any(isinstance(s, Store) for s in found)
        case "copy", target, source, _:
            return source == operand, target == operand
        case "fill", target, _:
            return False, target == operand
        case "set_address", _, base, *_:
            return None if base == operand else (False, False)
    return None


def _is_only_read(rows: Sequence[Row], operand: Operand, outline: Outline) -> bool:
    return all(uses is not None and not uses[1] for uses in (_uses(row, operand, outline) for row in rows))


def _is_written_first(rows: Sequence[Row], operand: Operand, outline: Outline) -> bool:
    """Return whether the first row that accesses an operand writes it. A row that does not read an operand writes all
    of it.
    """
    found = [_uses(row, operand, outline) for row in rows]
    touching = [uses for uses in found if uses is None or any(uses)]
    return bool(touching) and None not in touching and touching[0] == (False, True)
