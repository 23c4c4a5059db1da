"""Dispatch: for each signature of a jitted function, Python code that checks it and calls the program, nothing else.

The code compares the structure of the arguments node by node and types by identity, takes addresses from the arrays,
cuts the results from memory, and builds the tree of results: no generic walk over trees is left. Where a signature has
nodes that this cannot write down, or the call is not a plain one, the general way is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.flat import MISS, Dispatcher
from weft.base.errors import OutOfMemoryError
from weft.base.settings import config, generation
from weft.base.source import user_location
from weft.base.tree import PyTreeDef, flatten_one_level
from weft.base.tree_def import LEAF
from weft.base.tree_nodes import same_data
from weft.compiler.program.ir import bytes_of
from weft.ir.context import EVALUATION, context
from weft.ir.types import ArrayType, array_type
from weft.primitives.control.check import Found
from weft.runtime import memory
from weft.runtime.array import ConcreteArray, PlacedArray
from weft.runtime.cpu.executable import Executable
from weft.runtime.device import HOME, Placement

# Longer functions take longer to make than they save.
MOST_LEAVES = 2000


def dispatcher(
    executable: Executable,
    in_tree: PyTreeDef,
    types: Sequence[Any],
    out_tree: PyTreeDef,
    constants: Sequence[Any],
    donated: Sequence[bool],
    placements: Sequence[Placement],
    placement: Placement,
) -> Dispatcher | None:
    """A function of (args, kwargs) that gives the result, or MISS if the call is another one; None if there cannot be
    one. `placements` are those of the leaves of the arguments, and `placement` that of the results."""
    if executable.has_tapes or len(types) > MOST_LEAVES:
        return None
    if donated and any(p.device is not placement.device for p in placements):
        return None  # memory of another device cannot be taken
    if not all(type(c) is ConcreteArray for c in constants) or not all(isinstance(t, ArrayType) for t in types):
        return None
    writer = _Writer(executable, types, constants, donated, placements, placement)
    args, kwargs = in_tree.children()
    writer.arguments(args, kwargs)
    writer.call(out_tree)
    return writer.function()


def adopted(value: Any, aval: ArrayType) -> ConcreteArray | None:
    """A NumPy array or a Python number as an array of a type, for the time of a call; None if it may be another one.

    NumPy's memory is read in place: no program keeps or changes the memory of arguments that are not donated.
    """
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        if value.dtype == aval.dtype and value.shape == aval.shape and not aval.weak_type:
            return ConcreteArray(np.asarray(value), aval)
    elif kind is float:
        if aval is _WEAK_FLOAT:
            return ConcreteArray(np.asarray(value, np.float32), aval)
    elif kind is int and aval is _WEAK_INT and -(1 << 31) <= value < 1 << 31:
        return ConcreteArray(np.asarray(value, np.int32), aval)
    return None


# The types of Python's numbers while 64-bit types are off.
_WEAK_FLOAT = array_type((), np.dtype(np.float32), True)
_WEAK_INT = array_type((), np.dtype(np.int32), True)


class _Writer:
    """Writes the source of one dispatcher. `names` are the objects that it refers to."""

    def __init__(
        self,
        executable: Executable,
        types: Sequence[Any],
        constants: Sequence[Any],
        donated: Sequence[bool],
        placements: Sequence[Placement],
        placement: Placement,
    ) -> None:
        self.executable = executable
        self.placements = placements
        self.placement = placement
        self.types = types
        self.constants = constants
        self.donated = [*donated[len(constants) :]] or [False] * len(types)
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.count = 0
        self.names: dict[str, Any] = {
            "MISS": MISS,
            "adopted": adopted,
            "flatten_one_level": flatten_one_level,
            "same_data": same_data,
            "Array": ConcreteArray,
            "Placed": PlacedArray,
            "PLACEMENT": placement,
            "config": config,
            "context": context,
            "EVALUATION": EVALUATION,
            "KEY": config.call_key(),
            "STAMP": config._stamped,
            "GENERATION": generation[0],
            "generation": generation,
            "small": placement.memory.cut,
            "take": placement.memory.pool.take,
            "user_location": user_location,
            "executable": executable,
            "Found": Found,
            "OutOfMemoryError": OutOfMemoryError,
            "enter": executable.entry(),
            "prepare": executable.prepare,
        }

    def line(self, text: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + text)

    def constant(self, value: Any) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    # -- the arguments ---------------------------------------------------------------------------------------------

    def arguments(self, args: PyTreeDef, kwargs: PyTreeDef) -> None:
        # The stamp is the same object as long as no setting changes and this is the thread the code was written in.
        self.line("if (config._stamped is not STAMP or generation[0] != GENERATION) and config.call_key() is not KEY:")
        self.line("return MISS", 2)
        self.line("if context.trace is not EVALUATION or context.axes: return MISS")
        self.line("try:")
        # Those two are what a call makes of them: a tuple and a dict.
        self.node("args", args, known=True)
        if kwargs.children():
            self.node("kwargs", kwargs, known=True)
        else:
            self.line("if kwargs: return MISS", 2)
        if not self.leaves:
            self.line("pass", 2)
        self.line("except KeyError: return MISS")

    def node(self, name: str, tree: PyTreeDef, known: bool = False) -> None:
        """Check the structure of what stands under a name, whose kind may be known."""
        described = tree.node_data()
        if described is None:
            number = len(self.leaves)
            aval, placement = self.constant(self.types[number]), self.placements[number]
            if placement is not HOME:
                other = f"{name}.aval is not {aval} or {name}._placement is not {self.constant(placement)}"
                self.line(f"if type({name}) is not Placed or {other}: return MISS", 2)
            elif self.donated[number]:
                self.line(f"if type({name}) is not Array or {name}.aval is not {aval}: return MISS", 2)
            else:
                self.line(
                    f"if type({name}) is not Array and ({name} := adopted({name}, {aval})) is None: return MISS", 2
                )
                self.line(f"if {name}.aval is not {aval}: return MISS", 2)
            self.leaves.append(name)
            return
        (kind, data), children = described, tree.children()
        if kind is type(None):
            self.line(f"if {name} is not None: return MISS", 2)
            return
        if kind not in (tuple, list, dict) and not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            # A registered node: its own function takes it apart.
            self.line(f"if type({name}) is not {self.constant(kind)}: return MISS", 2)
            self.count += 1
            inside = f"v{self.count}"
            self.line(f"{inside}, data = flatten_one_level({name})", 2)
            self.line(f"if not same_data(data, {self.constant(data)}): return MISS", 2)
            self.line(f"{inside} = tuple({inside})", 2)
            name, kind = inside, tuple
        other = "" if known else f"type({name}) is not {self.constant(kind)} or "
        self.line(f"if {other}len({name}) != {len(children)}: return MISS", 2)
        parts = []
        for position in range(len(children)):
            self.count += 1
            parts.append(f"v{self.count}")
            key = self.constant(data[position]) if kind is dict else position
            self.line(f"{parts[-1]} = {name}[{key}]", 2)
        for part, child in zip(parts, children, strict=True):
            self.node(part, child)

    # -- the call --------------------------------------------------------------------------------------------------

    def call(self, out_tree: PyTreeDef) -> None:
        executable, program = self.executable, self.executable.program
        pointers = [str(c._pointer or c._address()) for c in self.constants]
        given: dict[int, str] = {}  # donated memory by argument
        if any(self.donated):
            self.all_differ()
        for number, name in enumerate(self.leaves, len(self.constants)):
            if program.arguments[number].donated:
                given[number] = f"g{number}"
                self.line(f"g{number} = {name}._give()")
                pointers.append(f"g{number}.address")
            elif any(self.donated):
                pointers.append(f"p{number - len(self.constants)}")
            else:
                pointers.append(f"({name}._pointer or {name}._address())")
        results, outputs = self.results(given)
        frame = executable.frame
        entries = map(str, frame.entries("scratch.address" if program.temporary_bytes else 0, pointers, outputs))
        self.names["pack"] = frame.pack
        if program.uses_threads:
            self.line("prepare()")
        packed = f"pack({', '.join(entries)})"
        if config.profiling:  # this one is for calls while steps are timed: the setting is in its key
            enter = f"executable.enter_timed({packed})"
        else:
            enter = f"enter(executable.code_address, {packed}, {frame.count}, {frame.registers})"
        donated = [name for name, flag in zip(self.leaves, self.donated, strict=True) if flag]
        taken = [name for number, name in enumerate(self.leaves, len(self.constants)) if number in given]
        if donated:
            self.line("where = user_location()")
        # What is taken may be overwritten from here on; it is deleted before, and the rest in any case: interrupted
        # calls take their arguments too.
        self.delete(taken)
        self.line("try:")
        self.line(f"status = {enter}", 2)
        if executable.again:
            # What checks found is told by the general way, which has the arrays to run again with.
            self.line("except Found: return MISS")
        self.line("finally:")
        self.line("temporaries.append(scratch)" if program.temporary_bytes else "pass", 2)
        if not executable.again:
            self.delete([name for name in donated if name not in taken], 2)
        self.line("if status: executable.raise_(status)")
        if executable.again:
            self.delete(donated)
        leaves = iter(results)
        tree = self.tree(out_tree, leaves)
        self.line(f"return {tree}")

    def all_differ(self) -> None:
        """A donated array must not be another argument too. Arrays in the same memory may be one array: the general way
        finds out."""
        for number, name in enumerate(self.leaves):
            self.line(f"p{number} = {name}._pointer or {name}._address()")
        pointers = ", ".join(f"p{number}" for number in range(len(self.leaves)))
        self.line(f"if len({{{pointers}}}) != {len(self.leaves)}: return MISS")

    def delete(self, names: Sequence[str], depth: int = 1) -> None:
        """Take their memory away from donated arrays: as `_donate` does, without a call for each."""
        for name in names:
            self.line(f"{name}._buffer = {name}._memory = None", depth)
            self.line(f"{name}._pointer, {name}._donated_at = 0, where", depth)

    def results(self, given: dict[int, str]) -> tuple[list[str], list[str]]:
        """Expressions for the arrays of results, and for their addresses."""
        made: list[str] = []
        addresses: list[str] = []
        totals = [
            0
        ]  # bytes of results that are cut from chunks, so many at a time that each fills half a chunk at most
        arrays: list[str] = []
        for number, (aval, alias) in enumerate(
            zip(self.executable.out_types, self.executable.program.aliases, strict=True)
        ):
            name = self.constant(aval)
            size = -(-bytes_of(aval) // 64) * 64
            if alias is not None:
                addresses.append("0")  # the program writes to the argument's register
                arrays.append(self.array(name, given[alias], f"{given[alias]}.address"))
            elif size > memory.SMALL:
                made.append(f"b{number} = take({size})")
                addresses.append(f"b{number}.address")
                arrays.append(self.array(name, f"b{number}", f"b{number}.address"))
            else:
                if totals[-1] + size > memory.CHUNK // 2:
                    totals.append(0)
                piece, offset = len(totals) - 1, totals[-1]
                addresses.append(f"base{piece} + {offset}" if offset else f"base{piece}")
                arrays.append(self.array(name, f"chunk{piece}", addresses[-1]))
                totals[-1] += size
        if any(a.startswith("base") for a in addresses):
            made += [f"base{piece}, chunk{piece} = small({total})" for piece, total in enumerate(totals)]
        if self.executable.program.temporary_bytes:
            self.names["temporaries"] = self.executable.free_temporaries(self.placement.memory)
            made.append("scratch = temporaries.pop() if temporaries else executable.take_temporaries(temporaries)")
        if made:
            self.line("try:")
            for text in made:
                self.line(text, 2)
            # The general way says what there was no memory for. Another thread may have taken what there was.
            self.line("except (OutOfMemoryError, IndexError): return MISS")
        return arrays, addresses

    def array(self, aval: str, chunk: str, address: str) -> str:
        """The expression for an array in a piece of memory."""
        if self.placement is HOME:
            return f"Array(None, {aval}, {chunk}, {address})"
        return f"Placed(None, {aval}, {chunk}, {address}, PLACEMENT)"

    def tree(self, tree: PyTreeDef, leaves: Any) -> str:
        """The tree of results as an expression."""
        described = tree.node_data()
        if described is None:
            return next(leaves)
        kind, data = described
        if kind is type(None):
            return "None"
        parts = [self.tree(child, leaves) for child in tree.children()]
        if kind is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(parts)}]"
        if kind is dict:
            return "{" + ", ".join(f"{self.constant(k)}: {p}" for k, p in zip(data, parts, strict=True)) + "}"
        # Another kind of node: its parts are leaves of a structure of one level.
        level = PyTreeDef.from_node_data_and_children(None, described, [LEAF] * len(parts))
        unflatten = self.constant(level.unflatten)
        return f"{unflatten}(({', '.join(parts)}{',' if len(parts) == 1 else ''}))"

    def function(self) -> Dispatcher:
        source = "\n".join(["def dispatch(args, kwargs):", *self.lines])
        exec(compile(source, "<dispatch>", "exec"), self.names)
        return self.names["dispatch"]
