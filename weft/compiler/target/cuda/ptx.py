"""LLVM text to PTX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from weft.base.errors import InternalError
from weft.compiler.target import native
from weft.compiler.target.target import Target
from weft.compiler.target.threads import compile_in_threads

# Prefix of instructions that only one architecture has, and the first PTX version with them.
OF_ONE_ARCHITECTURE, FIRST_VERSION = "wgmma.", "8.0"

Made = TypeVar("Made")


def ptx(text: str, target: Target) -> str:
    """Compile a module to PTX."""
    with native.lock:
        return _ptx(text, target)


def assemble_all(texts: Sequence[Callable[[], str]], target: Target, assemble: Callable[[str], Made]) -> list[Made]:
    """Compile several modules to PTX and assemble each, in several threads; return what `assemble` returns for each."""
    with native.lock:
        return compile_in_threads(texts, lambda text: assemble(_ptx(text, target)))


def _ptx(text: str, target: Target) -> str:
    """Compile a module to PTX. LLVM's lowest level is enough, since the assembler of PTX optimises again."""
    machine = native.target_machine(target.triple, target.cpu, target.flags, 2)
    with ExitStack() as stack:
        try:
            module = stack.enter_context(native.parse(text, target.triple, target.cpu, target.flags))
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"LLVM cannot parse the text of a kernel: {error}", stage="llvm", text=text) from None
        llvm = native.binding()
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        passes = llvm.create_pass_builder(machine, options)
        native.run_passes(passes.getModulePassManager(), module, passes)
        code = native.emit_code(machine, module, as_text=True).decode()
    return _for_one_architecture(code) if OF_ONE_ARCHITECTURE in text else code


def _for_one_architecture(code: str) -> str:
    """Mark PTX as specific to its architecture (`sm_90a`), whose instructions later ones lack. LLVM writes an
    earlier PTX version, since it generates other code for later ones (see `targets.PTX`)."""
    code = re.sub(r"^\.version .*$", f".version {FIRST_VERSION}", code, count=1, flags=re.MULTILINE)
    return re.sub(r"^\.target (\w+)", r".target \1a", code, count=1, flags=re.MULTILINE)
