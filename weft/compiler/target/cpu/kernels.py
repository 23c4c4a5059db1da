"""Kernels as machine code: each distinct kernel is compiled once per process, several of them in one module."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.forks import RenewedLock
from weft.base.lazy import lazy
from weft.base.spans import measured
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.target.code_stats import CodeIsGone, CodeStats
from weft.compiler.target.cpu import link, objects
from weft.compiler.target.cpu.link import LoadedCode, Object, Tier
from weft.compiler.target.target import Target
from weft.compiler.target.threads import compiling_threads

if TYPE_CHECKING:
    from weft.compiler.target.cpu import lower
else:
    lower = lazy("weft.compiler.target.cpu.lower")


class CompiledKernel:
    """Kernel in memory; `library` keeps its code loaded."""

    __slots__ = ("__weakref__", "address", "library", "name", "tier")

    def __init__(self, name: str, address: int, library: LoadedCode, tier: Tier) -> None:
        self.name, self.address, self.library, self.tier = name, address, library, tier


@dataclass
class CompileStats(CodeStats):
    """Cost of getting the kernels of a program in a tier."""

    tier: Tier = Tier.LIGHT

    @property
    def label(self) -> str:
        return f"{self.tier.name.lower()} code"


# Code lives as long as a program that runs it; the most recent kernels are retained for later programs.
MOST_RETAINED = 512
_compiled: weakref.WeakValueDictionary[tuple[Target, Tier, str], CompiledKernel] = weakref.WeakValueDictionary()
_latest: deque[CompiledKernel] = deque(maxlen=MOST_RETAINED)
# Bounds on the kernels of one object: few enough that threads have something to share, but not one, since each object
# takes a file and is linked by itself.
TOGETHER, LEAST_TOGETHER = 6, 2
# Statements that one thread compiles at a time in the background: LLVM takes about a third of a millisecond per
# statement, and forks wait for it.
STATEMENTS_OF_A_PIECE = 100
# Held during foreground compilation.
_lock = RenewedLock()
AnyKernel = Kernel | NamedKernel


def compile_kernels(
    kernels: Iterable[AnyKernel],
    target: Target,
    tier: Tier = Tier.LIGHT,
    stats: CompileStats | None = None,
    begun: Callable[[Tier], Iterable[Object]] | None = None,
    between: Callable[[Mapping[str, CompiledKernel]], None] | None = None,
) -> dict[str, CompiledKernel]:
    """Return the machine code of every kernel, by symbol, in at least this tier; new kernels are compiled together.

    With a callback `between`, kernels are compiled in the background a few at a time, in their order, and it is called
    with all kernels available so far after each batch. Foreground compilations do not wait for these.

    The bits that a kernel computes are the same in every tier. `stats` receives counts and times. `begun` returns the
    objects of a tier whose compilation was started before; they may contain missing kernels. Raises `CodeIsGone` if a
    kernel would have to be compiled but only its name is known.
    """
    stats = stats or CompileStats(tier=tier)
    with measured(stats.seconds, "compile", "kernel names"):
        distinct = {kernel_symbol(kernel): kernel for kernel in kernels}
    # Referenced from here on: code that only other programs refer to is freed with them.
    held = _known(distinct, target, tier)
    missing = {name: kernel for name, kernel in distinct.items() if name not in held}
    stats.reused, stats.from_disk, stats.compiled = len(held), 0, 0
    if between is not None:
        for piece in _pieces(missing):
            held |= _obtain(piece, target, tier, stats, background=True)
            between(held)
    elif missing:
        with _lock.current:
            if begun is not None:
                new = _begun(missing, target, tier, stats, begun)
                held |= new
                missing = {name: kernel for name, kernel in missing.items() if name not in new}
            held |= _obtain(missing, target, tier, stats)
    stats.tier = min((k.tier for k in held.values()), key=lambda t: t.value, default=tier)
    return held


def _begun(
    missing: Mapping[str, AnyKernel],
    target: Target,
    tier: Tier,
    stats: CompileStats,
    begun: Callable[[Tier], Iterable[Object]],
) -> dict[str, CompiledKernel]:
    """Return the missing kernels whose compilation was started before. Finished objects are linked while threads
    compile the rest."""
    found: dict[str, CompiledKernel] = {}
    codes = iter(begun(tier))
    while True:
        with measured(stats.seconds, "compile", "machine code"):
            code = next(codes, None)
        if code is None:
            break
        if any(name in missing for name in code.exports):
            found |= _store([code], target, tier, stats)
    stats.compiled += sum(name in missing for name in found)
    return found


def _pieces(kernels: Mapping[str, AnyKernel]) -> list[dict[str, AnyKernel]]:
    """Split kernels into batches that compile quickly, in their order."""
    pieces: list[dict[str, AnyKernel]] = []
    room = 0
    for name, kernel in kernels.items():
        count = statements(kernel.body) if isinstance(kernel, Kernel) else 0
        if not pieces or count > room:
            pieces.append({})
            room = STATEMENTS_OF_A_PIECE * compiling_threads()
        pieces[-1][name] = kernel
        room -= count
    return pieces


def _obtain(
    kernels: Mapping[str, AnyKernel], target: Target, tier: Tier, stats: CompileStats, background: bool = False
) -> dict[str, CompiledKernel]:
    """Get kernels from this process (another thread may have compiled them meanwhile), from disk, or compile them."""
    held = _known(kernels, target, tier)
    missing = {name: kernel for name, kernel in kernels.items() if name not in held}
    stats.reused += len(held)
    with measured(stats.seconds, "compile", "code from disk"):
        # LIGHT code is preferred to QUICK if all kernels have it: then the program need not be replaced later. Hot
        # kernels have no QUICK code.
        tiers = (Tier.LIGHT, Tier.QUICK, Tier.LIGHT) if tier is Tier.QUICK else (tier,)
        for attempt, found_tier in enumerate(tiers):
            loaded = list(objects.load_kernels(list(missing), target, found_tier)) if missing else []
            if len(tiers) > 1 and not attempt and sum(len(names) for _, names in loaded) < len(missing):
                continue
            for code, stored in loaded:
                held.update(_load(code, stored, target, found_tier))
                stats.from_disk += len(stored)
                for name in stored:
                    del missing[name]
    if not missing:
        return held
    full = {name: kernel for name, kernel in missing.items() if isinstance(kernel, Kernel)}
    if len(full) < len(missing):
        raise CodeIsGone(next(name for name in missing if name not in full))
    stats.compiled += len(full)
    with measured(stats.seconds, "compile", "machine code"):
        groups = _groups(full, 1 if background else LEAST_TOGETHER)
        texts = [functools.partial(write_module, group, target) for group in groups]
        new = link.make_objects(texts, target, tier, background)
    return held | _store(new, target, tier, stats)


def _store(codes: Iterable[Object], target: Target, tier: Tier, stats: CompileStats) -> dict[str, CompiledKernel]:
    """Load the kernels of new objects and store them on disk."""
    found: dict[str, CompiledKernel] = {}
    with measured(stats.seconds, "compile", "link"):
        for code in codes:
            found.update(_load(code, code.exports, target, tier))
            objects.store_kernels(code, target, tier)
    return found


def write_module(kernels: Sequence[tuple[str, Kernel]], target: Target, several: Collection[str] = ()) -> str:
    """Return the LLVM text of a module with these kernels; those in `several` unroll their loops."""
    return lower.module_text(kernels, target, several)


def routine(
    name: str, text: Callable[[], str] | None, target: Target, tier: Tier = Tier.LIGHT
) -> CompiledKernel | None:
    """Return a function by the name that identifies its text: from this process, from disk, or compiled from the text.
    None if there is no text either."""
    with _lock.current:
        found = _compiled.get((target, tier, name))
        if found is not None:
            return found
        for code, _ in objects.load_kernels([name], target, tier):
            return _load(code, [name], target, tier)[name]
        if text is None:
            return None
        code = link.make_object(text(), target, tier)
        objects.store_kernels(code, target, tier)
        return _load(code, [name], target, tier)[name]


def _groups(kernels: dict[str, Kernel], least: int) -> list[list[tuple[str, Kernel]]]:
    """Split kernels into modules that threads can share evenly, with at least `least` kernels each; the largest kernels
    are distributed first."""
    threads = compiling_threads()
    together = min(TOGETHER, max(least, -(-len(kernels) // threads)))
    count = -(-len(kernels) // together)
    rounds = -(-count // threads) * threads  # full rounds: no thread ends long before the others
    count = rounds if rounds * least <= len(kernels) else count
    items = sorted(kernels.items(), key=lambda item: -statements(item[1].body))
    return [items[start::count] for start in range(count)]


def statements(body: Iterable[Any]) -> int:
    """Return the number of statements without children, a rough measure of code size."""
    return sum(statements(inside) if (inside := getattr(s, "body", None)) else 1 for s in body)


def _load(code: Object, names: Iterable[str], target: Target, tier: Tier) -> dict[str, CompiledKernel]:
    """Load an object into memory; return the wanted kernels of it."""
    library = link.load(code)
    loaded = {name: CompiledKernel(name, library.addresses[name], library, tier) for name in names}
    for name, kernel in loaded.items():
        _compiled[target, tier, name] = kernel
        _latest.append(kernel)
    return loaded


def _known(names: Iterable[str], target: Target, least: Tier) -> dict[str, CompiledKernel]:
    """Return the kernels that are in memory in at least this tier."""
    return {name: found for name in names if (found := _best(target, least, name)) is not None}


def is_known(name: str, target: Target, least: Tier) -> bool:
    """Return whether a kernel is in memory in at least this tier."""
    return _best(target, least, name) is not None


def _best(target: Target, least: Tier, name: str) -> CompiledKernel | None:
    """Return the kernel in its best available tier, or None if that is below `least`."""
    for tier in (Tier.FULL, Tier.LIGHT, Tier.QUICK):
        found = _compiled.get((target, tier, name))
        if found is not None:
            return found
        if tier is least:
            break
    return None
