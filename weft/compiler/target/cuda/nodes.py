"""Kernels that drive conditional nodes of graphs (`node_code.py`), as LLVM text.

They set a node's condition by `cudaGraphSetConditional`, which no module defines: the driver resolves it when it loads
PTX.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.target import llvm
from weft.compiler.target.cuda.node_code import Advances, Chooses, Holds, NodeCode, SliceCopy
from weft.compiler.target.cuda.thread import block_of_grid, thread_of_block
from weft.compiler.target.llvm import Function, Value, constant, i8, i32, i64, integer, ptr, vector

# Nanoseconds between two polls of the host's word; a poll takes about a microsecond.
LOOK_EVERY = 10_000_000


def lower_node(module: llvm.Module, code: NodeCode) -> None:
    """Add the kernel that sets the condition of a node to a module."""
    match code:
        case Holds():
            _holds(module, code)
        case Chooses():
            _chooses(module, code)
        case Advances():
            _advances(module, code)


def _entry(module: llvm.Module, name: str, types: Sequence[llvm.Type]) -> Function:
    parameters = [llvm.Parameter(f"parameter{n}", each) for n, each in enumerate(types)]
    return module.function(name, llvm.void, parameters, linkage="ptx_kernel")


def _set(f: Function, handle: Value, value: Value) -> None:
    f.call("cudaGraphSetConditional", llvm.void, handle, value)


def _holds(module: llvm.Module, code: Holds) -> None:
    f = _entry(module, code.symbol, (ptr, i64, ptr, ptr))
    predicate, handle, looked, interrupt = f.arguments
    holds = f.icmp("ne", f.load(i8, predicate, 1), constant(0, i8))
    _set(f, handle, f.zext(_goes_on(f, holds, looked, interrupt), i32))
    f.ret()


def _goes_on(f: Function, holds: Value, looked: Value, interrupt: Value) -> Value:
    """Return whether a loop continues whose own condition is `holds`: the host may have stopped it. The host's word
    is polled every `LOOK_EVERY` nanoseconds; once set, every loop that would continue reads it."""
    now = f.effect("mov.u64 $0, %globaltimer;", "=l", returns=i64)
    assert now is not None
    since = f.sub(now, f.load(i64, looked, 8))
    asks = f.and_(holds, f.icmp("ugt", since, constant(LOOK_EVERY, i64)))
    with f.when(asks, holds) as asked:
        word = f.effect("ld.relaxed.sys.global.u32 $0, [$1];", "=r,l", interrupt, returns=i32)
        assert word is not None
        goes_on = f.icmp("eq", word, constant(0, i32))
        f.store(f.select(goes_on, now, constant(0, i64)), looked, 8)
        asked.give(goes_on)
    return asked.results[0]


def _chooses(module: llvm.Module, code: Chooses) -> None:
    f = _entry(module, code.symbol, (ptr, i64))
    index, handle = f.arguments
    size, last = abs(code.size), constant(code.branches - 1, i64)
    value = f.load(integer(8 * size), index, size)
    if size < 8:
        value = f.sext(value, i64) if code.size < 0 else f.zext(value, i64)
    clamped = f.smin(f.smax(value, constant(0, i64)), last) if code.size < 0 else f.umin(value, last)
    _set(f, handle, f.trunc(clamped, i32))
    f.ret()


def _advances(module: llvm.Module, code: Advances) -> None:
    of_slices, of_counts = (ptr, ptr, i64, i64) * len(code.slices), (ptr,) * code.counts
    f = _entry(module, code.symbol, (ptr, ptr if code.counted_there else i64, i64, ptr, ptr, *of_slices, *of_counts))
    state, count, handle, looked, interrupt, *more = f.arguments
    if code.counted_there:
        count = f.sext(f.load(i32, count, 4), i64)
    begun = f.zext(f.load(i32, state, 4), i64)
    thread = thread_of_block(f)
    first = f.mul(f.zext(block_of_grid(f), i64), constant(code.threads, i64))
    first = f.add(first, f.zext(thread, i64))
    another = f.icmp("slt", begun, count)

    def get_index(iteration: Value) -> Value:
        return f.sub(f.sub(count, constant(1, i64)), iteration) if code.reverse else iteration

    for condition, iteration, written in (
        (f.icmp("sgt", begun, constant(0, i64)), f.sub(begun, constant(1, i64)), True),
        (another, begun, False),
    ):
        chosen = [n for n, each in enumerate(code.slices) if each.written is written]
        if chosen:
            with f.when(condition):
                for n in chosen:
                    _copy(f, code.slices[n], more[4 * n : 4 * n + 4], get_index(iteration), first, code)
    # Wait until all threads have read the number of started iterations.
    f.call("llvm.nvvm.barrier.cta.sync.aligned.all", llvm.void, constant(0, i32))
    with f.when(f.icmp("eq", thread, constant(0, i32))):
        last = constant(1, llvm.i1)
        if code.blocks > 1:
            done = f.offset(state, i32, 1)
            before = f.effect("atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;", "=r,l", done, returns=i32)
            assert before is not None
            last = f.icmp("eq", before, constant(code.blocks - 1, i32))
        with f.when(last):
            if code.blocks > 1:
                f.store(constant(0, i32), f.offset(state, i32, 1), 4)
            f.store(f.trunc(f.add(begun, constant(1, i64)), i32), state, 4)
            for target in more[len(of_slices) :]:
                f.store(f.trunc(get_index(begun), i32), target, 4)
            _set(f, handle, f.zext(_goes_on(f, another, looked, interrupt), i32))
    f.ret()


def _copy(
    f: Function, what: SliceCopy, parameters: Sequence[Value], index: Value, first: Value, code: Advances
) -> None:
    """Copy the slice at an index; each thread copies elements a grid apart."""
    array, copy, stride, elements = parameters
    element = vector(i32, 4) if what.width == 16 else integer(8 * what.width)
    there = f.offset(array, i8, f.mul(index, stride))
    target, source = (there, copy) if what.written else (copy, there)
    with f.loop(first, elements, code.threads * code.blocks) as i:
        value = f.load(element, f.offset(source, element, i), what.width)
        f.store(value, f.offset(target, element, i), what.width)
