"""The part of a dispatcher that calls the machine code of an executable.

It takes addresses from the arrays, allocates the results, and enters the code with a packed call frame. The caller has
checked the arguments (`api/dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.codegen import Source
from weft.base.errors import OutOfMemoryError
from weft.base.settings import config
from weft.base.source import user_location
from weft.compiler.program.ir import byte_size
from weft.primitives.control.check import FlagRaised
from weft.runtime.array import ConcreteArray, PlacedArray
from weft.runtime.cpu import memory
from weft.runtime.cpu.executable import Executable
from weft.runtime.device import HOME, Placement


class CallWriter:
    """Writer of the call of one executable, whose results have a placement.

    Sizes and addresses are named constants, so that the text is the same for all sizes of a program and is compiled
    once.
    """

    def __init__(self, source: Source, executable: Executable, placement: Placement) -> None:
        self.source = source
        self.executable = executable
        self.placement = placement
        self.names = source.names
        self.line = source.line
        self.names |= {
            "Array": ConcreteArray,
            "Placed": PlacedArray,
            "PLACEMENT": placement,
            "small": placement.memory.cut,
            "take": placement.memory.pool.take,
            "donated_memory": placement.memory_backend.donated_memory,
            "user_location": user_location,
            "executable": executable,
            "FlagRaised": FlagRaised,
            "OutOfMemoryError": OutOfMemoryError,
            "enter": executable.entry(),
            "prepare": executable.prepare,
        }

    def write(self, constants: Sequence[ConcreteArray], leaves: Sequence[str], donated: Sequence[bool]) -> list[str]:
        """Write the call on constants and the arrays of these names; return expressions for the results."""
        executable, program, integer = self.executable, self.executable.program, self.source.constant
        pointers = [integer(c._pointer or c._address()) for c in constants]
        blocks: dict[int, str] = {}  # donated memory by argument
        if any(donated):
            self.all_differ(leaves)
        for i, name in enumerate(leaves):
            argument = len(constants) + i
            if program.takes(argument):
                block = blocks[argument] = f"g{argument}"
                self.line(f"{block} = donated_memory({name})")
                pointers.append(f"{block}.address")
            elif any(donated):
                pointers.append(f"p{i}")
            else:
                pointers.append(f"({name}._pointer or {name}._address())")
        results, outputs = self.results(blocks)
        frame = executable.frame
        scratch = "scratch.address" if program.temporary_bytes else 0
        entries = [e if type(e) is str else integer(e) if e else "0" for e in frame.entries(scratch, pointers, outputs)]
        self.names["pack"] = frame.pack
        if program.uses_threads:
            self.line("prepare()")
        packed = f"pack({', '.join(entries)})"
        if config.profiling:  # the key of a dispatcher includes this setting
            enter = f"executable.enter_timed({packed})"
        else:
            enter = f"enter(executable.code_address, {packed}, {frame.count}, {frame.registers})"
        deleted = [name for name, flag in zip(leaves, donated, strict=True) if flag]
        taken = [name for i, name in enumerate(leaves, len(constants)) if i in blocks]
        if deleted:
            self.line("where = user_location()")
        # Arguments whose memory is reused may be overwritten from here on, so they are deleted before the call, and the
        # others after it in any case: interrupted calls consume their donated arguments too.
        self.delete(taken)
        self.line("try:")
        self.line(f"status = {enter}", 2)
        if executable.again:
            # The general path, which still has the arrays, runs the program again to report the failed check.
            self.line("except FlagRaised: return MISS")
        self.line("finally:")
        self.line("temporaries.append(scratch)" if program.temporary_bytes else "pass", 2)
        if not executable.again:
            self.delete([name for name in deleted if name not in taken], 2)
        self.line("if status: executable.raise_(status)")
        if executable.again:
            self.delete(deleted)
        return results

    def all_differ(self, leaves: Sequence[str]) -> None:
        """Write a test that no donated array is also another argument.

        Arrays in the same memory may be one array, so the dispatcher misses and the general path finds out.
        """
        for i, name in enumerate(leaves):
            self.line(f"p{i} = {name}._pointer or {name}._address()")
        pointers = ", ".join(f"p{i}" for i in range(len(leaves)))
        self.line(f"if len({{{pointers}}}) != {len(leaves)}: return MISS")

    def delete(self, names: Sequence[str], indent: int = 1) -> None:
        """Write the deletion of donated arrays, inlining `_donate`."""
        for name in names:
            self.line(f"{name}._buffer = {name}._memory = None", indent)
            self.line(f"{name}._pointer, {name}._donated_at = 0, where", indent)

    def results(self, blocks: dict[int, str]) -> tuple[list[str], list[str]]:
        """Write the allocation of results and temporaries; return expressions for the arrays of results and their
        addresses.

        `blocks` has the names of donated memory by argument.
        """
        allocations: list[str] = []
        addresses: list[str] = []
        # Bytes of small results in each group that is cut from a chunk; a group fills at most half a chunk.
        totals = [0]
        arrays: list[str] = []
        program = self.executable.program
        for i, (aval, alias) in enumerate(zip(self.executable.out_types, program.aliases, strict=True)):
            name = self.source.constant(aval)
            size = memory.rounded_up(byte_size(aval))
            if alias is not None:
                addresses.append("0")  # the program writes to the argument's register
                arrays.append(self.array(name, blocks[alias], f"{blocks[alias]}.address"))
            elif size > memory.SMALL:
                allocations.append(f"b{i} = take({self.source.constant(size)})")
                addresses.append(f"b{i}.address")
                arrays.append(self.array(name, f"b{i}", f"b{i}.address"))
            else:
                if totals[-1] + size > memory.CHUNK // 2:
                    totals.append(0)
                piece, offset = len(totals) - 1, totals[-1]
                addresses.append(f"base{piece} + {self.source.constant(offset)}" if offset else f"base{piece}")
                arrays.append(self.array(name, f"chunk{piece}", addresses[-1]))
                totals[-1] += size
        if any(a.startswith("base") for a in addresses):
            for piece, total in enumerate(totals):
                allocations.append(f"base{piece}, chunk{piece} = small({self.source.constant(total)})")
        if program.temporary_bytes:
            self.names["temporaries"] = self.executable.free_temporaries(self.placement.memory)
            allocations.append(
                "scratch = temporaries.pop() if temporaries else executable.take_temporaries(temporaries)"
            )
        if allocations:
            self.line("try:")
            for text in allocations:
                self.line(text, 2)
            # The general path reports what could not be allocated. Another thread may have taken the temporaries.
            self.line("except (OutOfMemoryError, IndexError): return MISS")
        return arrays, addresses

    def array(self, aval: str, chunk: str, address: str) -> str:
        """Return the expression for an array in a piece of memory."""
        if self.placement is HOME:
            return f"Array(None, {aval}, {chunk}, {address})"
        return f"Placed(None, {aval}, {chunk}, {address}, PLACEMENT)"
