"""Libraries of other machines: WebAssembly run by wasmtime, AArch64 by an emulator."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.compiler.standalone import storage_bytes
from tests.laws.samples import Case
from weft.compiler.compile import compile_program
from weft.compiler.program.ir import Program
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.standalone.failures import Failures
from weft.compiler.target.cpu.standalone.machines import find_machine
from weft.compiler.target.cpu.standalone.unit import Entry, Place, Unit
from weft.errors import NotSupportedError
from weft.ir.jaxpr import Jaxpr
from weft.trace.closed import stage_subjaxpr

LINE = 64


def linker(name: str) -> list[str]:
    """Return the command of a linker of the package ziglang."""
    pytest.importorskip("ziglang", reason="`make test-library` installs it")
    return [sys.executable, "-m", "ziglang", name]


class Sample:
    """A sample as a function of a library: its jaxpr and its program for the machine."""

    def __init__(self, case: Case, symbol: str, machine: str) -> None:
        self.case, self.symbol = case, symbol
        self.jaxpr: Jaxpr = stage_subjaxpr(lambda *args: case.alone(*args), case.types)
        self.arrays = [np.ascontiguousarray(a) for a in case.arrays]
        target = find_machine(machine).targets[-1][1]
        self.program: Program = compile_program(self.jaxpr, [False] * len(self.jaxpr.invars), target).program

    @property
    def entry(self) -> Entry:
        """The function of the library."""
        arguments, results = ([Place(1, True) for _ in some] for some in (self.jaxpr.invars, self.jaxpr.outvars))
        return Entry(self.symbol, [self.program], range(len(arguments)), [], arguments, results)

    @property
    def result_bytes(self) -> list[int]:
        """The sizes of its results."""
        return [storage_bytes(v) for v in self.jaxpr.outvars]


def compile_samples(cases: Sequence[Case], machine: str) -> tuple[list[Sample], bytes]:
    """Compile samples to one object; those that need another library are left out."""
    unit, samples = Unit(find_machine(machine).targets[-1][1]), []
    for n, case in enumerate(cases):
        sample = Sample(case, f"sample{n}", machine)
        try:
            unit.add(sample.entry, sample.symbol, Failures())
        except NotSupportedError:
            continue
        samples.append(sample)
    return samples, link.make_object(unit.text(), unit.target, Tier.LIGHT).code


class Machine(ABC):
    """Memory and code of a machine."""

    pointer = "<Q"

    def __init__(self, heap: int) -> None:
        self.heap = self.top = heap

    def place(self, size: int) -> int:
        """Reserve memory, with a gap after it."""
        address, self.top = self.top, -(-(self.top + size + LINE) // LINE) * LINE
        return address

    def call(self, symbol: str, arrays: Sequence[np.ndarray], results: Sequence[int], workspace: int) -> list[bytes]:
        """Call a function of a library; return the bytes of its results."""
        self.top = self.heap
        arguments = []
        for array in arrays:
            arguments.append(self.place(array.nbytes))
            self.write(arguments[-1], array.tobytes())
        addresses = [self.place(size) for size in results]
        tables = [self.table(arguments), self.table(addresses)]
        assert self.run(symbol, [*tables, self.place(workspace), 0]) == 0
        return [self.read(address, size) for address, size in zip(addresses, results, strict=True)]

    def table(self, addresses: Sequence[int]) -> int:
        """Write a table of pointers and return its address."""
        address = self.place(8 * len(addresses) + 8)
        self.write(address, b"".join(struct.pack(self.pointer, a) for a in addresses))
        return address

    @abstractmethod
    def write(self, address: int, content: bytes) -> None:
        """Write memory."""

    @abstractmethod
    def read(self, address: int, size: int) -> bytes:
        """Read memory."""

    @abstractmethod
    def run(self, symbol: str, arguments: Sequence[int]) -> int:
        """Call a function with integers."""


class Wasm(Machine):
    """WebAssembly run by wasmtime."""

    pointer = "<I"

    def __init__(self, code: bytes, symbols: Sequence[str], folder: pathlib.Path) -> None:
        wasmtime = pytest.importorskip("wasmtime", reason="`make test-library` installs it")
        (folder / "f.o").write_bytes(code)
        exports = [f"--export={name}" for name in (*symbols, "__heap_base")]
        command = [*linker("wasm-ld"), "--no-entry", "--fatal-warnings", *exports, "-o", "f.wasm", "f.o"]
        subprocess.run(command, cwd=folder, check=True)
        self.store = wasmtime.Store()
        module = wasmtime.Module(self.store.engine, (folder / "f.wasm").read_bytes())
        assert not module.imports, [each.name for each in module.imports]
        self.exports: Any = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.memory = self.exports["memory"]
        self.memory.grow(self.store, 512)
        super().__init__(self.exports["__heap_base"].value(self.store))

    def write(self, address: int, content: bytes) -> None:
        self.memory.write(self.store, content, address)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, address, address + size))

    def run(self, symbol: str, arguments: Sequence[int]) -> int:
        return int(self.exports[symbol](self.store, *arguments))


class Emulated(Machine):
    """Linux program of another processor run by the emulator unicorn, without a system."""

    BASE, HEAP, END, STACK = 0x10000, 0x8000000, 0x4000, 0x10000000

    def __init__(self, codes: Sequence[bytes], symbols: Sequence[str], folder: pathlib.Path) -> None:
        super().__init__(self.HEAP)
        self.unicorn = pytest.importorskip("unicorn", reason="`make test-library` installs it")
        files = [f"f{n}.o" for n in range(len(codes))]
        for name, code in zip(files, codes, strict=True):
            (folder / name).write_bytes(code)
        roots = [word for name in symbols for word in ("-u", name)]
        options = ["-static", f"--image-base={self.BASE:#x}", "-e", symbols[0], *roots]
        subprocess.run([*linker("ld.lld"), *options, "-o", "f.elf", *files], cwd=folder, check=True)
        image = (folder / "f.elf").read_bytes()
        self.cpu = self.make_cpu()
        self.cpu.mem_map(self.END, 0x1000)
        self.cpu.mem_map(self.BASE, self.STACK - self.BASE)
        (start,), (count,) = struct.unpack_from("<Q", image, 32), struct.unpack_from("<H", image, 56)
        for n in range(count):
            kind, _, offset, address, _, size, *_ = struct.unpack_from("<IIQQQQQQ", image, start + 56 * n)
            if kind == 1:  # to be loaded
                self.cpu.mem_write(address, image[offset : offset + size])
        self.symbols = read_symbols(image)

    @abstractmethod
    def make_cpu(self) -> Any:
        """Return a processor."""

    def write(self, address: int, content: bytes) -> None:
        self.cpu.mem_write(address, content)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.cpu.mem_read(address, size)) if size else b""


class Arm(Emulated):
    """AArch64."""

    def make_cpu(self) -> Any:
        self.registers = pytest.importorskip("unicorn.arm64_const")
        cpu = self.unicorn.Uc(self.unicorn.UC_ARCH_ARM64, self.unicorn.UC_MODE_ARM)
        cpu.reg_write(self.registers.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are enabled
        return cpu

    def run(self, symbol: str, arguments: Sequence[int]) -> int:
        for n, argument in enumerate(arguments):
            self.cpu.reg_write(self.registers.UC_ARM64_REG_X0 + n, argument)
        self.cpu.reg_write(self.registers.UC_ARM64_REG_SP, self.STACK)
        self.cpu.reg_write(self.registers.UC_ARM64_REG_X30, self.END)
        self.cpu.emu_start(self.symbols[symbol], self.END)
        return int(self.cpu.reg_read(self.registers.UC_ARM64_REG_X0)) & 0xFFFFFFFF


class X86(Emulated):
    """x86-64 of the level that the emulator has, which lacks AVX."""

    def make_cpu(self) -> Any:
        self.registers = pytest.importorskip("unicorn.x86_const")
        return self.unicorn.Uc(self.unicorn.UC_ARCH_X86, self.unicorn.UC_MODE_64)

    def run(self, symbol: str, arguments: Sequence[int]) -> int:
        names = ("RDI", "RSI", "RDX", "RCX")
        for name, argument in zip(names, arguments, strict=True):
            self.cpu.reg_write(getattr(self.registers, f"UC_X86_REG_{name}"), argument)
        stack = self.STACK - 0x100 - 8
        self.cpu.mem_write(stack, struct.pack("<Q", self.END))
        self.cpu.reg_write(self.registers.UC_X86_REG_RSP, stack)
        self.cpu.emu_start(self.symbols[symbol], self.END)
        return int(self.cpu.reg_read(self.registers.UC_X86_REG_RAX)) & 0xFFFFFFFF


def read_symbols(image: bytes) -> dict[str, int]:
    """Return the addresses of the symbols of an ELF file."""
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + size * n) for n in range(count)]
    found = {}
    for kind, offset, length, strings in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:  # the table of symbols
            continue
        names = sections[strings][4]
        for position in range(offset, offset + length, 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, position)
            end = image.index(b"\0", names + name)
            found[image[names + name : end].decode()] = value
    return found
