"""The builder of LLVM IR: what it writes, that LLVM parses it, and that wrong types are errors."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable

import llvmlite.binding as binding
import numpy as np
import pytest

from weft.base.errors import InternalError
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.llvm import (
    Function,
    Module,
    Parameter,
    Type,
    constant,
    constant_vector,
    double,
    float_,
    half,
    i1,
    i8,
    i16,
    i32,
    i64,
    pointer,
    ptr,
    vector,
    void,
    zero,
)

v4 = vector(float_, 4)
w4 = vector(i32, 4)


def body(*types: Type, returns: Type = void) -> Function:
    """A function with parameters of some types."""
    return Module().function("f", returns, [Parameter(f"p{n}", t) for n, t in enumerate(types)])


def lines(f: Function) -> list[str]:
    return [line.strip() for line in f.lines]


def verified(module: Module) -> str:
    """The text of a module that LLVM reads and finds correct."""
    text = module.text()
    binding.parse_assembly(text).verify()
    return text


def test_types_are_interned() -> None:
    assert vector(float_, 16) is vector(float_, 16)
    assert vector(float_, 1) is float_
    assert vector(float_, 16).text == "<16 x float>"
    assert vector(float_, 16).suffix == "v16f32"
    assert pointer(3) is pointer(3) and pointer(3).text == "ptr addrspace(3)" and pointer(0) is ptr


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-45, 3.5, math.inf, -math.inf, math.nan, 1e39, 1e-60])
def test_floats_are_written_by_their_bits(value: float) -> None:
    rounded = constant(value, float_).text
    try:
        expected = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        expected = math.copysign(math.inf, value)
    assert rounded == f"0x{struct.unpack('<Q', struct.pack('<d', expected))[0]:016X}"
    assert constant(value, double).text == f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def test_constants() -> None:
    assert constant(1.5, v4).text == "splat (float 0x3FF8000000000000)"
    assert constant(1.5, half).text == "0xH3E00"
    assert constant(2**32 - 1, i32).text == "-1"
    assert constant(True, i1).text == "true"
    assert constant(-0.0, float_).text != constant(0.0, float_).text
    assert constant_vector([1, -2], i32).text == "<i32 1, i32 -2>"
    assert zero(v4).text == "zeroinitializer" and zero(ptr).text == "null"
    with pytest.raises(InternalError, match="does not fit"):
        constant(256, i8)
    with pytest.raises(InternalError, match="does not exist"):
        constant(0.5, i32)


def test_instructions_are_one_line_each() -> None:
    f = body(v4, v4)
    x, y = f.arguments
    f.fma(f.fadd(x, y), y, constant(1.0, v4))
    f.select(f.fcmp("olt", x, y), x, y)
    f.bitcast(x, w4)
    assert lines(f) == [
        "%v1 = fadd <4 x float> %p0, %p1",
        "%v2 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v1, <4 x float> %p1, "
        "<4 x float> splat (float 0x3FF0000000000000))",
        "%v3 = fcmp olt <4 x float> %p0, %p1",
        "%v4 = select <4 x i1> %v3, <4 x float> %p0, <4 x float> %p1",
        "%v5 = bitcast <4 x float> %p0 to <4 x i32>",
    ]
    f.ret()
    assert "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)" in verified(f.module)


def test_a_counted_loop_carries_values() -> None:
    f = body(ptr, i64, returns=float_)
    x, count = f.arguments
    with f.loop(0, count, 4, carried=[constant(0.0, float_)]) as i:
        i.give(f.fadd(i.values[0], f.load(float_, f.offset(x, float_, i), 4)))
    f.ret(i.results[0])
    assert lines(f) == [
        "%v1 = icmp slt i64 0, %p1",
        "br i1 %v1, label %loop1, label %after2",
        "loop1:",
        "%v2 = phi i64 [ 0, %entry ], [ %v7, %loop1 ]",
        "%v3 = phi float [ 0x0000000000000000, %entry ], [ %v6, %loop1 ]",
        "%v4 = getelementptr inbounds float, ptr %p0, i64 %v2",
        "%v5 = load float, ptr %v4, align 4",
        "%v6 = fadd float %v3, %v5",
        "%v7 = add nsw i64 %v2, 4",
        "%v8 = icmp slt i64 %v7, %p1",
        "br i1 %v8, label %loop1, label %after2",
        "after2:",
        "%v9 = phi float [ 0x0000000000000000, %entry ], [ %v6, %loop1 ]",
        "ret float %v9",
    ]
    verified(f.module)


def test_loops_nest_and_branches_have_results() -> None:
    f = body(i64, i1, returns=i64)
    count, flag = f.arguments
    with f.loop(0, count, carried=[constant(0, i64)]) as outer:
        with f.loop(0, outer, carried=outer.values) as inner:
            with f.when(flag, inner.values[0], unlikely=True) as region:
                region.give(f.add(inner.values[0], inner))
            inner.give(*region.results)
        outer.give(*inner.results)
    with f.repeat(outer.results[0]) as loop:
        less = f.sub(loop.values[0], constant(3, i64))
        loop.again(f.icmp("sgt", less, constant(3, i64)), less)
    f.ret(loop.results[0])
    assert '!0 = !{!"branch_weights", i32 1, i32 4000}' in verified(f.module)


def test_memory() -> None:
    f = body(ptr, vector(i1, 4), vector(i64, 4))
    x, mask, index = f.arguments
    loaded = f.masked_load(v4, x, mask, 4)
    f.masked_store(loaded, x, mask, 4)
    gathered = f.gather(v4, f.offset(x, float_, index), mask, 4)
    f.scatter(gathered, f.offset(x, float_, index), mask, 4)
    f.store(f.load(v4, x, 16, invariant=True), x, 16, nontemporal=True)
    room = f.alloca(v4)
    f.store(loaded, room, 16)
    f.ret()
    text = verified(f.module)
    assert "alloca <4 x float>" in text.split("\n")[2]  # in the entry block, before all else
    assert "!nontemporal" in text and "!invariant.load" in text


@pytest.mark.parametrize("tier", list(Tier))
def test_masked_stores_write_the_lanes_of_constant_masks_only(tier: Tier) -> None:
    """Of numbers that were wider before; every mask with one lane, or all but one."""
    module, cases = Module(), []
    for short, wide in itertools.combinations((i8, i16, i32, i64), 2):
        for count in (2, 4, 8, 16):
            for lane, alone in itertools.product({0, 1, count - 1}, (True, False)):
                mask = [(n == lane) == alone for n in range(count)]
                f = module.function(f"f{len(cases)}", void, [Parameter("source", ptr), Parameter("target", ptr)])
                numbers = f.trunc(f.load(vector(wide, count), f.arguments[0], 1), vector(short, count))
                f.masked_store(numbers, f.arguments[1], constant_vector(mask, i1), short.bits // 8)
                f.ret()
                cases.append((f.name, wide.bits, short.bits, np.array(mask)))
    library = link.compile_and_load(module.text(), tier=tier)
    for name, wide_bits, short_bits, mask in cases:
        source = np.arange(1, mask.size + 1).astype(f"int{wide_bits}")
        target = np.full(mask.size + 16, -1, f"int{short_bits}")
        library.function(name, None, ctypes.c_void_p, ctypes.c_void_p)(source.ctypes.data, target.ctypes.data)
        expected = np.where(mask, source, -1)
        assert target.tolist() == [*expected, *[-1] * 16], f"int{wide_bits} to int{short_bits} under {mask}"


def test_modules_have_attributes_tables_and_helpers_once() -> None:
    module = Module(triple="x86_64-unknown-linux-gnu", vector_bits=256)
    written = []

    def helper(f: Function) -> None:
        written.append(f.name)
        f.ret()

    for name in ("a", "b"):
        f = module.function(name, void, [Parameter("x", ptr, ("noalias", "readonly"))])
        f.load(i32, f.offset(module.table("numbers", i32, [1, 2, 3]), i32, 1), 4)
        f.call(module.helper("shared", [], helper), void)
        f.ret()
    text = verified(module)
    assert written == ["shared"] and text.count("define internal void @shared()") == 1
    assert text.count("@numbers = internal constant [3 x i32] [i32 1, i32 2, i32 3]") == 1
    assert "define void @a(ptr noalias readonly %x) #0 {" in text
    assert 'attributes #0 = { nounwind "prefer-vector-width"="256" }' in text
    assert 'target triple = "x86_64-unknown-linux-gnu"' in text
    with pytest.raises(InternalError, match="two functions"):
        module.function("a", void, [])


def test_memory_of_several_threads() -> None:
    module = Module()
    f = module.function("f", i32, [Parameter("p0", i32)])
    count = module.variable("count", i32, 4, 128)
    assert module.variable("count", i32, 4, 128).text == count.text
    found, done = f.compare_exchange(count, f.arguments[0], constant(1, i32), "acq_rel")
    assert found.type is i32 and done.type is i1
    f.atomic_store(f.atomic_update("add", count, found, "seq_cst"), count, "release")
    f.ret(f.atomic_load(i32, count, "acquire"))
    assert lines(f) == [
        "%v1 = cmpxchg ptr @count, i32 %p0, i32 1 acq_rel monotonic, align 4",
        "%v2 = extractvalue { i32, i1 } %v1, 0",
        "%v3 = extractvalue { i32, i1 } %v1, 1",
        "%v4 = atomicrmw add ptr @count, i32 %v2 seq_cst, align 4",
        "store atomic i32 %v4, ptr @count release, align 4",
        "%v5 = load atomic i32, ptr @count acquire, align 4",
        "ret i32 %v5",
    ]
    assert "@count = internal global [4 x i32] zeroinitializer, align 128" in verified(module)


def test_functions_by_address_switches_and_bytes() -> None:
    module = Module()
    f = module.function("f", i64, [Parameter("p0", ptr), Parameter("p1", i64)])
    there, size = f.arguments
    room = f.room(i8, size)
    f.copy(room, there, size)
    f.fill(room, constant(0, i8), size)
    f.switch(size, "other", {1: "one", 2: "other"})
    f.start("one")
    f.call_pointer(there, void, module.address("f"))
    f.branch("other")
    f.start("other")
    f.ret(f.call_pointer(there, i64, size))
    text = verified(module)
    assert "%v1 = alloca i8, i64 %p1, align 64" in text
    assert "switch i64 %p1, label %other [ i64 1, label %one i64 2, label %other ]" in text
    assert "call void %p0(ptr @f)" in text and "%v2 = call i64 %p0(i64 %p1)" in text
    with pytest.raises(InternalError, match="no function @g"):
        module.address("g")


WRONG: dict[str, Callable[[Function], object]] = {
    "fadd": lambda f: f.fadd(f.arguments[0], f.arguments[1]),
    "fmul": lambda f: f.fmul(f.arguments[2], f.arguments[2]),
    "fneg": lambda f: f.fneg(f.arguments[2]),
    "add": lambda f: f.add(f.arguments[2], f.arguments[0]),
    "shl": lambda f: f.shl(f.arguments[0], f.arguments[0]),
    "icmp slt": lambda f: f.icmp("slt", f.arguments[0], f.arguments[0]),
    "icmp foo": lambda f: f.icmp("foo", f.arguments[2], f.arguments[2]),
    "fcmp olt": lambda f: f.fcmp("olt", f.arguments[2], f.arguments[2]),
    "select": lambda f: f.select(f.arguments[2], f.arguments[0], f.arguments[0]),
    "trunc": lambda f: f.trunc(f.arguments[2], vector(i64, 4)),
    "zext": lambda f: f.zext(f.arguments[2], i64),
    "fptrunc": lambda f: f.fptrunc(constant(1.0, double), half),
    "bitcast": lambda f: f.bitcast(f.arguments[0], double),
    "extractelement": lambda f: f.extract(f.arguments[1], 0),
    "insertelement": lambda f: f.insert(f.arguments[0], f.arguments[2], 0),
    "shufflevector": lambda f: f.shuffle(f.arguments[0], None, [9]),
    "splat": lambda f: f.splat(f.arguments[0], 4),
    "llvm.fma": lambda f: f.fma(f.arguments[0], f.arguments[0], f.arguments[1]),
    "llvm.smax": lambda f: f.smax(f.arguments[0], f.arguments[0]),
    "llvm.masked.load": lambda f: f.masked_load(v4, f.arguments[3], f.arguments[2], 4),
    "load": lambda f: f.load(i32, f.arguments[0], 4),
    "store": lambda f: f.store(f.arguments[0], f.arguments[2], 4),
    "getelementptr": lambda f: f.offset(f.arguments[0], float_, 0),
    "load atomic": lambda f: f.atomic_load(i32, f.arguments[3], "release"),
    "store atomic": lambda f: f.atomic_store(f.arguments[0], f.arguments[3], "release"),
    "atomicrmw": lambda f: f.atomic_update("nand", f.arguments[3], constant(1, i32), "monotonic"),
    "cmpxchg": lambda f: f.compare_exchange(f.arguments[3], constant(1, i64), constant(1, i32), "acquire"),
    "alloca": lambda f: f.room(i8, f.arguments[3]),
    "call": lambda f: f.call_pointer(f.arguments[1], void),
    "switch": lambda f: f.switch(f.arguments[2], "a", {}),
    "llvm.memmove": lambda f: f.copy(f.arguments[3], f.arguments[3], constant(1, i32)),
    "llvm.memset": lambda f: f.fill(f.arguments[3], constant(0, i32), constant(1, i64)),
    "ret": lambda f: f.ret(f.arguments[0]),
    "br": lambda f: f.branch_if(f.arguments[2], "a", "b"),
    "phi": lambda f: f.phi(i32, (f.arguments[0], "entry")),
    "define": lambda f: f.text(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operand_is_refused_by_name(name: str) -> None:
    f = body(v4, float_, w4, ptr)
    with pytest.raises(InternalError, match=f"`{name}`"):
        WRONG[name](f)


def test_calls_must_agree_with_the_function() -> None:
    f = body(i32)
    f.call("elsewhere", i32, f.arguments[0])
    with pytest.raises(InternalError, match="call @elsewhere"):
        f.call("elsewhere", i32, constant(1, i64))


def test_a_loop_must_pass_on_its_carry() -> None:
    f = body(i64)
    with pytest.raises(InternalError, match="hand on"):
        with f.loop(0, f.arguments[0], carried=[constant(0, i32)]) as i:
            i.give(constant(0, i64))
