"""llvmlite, loaded when it is first needed: this machine, target machines, and the one JIT of the process."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def binding() -> Any:
    """llvmlite's binding to LLVM, initialised for this machine."""
    import llvmlite.binding

    llvmlite.binding.initialize_native_target()
    llvmlite.binding.initialize_native_asmprinter()
    return llvmlite.binding


def host() -> tuple[str, str, dict[str, bool]]:
    """Triple, name and abilities of this machine."""
    llvm = binding()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())


@functools.cache
def _all_targets() -> None:
    binding().initialize_all_targets()
    binding().initialize_all_asmprinters()


@functools.cache
def target_machine(triple: str, cpu: str, flags: str, level: int) -> Any:
    """What makes machine code. `small` and `pic` put constants next to it, and make objects that can be kept."""
    llvm = binding()
    if triple != llvm.get_process_triple():
        _all_targets()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=flags, opt=level, reloc="pic", codemodel="small", jit=False)


@functools.cache
def linker() -> Any:
    """The one JIT of the process; every object becomes a library of its own in it."""
    triple, cpu, flags = host()
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))
    llvm = binding()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=text, opt=2, reloc="pic", codemodel="small", jit=True
    )
    # JITLink puts all of an object into one piece of memory. The older linker asks for code and constants one by one,
    # which in a crowded address space come to lie further apart than code can reach; then it aborts.
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
