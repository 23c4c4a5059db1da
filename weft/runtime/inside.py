"""What there is to see inside of an executable. It is loaded when somebody looks: running takes none of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler import analysis
from weft.compiler.fuse import report
from weft.compiler.kernel import printer as kernel_printer
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import symbol_of
from weft.compiler.program import printer
from weft.compiler.program.ir import Launch, Step
from weft.compiler.verify import verify_program
from weft.ir.verifier import verify


@dataclass(frozen=True)
class KernelCode:
    """The code of a kernel as texts, and figures that the device has for it. `machine_code` is what an assembler makes
    of the assembly, where that is another language."""

    llvm: str
    assembly: str
    machine_code: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class Inside(ABC):
    """An executable, to be read. Each backend has the texts and figures of its code."""

    def __init__(self, executable: Any) -> None:
        self.executable = executable
        self.compilation = executable.compilation
        self.compilation.complete()

    @abstractmethod
    def llvm(self) -> str:
        """The kernels as one LLVM module."""

    @abstractmethod
    def assembly(self) -> str:
        """The kernels as assembly."""

    @abstractmethod
    def code_of(self, kernels: dict[str, Kernel]) -> dict[str, KernelCode]:
        """The code of each of these kernels, and of what `code_name` says besides."""

    def code_name(self, step: Step) -> str | None:
        """The name of the code that a step runs, if it has some of its own."""
        return symbol_of(step.kernel) if isinstance(step, Launch) else None

    def verify(self) -> None:
        """Raise unless the jaxpr after each pass, the Program and its kernels are well formed."""
        for stage in self.compilation.stages:
            verify(stage.jaxpr)
        verify_program(self.compilation.program, self.compilation.target.memory_spaces)

    def fusions(self) -> str:
        """The fused program, with the reasons."""
        return report.explain(self.compilation.stages[-2].jaxpr, self.compilation.target)

    def program(self) -> str:
        """The steps as text."""
        return printer.to_text(self.compilation.program)

    def distinct_kernels(self) -> dict[str, Kernel]:
        """The kernels, by the names of their functions."""
        launched = [step.full for step in self.compilation.program.all_steps() if isinstance(step, Launch)]
        return {symbol_of(kernel): kernel for kernel in launched}

    def kernels(self) -> dict[str, str]:
        """Each distinct kernel as text, by name."""
        return {name: kernel_printer.to_text(kernel) for name, kernel in self.distinct_kernels().items()}

    def memory_analysis(self) -> analysis.MemoryAnalysis:
        """Bytes that a run takes."""
        return analysis.memory_analysis(self.compilation.program, self.executable.code_bytes())

    def cost_analysis(self) -> dict[str, float]:
        """Operations and bytes of a run."""
        return analysis.cost_analysis(self.compilation.fused)


def function_in(text: str, pattern: str) -> str:
    """One function of a module's text."""
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    return found[0].rstrip() if found else ""
