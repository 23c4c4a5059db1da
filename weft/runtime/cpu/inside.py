"""Inspection of CPU executables. Loaded on demand; running does not need it."""

from __future__ import annotations

import re

from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import module_text
from weft.runtime.inside import Inside, KernelCode, function_in


class CpuInside(Inside):
    """Inspector of a CPU executable."""

    def llvm(self) -> str:
        return module_text(self.distinct_kernels().items(), self.compilation.target)

    def assembly(self) -> str:
        return link.assembly(self.llvm(), self.compilation.target, Tier.LIGHT)

    def get_code(self, kernels: dict[str, Kernel]) -> dict[str, KernelCode]:
        if not kernels:
            return {}
        target = self.compilation.target
        text = module_text(kernels.items(), target)
        assembly = link.assembly(text, target, self.executable.tier)
        found = {}
        for name in kernels:
            escaped = re.escape(name)
            found[name] = KernelCode(
                function_in(text, rf"^define [^\n]*@\"?{escaped}\"?\(.*?^}}"),
                function_in(assembly, rf"^_?{escaped}:.*?(?=^\.?L?_?func_end|\Z)"),
            )
        return found
