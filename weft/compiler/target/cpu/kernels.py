"""Kernels as machine code: each distinct one is compiled once in a process, many at a time in one module."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import to_text
from weft.compiler.target import llvm
from weft.compiler.target.cpu import cache, link
from weft.compiler.target.cpu.features import Features
from weft.compiler.target.cpu.link import Library, Object, Tier
from weft.compiler.target.cpu.lower import lower_into


class CompiledKernel:
    """A kernel in memory. `library` keeps it there."""

    __slots__ = ("address", "library", "name")

    def __init__(self, name: str, address: int, library: Library) -> None:
        self.name, self.address, self.library = name, address, library


_compiled: dict[tuple[Features, Tier, str], CompiledKernel] = {}
_lock = threading.RLock()


def name_of(kernel: Kernel) -> str:
    """The name of a kernel's function: what kind it is and a digest of its text."""
    return f"{kernel.name}_{hashlib.blake2b(to_text(kernel).encode(), digest_size=10).hexdigest()}"


def module_text(kernels: Iterable[tuple[str, Kernel]], features: Features) -> str:
    """One module with a function for each kernel."""
    module = llvm.Module(triple=features.triple, vector_bits=features.vector_bits or 128)
    for name, kernel in kernels:
        lower_into(module, kernel, features, name)
    return module.text()


def compiled(kernels: Iterable[Kernel], features: Features, tier: Tier = Tier.LIGHT) -> dict[Kernel, CompiledKernel]:
    """Every kernel as machine code of at least the given tier; those that are new are compiled together.

    The bits that a kernel computes are the same in every tier.
    """
    names = {kernel: name_of(kernel) for kernel in kernels}
    with _lock:
        missing = {name: kernel for kernel, name in names.items() if _best(features, tier, name) is None}
        for made, stored in cache.load_kernels(list(missing), features, tier):
            _keep(made, stored, features, tier)
            for name in stored:
                del missing[name]
        if missing:
            made = link.make_object(module_text(missing.items(), features), features, tier)
            _keep(made, missing, features, tier)
            cache.store_kernels(made, features, tier)
        return {kernel: found for kernel, name in names.items() if (found := _best(features, tier, name)) is not None}


def _keep(made: Object, names: Iterable[str], features: Features, tier: Tier) -> None:
    """Put an object into memory, for the kernels that are wanted of it."""
    library = link.load(made)
    for name in names:
        _compiled[features, tier, name] = CompiledKernel(name, library.addresses[name], library)


def _best(features: Features, least: Tier, name: str) -> CompiledKernel | None:
    """The kernel in the best tier that it has, if that is good enough."""
    for tier in (Tier.FULL, Tier.LIGHT, Tier.QUICK):
        found = _compiled.get((features, tier, name))
        if found is not None:
            return found
        if tier is least:
            break
    return None
