"""Peak performance of this machine: operations and bytes a second, measured by short kernels and cached on disk."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compiler import cache
from weft.compiler.program.outline import Address
from weft.compiler.target.cpu import bytecode, link, pool
from weft.compiler.target.cpu.bytecode import BytecodeAssembler
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Module, Parameter, constant, float_, i64, ptr, vector, void
from weft.compiler.target.target import Target
from weft.runtime.device import HOME
from weft.runtime.limits import Limits

# Independent chains of fused multiply-adds: enough to fill two units with a latency of four cycles.
CHAINS = 12
ITERATIONS = 20_000
# Sizes of the data that is copied repeatedly: they fit into one level of the memory hierarchy after the other.
SIZES = (32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20)
# Seconds that a kernel runs. On a busy machine it runs longer, until one run has had the processors for itself: its
# threads had the fraction `UNDISTURBED` of the possible processor time. All kernels together get `PATIENCE` seconds
# more for that.
SECONDS, PATIENCE = 0.03, 0.5
UNDISTURBED = 0.8
VERSION = 2


def limits() -> Limits:
    """Return the limits of this machine with the threads that programs may use now; measured once."""
    return _limits(pool.threads())


@functools.cache
def _limits(threads: int) -> Limits:
    folder = cache.folder()
    key = cache.make_key(f"limits {VERSION} {threads}", host(), link.Tier.FULL.name)
    path = None if folder is None else folder / f"{key}.json"
    if path is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(path.read_text())
            return Limits(
                stored["threads"], stored["flops"], tuple((size, rate) for size, rate in stored["bandwidths"])
            )
    found, undisturbed = measure(threads)
    # Measurements on a busy machine are used by this process only.
    if path is not None and undisturbed:
        with contextlib.suppress(OSError):
            content = {name: getattr(found, name) for name in ("threads", "flops", "bandwidths")}
            path.write_text(json.dumps(content))
    return found


def text(target: Target) -> str:
    """Return an LLVM module with a kernel that only computes and one that only copies."""
    bits = target.vector_bits or 128
    module = Module(target.triple, vector_bits=bits)
    lanes = vector(float_, bits // 32)
    parameters = [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)]

    f = module.function("weft_peak", void, parameters)
    table, begin, end = f.arguments
    operands = f.load(ptr, table, 8)
    with f.loop(begin, end) as piece:
        address = f.offset(operands, i64, f.mul(piece, constant(16, i64)))
        multiplier = f.splat(f.load(float_, address, 4), lanes.count)
        with f.loop(constant(0, i64), constant(ITERATIONS, i64), carried=[multiplier] * CHAINS) as inner:
            inner.give(*(f.fma(value, multiplier, multiplier) for value in inner.values))
        total = inner.results[0]
        for value in inner.results[1:]:
            total = f.fadd(total, value)
        f.store(f.extract(total, 0), address, 4)
    f.ret()

    f = module.function("weft_copy", void, parameters)
    table, begin, end = f.arguments
    source, sink = f.load(ptr, table, 8), f.load(ptr, f.offset(table, ptr, 1), 8)
    with f.loop(begin, end) as block:
        first = f.mul(block, constant(BLOCK // 4, i64))
        with f.loop(first, f.add(first, constant(BLOCK // 4, i64)), lanes.count) as index:
            f.store(f.load(lanes, f.offset(source, float_, index), 4), f.offset(sink, float_, index), 4)
    f.ret()
    return module.text()


# Bytes that one piece of the copying kernel reads.
BLOCK = 2048


def measure(threads: int) -> tuple[Limits, bool]:
    """Run the kernels; return the limits, and whether each kernel had the processors for itself once.

    It takes a few hundredths of a second for each level of memory, and a few tenths on a busy machine.
    """
    library = link.compile_and_load(text(host()), host(), link.Tier.FULL)
    width = (host().vector_bits or 128) // 32
    pieces, latest = 4 * threads, time.perf_counter() + PATIENCE
    operands = HOME.memory.empty((pieces * 32,), np.dtype(np.float32))
    operands[:] = 0.5
    seconds, undisturbed = _best(library.addresses["weft_peak"], pieces, 1, [operands], threads, latest)
    flops = pieces * ITERATIONS * CHAINS * 2 * width / seconds
    bandwidths = []
    for size in SIZES:
        # The data is shared among the threads, half of it read and half of it written.
        blocks = max(size // 2 // BLOCK, 1)
        source, sink = (HOME.memory.empty((blocks * BLOCK // 4,), np.dtype(np.float32)) for _ in range(2))
        source[:] = 1.0
        sink[:] = 0.0
        grain = -(-blocks // min(4 * threads, blocks))
        seconds, quiet = _best(library.addresses["weft_copy"], blocks, grain, [source, sink], threads, latest)
        undisturbed = undisturbed and quiet
        bandwidths.append((size, 2 * blocks * BLOCK / seconds))
    # Smaller memory is at least as fast as larger: a lower rate is noise from other processes.
    rates = [max(rate for _, rate in bandwidths[i:]) for i in range(len(SIZES))]
    return Limits(threads, flops, tuple(zip(SIZES, rates, strict=True))), undisturbed


def _best(
    kernel: int, count: int, grain: int, arrays: list[np.ndarray], threads: int, latest: float
) -> tuple[float, bool]:
    """Return the least seconds of one launch, and whether its threads ever had the processors for themselves.

    It measures repeated programs with several launches each, until one run is undisturbed or `latest` has passed.
    """
    registers: Any = np.array([a.ctypes.data for a in arrays], np.int64)

    def program(launches: int) -> Callable[[], tuple[float, float]]:
        assembler = BytecodeAssembler()
        for _ in range(launches):
            assembler.parallel(kernel, count, grain, [Address(i) for i in range(len(arrays))])
        assembler.end()
        code = assembler.finish()

        def run() -> tuple[float, float]:
            start, worked = time.perf_counter(), time.process_time()
            bytecode.run(code.ctypes.data, registers.ctypes.data)
            passed = time.perf_counter() - start
            return passed / launches, (time.process_time() - worked) / passed

        return run

    once = program(1)
    once()
    launches = int(min(max(1e-3 / max(once()[0], 1e-9), 1), 1000))
    run, least, most, start = program(launches), float("inf"), 0.0, time.perf_counter()
    while (now := time.perf_counter()) < start + SECONDS or (now < latest and most < UNDISTURBED * threads):
        seconds, processors = run()
        least, most = min(least, seconds), max(most, processors)
    return least, most >= UNDISTURBED * threads
