"""Memory use of a program, for error messages. Loaded with the first of them."""

from __future__ import annotations

from typing import Any

from weft.compiler.program.ir import Kind, Slot, Step
from weft.runtime.memory import in_units

# The most buffers that a message names.
MOST_NAMED = 4


def memory_summary(executable: Any) -> str:
    """Describe the memory that a run of a program takes, and its largest buffers with the source lines they are for."""
    program = executable.program
    kinds = {
        "arguments": sum(slot.size for slot in program.arguments),
        "results": sum(slot.size for slot in program.results),
        "temporaries": program.temporary_bytes,
        "constants": program.constant_bytes,
    }
    lines = [", ".join(f"{name} {in_units(size)}" for name, size in kinds.items() if size)]
    executable.compilation.complete()  # steps from disk have no lines
    largest: dict[Slot, Step] = {}
    for step in program.all_steps():
        for slot in step.writes:
            if slot.kind is not Kind.POINTED:
                largest.setdefault(slot, step)
    for slot in sorted(largest, key=lambda slot: -slot.size)[:MOST_NAMED]:
        step = largest[slot]
        name = step.label or type(step).__name__.lower()
        at = "" if step.line is None else f" at {step.line.describe()}"
        lines.append(f"{in_units(slot.size)} written by {name}{at}")
    return "\n".join(lines)
