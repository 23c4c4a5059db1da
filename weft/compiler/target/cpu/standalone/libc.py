"""The functions of the C library that LLVM calls for intrinsics, as internal functions: an object needs no others."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.target.llvm import Function, Module, Parameter, Type, constant, i8, i32, i64, ptr, vector

# Bytes that one iteration copies or fills.
_CHUNK = 32


def write(module: Module) -> None:
    """Define memmove, memcpy and memset in a module that calls their intrinsics. WebAssembly has instructions."""
    if module.triple.startswith("wasm"):
        return
    called = {name for name in ("memmove", "memset") if _calls(module, name)}
    if "memmove" in called:
        # LLVM writes memcpy where it knows that nothing overlaps.
        for name in ("memmove", "memcpy"):
            _define(module, name, ptr, _copy)
    if "memset" in called:
        _define(module, "memset", i32, _fill)


def _calls(module: Module, name: str) -> bool:
    return any(module.signature(f"llvm.{name}.{suffix}") for suffix in ("p0.p0.i64", "p0.i64"))


def _define(module: Module, name: str, second: Type, write_body: Callable[[Function], None]) -> None:
    parameters = [Parameter("target", ptr), Parameter("source", second), Parameter("size", i64)]
    f = module.function(name, ptr, parameters, "internal")
    f.attributes = "noinline "
    write_body(f)
    f.ret(f.arguments[0])


def _copy(f: Function) -> None:
    target, source, size = f.arguments
    whole = f.and_(size, constant(-_CHUNK, i64))
    distance = f.sub(f.ptrtoint(target, i64), f.ptrtoint(source, i64))
    forward, backward, end = f.label("forward"), f.label("backward"), f.label("end")
    f.branch_if(f.icmp("ult", distance, size), backward, forward)
    f.start(forward)
    chunk = vector(i8, _CHUNK)
    with f.loop(constant(0, i64), whole, _CHUNK) as index:
        f.store(f.load(chunk, f.offset(source, i8, index), 1), f.offset(target, i8, index), 1)
    with f.loop(whole, size) as index:
        f.store(f.load(i8, f.offset(source, i8, index), 1), f.offset(target, i8, index), 1)
    f.branch(end)
    f.start(backward)
    with f.loop(constant(0, i64), f.sub(size, whole)) as index:
        position = f.sub(f.sub(size, constant(1, i64)), index)
        f.store(f.load(i8, f.offset(source, i8, position), 1), f.offset(target, i8, position), 1)
    with f.loop(constant(0, i64), whole, _CHUNK) as index:
        position = f.sub(f.sub(whole, constant(_CHUNK, i64)), index)
        f.store(f.load(chunk, f.offset(source, i8, position), 1), f.offset(target, i8, position), 1)
    f.branch(end)
    f.start(end)


def _fill(f: Function) -> None:
    target, byte, size = f.arguments
    value = f.trunc(byte, i8)
    whole = f.and_(size, constant(-_CHUNK, i64))
    chunk = f.splat(value, _CHUNK)
    with f.loop(constant(0, i64), whole, _CHUNK) as index:
        f.store(chunk, f.offset(target, i8, index), 1)
    with f.loop(whole, size) as index:
        f.store(value, f.offset(target, i8, index), 1)
