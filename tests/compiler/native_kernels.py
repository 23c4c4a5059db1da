"""Kernels written in LLVM IR, `void kernel(table, begin, end)`, for the tests of their callers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import LoadedCode, Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Function, Module, Parameter, constant, float_, i32, i64, ptr, void

# A mode in which denormal numbers are taken for zero.
FLUSHING = 0x9FC0 if host().triple.startswith("x86_64") else 1 << 24


def _empty(f: Function) -> None:
    """Does nothing."""
    f.ret()


def _visit(f: Function) -> None:
    """table[0][i] += 1 for each index, in one step."""
    table, begin, end = f.arguments
    visits = f.load(ptr, table, 8)
    with f.loop(begin, end) as i:
        f.atomic_update("add", f.offset(visits, i32, i), constant(1, i32), "monotonic")
    f.ret()


def _add_one(f: Function) -> None:
    """table[0][i] += 1 for each index of float32."""
    table, begin, end = f.arguments
    data = f.load(ptr, table, 8)
    with f.loop(begin, end) as i:
        address = f.offset(data, float_, i)
        f.store(f.fadd(f.load(float_, address, 4), constant(1.0, float_)), address, 4)
    f.ret()


def _sum(f: Function) -> None:
    """table[1][begin] = the sum of table[0][begin:end], one after the other in float32."""
    table, begin, end = f.arguments
    data, sums = f.load(ptr, table, 8), f.load(ptr, f.offset(table, ptr, 1), 8)
    with f.loop(begin, end, carried=[constant(0.0, float_)]) as i:
        i.give(f.fadd(i.values[0], f.load(float_, f.offset(data, float_, i), 4)))
    f.store(i.results[0], f.offset(sums, float_, begin), 4)
    f.ret()


def _who(f: Function) -> None:
    """table[0][i] = the thread that an index is computed in, after some work."""
    table, begin, end = f.arguments
    names = f.load(ptr, table, 8)
    with f.loop(begin, end) as i:
        f.call("usleep", i32, constant(50, i32))
        thread = f.call("pthread_self", i64)
        assert thread is not None
        f.store(thread, f.offset(names, i64, i), 8)
    f.ret()


def _tarry(f: Function) -> None:
    """As `visit`, but threads other than table[1][0] take long for each index."""
    table, begin, end = f.arguments
    visits, caller = f.load(ptr, table, 8), f.load(i64, f.load(ptr, f.offset(table, ptr, 1), 8), 8)
    thread = f.call("pthread_self", i64)
    assert thread is not None
    wait = f.select(f.icmp("eq", thread, caller), constant(20, i32), constant(3000, i32))
    with f.loop(begin, end) as i:
        f.call("usleep", i32, wait)
        f.atomic_update("add", f.offset(visits, i32, i), constant(1, i32), "monotonic")
    f.ret()


def _hold(f: Function) -> None:
    """Says in table[0][0] that it has begun, and ends when table[0][1] is set."""
    flags = f.load(ptr, f.arguments[0], 8)
    f.atomic_store(constant(1, i32), flags, "release")
    with f.repeat() as loop:
        f.call("usleep", i32, constant(100, i32))
        loop.again(f.icmp("eq", f.atomic_load(i32, f.offset(flags, i32, 1), "acquire"), constant(0, i32)))
    f.ret()


def _nested(f: Function) -> None:
    """For each index a job of its own: table[1] is the address of `weft_parallel`, over 8 numbers of table[0]."""
    table, begin, end = f.arguments
    visits, parallel = f.load(ptr, table, 8), f.load(ptr, f.offset(table, ptr, 1), 8)
    row = f.alloca(ptr, align=8)
    with f.loop(begin, end) as i:
        f.store(f.offset(visits, i32, f.mul(i, constant(8, i64))), row, 8)
        f.call_pointer(parallel, void, f.module.address("visit"), row, constant(8, i64), constant(1, i64))
    f.ret()


def _half(f: Function) -> None:
    """table[0][i] /= 2 for each index of float32."""
    table, begin, end = f.arguments
    data = f.load(ptr, table, 8)
    with f.loop(begin, end) as i:
        address = f.offset(data, float_, i)
        f.store(f.fmul(f.load(float_, address, 4), constant(0.5, float_)), address, 4)
    f.ret()


KERNELS: dict[str, Callable[[Function], None]] = {
    "empty": _empty,
    "visit": _visit,
    "add_one": _add_one,
    "sum": _sum,
    "who": _who,
    "tarry": _tarry,
    "hold": _hold,
    "nested": _nested,
    "half": _half,
}


@functools.cache
def kernels() -> LoadedCode:
    """All of them, compiled."""
    module = Module(host().triple)
    for name, write in KERNELS.items():
        parameters = [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)]
        write(module.function(name, void, parameters))
    f = module.function("this_thread", i64, [])
    f.ret(f.call("pthread_self", i64))
    f = module.function("set_mode", i64, [Parameter("mode", i64)])
    if host().triple.startswith("x86_64"):
        slot, other = f.alloca(i32), f.alloca(i32)
        f.call("llvm.x86.sse.stmxcsr", void, slot)
        f.store(f.trunc(f.arguments[0], i32), other, 4)
        f.call("llvm.x86.sse.ldmxcsr", void, other)
        f.ret(f.zext(f.load(i32, slot, 4), i64))
    else:
        before = f.call("llvm.aarch64.get.fpcr", i64)
        f.call("llvm.aarch64.set.fpcr", void, f.arguments[0])
        f.ret(before)
    return link.compile_and_load(module.text(), host(), Tier.QUICK)


def address(name: str) -> int:
    """Where a kernel is."""
    return kernels().addresses[name]


def this_thread() -> int:
    """What `who` calls the calling thread."""
    return kernels().function("this_thread", ctypes.c_int64)()


def set_mode(mode: int) -> int:
    """Set the floating-point mode of this thread; return the previous one."""
    return kernels().function("set_mode", ctypes.c_int64, ctypes.c_int64)(mode)


def table(*arrays: np.ndarray[Any, Any]) -> ctypes.Array[ctypes.c_void_p]:
    """The table of a kernel's pointers; keep the arrays while it is used."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def chunk_sums(data: np.ndarray[Any, Any], grain: int) -> np.ndarray[Any, Any]:
    """The expected result of `sum` over chunks: the sum at the beginning of each, else 0."""
    sums = np.zeros_like(data)
    for begin in range(0, data.size, grain):
        sums[begin] = np.cumsum(data[begin : begin + grain], dtype=np.float32)[-1]
    return sums
