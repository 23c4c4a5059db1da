"""Functions of a library as LLVM text: kernels, drivers, constants, and the entry points that check their arguments."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import ALIGNMENT, Program
from weft.compiler.target.cpu import float_mode
from weft.compiler.target.cpu.lower import lower_into
from weft.compiler.target.cpu.standalone import libc, system
from weft.compiler.target.cpu.standalone.driver import Columns, DriverWriter
from weft.compiler.target.cpu.standalone.failures import Failures
from weft.compiler.target.cpu.standalone.machines import converts_halves, has_fused_multiply_add
from weft.compiler.target.cpu.standalone.rows import ProgramRows, workspace_bytes
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i32, i64, ptr
from weft.compiler.target.target import Target

# Statuses of entry points; those of checks begin at `failures.FIRST_CHECK`.
NULL_POINTER, MISALIGNED, WRONG_SIZE, WRONG_ALIAS, UNSUPPORTED_CPU = range(1, 6)
ENTRY_PARAMETERS = ("arguments", "results", "workspace", "sizes")


@dataclass(frozen=True)
class Place:
    """Argument or result of an entry point: the alignment that its address must have, whether it may be empty, and the
    argument whose memory a result takes."""

    alignment: int
    may_be_empty: bool = False
    alias: int | None = None


@dataclass(frozen=True)
class Entry:
    """Function of a library.

    `programs` are its programs at all combinations of sizes, in the order of `bounds` (the last size varies fastest;
    None where the sizes are not allowed). Without sizes there is one program. `sources` has for each argument of the
    programs a constant, or the index of an argument of the function.
    """

    name: str
    programs: Sequence[Program | None]
    sources: Sequence[int | np.ndarray]
    bounds: Sequence[tuple[int, int]]
    arguments: Sequence[Place]
    results: Sequence[Place]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: temporaries at any sizes, and room to align them."""
        homes = [place.alias for place in self.results]
        most = max(workspace_bytes(p, homes) for p in self.programs if p is not None)
        return most + ALIGNMENT if most else 0


class _Constants:
    """Constants of all programs in one block; equal ones are stored once."""

    def __init__(self) -> None:
        self.block = bytearray()
        self._offsets: dict[bytes, int] = {}

    def offset(self, value: Any) -> int:
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).tobytes()
        key = content if len(content) <= 64 else hashlib.blake2b(content, digest_size=32).digest() + b"long"
        if key not in self._offsets:
            self.block.extend(bytes(-len(self.block) % ALIGNMENT))
            self._offsets[key] = len(self.block)
            self.block += content
        return self._offsets[key]


class Unit:
    """LLVM module of functions for one target. Kernels that functions share are compiled once. `parallel` is the
    function of another object that shares large kernels among threads. With a `prefix` functions may call routines of
    BLAS and LAPACK, whose names in the library begin with it; `routines` has those that they call."""

    def __init__(self, target: Target, parallel: str | None = None, prefix: str | None = None) -> None:
        self.target, self.parallel, self.prefix = target, parallel, prefix
        self.routines: dict[str, None] = {}
        self.module = Module(
            target.triple,
            vector_bits=target.vector_bits or 128,
            frames=True,
            read_only=True,
            fused=has_fused_multiply_add(target),
            halves=converts_halves(target),
        )
        self._constants = _Constants()
        self._kernels: set[str] = set()

    def add(self, entry: Entry, symbol: str, failures: Failures, hidden: bool = False) -> None:
        """Add a function under the name `symbol`. Its checks are added to `failures`."""
        drivers: dict[Any, list[int]] = {}
        rows = []
        for n, program in enumerate(entry.programs):
            rows.append(None if program is None else self._rows(program, entry, failures))
            if (found := rows[-1]) is not None:
                self._add_kernels(found.kernels)
                self.routines |= found.routines
                drivers.setdefault(found.rows, []).append(n)
        chosen: list[tuple[int, int]] = [(-1, 0)] * len(rows)
        names = []
        for k, (shape, members) in enumerate(drivers.items()):
            columns = Columns([found.integers for n in members if (found := rows[n]) is not None])
            table = self._table(f"{symbol}.integers{k}", list(itertools.chain(*columns.table)))
            for position, n in enumerate(members):
                chosen[n] = k, position * columns.width
            names.append((f"{symbol}.steps{k}", table))
            constants = Value("@constants", ptr)
            DriverWriter(self.module, names[-1][0], columns, constants, self.parallel, self._routine_symbol).run(shape)
        self._write_entry(entry, symbol, names, chosen, hidden)

    def _routine_symbol(self, routine: str) -> str:
        return system.routine_symbol(routine, self.prefix or "")

    def _rows(self, program: Program, entry: Entry, failures: Failures) -> ProgramRows:
        homes = [place.alias for place in entry.results]
        return ProgramRows(
            program, entry.sources, homes, self._constants.offset, failures.status, self.prefix is not None
        )

    def _add_kernels(self, kernels: dict[str, Kernel]) -> None:
        for name, kernel in kernels.items():
            if name not in self._kernels:
                self._kernels.add(name)
                lower_into(self.module, kernel, self.target, name)
                self.module.functions[name].linkage = "internal"

    def _table(self, name: str, values: Sequence[int]) -> Value:
        return self.module.table(name, i64, values or [0], align=8)

    # -- entry points ----------------------------------------------------------------------------------------------

    def _write_entry(
        self,
        entry: Entry,
        symbol: str,
        drivers: Sequence[tuple[str, Value]],
        chosen: Sequence[tuple[int, int]],
        hidden: bool,
    ) -> None:
        f = self.module.function(symbol, i32, [Parameter(p, ptr) for p in ENTRY_PARAMETERS], "hidden" if hidden else "")
        arguments, results, workspace, sizes = f.arguments
        self._check_places(f, arguments, entry.arguments)
        self._check_places(f, results, entry.results, arguments)
        address = f.ptrtoint(workspace, i64)
        if entry.workspace_bytes:
            _fail_if(f, f.icmp("eq", address, constant(0, i64)), NULL_POINTER)
        up = f.add(address, constant(ALIGNMENT - 1, i64))
        temporaries = f.inttoptr(f.and_(up, constant(-ALIGNMENT, i64)), ptr)
        if entry.bounds:
            driver, row = self._choose(f, entry, symbol, sizes, chosen)
        else:
            driver, row = constant(0, i64), constant(0, i64)
        before = float_mode.set_default(f, self.target.triple)
        status = self._run(f, drivers, driver, row, (arguments, results, temporaries))
        float_mode.restore(f, before)
        f.ret(status)

    def _check_places(self, f: Function, table: Value, places: Sequence[Place], donors: Value | None = None) -> None:
        if places:
            _fail_if(f, f.icmp("eq", f.ptrtoint(table, i64), constant(0, i64)), NULL_POINTER)
        for n, place in enumerate(places):
            address = f.ptrtoint(f.load(ptr, f.offset(table, ptr, n), 4), i64)
            is_null = f.icmp("eq", address, constant(0, i64))
            if place.alias is not None:
                assert donors is not None
                donor = f.ptrtoint(f.load(ptr, f.offset(donors, ptr, place.alias), 4), i64)
                fits = f.or_(is_null, f.icmp("eq", address, donor))
                _fail_if(f, f.not_(fits), WRONG_ALIAS)
                continue
            if not place.may_be_empty:
                _fail_if(f, is_null, NULL_POINTER)
            if place.alignment > 1:
                low = f.and_(address, constant(place.alignment - 1, i64))
                _fail_if(f, f.icmp("ne", low, constant(0, i64)), MISALIGNED)

    def _choose(
        self, f: Function, entry: Entry, symbol: str, sizes: Value, chosen: Sequence[tuple[int, int]]
    ) -> tuple[Value, Value]:
        """Write the choice of a driver and of a row of integers by the sizes; wrong sizes are a status."""
        _fail_if(f, f.icmp("eq", f.ptrtoint(sizes, i64), constant(0, i64)), NULL_POINTER)
        position = constant(0, i64)
        for n, (low, high) in enumerate(entry.bounds):
            size = f.load(i64, f.offset(sizes, i64, n), 8)
            above = f.sub(size, constant(low, i64))
            _fail_if(f, f.icmp("ugt", above, constant(high - low, i64)), WRONG_SIZE)
            position = f.add(f.mul(position, constant(high - low + 1, i64)), above)
        places = [f.offset(self._table(f"{symbol}.{name}", [c[k] for c in chosen]), i64, position)
                  for k, name in enumerate(("drivers", "rows"))]  # fmt: skip
        driver, row = (f.load(i64, place, 8) for place in places)
        _fail_if(f, f.icmp("slt", driver, constant(0, i64)), WRONG_SIZE)
        return driver, row

    def _run(
        self, f: Function, drivers: Sequence[tuple[str, Value]], chosen: Value, row: Value, operands: Sequence[Value]
    ) -> Value:
        if len(drivers) == 1:
            name, table = drivers[0]
            status = f.call(name, i32, *operands, f.offset(table, i64, row))
            assert status is not None
            return status
        labels, end, found = [f.label("driver") for _ in drivers], f.label("end"), []
        f.switch(chosen, labels[-1], dict(enumerate(labels[:-1])))
        for label, (name, table) in zip(labels, drivers, strict=True):
            f.start(label)
            status = f.call(name, i32, *operands, f.offset(table, i64, row))
            assert status is not None
            found.append((status, label))
            f.branch(end)
        f.start(end)
        return f.phi(i32, *found)

    def text(self) -> str:
        """Return the module in LLVM's syntax."""
        libc.write(self.module)
        block = self._constants.block or bytearray(1)
        return f"{self.module.text()}{bytes_global('constants', block, ALIGNMENT)}\n"


_ESCAPED = [f"\\{byte:02X}" for byte in range(256)]


def bytes_global(name: str, content: bytes | bytearray, align: int = 1) -> str:
    """Return the definition of a constant array of bytes."""
    data = "".join(map(_ESCAPED.__getitem__, content))
    return f'@{name} = internal unnamed_addr constant [{len(content)} x i8] c"{data}", align {align}'


def _fail_if(f: Function, condition: Value, status: int) -> None:
    wrong, right = f.label("wrong"), f.label("right")
    f.branch_if(condition, wrong, right, unlikely=True)
    f.start(wrong)
    f.ret(constant(status, i32))
    f.start(right)
