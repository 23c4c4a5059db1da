"""llvmlite, loaded when it is first needed: this machine, target machines, and the one JIT of the process."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.base.forks import held

# LLVM's parts are shared: what makes or loads code holds this. A fork waits until LLVM is not at work.
lock = held(threading.RLock())


@functools.cache
def binding() -> Any:
    """llvmlite's binding to LLVM, initialised for this machine."""
    import llvmlite.binding

    own = getattr(getattr(llvmlite.binding.ffi.lib, "_lock", None), "_lock", None)
    if own is not None:  # llvmlite's own lock, which is held for each call of LLVM
        held(own)
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


def _unlocked(name: str) -> Any:
    """A function of LLVM that several threads may be in at a time. llvmlite lets one thread into LLVM, whatever it does
    there; LLVM asks for less: contexts and target machines of their own. Should llvmlite hide its functions in another
    way one day, theirs is taken, and threads wait for each other."""
    function = getattr(binding().ffi.lib, name)
    return getattr(function, "_cfn", function)


@functools.cache
def _brief(name: str) -> Any:
    """A function of LLVM that takes next to no time, to be called without letting the GIL go: a thread that does gets
    it back from one that runs Python code after milliseconds only."""
    function = getattr(binding().ffi.lib, name)
    own = getattr(function, "_cfn", None)
    if own is None:
        return function
    library = binding().ffi.lib
    brief = ctypes.PyDLL(library._name, handle=library._handle)[name]
    brief.argtypes, brief.restype = own.argtypes, own.restype
    return brief


@functools.cache
def _layout(triple: str, cpu: str, flags: str) -> bytes:
    """How a machine lays data out, in LLVM's words."""
    return str(target_machine(triple, cpu, flags, 2).target_data).encode()


@contextmanager
def parsed(text: str, triple: str, cpu: str, flags: str) -> Iterator[Any]:
    """A module for a machine, in a context of its own, for as long as the block runs; a RuntimeError says why LLVM does
    not accept the text. Other threads may do the same."""
    llvm = binding()
    context = llvm.context.ContextRef(_brief("LLVMPY_ContextCreate")())
    error = ctypes.c_char_p()
    found = _unlocked("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(error))
    module = llvm.ModuleRef(found, context)
    try:
        if error:
            message = (error.value or b"").decode(errors="replace")
            _brief("LLVMPY_DisposeString")(error)
            raise RuntimeError(message)
        _brief("LLVMPY_SetTarget")(module, triple.encode())
        _brief("LLVMPY_SetDataLayout")(module, _layout(triple, cpu, flags))
        yield module
    finally:
        if found:
            _brief("LLVMPY_DisposeModule")(module)
        module.detach()
        _brief("LLVMPY_ContextDispose")(context)
        context.detach()


def emitted(machine: Any, module: Any, as_text: bool = False) -> bytes:
    """The machine code of a module, or its assembly. Other threads may do the same, with machines and contexts of their
    own."""
    error = ctypes.c_char_p()
    emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
    buffer = emit(machine, module, int(not as_text), ctypes.byref(error))
    if not buffer:
        raise RuntimeError((error.value or b"").decode(errors="replace"))
    try:
        return ctypes.string_at(_brief("LLVMPY_GetBufferStart")(buffer), _brief("LLVMPY_GetBufferSize")(buffer))
    finally:
        _brief("LLVMPY_DisposeMemoryBuffer")(buffer)


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run the passes of a module; other threads may too."""
    _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)


class _Machines(threading.local):
    """The target machines of a thread."""

    def __init__(self) -> None:
        self.machines: dict[tuple[str, str, str, int], Any] = {}


_machines = _Machines()


def target_machine(triple: str, cpu: str, flags: str, level: int) -> Any:
    """What makes machine code in this thread. `small` and `pic` put constants next to it, and make objects that can be
    stored."""
    key = (triple, cpu, flags, level)
    machine = _machines.machines.get(key)
    if machine is None:
        machine = _machines.machines[key] = _target_machine(*key)
    return machine


def _target_machine(triple: str, cpu: str, flags: str, level: int) -> Any:
    target = _target(triple)
    return target.create_target_machine(cpu=cpu, features=flags, opt=level, reloc="pic", codemodel="small", jit=False)


@functools.cache
def _target(triple: str) -> Any:
    """What LLVM has for a triple, which all threads may use: asking for it lets the GIL go several times."""
    llvm = binding()
    if triple != llvm.get_process_triple():
        _all_targets()
    return llvm.Target.from_triple(triple)


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


def toolchain() -> str:
    """What makes code, with its version."""
    return "LLVM " + ".".join(map(str, binding().llvm_version_info))
