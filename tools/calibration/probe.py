"""Microbenchmarks in LLVM IR: cycles and nanoseconds of loads, multiply-adds and shuffles on one core of the host.

Each function is a loop written as text, compiled without optimisation passes (so that nothing is removed or
reassociated) and timed by its fastest of several runs. Cycles are nanoseconds times `Probe.clock`, which is measured
from a chain of dependent multiplications.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.compiler.target import native
from weft.compiler.target.target import Target

UNROLLED = 8
# Latency in cycles of a 64-bit multiplication on x86 cores since 2010 and on Neoverse cores.
MULTIPLICATION = 3.0
LINE, PAGE = 64, 4096
# Working sets that lie in L1, in L2 and in memory on current server cores.
FIRST, SECOND, FAR = 16 << 10, 256 << 10, 64 << 20

LOOP = """
define void @f(ptr %base, i64 %passes, i64 %rows, i64 %stride) {{
entry:
{offsets}
  br label %outer
outer:
  %pass = phi i64 [0, %entry], [%pass.next, %end]
  br label %inner
inner:
  %row = phi i64 [0, %outer], [%row.next, %inner]
  %pointer = phi ptr [%base, %outer], [%pointer.next, %inner]
{body}
  %pointer.next = getelementptr i8, ptr %pointer, i64 %o{unrolled}
  %row.next = add i64 %row, {unrolled}
  %more = icmp ult i64 %row.next, %rows
  br i1 %more, label %inner, label %end
end:
  %pass.next = add i64 %pass, 1
  %again = icmp ult i64 %pass.next, %passes
  br i1 %again, label %outer, label %done
done:
  ret void
}}
{declarations}
"""

CHAIN = """
define void @f(ptr %base, i64 %count, i64 %factor, i64 %unused) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %loop]
  %x = phi i64 [1, %entry], [%x.next, %loop]
  %x.next = mul i64 %x, %factor
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %loop, label %done
done:
  store i64 %x.next, ptr %base
  ret void
}
"""

SUMS = """
define void @f(ptr %base, i64 %count, i64 %mask, i64 %unused) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %loop]
{accumulators}
  %offset.long = mul i64 %i, 256
  %offset = and i64 %offset.long, %mask
  %right = getelementptr i8, ptr %base, i64 %offset
  %left = getelementptr i8, ptr %right, i64 16384
{body}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
{declarations}
"""


class Probe:
    """Microbenchmarks of one target, which must be able to run on this machine."""

    def __init__(self, target: Target, quick: bool = False) -> None:
        self.target = target
        self.lanes = max(1, target.vector_bits // 32)
        self.vector = f"<{self.lanes} x float>"
        self.bytes = 4 * self.lanes
        self.runs, self.nanoseconds = (2, 20_000) if quick else (15, 400_000)
        self._engines: list[Any] = []
        # Written pages are distinct, unlike fresh ones. Huge pages would hide TLB misses: small arrays have none.
        mapping = mmap.mmap(-1, 2 * FAR + 4 * PAGE)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            mapping.madvise(mmap.MADV_NOHUGEPAGE)
        self.memory = np.frombuffer(mapping, np.uint8)
        self.memory[:] = 1
        self.base = self.memory.ctypes.data

    @functools.cached_property
    def clock(self) -> float:
        """Cycles per nanosecond."""
        return MULTIPLICATION / self.time(self.compile(CHAIN), lambda n: (n, 3, 0), 1)

    # -- code --------------------------------------------------------------------------------------------------------

    def compile(self, text: str) -> Callable[..., None]:
        """Compile the function `f` of an LLVM module."""
        target = self.target
        llvm = native.binding()
        module = llvm.parse_assembly(text)
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.flags, opt=2, jit=True
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        self._engines.append(engine)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        return kind(engine.get_function_address("f"))

    def time(self, function: Callable[..., None], arguments: Callable[[int], Sequence[int]], units: int) -> float:
        """Return the least nanoseconds per unit, with `units` units in each of the iterations that are passed."""
        count = 1
        while True:
            best = min(self._once(function, arguments(count)) for _ in range(self.runs))
            if best >= self.nanoseconds:
                return best / (count * units)
            count *= 8 if best * 8 < self.nanoseconds else 2

    def _once(self, function: Callable[..., None], arguments: Sequence[int]) -> int:
        begin = time.perf_counter_ns()
        function(self.base, *arguments)
        return time.perf_counter_ns() - begin

    @functools.cache  # noqa: B019
    def walker(self, kind: str, offset: int = 0) -> Callable[..., None]:
        """Compile a loop that accesses one value in each of several rows: `load`, `scalar`, `store`, `copy`, `gather`
        or `scatter`; a gather has one lane in each row."""
        lines, declarations = [], ""
        offsets = [f"  %o{i} = mul i64 %stride, {i * self._step(kind)}" for i in range(UNROLLED + 1)]
        for i in range(UNROLLED):
            lines.append(f"  %p{i}a = getelementptr i8, ptr %pointer, i64 %o{i}")
            lines.append(f"  %p{i} = getelementptr i8, ptr %p{i}a, i64 {offset}")
            lines += self._access(kind, i)
        if kind in ("gather", "scatter"):
            offsets += self._lane_offsets()
            lanes, pointers = self.lanes, f"<{self.lanes} x ptr>"
            mask = f"<{lanes} x i1>"
            declarations = (
                f"declare {self.vector} @llvm.masked.gather.v{lanes}f32.v{lanes}p0({pointers}, i32, {mask}, "
                f"{self.vector})\n"
                f"declare void @llvm.masked.scatter.v{lanes}f32.v{lanes}p0({self.vector}, {pointers}, i32, {mask})"
            )
        text = LOOP.format(
            offsets="\n".join(offsets), body="\n".join(lines), unrolled=UNROLLED, declarations=declarations
        )
        return self.compile(text)

    def _step(self, kind: str) -> int:
        return self.lanes if kind in ("gather", "scatter") else 1

    def _lane_offsets(self) -> list[str]:
        lanes = self.lanes
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        return [
            f"  %s0 = insertelement <{lanes} x i64> poison, i64 %stride, i32 0",
            f"  %s = shufflevector <{lanes} x i64> %s0, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer",
            f"  %lane.offsets = mul <{lanes} x i64> %s, <{numbers}>",
        ]

    def _access(self, kind: str, i: int) -> list[str]:
        lanes, vector = self.lanes, self.vector
        ones = ", ".join(["i1 true"] * lanes)
        gathered = [f"  %ps{i} = getelementptr i8, ptr %p{i}, <{lanes} x i64> %lane.offsets"]
        match kind:
            case "load":
                return [f"  %v{i} = load volatile {vector}, ptr %p{i}, align 4"]
            case "scalar":
                return [f"  %v{i} = load volatile float, ptr %p{i}, align 4"]
            case "store":
                return [f"  store volatile {vector} zeroinitializer, ptr %p{i}, align 4"]
            case "copy":
                to = f"  %q{i} = getelementptr i8, ptr %p{i}, i64 {FAR}"
                store = f"  store volatile {vector} %v{i}, ptr %q{i}, align 4"
                return [f"  %v{i} = load volatile {vector}, ptr %p{i}, align 4", to, store]
            case "gather":
                call = f"@llvm.masked.gather.v{lanes}f32.v{lanes}p0(<{lanes} x ptr> %ps{i}, i32 4, "
                kept = f"  store volatile {vector} %v{i}, ptr %base, align 4"
                return [*gathered, f"  %v{i} = call {vector} {call}<{lanes} x i1> <{ones}>, {vector} poison)", kept]
            case _:
                call = f"@llvm.masked.scatter.v{lanes}f32.v{lanes}p0({vector} zeroinitializer, <{lanes} x ptr> %ps{i}, "
                return [*gathered, f"  call void {call}i32 4, <{lanes} x i1> <{ones}>)"]

    # -- measurements -------------------------------------------------------------------------------------------------

    @functools.cache  # noqa: B019
    def walk(self, kind: str, rows: int, stride: int, offset: int = 0) -> float:
        """Return the nanoseconds of one access, over rows at a stride in bytes, each of which is accessed again and
        again."""
        rows = max(UNROLLED, rows // UNROLLED * UNROLLED)
        return self.time(self.walker(kind, offset), lambda passes: (passes, rows, stride), rows)

    def stream(self, kind: str, size: int, offset: int = 0) -> float:
        """Return the nanoseconds of one vector access along contiguous memory of `size` bytes."""
        return self.walk(kind, size // self.bytes, self.bytes, offset)

    @functools.cache  # noqa: B019
    def operation(self, text: str, declarations: str = "", independent: int = 12) -> float:
        """Return the nanoseconds of one vector operation, the text of an instruction on `{x}`, in several chains."""
        phis = [f"  %a{i} = phi {self.vector} [zeroinitializer, %entry], [%b{i}, %loop]" for i in range(independent)]
        body = [
            f"  %b{i} = {text.format(x=f'%a{i}', vector=self.vector, lanes=self.lanes)}" for i in range(independent)
        ]
        return self.time(self._loop(phis, body, independent, declarations), lambda n: (n, 0, 0), independent)

    def _loop(self, phis: list[str], body: list[str], count: int, declarations: str) -> Callable[..., None]:
        stores = []
        for i in range(count):
            stores.append(f"  %q{i} = getelementptr i8, ptr %base, i64 {i * self.bytes}")
            stores.append(f"  store {self.vector} %b{i}, ptr %q{i}, align 4")
        parts = {"accumulators": phis, "body": body, "stores": stores}
        declarations = declarations.format(vector=self.vector, lanes=self.lanes)
        return self.compile(
            SUMS.format(declarations=declarations, **{key: "\n".join(text) for key, text in parts.items()})
        )

    @functools.cache  # noqa: B019
    def tile(self, height: int, vectors: int) -> float:
        """Return the cycles of one step along K of a register tile: `vectors` loads, `height` broadcasts, and
        multiply-adds of each with each."""
        lanes, vector = self.lanes, self.vector
        body = []
        for v in range(vectors):
            body.append(f"  %rp{v} = getelementptr i8, ptr %right, i64 {v * self.bytes}")
            body.append(f"  %r{v} = load {vector}, ptr %rp{v}, align 4")
        for h in range(height):
            body.append(f"  %lp{h} = getelementptr i8, ptr %left, i64 {4 * h}")
            body.append(f"  %l{h} = load float, ptr %lp{h}, align 4")
            body.append(f"  %ls{h} = insertelement {vector} poison, float %l{h}, i32 0")
            zeros = f"<{lanes} x i32> zeroinitializer"
            body.append(f"  %lv{h} = shufflevector {vector} %ls{h}, {vector} poison, {zeros}")
        count = height * vectors
        for i in range(count):
            h, v = divmod(i, vectors)
            operands = f"{vector} %lv{h}, {vector} %r{v}, {vector} %a{i}"
            body.append(f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({operands})")
        phis = [f"  %a{i} = phi {vector} [zeroinitializer, %entry], [%b{i}, %loop]" for i in range(count)]
        fma = "declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
        return self.time(self._loop(phis, body, count, fma), lambda n: (n, 8191, 0), 1) * self.clock

    @functools.cache  # noqa: B019
    def transpose(self) -> float:
        """Return the nanoseconds per element of a square that is loaded, transposed in registers and stored."""
        lanes, vector = self.lanes, self.vector
        body = []
        for i in range(lanes):
            body.append(f"  %tp{i} = getelementptr i8, ptr %right, i64 {i * self.bytes}")
            body.append(f"  %t0_{i} = load {vector}, ptr %tp{i}, align 4")
        stage, distance = 0, 1
        while distance < lanes:
            for i in range(lanes):
                low, high = i & ~distance, i | distance
                chosen = [
                    (lane if not lane & distance else lanes + lane - distance)
                    if not i & distance
                    else (lane + distance if not lane & distance else lanes + lane)
                    for lane in range(lanes)
                ]
                mask = ", ".join(f"i32 {c}" for c in chosen)
                operands = f"{vector} %t{stage}_{low}, {vector} %t{stage}_{high}"
                body.append(f"  %t{stage + 1}_{i} = shufflevector {operands}, <{lanes} x i32> <{mask}>")
            stage, distance = stage + 1, 2 * distance
        for i in range(lanes):
            body.append(f"  %tq{i} = getelementptr i8, ptr %left, i64 {i * self.bytes}")
            body.append(f"  store {vector} %t{stage}_{i}, ptr %tq{i}, align 4")
        return self.time(self._loop([], body, 0, ""), lambda n: (n, 4095, 0), lanes * lanes)

    def knee(self, times: Iterable[tuple[int, float]], factor: float) -> int:
        """Return the first parameter whose time exceeds the first time by `factor`, or the last parameter."""
        last, first = 0, None
        for parameter, own in times:
            last = parameter
            if first is None:
                first = own
            elif own > factor * first:
                break
        return last
