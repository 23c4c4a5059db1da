"""What WEFT_DUMP writes after the passes: steps, kernels, LLVM text and assembly of a program, each with its time."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from weft.compiler.kernel import printer as kernel_printer
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program import printer
from weft.compiler.program.ir import Launch, Program
from weft.compiler.target.cpu import kernels, link
from weft.compiler.target.cpu.lower import module_text
from weft.compiler.target.target import Target

# The passes have the numbers below.
FIRST = 20


def write_program(folder: pathlib.Path, program: Program, seconds: Mapping[str, float]) -> None:
    """The steps, and every distinct kernel in the kernel language."""
    taken = f"emitted in {_milliseconds(seconds, 'emit')}, memory planned in {_milliseconds(seconds, 'memory')}"
    _write(folder / f"{FIRST}_program.txt", "#", taken, printer.to_text(program))
    launched = dict.fromkeys(step.full for step in program.all_steps() if isinstance(step, Launch))
    texts = {kernel_printer.symbol_of(kernel): kernel_printer.to_text(kernel) for kernel in launched}
    body = "\n\n".join(f"# {name}\n{text}" for name, text in texts.items())
    _write(folder / f"{FIRST + 1}_kernels.txt", "#", f"{len(texts)} kernels, {taken}", body)


def write_code(folder: pathlib.Path, launched: Mapping[str, Kernel], target: Target, making: kernels.Making) -> None:
    """The kernels as LLVM text and as assembly of one tier. A kernel that was compiled before is written all the
    same."""
    sources = f"{making.compiled} compiled, {making.from_disk} from disk, {making.reused} in the process already"
    parts = ", ".join(f"{name} {took * 1e3:.3f} ms" for name, took in making.seconds.items())
    text = module_text(launched.items(), target)
    _write(folder / f"{FIRST + 2}_llvm.ll", ";", f"{sources}; {parts}", text)
    tier = making.tier.name.lower()
    code = link.assembly(text, target, making.tier)
    _write(folder / f"{FIRST + 3}_assembly_{tier}.s", "#", f"tier {tier}; {sources}; {parts}", code)


def _milliseconds(seconds: Mapping[str, float], name: str) -> str:
    return f"{seconds.get(name, 0.0) * 1e3:.3f} ms"


def _write(path: pathlib.Path, comment: str, head: str, text: str) -> None:
    path.write_text(f"{comment} {head}\n{text.rstrip()}\n", encoding="utf-8")
