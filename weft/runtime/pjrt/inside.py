"""Inspection of executables of plugins: the text that a plugin took, and its figures. Loaded on demand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from weft.base.errors import NotSupportedError
from weft.compiler.analysis import MemoryAnalysis
from weft.ir.verifier import verify
from weft.runtime.pjrt.client import Report, make_report


def memory_analysis(compiled: Report) -> MemoryAnalysis:
    """Return the bytes that a run takes, as the plugin says."""
    found = compiled.memory()
    return MemoryAnalysis(
        found.get("argument_size_in_bytes", 0),
        found.get("output_size_in_bytes", 0),
        found.get("alias_size_in_bytes", 0),
        found.get("temp_size_in_bytes", 0),
        0,
        found.get("generated_code_size_in_bytes", 0) or compiled.code_bytes,
    )


class PjrtInside:
    """Inspector of an executable. A plugin shows its figures, but neither kernels nor machine code."""

    def __init__(self, executable: Any) -> None:
        self.executable, self.compilation = executable, executable.compilation

    @property
    def _modules(self) -> list[Any]:
        """Executables of its modules: one, unless there are operations on the host between its parts."""
        return [part for part in self.executable.part_executables if part is not None] or [self.executable]

    @property
    def _reports(self) -> list[Report]:
        codes = [module.find_code() for module in self._modules]
        return [make_report(code.client.plugin, code) for code in codes]

    def program(self) -> str:
        """Return the module in StableHLO, or the modules of the parts."""
        return "\n".join(module.compilation.text for module in self._modules)

    def kernels(self) -> dict[str, str]:
        """Return the kernels by name: none is known."""
        return {}

    def fusions(self) -> str:
        """Return the traced program: the plugin fuses."""
        return str(self.compilation.traced)

    def llvm(self) -> str:
        """Raise: plugins do not show LLVM text."""
        return self.assembly()

    def assembly(self) -> str:
        """Raise: plugins do not show machine code."""
        raise NotSupportedError(
            "Texts of kernels must come from Weft's own compiler.",
            received=f"a program for the PJRT plugin of {self.compilation.platform!r}",
            fix="compiled.program for the module in StableHLO",
        )

    def verify(self) -> None:
        """Raise unless the traced jaxpr is well formed."""
        verify(self.compilation.traced)

    def memory_analysis(self) -> MemoryAnalysis:
        """Return the bytes that a run takes; of several parts the largest of each kind."""
        found = [memory_analysis(report) for report in self._reports]
        largest = [max(getattr(m, f.name) for m in found) for f in fields(MemoryAnalysis)]
        return MemoryAnalysis(*largest)

    def cost_analysis(self) -> dict[str, float]:
        """Return the operations and bytes of a run, by XLA's names; sums over parts."""
        total: dict[str, float] = {}
        for report in self._reports:
            for name, value in report.costs().items():
                total[name] = total.get(name, 0.0) + value
        return total
