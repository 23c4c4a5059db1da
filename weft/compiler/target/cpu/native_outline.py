"""Loops that one function for one thread can compute, and what they cost with and without code of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.frame import CONSTANTS, FIRST_ARGUMENT, first_own
from weft.compiler.program.ir import ESTIMATED_ITERATIONS, Copy, Launch, Program, Step
from weft.compiler.program.outline import Address, Outline, Row
from weft.compiler.target.cpu.bytecode import SHARED_COPY

# Nanoseconds that the bytecode interpreter takes for a launch and for any other step.
LAUNCH_COST, STEP_COST = 6.0, 2.0
# Memory of at most this many bytes, and this many in total, is in registers while the loop runs.
MOST_LOCAL, MOST_LOCAL_TOGETHER = 128, 2048


class NativeOutline(Outline):
    """Loop for one thread that cannot fail except by an interrupt: no launch is shared by threads, and no copy is
    long."""

    def __init__(self, step: Step, program: Program) -> None:
        super().__init__(step, program, _is_small)
        self.locals = self._locals()

    def _locals(self) -> tuple[int, ...]:
        """Return, for each address, the number of bytes that the code may keep in registers and write back at the end;
        0 if it may not, because other addresses alias the memory; negative if the memory is constant."""
        left, found = MOST_LOCAL_TOGETHER, []
        first_pointer = first_own(self.program)
        unknown = any(address.register >= first_pointer for address in self.addresses)
        for address in self.addresses:
            size = self.sizes[address]
            apart = not any(
                other is not address
                and other.register == address.register
                and other.offset < address.offset + size
                and address.offset < other.offset + self.sizes[other]
                for other in self.addresses
            )
            alone = not unknown and apart and address not in self.fixed and size <= min(left, MOST_LOCAL)
            left -= size if alone else 0
            found.append((-size if self._constant(address) else size) if alone else 0)
        return tuple(found)

    def _constant(self, address: Address) -> bool:
        index = address.register - FIRST_ARGUMENT
        is_argument = 0 <= index < len(self.program.arguments)
        return address.register == CONSTANTS or (is_argument and not self.program.arguments[index].donated)

    @property
    def symbol(self) -> str:
        """Name of the code."""
        return f"loop_{hashlib.blake2b(repr((self.locals, self.rows)).encode(), digest_size=10).hexdigest()}"


def _is_small(step: Step) -> bool:
    """Return whether one thread executes the step alone."""
    return not (isinstance(step, Launch) and step.grain) and not (isinstance(step, Copy) and step.size >= SHARED_COPY)


def full(known: Mapping[str, Any]) -> Iterator[tuple[str, Kernel]]:
    """Return the kernels that are known by more than their names."""
    return ((symbol, kernel) for symbol, kernel in known.items() if isinstance(kernel, Kernel))


def times(rows: Sequence[Row], works: Mapping[str, float]) -> tuple[float, float]:
    """Estimate the nanoseconds of rows, and the additional nanoseconds of the bytecode interpreter."""
    spent = saved = 0.0
    for row in rows:
        match row:
            case "launch", symbol, _, _:
                spent, saved = spent + works[symbol], saved + LAUNCH_COST
            case "loop", _, iterations, _, body:
                within = times(body, works)
                count = iterations if isinstance(iterations, int) else ESTIMATED_ITERATIONS
                spent, saved = spent + count * within[0], saved + count * (within[1] + 3 * STEP_COST)
            case "while", _, condition, _, body:
                first, second = times(condition, works), times(body, works)
                spent += ESTIMATED_ITERATIONS * (first[0] + second[0])
                saved += ESTIMATED_ITERATIONS * (first[1] + second[1] + 3 * STEP_COST)
            case "branch", _, _, branches:
                # As if all branches were equally frequent.
                parts = [times(branch, works) for branch in branches]
                spent += sum(part[0] for part in parts) / len(parts)
                saved += sum(part[1] for part in parts) / len(parts) + 3 * STEP_COST
            case "copy" | "fill", *_, size:
                spent, saved = spent + size / 64, saved + STEP_COST
            case _:
                saved += STEP_COST
    return spent, saved
