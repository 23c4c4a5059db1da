"""Assign memory: the offset of every temporary and constant, from their lifetimes, and the indices of registers.

A temporary is live from the first step that accesses it to the last. For slots that live outside of a loop's body, a
step inside the loop counts as the whole loop, because it runs again. A started step accesses its slots at the `Start`
and at the `Wait`, so they are live from one to the other. Every memory space has a block of its own.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from weft.compiler.program.frame import CONSTANTS, FIRST_ARGUMENT, TEMPORARIES, first_own, first_result, first_space
from weft.compiler.program.ir import (
    ALIGNMENT,
    DEFAULT_SPACE,
    Branch,
    FrameRegister,
    Kind,
    Loop,
    Program,
    SetAddress,
    Slot,
    Step,
    While,
)


def assign(program: Program) -> Program:
    """Set the offset of every slot and the index of every register, and return the program.

    May be called again after steps have changed: earlier offsets and indices are overwritten.
    """
    lifetimes = Lifetimes()
    lifetimes.visit(program.steps)
    blocks: dict[str, dict[Slot, tuple[int, int]]] = {DEFAULT_SPACE: {}}
    for slot, extent in lifetimes.ranges.items():
        blocks.setdefault(slot.space, {})[slot] = extent
    program.temporary_bytes = pack(blocks.pop(DEFAULT_SPACE))
    program.space_bytes = {space: pack(ranges) for space, ranges in sorted(blocks.items())}
    offset = 0
    for slot in program.constant_slots:
        slot.offset = offset
        offset += align(slot.size)
    program.constant_bytes = offset
    count = first_own(program)
    for register in dict.fromkeys(registers(program)):
        register.index = count
        count += 1
    program.registers = count
    return program


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def registers(program: Program) -> list[FrameRegister]:
    """Return every register that steps use; repetitions are possible."""
    found: list[FrameRegister] = []
    for step in program.all_steps():
        match step:
            case Loop():
                found += [step.counter, step.bound]
            case While():
                found += [step.test] if step.counter is None else [step.test, step.counter]
            case Branch():
                found.append(step.choice)
            case SetAddress():
                assert step.target.register is not None
                found.append(step.target.register)
            case _:
                pass
    return found


class Lifetimes:
    """Live ranges of temporaries: positions of the first and the last access in `ranges`."""

    def __init__(self) -> None:
        self.ranges: dict[Slot, tuple[int, int]] = {}
        self.position = 0
        # Enclosing loops, outermost first: token and [first, last] position; the last is known only after the loop.
        self.loops: list[tuple[object, list[int]]] = []
        self._later: list[tuple[Slot, list[int]]] = []

    def visit(self, steps: Sequence[Step]) -> None:
        """Assign numbers to the steps and record the slots that they access."""
        self._steps(steps)
        # Accesses inside a loop to slots that live outside of it count for the whole loop, whose end is known now.
        for slot, (first, last) in self._later:
            self._note(slot, first, last)

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.position += 1
            self._touch(step)
            match step:
                case Loop() | While():
                    extent = [self.position, self.position]
                    self.loops.append((step.token, extent))
                    for body in step.bodies:
                        self._steps(body)
                    self.position += 1
                    if isinstance(step, While):
                        self._slot(step.predicate)
                    extent[1] = self.position
                    self.loops.pop()
                case Branch():
                    for body in step.bodies:
                        self._steps(body)
                        self.position += 1
                case _:
                    pass

    def _touch(self, step: Step) -> None:
        for slot in (*step.reads, *step.writes):
            self._slot(slot)
        if isinstance(step, SetAddress):
            self._slot(step.base)

    def _slot(self, slot: Slot) -> None:
        if slot.kind is not Kind.TEMPORARY:
            return
        for depth, (token, extent) in enumerate(self.loops):
            if depth == 0 and slot.owner is None:
                self._later.append((slot, extent))
                return
            if slot.owner is token:
                if depth + 1 < len(self.loops):
                    self._later.append((slot, self.loops[depth + 1][1]))
                    return
                break
        self._note(slot, self.position, self.position)

    def _note(self, slot: Slot, first: int, last: int) -> None:
        known = self.ranges.get(slot)
        self.ranges[slot] = (first, last) if known is None else (min(known[0], first), max(known[1], last))


def pack(ranges: dict[Slot, tuple[int, int]]) -> int:
    """Assign offsets in one block to temporaries such that simultaneously live ones do not overlap; return the block's
    size.
    """
    offsets, top = pack_offsets(list(ranges.values()), [slot.size for slot in ranges])
    for slot, offset in zip(ranges, offsets, strict=True):
        slot.offset = offset
    return top


def pack_offsets(extents: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Assign offsets in one block to pieces of memory, given their live ranges and sizes; return the offsets and the
    block's size.

    In the order of time, each piece takes the smallest hole that fits and frees it after its last use.
    """
    ends: list[tuple[int, int, int, int]] = []  # (last, order, offset, size), sorted
    holes: list[tuple[int, int]] = []  # (offset, size), sorted by offset, never adjacent
    offsets, top = [0] * len(sizes), 0
    events = sorted([(extent[0], -size, i) for i, (extent, size) in enumerate(zip(extents, sizes, strict=True))])
    for order, (first, negative, i) in enumerate(events):
        size = -(negative // ALIGNMENT) * ALIGNMENT
        while ends and ends[0][0] < first:
            _, _, offset, freed = ends.pop(0)
            _release(holes, offset, freed)
        if not size:
            continue
        best: tuple[int, int] | None = None
        for hole in holes:
            if hole[1] >= size and (best is None or hole[1] < best[1]):
                best = hole
        if best is not None:
            holes.remove(best)
            offset = best[0]
            if best[1] > size:
                bisect.insort(holes, (offset + size, best[1] - size))
        elif holes and holes[-1][0] + holes[-1][1] == top:
            # The last hole reaches the end of the block: extend it.
            offset = holes.pop()[0]
            top = offset + size
        else:
            offset, top = top, top + size
        offsets[i] = offset
        bisect.insort(ends, (extents[i][1], order, offset, size))
    return offsets, top


def _release(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    """Free memory and merge it with adjacent holes."""
    at = bisect.bisect(holes, (offset, 0))
    if at < len(holes) and holes[at][0] == offset + size:
        size += holes.pop(at)[1]
    if at and holes[at - 1][0] + holes[at - 1][1] == offset:
        offset, size = holes[at - 1][0], holes[at - 1][1] + size
        holes.pop(at - 1)
    holes.insert(bisect.bisect(holes, (offset, 0)), (offset, size))


def slot_address(slot: Slot, program: Program) -> tuple[int, int]:
    """Return the address of a slot as (register, offset in bytes)."""
    match slot.kind:
        case Kind.TEMPORARY if slot.space != DEFAULT_SPACE:
            return first_space(program) + list(program.space_bytes).index(slot.space), slot.offset
        case Kind.TEMPORARY:
            return TEMPORARIES, slot.offset
        case Kind.CONSTANT:
            return CONSTANTS, slot.offset
        case Kind.ARGUMENT:
            return FIRST_ARGUMENT + slot.index, 0
        case Kind.RESULT:
            return first_result(program) + slot.index, 0
        case Kind.POINTED:
            assert slot.register is not None
            return slot.register.index, 0
