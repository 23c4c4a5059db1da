"""Inspection of an executable: its texts and statistics. Loaded on demand; running does not need it."""

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
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program import printer
from weft.compiler.program.ir import Launch, Step
from weft.compiler.verify import verify_program
from weft.ir.verifier import verify


@dataclass(frozen=True)
class KernelCode:
    """Code of a kernel as texts, and the device's statistics of it.

    `machine_code` is the assembled form of `assembly`, on platforms where that is another language.
    """

    llvm: str
    assembly: str
    machine_code: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class Inside(ABC):
    """Inspector of an executable. Each backend provides the texts and statistics of its code."""

    def __init__(self, executable: Any) -> None:
        self.executable = executable
        self.compilation = executable.compilation
        self.compilation.complete()

    @abstractmethod
    def llvm(self) -> str:
        """Return the kernels as one LLVM module."""

    @abstractmethod
    def assembly(self) -> str:
        """Return the kernels as assembly."""

    @abstractmethod
    def get_code(self, kernels: dict[str, Kernel]) -> dict[str, KernelCode]:
        """Return the code of each of these kernels, and of library code that `code_name` names."""

    def code_name(self, step: Step) -> str | None:
        """Return the name of the code that a step runs, or None if it has none of its own."""
        return kernel_symbol(step.kernel) if isinstance(step, Launch) else None

    def verify(self) -> None:
        """Raise unless the jaxpr after each pass, the Program and its kernels are well formed."""
        for stage in self.compilation.stages:
            verify(stage.jaxpr)
        verify_program(self.compilation.program, self.compilation.target.memory_spaces)

    def fusions(self) -> str:
        """Return the fused program as text, with the reason of each fusion."""
        return report.explain(self.compilation.stages[-2].jaxpr, self.compilation.target)

    def program(self) -> str:
        """Return the steps as text."""
        return printer.to_text(self.compilation.program)

    def distinct_kernels(self) -> dict[str, Kernel]:
        """Return the kernels by the names of their functions."""
        launched = [step.full for step in self.compilation.program.all_steps() if isinstance(step, Launch)]
        return {kernel_symbol(kernel): kernel for kernel in launched}

    def kernels(self) -> dict[str, str]:
        """Return each distinct kernel as text, by name."""
        return {name: kernel_printer.to_text(kernel) for name, kernel in self.distinct_kernels().items()}

    def memory_analysis(self) -> analysis.MemoryAnalysis:
        """Return the bytes that a run takes, by kind."""
        return analysis.memory_analysis(self.compilation.program, self.executable.code_bytes())

    def cost_analysis(self) -> dict[str, float]:
        """Return the operations and bytes of a run."""
        return analysis.cost_analysis(self.compilation.fused)


def function_in(text: str, pattern: str) -> str:
    """Return the first match of a pattern in a module's text: one function of it."""
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    return found[0].rstrip() if found else ""
