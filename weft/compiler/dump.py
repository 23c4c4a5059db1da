"""Dumps of WEFT_DUMP after the passes: steps and kernels of a program, with times; targets add code."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from weft.compiler.kernel import printer as kernel_printer
from weft.compiler.program import printer
from weft.compiler.program.ir import Launch, Program

# Files of the passes are numbered below this.
FIRST = 20


def write_program(folder: pathlib.Path, program: Program, seconds: Mapping[str, float]) -> None:
    """Write the steps, and every distinct kernel in the kernel language."""
    taken = f"emitted in {_milliseconds(seconds, 'emit')}, memory planned in {_milliseconds(seconds, 'memory')}"
    write(folder / f"{FIRST}_program.txt", "#", taken, printer.to_text(program))
    launched = dict.fromkeys(step.full for step in program.all_steps() if isinstance(step, Launch))
    texts = {kernel_printer.kernel_symbol(kernel): kernel_printer.to_text(kernel) for kernel in launched}
    body = "\n\n".join(f"# {name}\n{text}" for name, text in texts.items())
    write(folder / f"{FIRST + 1}_kernels.txt", "#", f"{len(texts)} kernels, {taken}", body)


def _milliseconds(seconds: Mapping[str, float], name: str) -> str:
    return f"{seconds.get(name, 0.0) * 1e3:.3f} ms"


def write(path: pathlib.Path, comment: str, head: str, text: str) -> None:
    """Write a file whose first line is a comment."""
    path.write_text(f"{comment} {head}\n{text.rstrip()}\n", encoding="utf-8")
