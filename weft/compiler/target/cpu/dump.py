"""Files that WEFT_DUMP writes for a CPU program: LLVM text and assembly."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from weft.compiler.dump import FIRST, write
from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cpu import kernels, link
from weft.compiler.target.cpu.lower import module_text
from weft.compiler.target.target import Target


def write_code(
    folder: pathlib.Path, launched: Mapping[str, Kernel], target: Target, stats: kernels.CompileStats
) -> None:
    """Write the kernels as LLVM text and as assembly of one tier, including kernels that were compiled before."""
    text = module_text(launched.items(), target)
    write(folder / f"{FIRST + 2}_llvm.ll", ";", stats.summary, text)
    tier = stats.tier.name.lower()
    code = link.assembly(text, target, stats.tier)
    write(folder / f"{FIRST + 3}_assembly_{tier}.s", "#", f"tier {tier}; {stats.summary}", code)
