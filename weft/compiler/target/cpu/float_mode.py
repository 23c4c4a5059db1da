"""Floating-point mode of the processor: kernels run in IEEE's default mode, whatever a library did to the calling
thread.

Code built with fast math may leave a thread flushing denormals to zero, or rounding in another direction. Our programs
set the default mode when they begin and restore the previous one, so that each thread computes the same bits.
"""

from __future__ import annotations

from weft.compiler.target.llvm import Function, Value, constant, i32, i64, void

# MXCSR: all exceptions masked, round to nearest, denormals preserved. The lowest six bits are sticky exception flags.
_X86_DEFAULT = 0x1F80
_X86_RECORD = 0x3F


def set_default(f: Function, triple: str) -> Value | None:
    """Switch to IEEE's default mode; return the previous mode, or None on processors whose mode register is not
    supported."""
    if triple.startswith("x86_64"):
        slot = f.alloca(i32, align=4)
        f.call("llvm.x86.sse.stmxcsr", void, slot)
        before = f.load(i32, slot, 4)
        with f.when(_differs_x86(f, before), unlikely=True):
            _write_x86(f, constant(_X86_DEFAULT, i32))
        return before
    if triple.startswith(("aarch64", "arm64")):
        found = f.call("llvm.aarch64.get.fpcr", i64)
        assert found is not None
        with f.when(f.icmp("ne", found, constant(0, i64)), unlikely=True):
            f.call("llvm.aarch64.set.fpcr", void, constant(0, i64))
        return found
    return None


def restore(f: Function, before: Value | None) -> None:
    """Restore the mode that `set_default` returned."""
    if before is None:
        return
    if before.type is i32:
        with f.when(_differs_x86(f, before), unlikely=True):
            _write_x86(f, before)
    else:
        with f.when(f.icmp("ne", before, constant(0, i64)), unlikely=True):
            f.call("llvm.aarch64.set.fpcr", void, before)


def _differs_x86(f: Function, mode: Value) -> Value:
    return f.icmp("ne", f.and_(mode, constant(~_X86_RECORD, i32)), constant(_X86_DEFAULT, i32))


def _write_x86(f: Function, mode: Value) -> None:
    slot = f.alloca(i32, align=4)
    f.store(mode, slot, 4)
    f.call("llvm.x86.sse.ldmxcsr", void, slot)
