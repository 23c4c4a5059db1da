"""Lazy access to llvmlite: the host's properties, target machines, and the one JIT of the process."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.base.forks import held
from weft.base.lazy import load

# LLVM's global state is shared: whatever compiles or loads code holds this lock, and a fork waits for it.
lock = held(threading.RLock())


@functools.cache
def binding() -> Any:
    """Import llvmlite's binding to LLVM and initialise it for the host."""
    llvm = load("llvmlite.binding")
    own = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None)
    if own is not None:  # llvmlite's own lock, which it holds during each call of LLVM
        held(own)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for inline assembly that is not empty
    return llvm


def host() -> tuple[str, str, dict[str, bool]]:
    """Return the triple, CPU name and features of the host."""
    llvm = binding()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())


@functools.cache
def _all_targets() -> None:
    binding().initialize_all_targets()
    binding().initialize_all_asmprinters()


def _without_lock(name: str) -> Any:
    """Return a function of LLVM without llvmlite's lock. llvmlite allows one thread in LLVM at a time, but LLVM only
    requires that each thread has its own context and target machine. If a later llvmlite wraps its functions
    differently, the locked function is returned, and threads wait for each other."""
    function = getattr(binding().ffi.lib, name)
    return getattr(function, "_cfn", function)


@functools.cache
def _brief(name: str) -> Any:
    """Return a function of LLVM that takes next to no time, to be called without releasing the GIL: a thread that
    releases it gets it back from one that runs Python code only after milliseconds."""
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
    """Return the machine's data layout as LLVM's data layout string."""
    return str(target_machine(triple, cpu, flags, 2).target_data).encode()


@contextmanager
def parse(text: str, triple: str, cpu: str, flags: str) -> Iterator[Any]:
    """Yield the LLVM module of a text for a machine, in a context of its own that is disposed of at the end of the
    block.

    Raise RuntimeError with LLVM's message if the text does not parse. Safe to call from several threads.
    """
    llvm = binding()
    context = llvm.context.ContextRef(_brief("LLVMPY_ContextCreate")())
    error = ctypes.c_char_p()
    found = _without_lock("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(error))
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


def emit_code(machine: Any, module: Any, as_text: bool = False) -> bytes:
    """Return a module's object code, or its assembly if `as_text`. Safe to call from several threads, each with its own
    machine and context."""
    error = ctypes.c_char_p()
    emit = _without_lock("LLVMPY_TargetMachineEmitToMemory")
    buffer = emit(machine, module, int(not as_text), ctypes.byref(error))
    if not buffer:
        raise RuntimeError((error.value or b"").decode(errors="replace"))
    try:
        return ctypes.string_at(_brief("LLVMPY_GetBufferStart")(buffer), _brief("LLVMPY_GetBufferSize")(buffer))
    finally:
        _brief("LLVMPY_DisposeMemoryBuffer")(buffer)


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run a pass manager on a module. Safe to call from several threads."""
    _without_lock("LLVMPY_RunNewModulePassManager")(manager, module, builder)


class _Machines(threading.local):
    """Target machines of one thread."""

    def __init__(self) -> None:
        self.machines: dict[tuple[str, str, str, int], Any] = {}


_machines = _Machines()


def target_machine(triple: str, cpu: str, flags: str, level: int) -> Any:
    """Return this thread's target machine. Its code is position-independent (so that objects can be stored), with
    constants close to the code (the "small" code model)."""
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
    """Return LLVM's target for a triple. All threads share it: a lookup releases the GIL several times."""
    llvm = binding()
    if triple != llvm.get_process_triple():
        _all_targets()
    return llvm.Target.from_triple(triple)


@functools.cache
def linker() -> Any:
    """Return the JIT of the process; it loads every object as a library of its own."""
    triple, cpu, flags = host()
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))
    llvm = binding()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=text, opt=2, reloc="pic", codemodel="small", jit=True
    )
    # JITLink allocates one block of memory for an object. The older linker allocates code and constants separately: in
    # a crowded address space they may lie further apart than code can reach, and then it aborts.
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


def toolchain() -> str:
    """Return the name and version of the code generator."""
    return "LLVM " + ".".join(map(str, binding().llvm_version_info))
