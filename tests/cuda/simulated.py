"""A GPU that is none: its memory is the host's, and kernels run by their interpreter. It records what it is asked."""

from __future__ import annotations

import ctypes
import itertools
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.cuda.stand_ins.cublaslt import CublasLt
from tests.cuda.stand_ins.cudnn import Cudnn
from tests.cuda.stand_ins.linear_algebra import Cublas, Cufft, Cusolver
from tests.cuda.stand_ins.objects import StandIn
from weft.base.errors import OutOfMemoryError
from weft.base.memo import Memo
from weft.base.spans import now
from weft.compiler.kernel import interpreter
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.verifier import verify
from weft.compiler.program.exchange import last_copies
from weft.compiler.target.cuda.groups import SHARED_BYTES
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.compiler.target.cuda.lower import launch_bytes, launch_shape, source_text
from weft.compiler.target.cuda.node_code import Advances, Chooses, Holds, NodeCode
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper
from weft.compiler.target.target import Target
from weft.runtime import device, layouts, platforms, sharded
from weft.runtime.cuda import communicators
from weft.runtime.cuda.code import Code, GpuCode
from weft.runtime.cuda.devices import CudaPlatform
from weft.runtime.cuda.graph_plan import known_nodes
from weft.runtime.cuda.interrupts import Interrupts
from weft.runtime.cuda.libraries.calls import LibraryCalls, PreparedCall
from weft.runtime.cuda.libraries.routines import ROUTINES
from weft.runtime.cuda.memory import ALIGNMENT
from weft.runtime.cuda.memory_backend import CudaMemoryBackend
from weft.runtime.memory_backend import memory_backends
from weft.sharding.device import Device

STAND_INS: dict[str, Callable[[Any], StandIn]] = {
    "cublasLt": CublasLt,
    "cudnn": Cudnn,
    "cublas": Cublas,
    "cufft": Cufft,
    "cusolver": Cusolver,
}


# Handles of conditional nodes.
HANDLES = itertools.count(1 << 40)


def shared_bytes(text: str) -> int:
    """The memory of a block that the text of a module has by itself."""
    return sum(map(int, re.findall(r"= internal addrspace\(3\) global \[(\d+) x i8\]", text)))


class Recording:
    """A stream that records what is started; `inside` of a conditional node there are no events."""

    def __init__(self, inside: bool = False) -> None:
        self.steps: list[tuple[str, Any]] = []
        self.handle = self  # what libraries are given
        self.known = {"copy", "copy_rows", "fill", "set_word", "launch", "call", *(() if inside else ("mark",))}
        self.handles: set[int] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        assert name in self.known, f"{name} cannot be recorded"
        return lambda *arguments: self.steps.append((name, arguments))

    def condition(self) -> int:
        handle = next(HANDLES)
        self.handles.add(handle)
        return handle

    def conditional(self, handle: int, kind: str, bodies: Sequence[Callable[[Any], None]]) -> None:
        self.handles.remove(handle)  # of this graph, and of one node
        graphs = []
        for body in bodies:
            inner = Recording(inside=True)
            body(inner)
            assert not inner.handles
            graphs.append(inner.steps)
        self.steps.append(("node", (handle, kind, graphs)))


class SimulatedDriver:
    """What `Driver` does, without a GPU. `capacity` is the memory that it has."""

    capability = (9, 0)
    processors = 4
    code_version = "simulated"
    entered: ClassVar[SimulatedDriver | None] = None  # the one that calls of libraries are about
    with_others: Callable[[Callable[[], bool]], None] | None = None

    def __init__(self, index: int = 0, capacity: int = 1 << 30) -> None:
        self.capacity, self.name = capacity, f"GPU {index}: simulated"
        self.memory: dict[int, np.ndarray] = {}
        self.calls: list[str] = []
        self.epoch, self.busy = 0, 0
        self.interrupts = Interrupts(self)
        self.library_names: frozenset[str] = frozenset()
        self.libraries = LibraryCalls(self, ROUTINES)
        self.code = GpuCode(self)
        self.conditional_nodes = known_nodes(13000)
        # What nodes do next, by handle.
        self.conditions: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        if sum(m.nbytes for m in self.memory.values()) + size > self.capacity:
            raise OutOfMemoryError("There is no memory left on the GPU.")
        whole = np.full(size + ALIGNMENT, 0xFF, np.uint8)  # what was never written shows
        block = whole[-whole.ctypes.data % ALIGNMENT :][:size]
        self.memory[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(self, address: int) -> None:
        del self.memory[address]

    def memory_left(self) -> tuple[int, int]:
        return self.capacity - sum(m.nbytes for m in self.memory.values()), self.capacity

    def view(self, address: int, size: int) -> np.ndarray:
        """Bytes at an address, which must be of one block."""
        for start, block in list(self.memory.items()):  # which other threads may change
            if start <= address and address + size <= start + block.nbytes:
                return block[address - start : address - start + size]
        raise AssertionError(f"{size} bytes at {address} are of no block")

    def copy_in(self, address: int, value: np.ndarray) -> None:
        self.calls.append(f"in {value.nbytes}")
        self.view(address, value.nbytes)[:] = value.reshape(-1).view(np.uint8)

    def copy_out(self, value: np.ndarray, address: int) -> None:
        self.calls.append(f"out {value.nbytes}")
        ctypes.memmove(value.ctypes.data, self.view(address, value.nbytes).ctypes.data, value.nbytes)

    def copy_out_together(self, pairs: Sequence[tuple[np.ndarray, int]]) -> None:
        for value, address in pairs:
            self.copy_out(value, address)

    def copy_out_later(self, value: np.ndarray, address: int, holds: Any) -> Future[None]:
        self.calls.append("later")
        done: Future[None] = Future()
        self.copy_out(value, address)
        done.set_result(None)
        return done

    def copy(self, target: int, source: int, size: int) -> None:
        self.calls.append(f"copy {size}")
        self.view(target, size)[:] = self.view(source, size).copy()

    @property
    def handle(self) -> SimulatedDriver:
        """What libraries are given as the stream."""
        return self

    def copy_rows(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
        self.calls.append(f"rows {rows} of {width}")
        assert width <= min(target_pitch, source_pitch)
        for i in range(rows):
            self.view(target + i * target_pitch, width)[:] = self.view(source + i * source_pitch, width).copy()

    def collective(self, library: Any, group: Any) -> None:
        """Calls of NCCL that were recorded."""
        self.calls.append("collective")
        library.do(group)

    def fill(self, target: int, size: int) -> None:
        self.calls.append(f"fill {size}")
        self.view(target, size)[:] = 0

    def set_word(self, address: int, value: int) -> None:
        self.calls.append("word")
        self.view(address, 4).view(np.int32)[0] = value

    def record(self, work: Callable[[Any], None]) -> list[tuple[str, Any]]:
        self.calls.append("record")
        recording = Recording()
        work(recording)
        self.recorded = recording.steps
        return recording.steps

    def start(self, graph: list[tuple[str, Any]]) -> None:
        self.calls.append("start")
        self.run_graph(graph)

    def run_graph(self, graph: list[tuple[str, Any]]) -> None:
        for name, arguments in graph:
            getattr(self, name)(*arguments)

    def node(self, handle: int, kind: str, graphs: list[Any]) -> None:
        """A conditional node; a kernel before it has said what it does first."""
        self.calls.append(f"node {kind}")
        if kind == "while":
            (body,) = graphs
            while self.conditions[handle]:
                self.run_graph(body)
        elif self.conditions[handle] < len(graphs):
            self.run_graph(graphs[self.conditions[handle]])
        del self.conditions[handle]

    def in_thread(self, work: Callable[[], Any]) -> Any:
        SimulatedDriver.entered = self
        return work()

    def make_code(self, sources: Mapping[str, Kernel | LoopCode | NodeCode], target: Target) -> dict[str, Code]:
        """Kernels, loops and nodes themselves, as bytes."""
        self.calls.append(f"compile {len(sources)}")
        found = {}
        for name, source in sources.items():
            if isinstance(source, NodeCode):
                assert "cudaGraphSetConditional" in ptx(source_text(name, source, target), target)
                found[name] = Code(pickle.dumps(source), *launch_shape(source, target))
                continue
            loop = isinstance(source, LoopCode)
            kernels = source.outline.kernels if isinstance(source, LoopCode) else {name: source}
            for kernel in kernels.values():
                verify(kernel)
            text = source_text(name, source, target)
            assert shared_bytes(text) <= SHARED_BYTES
            if loop:
                assert ".entry" in ptx(text, target)
            rows = source.outline.rows if isinstance(source, LoopCode) else None
            counts = len(source.addresses) if isinstance(source, LoopCode) else 0
            shape = (source.parts, source.exchanges) if isinstance(source, LoopCode) else (1, ())
            launched = *launch_shape(source, target), launch_bytes(source, target)
            found[name] = Code(pickle.dumps((rows, kernels, counts, *shape)), *launched)
        return found

    def load(self, name: str, code: Code) -> SimulatedEntry | SimulatedDecision:
        self.calls.append("load")
        return SimulatedDecision(self, code) if name.startswith("node_") else SimulatedEntry(name, code)

    def attribute(self, index: int) -> int:
        """Of an H200, in round numbers."""
        return {13: 2_000_000, 16: 132, 36: 3_200_000, 37: 6144, 39: 2048}[index]

    def figures(self, entry: SimulatedEntry) -> dict[str, float]:
        return {"registers": 32.0, "blocks": float(entry.blocks), "threads": float(entry.threads), "occupancy": 0.5}

    def launch(self, entry: SimulatedEntry | SimulatedDecision, parameters: Sequence[int]) -> None:
        if isinstance(entry, SimulatedDecision):
            entry(parameters)
            return
        if entry.rows is None:
            self.launch_kernel(entry.kernels[entry.name], parameters)
            return
        self.calls.append("loop")
        *outside, arrived, interrupt = parameters
        assert interrupt == self.interrupts.address
        assert entry.parts > 1 or entry.blocks == 1 or not self.view(arrived, 4).any()
        # Parts are independent: the last one may be over before the first begins.
        for part in reversed(range(entry.parts)):
            SimulatedLoop(self, entry, outside[: entry.count], outside[entry.count :], part).rows(entry.rows)

    def launch_kernel(self, kernel: Kernel, addresses: Sequence[int]) -> None:
        self.calls.append("launch")
        # Vectors are read and written at addresses that are multiples of what the kernel was compiled for.
        alignments = kernel.alignments or [hopper().grid_bytes] * len(addresses)
        for address, alignment, buffer in zip(addresses, alignments, kernel.buffers, strict=True):
            assert address % alignment == 0, f"{buffer.name} of {kernel.name} is at {address}"
        views = [
            self.view(address, b.size * b.dtype.itemsize).view(b.dtype)
            for address, b in zip(addresses, kernel.buffers, strict=True)
        ]
        interpreter.run(kernel, views)

    # -- libraries -------------------------------------------------------------------------------------------------

    def with_libraries(self, *names: str) -> dict[str, StandIn]:
        """Give it stand-ins for these libraries."""
        found = {name: STAND_INS[name](self) for name in names}
        self.library_names = frozenset(names)
        self.libraries = LibraryCalls(self, ROUTINES, found.__getitem__, gpu=f"simulated {id(self)}")
        return found

    def call(self, prepared: PreparedCall, addresses: Sequence[int], workspace: int) -> None:
        self.calls.append("call")
        prepared(None, addresses, workspace)

    def copy_in_stream(self, stream: Any, target: int, source: int, size: int) -> None:
        self.view(target, size)[:] = self.view(source, size).copy()

    @contextmanager
    def scratch(self, size: int) -> Iterator[int]:
        address = self.allocate(size)
        self.view(address, size)[:] = 0x3C
        yield address
        self.free(address)

    def measure_seconds(self, work: Callable[[Any], None], repetitions: int, rounds: int, hopeless: float) -> float:
        """The later a proposal, the quicker it is."""
        work(None)
        self.calls.append("measured")
        return 1.0 / len(self.calls)

    def event(self) -> list[int]:
        return []

    def mark(self, event: list[int]) -> None:
        event[:] = [now()]

    def nanoseconds_between(self, first: list[int], last: list[int]) -> int:
        return last[0] - first[0]

    # -- streams of others -----------------------------------------------------------------------------------------

    stream_handle = 77

    def precede(self, stream: int) -> None:
        self.calls.append(f"{stream} waits for work")

    def follow(self, stream: int) -> None:
        self.calls.append(f"work waits for {stream}")

    def hold(self, value: Any) -> None:
        self.calls.append("hold")

    def synchronize(self) -> None:
        self.calls.append("wait")
        self.interrupts.wait()
        self.epoch += 1

    def is_idle(self) -> bool:
        """After it was asked as often as a test says, or when loops are to end."""
        self.busy -= 1
        return self.busy < 0 or bool(ctypes.c_uint32.from_address(self.interrupts.address).value)

    def allocate_pinned(self, size: int) -> int:
        self.host_memory = np.zeros(size, np.uint8)
        return int(self.host_memory.ctypes.data)


class SimulatedEntry:
    """A kernel, or the rows and kernels of a loop and how many addresses it takes."""

    def __init__(self, name: str, code: Code) -> None:
        self.name, self.blocks, self.threads, self.size = name, code.blocks, code.threads, len(code.binary)
        self.rows, self.kernels, self.count, self.parts, self.exchanges = pickle.loads(code.binary)


class SimulatedDecision:
    """The kernel that decides for a node."""

    def __init__(self, driver: SimulatedDriver, code: Code) -> None:
        self.driver, self.size = driver, len(code.binary)
        self.code: NodeCode = pickle.loads(code.binary)

    def integer(self, address: int, dtype: str) -> int:
        return int(self.driver.view(address, np.dtype(dtype).itemsize).view(dtype)[0])

    def __call__(self, parameters: Sequence[int]) -> None:
        self.driver.calls.append("decide")
        match self.code:
            case Holds():
                predicate, handle, *words = parameters
                self.driver.conditions[handle] = self.integer(predicate, "u1") and self.goes_on(*words)
            case Chooses(size, branches):
                index, handle = parameters
                chosen = self.integer(index, f"{'i' if size < 0 else 'u'}{abs(size)}")
                self.driver.conditions[handle] = min(max(chosen, 0), branches - 1)
            case Advances():
                self.advance(self.code, parameters)

    def goes_on(self, looked: int, interrupt: int) -> int:
        assert interrupt == self.driver.interrupts.address and not self.integer(looked, "u8")
        return int(not ctypes.c_uint32.from_address(interrupt).value)

    def advance(self, code: Advances, parameters: Sequence[int]) -> None:
        state, count, handle, looked, interrupt, *more = parameters
        if code.counted_there:
            count = self.integer(count, "i4")
        begun, done = self.driver.view(state, 8).view(np.int32).tolist()
        assert not done

        def index_of(iteration: int) -> int:
            return count - 1 - iteration if code.reverse else iteration

        for n, (written, width) in enumerate(code.slices):
            array, copy, stride, words = more[4 * n : 4 * n + 4]
            assert array % width == stride % width == 0
            iteration = begun - 1 if written else begun
            if 0 <= iteration < count:
                there = array + index_of(iteration) * stride
                target, source = (there, copy) if written else (copy, there)
                self.driver.view(target, words * width)[:] = self.driver.view(source, words * width).copy()
        self.driver.view(state, 4).view(np.int32)[0] = begun + 1
        for target in more[4 * len(code.slices) :]:
            self.driver.view(target, 4).view(np.int32)[0] = index_of(begun)
        self.driver.conditions[handle] = begun < count and self.goes_on(looked, interrupt)


class SimulatedLoop:
    """A part of the kernel of a loop, row after row."""

    def __init__(
        self,
        driver: SimulatedDriver,
        loop: SimulatedEntry,
        addresses: Sequence[int],
        counters: Sequence[int],
        part: int,
    ) -> None:
        self.driver, self.loop, self.part = driver, loop, part
        self.exchanged: dict[Any, int] = {}
        self.outside = {"address": addresses, "counter": counters}
        self.own: dict[Any, int] = {}

    def value(self, operand: Any, kind: str = "address") -> int:
        if operand in self.exchanged:
            return self.exchanged[operand]
        return self.outside[kind][operand[1]] if operand[0] == "outside" else self.own[operand]

    def kernel(self, symbol: str) -> Kernel:
        """The iterations of a kernel that this part has."""
        kernel, parts = self.loop.kernels[symbol], self.loop.parts
        assert isinstance(kernel, Kernel)
        threads = kernel.parallel
        if parts == 1 or threads is None:
            return kernel
        each = int(threads.count) // parts * threads.step
        start = int(threads.start) + self.part * each
        own = replace(threads, start=start, stop=start + each)
        return replace(kernel, body=tuple(own if s is threads else s for s in kernel.body))

    def copy(self, target: Any, source: Any, size: int) -> None:
        each = size // self.loop.parts
        self.driver.copy(self.value(target) + self.part * each, self.value(source) + self.part * each, each)

    def counted(self, counter: Any, count: int, reverse: bool, body: Sequence[Any]) -> None:
        pairs = last_copies(body) if counter[1] in self.loop.exchanges else []
        for i in reversed(range(count)) if reverse else range(count):
            self.own[counter] = i
            self.rows(body[: len(body) - len(pairs)])
            for carry, new, _ in pairs:
                self.exchanged[carry], self.exchanged[new] = self.value(new), self.value(carry)
        for carry, new, size in pairs:
            self.exchanged.pop(carry, None)
            self.exchanged.pop(new, None)
            if count % 2:
                self.copy(carry, new, size)

    def integer(self, operand: Any, dtype: str) -> int:
        return int(self.driver.view(self.value(operand), np.dtype(dtype).itemsize).view(dtype)[0])

    def rows(self, rows: Sequence[Any]) -> None:
        for row in rows:
            match row:
                case "launch", symbol, _, operands:
                    self.driver.launch_kernel(self.kernel(symbol), [self.value(o) for o in operands])
                case "copy", target, source, size:
                    self.copy(target, source, size)
                case "fill", target, size:
                    each = size // self.loop.parts
                    self.driver.fill(self.value(target) + self.part * each, each)
                case "set_address", target, base, counter, stride:
                    self.own[target] = self.value(base) + self.value(counter, "counter") * stride
                case "count", target, counter:
                    self.driver.set_word(self.value(target), self.value(counter, "counter"))
                case "loop", counter, iterations, reverse, body:
                    count = iterations if isinstance(iterations, int) else self.integer(iterations, "int32")
                    self.counted(counter, count, reverse, body)
                case "while", counter, condition, predicate, body:
                    iteration = 0
                    while True:
                        if counter is not None:
                            self.own[counter] = iteration
                        self.rows(condition)
                        if not self.integer(predicate, "int8"):
                            break
                        self.rows(body)
                        iteration += 1
                case "branch", index, kind, branches:
                    chosen = self.integer(index, f"{'i' if kind < 0 else 'u'}{abs(kind)}")
                    self.rows(branches[min(max(chosen, 0), len(branches) - 1)])
                case _:
                    raise AssertionError(row)


class SimulatedPlatform(CudaPlatform):
    """The GPUs that a test has, which no driver counts."""

    def __init__(self, gpus: Sequence[Device]) -> None:
        super().__init__()
        self._found = tuple(gpus)


@contextmanager
def simulated_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int, capacity: int = 1 << 30
) -> Iterator[list[tuple[Device, SimulatedDriver]]]:
    """A process with some GPUs, and their drivers."""
    gpus = [Device(i, "gpu", 0, "simulated", i) for i in range(count)]
    drivers = [SimulatedDriver(i, capacity) for i in range(count)]
    monkeypatch.setitem(platforms.platforms.loaded, "gpu", SimulatedPlatform(gpus))
    monkeypatch.setattr(device, "_placements", {k: v for k, v in device._placements.items() if k[0].platform == "cpu"})
    monkeypatch.setattr(layouts, "_layouts", Memo(64))
    monkeypatch.setattr(sharded, "_splits", Memo(64))
    monkeypatch.setattr(communicators, "_communicators", {})
    monkeypatch.setitem(memory_backends.loaded, "gpu", CudaMemoryBackend(lambda index: drivers[index]))
    yield list(zip(gpus, drivers, strict=True))


@contextmanager
def simulated_gpu(monkeypatch: pytest.MonkeyPatch, capacity: int = 1 << 30) -> Iterator[tuple[Device, SimulatedDriver]]:
    """A process with one GPU, and its driver."""
    with simulated_gpus(monkeypatch, 1, capacity) as (only,):
        yield only
