"""How long a kernel takes, roughly: enough to decide whether threads pay, never part of what it computes."""

from __future__ import annotations

from collections.abc import Iterable

from weft.compiler.kernel.ir import Compute, If, Kernel, Kind, Load, Loop, Statement, Store
from weft.ir.primitive import lookup
from weft.ops.elementwise import Elementwise

# Nanoseconds for one vector: an operation of a few instructions, a function by polynomials, an access to memory.
SIMPLE, FUNCTION, ACCESS = 0.3, 6.0, 1.2
# Work that is worth waking another thread for, and what one piece of it should take.
WORTH, PIECE = 20_000.0, 6_000.0


def work(kernel: Kernel) -> float:
    """Estimated nanoseconds of one thread."""
    return _block(kernel.body)


def grain_of(kernel: Kernel) -> int:
    """How many iterations of the loop over threads go together; 0 if threads do not pay. It depends on the kernel only,
    so that the pieces are the same whatever runs them."""
    loop = kernel.parallel
    if loop is None or loop.count < 2:
        return 0
    total = work(kernel)
    if total < WORTH:
        return 0
    pieces = max(2, min(loop.count, int(total / PIECE), 64))
    return -(-loop.count // pieces)


def _block(body: Iterable[Statement]) -> float:
    total = 0.0
    for statement in body:
        match statement:
            case Loop():
                turns = -(-statement.count // statement.width) if statement.kind is Kind.LANES else statement.count
                wide = max(1.0, statement.width / 16) if statement.kind is Kind.LANES else 1.0
                total += turns * (1.0 + wide * _block(statement.body))
            case If():
                total += 0.5 * _block(statement.body)
            case Compute(_, op):
                total += _operation(op)
            case Load() | Store():
                total += ACCESS
            case _:
                total += SIMPLE
    return total


_costs: dict[str, float] = {}


def _operation(op: str) -> float:
    cost = _costs.get(op)
    if cost is None:
        try:
            card = lookup(op)
        except ValueError:
            card = None
        dear = isinstance(card, Elementwise) and card.ulp.get("", 0.0) > 0
        cost = _costs[op] = FUNCTION if dear else SIMPLE
    return cost
