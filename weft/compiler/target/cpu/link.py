"""Compilation of LLVM text to machine code, and linking of machine code in this process.

An `Object` can be stored on disk: its code refers to external functions by name. Linking resolves those names in this
process. One lock serialises everything here because LLVM has global state, except for compilations in threads that have
a context and a target machine of their own.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any, ParamSpec, TypeVar

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.base.forks import held, let_fork
from weft.compiler.target import native
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.compiler.target.threads import compile_in_threads

Given = ParamSpec("Given")
Made = TypeVar("Made")


class Tier(Enum):
    """Optimisation level of code: no passes, the passes that pay off for explicit vectors, or LLVM's full pipeline."""

    QUICK = 0
    LIGHT = 1
    FULL = 2


@dataclass(frozen=True)
class Object:
    """Machine code of one module, with the functions that it exports and imports."""

    code: bytes
    exports: tuple[str, ...]
    imports: tuple[str, ...]


# Trackers of unused code, to be freed the next time that LLVM is called.
_released: deque[Any] = deque()


class LoadedCode:
    """Loaded code, which stays in memory as long as this object."""

    def __init__(self, addresses: dict[str, int], tracker: Any, size: int = 0) -> None:
        self.addresses = addresses
        self.size = size  # bytes of the object
        self._tracker = tracker

    def __del__(self, released: deque[Any] = _released) -> None:
        # A finalizer may run anywhere, at any time: LLVM frees the code when the lock is held next.
        released.append(self._tracker)

    def function(self, name: str, returns: Any = None, *arguments: Any) -> Callable[..., Any]:
        """Return a function of the library as a ctypes callable, which keeps the library loaded."""
        found = ctypes.CFUNCTYPE(returns, *arguments)(self.addresses[name])
        found.library = self  # type: ignore[attr-defined]
        return found

    def run(self, name: str, pointers: Sequence[int], begin: int = 0, end: int = 1) -> None:
        """Call a kernel with the addresses of its buffers, for [begin, end) of its loop over threads."""
        table = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        self.function(name, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(table, begin, end)


_lock = native.lock
_symbols: dict[str, int] = {}
_link_counter = itertools.count()


def _serialise(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Decorate a function to run under LLVM's lock: the LLVM objects of a call are freed before the next call, or a
    fork."""

    @functools.wraps(function)
    def locked(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with _lock:
            return function(*args, **kwargs)

    return locked


def provide(symbols: Mapping[str, int]) -> None:
    """Register the addresses in this process of functions that kernels may call."""
    _symbols.update(symbols)


@contextmanager
def _optimise(text: str, target: Target, tier: Tier) -> Iterator[tuple[Any, Any]]:
    """Yield the optimised module of a text and its target machine."""
    machine = native.target_machine(target.triple, target.cpu, target.flags, 0 if tier is Tier.QUICK else 2)
    if tier is Tier.QUICK and not target.masks:
        text = with_loads_apart(text)
    with ExitStack() as stack:
        try:
            module = stack.enter_context(native.parse(text, target.triple, target.cpu, target.flags))
        except RuntimeError as error:
            raise InternalError(f"LLVM cannot parse the text of a kernel: {error}", stage="llvm", text=text) from None
        if tier is not Tier.QUICK:
            _run_passes(module, machine, tier)
        yield module, machine


_CHOSEN_FLOAT = re.compile(r"^  (%\w+) = select i1 (\S+), (float|double) (\S+), \3 (\S+)$", re.MULTILINE)


def with_loads_apart(text: str) -> str:
    """Insert a freeze between each scalar load and a select that uses it. Without optimisation LLVM merges the two
    where it selects by blending vectors, and the merged instruction reads a whole vector: memory beyond the end of the
    array."""

    def apart(found: re.Match[str]) -> str:
        result, condition, kind, *operands = found.groups()
        lines, names = [], []
        for letter, operand in zip("ab", operands, strict=True):
            names.append(f"{result}{letter}" if operand.startswith("%") else operand)
            if operand.startswith("%"):
                lines.append(f"  {result}{letter} = freeze {kind} {operand}")
        return "\n".join([*lines, f"  {result} = select i1 {condition}, {kind} {names[0]}, {kind} {names[1]}"])

    return _CHOSEN_FLOAT.sub(apart, text)


def _run_passes(module: Any, machine: Any, tier: Tier) -> None:
    llvm = native.binding()
    options = llvm.create_pipeline_tuning_options(speed_level=2 if tier is Tier.FULL else 1)
    options.loop_unrolling = False  # emitters unroll where it pays
    passes = llvm.create_pass_builder(machine, options)
    if tier is Tier.FULL:
        manager = passes.getModulePassManager()
    else:
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
    native.run_passes(manager, module, passes)


@_serialise
def make_object(text: str, target: Target | None = None, tier: Tier = Tier.LIGHT) -> Object:
    """Compile a module to an object."""
    return _object(text, target or host(), tier)


def make_objects(
    texts: Sequence[Callable[[], str]], target: Target, tier: Tier, background: bool = False
) -> list[Object]:
    """Compile several modules in several threads. In the `background` this uses a thread pool of its own and does not
    take the lock of foreground compilations."""
    if background:
        return compile_in_threads(texts, lambda text: object_in_thread(text, target, tier), background)
    let_fork()
    with _lock:
        return compile_in_threads(texts, lambda text: _object(text, target, tier))


class _ThreadLock(threading.local):
    """Lock of a thread that calls LLVM without the global lock: a fork waits for it."""

    def __init__(self) -> None:
        self.lock = held(threading.Lock())


_thread = _ThreadLock()


def object_in_thread(text: str, target: Target, tier: Tier) -> Object:
    """Compile a module in a compiling thread; threads do not wait for each other."""
    let_fork()
    with _thread.lock:
        return _object(text, target, tier)


# Definitions and declarations of functions, at the beginning of a line: the keyword, attributes, the name.
_FUNCTION = re.compile(r"^(define|declare) ([^@\n]*)@([\w.$]+)\(", re.MULTILINE)


def _object(text: str, target: Target, tier: Tier) -> Object:
    with _optimise(text, target, tier) as (module, machine):
        code = native.emit_code(machine, module)
    functions = _FUNCTION.findall(text)
    exports = tuple(name for word, before, name in functions if word == "define" and "internal" not in before.split())
    imports = tuple(name for word, _, name in functions if word == "declare" and not name.startswith("llvm."))
    return Object(code, exports, imports)


@_serialise
def assembly(text: str, target: Target | None = None, tier: Tier = Tier.LIGHT) -> str:
    """Return the assembly of a module."""
    with _optimise(text, target or host(), tier) as (module, machine):
        result: str = machine.emit_assembly(module)
        return result


@_serialise
def check(text: str, target: Target | None = None) -> None:
    """Raise InternalError unless LLVM's verifier accepts the text."""
    with _optimise(text, target or host(), Tier.QUICK) as (module, _):
        try:
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"A kernel must pass LLVM's verifier; got: {error}", stage="llvm", text=text) from None


@_serialise
def load(code: Object, symbols: Mapping[str, int] | None = None) -> LoadedCode:
    """Load an object into memory and return its library. `symbols` take precedence over names given to `provide`."""
    llvm = native.binding()
    while _released:
        _released.popleft()
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(code.code)
    builder.add_current_process()
    for name in code.imports:
        address = (symbols or {}).get(name) or _symbols.get(name)
        if address is not None:
            builder.import_symbol(name, address)
    for name in code.exports:
        builder.export_symbol(name)
    try:
        tracker = builder.link(native.linker(), f"weft{next(_link_counter)}")
    except RuntimeError as error:
        needed = ", ".join(code.imports) or "nothing"
        raise InternalError(f"Cannot link a kernel that imports {needed}: {error}", stage="link") from None
    return LoadedCode({name: tracker[name] for name in code.exports}, tracker, len(code.code))


def load_once(
    code: Callable[[], Object], symbols: Callable[[], Mapping[str, int]] | None = None
) -> Callable[[], LoadedCode]:
    """Return a function that loads an object at its first call and returns the library. It is loaded once, however many
    threads call first: callers keep addresses in it, which a second library must not replace."""
    found: list[LoadedCode] = []
    lock = held(threading.Lock())

    def library() -> LoadedCode:
        if not found:
            own, addresses = code(), None if symbols is None else symbols()
            with lock:
                if not found:
                    found.append(load(own, addresses))
        return found[0]

    return library


def compile_and_load(
    text: str, target: Target | None = None, tier: Tier = Tier.LIGHT, symbols: Mapping[str, int] | None = None
) -> LoadedCode:
    """Compile a module and load it."""
    return load(make_object(text, target, tier), symbols)
