"""Generated dispatchers: Python code for one signature of a jitted function that checks the call and runs the program.

The code compares the structure of the arguments node by node and types by identity, runs the executable by lines that
the backend of the device writes, and builds the tree of results without a generic traversal. Signatures with nodes that
this cannot express have no dispatcher and take the slow path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.api.call import Call, StaticArguments
from weft.api.flat import MISS, Dispatcher
from weft.api.staged import StagedFunction
from weft.base import conversion, dtypes
from weft.base.codegen import Source
from weft.base.settings import config, generation
from weft.base.source import user_location
from weft.base.tree import PyTreeDef
from weft.base.tree_code import Reader, built
from weft.ir.context import EVALUATION, context
from weft.ir.types import ArrayType, array_type
from weft.runtime.array import ConcreteArray, PlacedArray, put
from weft.runtime.device import HOME, Placement
from weft.runtime.evaluate import check_donated_once, donate
from weft.runtime.execution_backend import execution_backend
from weft.runtime.promise import BORROWED
from weft.runtime.sharded import ShardedArray
from weft.runtime.spmd import SpmdProgram, keep_references, run
from weft.sharding.shardings import Sharding

if TYPE_CHECKING:
    from weft.runtime.execution_backend import Executable, QueuedCall

# Generating longer functions costs more than they save.
MOST_LEAVES = 2000


def dispatcher(
    executable: Executable, staged: StagedFunction, call: Call, placements: Sequence[Any], placement: Placement
) -> Dispatcher | None:
    """Generate the dispatcher for calls like `call` that run on one device; None if there cannot be one.

    It is a function of (args, kwargs) that returns the result, or MISS for a call of another signature. `placements`
    are those of the leaves of the arguments, `placement` is that of the results.
    """
    constants, types, donated, out_tree = staged.constants, call.types, staged.donated, staged.out_tree
    if executable.has_tapes or executable.holds_arguments or len(types) > MOST_LEAVES:
        return None
    if any(isinstance(p, Sharding) for p in placements):
        return None  # the slow path gathers arrays on a mesh of one device
    if donated and any(p.device is not placement.device for p in placements):
        return None  # memory of another device cannot be reused
    own = placement.memory_backend
    if own.reads_host and any(p.memory_backend is not own for p in placements):
        return None  # the slow path copies arrays of accelerators to the host
    if not all(isinstance(c, ConcreteArray) for c in constants) or not all(isinstance(t, ArrayType) for t in types):
        return None
    flags = [*donated[len(constants) :]] or [False] * len(types)
    writer = _Writer(types, flags, placements)
    writer.arguments(call)
    # Constants of another platform are copied once, for all calls.
    constants = tuple(
        c if c._placement.memory_backend is placement.memory_backend else put(c, placement) for c in constants
    )
    writer.constant(constants)
    backend = execution_backend(placement.device)
    if config.cpu_enable_async_dispatch and not config.profiling:
        queued = backend.queued_call(executable, constants, flags, placement)
        if queued is not None:
            writer.queued_call(executable, queued, out_tree)
    results = backend.write_call(writer.source, executable, constants, writer.leaves, flags, placement)
    writer.line(f"return {built(writer.source, out_tree, results)}")
    function: Dispatcher = writer.source.function("dispatch", "args, kwargs")
    return function


def spmd_dispatcher(
    compiled: SpmdProgram, staged: StagedFunction, call: Call, placements: Sequence[Any]
) -> Dispatcher | None:
    """Generate the dispatcher for a program on a mesh; `placements` has the shardings of leaves that are sharded."""
    constants, types, donated, out_tree = staged.constants, call.types, staged.donated, staged.out_tree
    if len(types) > MOST_LEAVES or not all(isinstance(t, ArrayType) for t in types):
        return None
    flags = [*donated[len(constants) :]] or [False] * len(types)
    writer = _Writer(types, flags, placements)
    writer.arguments(call)
    ready = zip(placements, compiled.in_shardings, types, strict=True) if not constants else ()
    if ready and all(isinstance(a, Sharding) and a.is_equivalent_to(b, t.ndim) for a, b, t in ready):
        if any(flags):
            writer.line(f"if {needs_copies(writer, compiled)}:")
            writer.line(f"return {built(writer.source, out_tree, general_call(writer, compiled, constants, 2))}", 2)
        writer.line(f"return {built(writer.source, out_tree, ready_call(writer, compiled))}")
    else:
        writer.line(f"return {built(writer.source, out_tree, general_call(writer, compiled, constants))}")
    function: Dispatcher = writer.source.function("dispatch", "args, kwargs")
    return function


def general_call(writer: _Writer, compiled: SpmdProgram, constants: Sequence[Any], indent: int = 1) -> list[str]:
    """Write the call of a program on arbitrary arguments; return an expression for each result."""
    passed = "".join(f"{name}, " for name in (*map(writer.constant, constants), *writer.leaves))
    call, spmd = writer.constant(run_donated if any(writer.donated) else run), writer.constant(compiled)
    flags = (*[False] * len(constants), *writer.donated)
    more = f", {writer.constant(flags)}" if any(flags) else ""
    writer.line(f"results = {call}({spmd}, ({passed}){more})", indent)
    return [f"results[{i}]" for i in range(len(compiled.out_types))]


def run_donated(compiled: SpmdProgram, args: Sequence[Any], donated: Sequence[bool]) -> list[ShardedArray]:
    """Run a program on a mesh with donated arguments."""
    check_donated_once(args, donated)
    return run(compiled, args, lambda: donate(args, donated))


def needs_copies(writer: _Writer, compiled: SpmdProgram) -> str:
    """Return the condition that donated memory cannot be reused: its shards are referenced elsewhere, or an argument
    occurs twice."""
    taken = [leaf for leaf, flag in zip(writer.leaves, compiled.donated, strict=True) if flag]
    seen = [f"{leaf}._parts is not None or type({leaf}._memory) is not list" for leaf in taken]
    once = f"len({{{', '.join(f'id({leaf})' for leaf in writer.leaves)}}}) != {len(writer.leaves)}"
    return " or ".join([*seen, once])


def ready_call(writer: _Writer, compiled: SpmdProgram) -> list[str]:
    """Write the call of a program on arguments that have its shardings; return an expression for each result."""
    call, placements = writer.constant(compiled.executable), writer.constant(compiled.placements)
    addresses = ", ".join(f"{leaf}.addresses()" for leaf in writer.leaves)
    if any(writer.donated):
        writer.line(f"addresses = b''.join(({addresses},))")
        leaves = zip(writer.leaves, compiled.donated, strict=True)
        taken_memory = ", ".join(f"{leaf}._memory" if taken else "()" for leaf, taken in leaves)
        writer.line(f"memory = ({taken_memory},)")
        deleted = [pair for pair in zip(writer.leaves, compiled.donated, writer.donated, strict=True) if pair[2]]
        # Memory that the program reads but does not reuse must outlive the call.
        held = [f"{writer.constant(keep_references)}({leaf})" for leaf, taken, _ in deleted if not taken]
        writer.line(f"held = ({', '.join(held)}{',' if held else ''})")
        writer.line(f"where = {writer.constant(user_location)}()")
        for leaf, taken, _ in deleted:
            if taken:  # the condition of `needs_copies` has excluded other references
                writer.line(f"{leaf}._whole = {leaf}._whole_memory = {leaf}._memory = {leaf}._addresses = None")
                writer.line(f"{leaf}._donated_at = where")
            else:
                writer.line(f"{leaf}._donate(where)")
        writer.line(f"results = {call}(addresses, memory, {placements})")
    else:
        writer.line(f"results = {call}(b''.join(({addresses},)), (), {placements})")
    return [
        f"Sharded({writer.constant(t)}, {writer.constant(s)}, None, *results[{i}])"
        for i, (t, s) in enumerate(zip(compiled.out_types, compiled.out_shardings, strict=True))
    ]


def to_array(value: Any, aval: ArrayType) -> ConcreteArray | None:
    """Convert a NumPy array or a Python number to an array of a type for one call; None if its type may be another.

    NumPy's memory is read in place: no program retains or changes the memory of arguments that are not donated.
    """
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        if value.shape != aval.shape or aval.weak_type:
            return None
        if value.dtype == aval.dtype:
            return ConcreteArray(np.asarray(value), aval, BORROWED)
        if dtypes.canonicalize_dtype(value.dtype) == aval.dtype:  # 64 bits, which become 32
            return ConcreteArray(conversion.canonical_array(np.asarray(value)), aval)
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
    """Writer of the source of one dispatcher, except for the call itself; `leaves` are the names of its arguments."""

    def __init__(self, types: Sequence[Any], donated: Sequence[bool], placements: Sequence[Any]) -> None:
        self.types = types
        self.donated = donated
        self.placements = placements
        self.leaves: list[str] = []
        names: dict[str, Any] = {
            "MISS": MISS,
            "to_array": to_array,
            "Array": ConcreteArray,
            "Placed": PlacedArray,
            "Sharded": ShardedArray,
            "config": config,
            "context": context,
            "EVALUATION": EVALUATION,
            "KEY": config.call_key(),
            "STAMP": config._stamped,
            "GENERATION": generation[0],
            "generation": generation,
        }
        self.source = Source(names)
        self.line, self.constant = self.source.line, self.source.constant

    def queued_call(self, executable: Executable, queued: QueuedCall, out_tree: PyTreeDef) -> None:
        """Write the asynchronous call of a program that is slow, or whose arguments are not computed yet.

        For a program that has been fast so far, only the arguments count.
        """
        long = f"{self.constant(executable)}.asynchronous or " if executable.asynchronous else ""
        self.line(f"if {long}{self.constant(queued.flying)}:")
        self.line(f"results = {self.constant(queued)}(({''.join(f'{name}, ' for name in self.leaves)}))", 2)
        results = [f"results[{i}]" for i in range(len(executable.out_types))]
        self.line(f"if results is not None: return {built(self.source, out_tree, results)}", 2)

    # -- the arguments ---------------------------------------------------------------------------------------------

    def arguments(self, call: Call) -> None:
        """Write the checks of settings, trace, tree, types and placements; every mismatch returns MISS."""
        args, kwargs = call.in_tree.children()
        # The stamp is the same object as long as no setting changes and the calling thread is the one that wrote this.
        self.line("if (config._stamped is not STAMP or generation[0] != GENERATION) and config.call_key() is not KEY:")
        self.line("return MISS", 2)
        self.line("if context.trace is not EVALUATION or context.axes: return MISS")
        self.line("try:")
        if call.static:
            self.static_arguments(kwargs, call.static)
        reader = Reader(self.source, "return MISS", leaf=self.leaf)
        # Python has made args a tuple and kwargs a dict already.
        reader.read("args", args, known=True)
        if kwargs.children():
            reader.read("kwargs", kwargs, known=True)
        else:
            self.line("if kwargs: return MISS", 2)
        self.line("except (KeyError, TypeError, ValueError): return MISS")

    def static_arguments(self, kwargs: PyTreeDef, static: StaticArguments) -> None:
        """Write the comparison of static arguments, and remove them from `args` and `kwargs`."""
        count, positional, named = static
        names = list(kwargs._data)
        self.line(f"if len(args) != {count} or len(kwargs) != {len(named) + len(names)}: return MISS", 2)
        values = [(f"args[{i}]", t, v) for i, t, v in positional] + [(f"kwargs[{k!r}]", t, v) for k, t, v in named]
        for where, kind, value in values:
            known = self.constant(value)
            self.line(f"static = {where}", 2)
            other = f"type(static) is not {self.constant(kind)} or not static == {known}"
            self.line(f"if static is not {known} and ({other}): return MISS", 2)
        taken = {i for i, _, _ in positional}
        self.line(f"args = ({''.join(f'args[{i}], ' for i in range(count) if i not in taken)})", 2)
        if named:
            self.line(f"kwargs = {{{', '.join(f'{k!r}: kwargs[{k!r}]' for k in names)}}}", 2)

    def leaf(self, name: str) -> None:
        """Write the checks of the type and the placement of a leaf."""
        i = len(self.leaves)
        aval, placement = self.constant(self.types[i]), self.placements[i]
        if isinstance(placement, Sharding):
            other = f"{name}.aval is not {aval} or {name}.sharding is not {self.constant(placement)}"
            self.line(f"if type({name}) is not Sharded or {other}: return MISS", 2)
        elif placement is not HOME:
            other = f"{name}.aval is not {aval} or {name}._placement is not {self.constant(placement)}"
            self.line(f"if type({name}) is not Placed or {other}: return MISS", 2)
        elif self.donated[i]:
            self.line(f"if type({name}) is not Array or {name}.aval is not {aval}: return MISS", 2)
        else:
            self.line(f"if type({name}) is not Array and ({name} := to_array({name}, {aval})) is None: return MISS", 2)
            self.line(f"if {name}.aval is not {aval}: return MISS", 2)
        self.leaves.append(name)
