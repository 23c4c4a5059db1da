"""What there is to see inside of an executable. It is loaded when somebody looks: running takes none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.compiler import analysis
from weft.compiler.fuse import report
from weft.compiler.kernel import printer as kernel_printer
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program import printer
from weft.compiler.program.ir import Launch
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import module_text
from weft.compiler.verify import verify_program
from weft.ir.verifier import verify

if TYPE_CHECKING:
    from weft.runtime.cpu.executable import Executable


class Inside:
    """An executable, to be read."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.compilation = executable.compilation
        self.compilation.complete()

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
        return {kernel_printer.symbol_of(kernel): kernel for kernel in launched}

    def kernels(self) -> dict[str, str]:
        """Each distinct kernel as text, by name."""
        return {name: kernel_printer.to_text(kernel) for name, kernel in self.distinct_kernels().items()}

    def llvm(self) -> str:
        """The kernels as one LLVM module."""
        return module_text(self.distinct_kernels().items(), self.compilation.target)

    def assembly(self) -> str:
        """The kernels as assembly."""
        return link.assembly(self.llvm(), self.compilation.target, Tier.LIGHT)

    def memory_analysis(self) -> analysis.MemoryAnalysis:
        """Bytes that a run takes."""
        return analysis.memory_analysis(self.compilation.program, self.executable.code_bytes())

    def cost_analysis(self) -> dict[str, float]:
        """Operations and bytes of a run."""
        return analysis.cost_analysis(self.compilation.fused)
