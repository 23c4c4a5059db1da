"""The functions of the C library that LLVM calls for intrinsics, as internal functions: an object needs no others."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.target.llvm import (
    Function,
    Module,
    Parameter,
    Type,
    Value,
    constant,
    i8,
    i32,
    i64,
    ptr,
    vector,
    void,
)

# Bytes that one iteration copies or fills.
_CHUNK = 32


def write(module: Module) -> None:
    """Define memmove, memcpy and memset in a module that calls their intrinsics. WebAssembly has instructions for
    these, and needs functions for arithmetic of 128 bits."""
    if module.triple.startswith("wasm"):
        if any("i128" in line for f in module.functions.values() for line in f.lines):
            _define_wide(module)
        return
    called = {name for name in ("memmove", "memset") if _calls(module, name)}
    if "memmove" in called:
        # LLVM writes memcpy where it knows that nothing overlaps.
        for name in ("memmove", "memcpy"):
            _define(module, name, ptr, _copy)
    if "memset" in called:
        _define(module, "memset", i32, _fill)


def _define_wide(module: Module) -> None:
    """Define products and shifts of 128-bit integers: the result is at the first address, operands are pairs."""
    result = Parameter("result", ptr)
    pair = [Parameter("low", i64), Parameter("high", i64)]
    f = module.function("__multi3", void, [result, *pair, Parameter("low2", i64), Parameter("high2", i64)], "internal")
    _multiply(f)
    for name, write_shift in (("__ashlti3", _shift_left), ("__lshrti3", _shift_right)):
        f = module.function(name, void, [result, *pair, Parameter("by", i32)], "internal")
        write_shift(f)


def _put(f: Function, low: Value, high: Value) -> None:
    result = f.arguments[0]
    f.store(low, result, 8)
    f.store(high, f.offset(result, i64, 1), 8)
    f.ret()


def _multiply(f: Function) -> None:
    """Multiply by halves of 32 bits."""
    _, low, high, low2, high2 = f.arguments
    mask, half = constant((1 << 32) - 1, i64), constant(32, i64)
    a0, a1, b0, b1 = (part for x in (low, low2) for part in (f.and_(x, mask), f.lshr(x, half)))
    least = f.mul(a0, b0)
    first = f.add(f.mul(a1, b0), f.lshr(least, half))
    second = f.add(f.mul(a0, b1), f.and_(first, mask))
    above = f.add(f.mul(a1, b1), f.add(f.lshr(first, half), f.lshr(second, half)))
    crossed = f.add(f.mul(low, high2), f.mul(high, low2))
    _put(f, f.or_(f.and_(least, mask), f.shl(second, half)), f.add(above, crossed))


def _shift_left(f: Function) -> None:
    _, low, high, count = f.arguments
    by, zero = f.zext(count, i64), constant(0, i64)
    is_long = f.icmp("uge", by, constant(64, i64))
    rest = f.and_(by, constant(63, i64))
    carried = f.lshr(f.lshr(low, constant(1, i64)), f.xor(rest, constant(63, i64)))
    short_high, shifted = f.or_(f.shl(high, rest), carried), f.shl(low, rest)
    _put(f, f.select(is_long, zero, shifted), f.select(is_long, shifted, short_high))


def _shift_right(f: Function) -> None:
    _, low, high, count = f.arguments
    by, zero = f.zext(count, i64), constant(0, i64)
    is_long = f.icmp("uge", by, constant(64, i64))
    rest = f.and_(by, constant(63, i64))
    carried = f.shl(f.shl(high, constant(1, i64)), f.xor(rest, constant(63, i64)))
    short_low, shifted = f.or_(f.lshr(low, rest), carried), f.lshr(high, rest)
    _put(f, f.select(is_long, shifted, short_low), f.select(is_long, zero, shifted))


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
