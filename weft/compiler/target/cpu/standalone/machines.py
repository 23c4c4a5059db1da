"""Machines that libraries are compiled for, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.compiler.target import native
from weft.compiler.target.cpu import targets
from weft.compiler.target.target import Libraries, Target

LINUX = "unknown-linux-gnu"
# Features of the x86-64 levels, each with those of the level below.
_V2 = ("cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS: Mapping[str, tuple[str, ...]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
NAMES = ("host", "x86-64", *LEVELS, "aarch64", "riscv64", "wasm32")


@dataclass(frozen=True)
class Machine:
    """A machine: its name, and the targets of its code, the most recent one last. Several are levels of x86-64."""

    name: str
    targets: tuple[tuple[str, Target], ...]

    @property
    def triple(self) -> str:
        """LLVM's triple."""
        return self.targets[0][1].triple


def find_machine(name: str, lapack: bool = False) -> Machine:
    """Return the machine of a name. With `lapack` its programs call BLAS and LAPACK as those of `jit` do."""
    found = _find_machine(name)
    if not lapack:
        return found
    shared = tuple((level, replace(target, libraries=_with_blas(target))) for level, target in found.targets)
    return Machine(found.name, shared)


def _with_blas(target: Target) -> Libraries:
    wide = target.vector_bits >= targets.OWN_VECTOR_BITS
    return Libraries(own_dtypes=targets.OWN_DTYPES if wide else frozenset())


def _find_machine(name: str) -> Machine:
    if name == "host":
        return Machine(name, ((name, _own(targets.host())),))
    if name == "x86-64":
        # The instructions that read the processor's level are written in assembly, which LLVM reads for the host only.
        if not native.host()[0].startswith("x86_64"):
            raise ArgumentError(
                "A library with several levels of x86-64 must be compiled on such a machine.",
                received=native.host()[0],
                fix='target="x86-64-v3"',
            )
        return Machine(name, tuple((level, _x86(level)) for level in LEVELS))
    if name in LEVELS:
        return Machine(name, ((name, _x86(name)),))
    if name == "aarch64":
        flags = {"neon": True, "fp-armv8": True}
        return Machine(name, ((name, _own(targets.of_flags(f"aarch64-{LINUX}", "generic", flags))),))
    if name == "riscv64":
        flags = dict.fromkeys(("m", "a", "f", "d", "c"), True)
        return Machine(name, ((name, _own(targets.of_flags(f"riscv64-{LINUX}", "generic-rv64", flags))),))
    if name == "wasm32":
        flags = dict.fromkeys(("simd128", "bulk-memory", "nontrapping-fptoint", "sign-ext", "mutable-globals"), True)
        found = _own(targets.of_flags("wasm32-unknown-unknown", "generic", flags))
        return Machine(name, ((name, replace(found, vector_bits=128, vector_registers=16)),))
    raise ArgumentError("The target of a library must be a machine.", received=repr(name), fix=", ".join(NAMES))


def _x86(level: str) -> Target:
    triple, _, _ = native.host()
    system = triple.partition("-")[2] if triple.startswith("x86_64") else LINUX
    return _own(targets.of_flags(f"x86_64-{system}", level, dict.fromkeys(LEVELS[level], True)))


def _own(target: Target) -> Target:
    """Return a target whose programs consist of kernels only. Tile registers are off, since a process must request
    them from its system."""
    libraries = Libraries(own_dtypes=targets.OWN_DTYPES, contraction_dtypes=frozenset(), lane_matrix_batch=1)
    return replace(target, tiles=False, libraries=libraries)


def has_fused_multiply_add(target: Target) -> bool:
    """Return whether a target has instructions for fused multiply-adds."""
    if target.triple.startswith("x86"):
        return _has_one(target, "fma", "avx512f")
    return not target.triple.startswith("wasm")


def converts_halves(target: Target) -> bool:
    """Return whether a target has instructions that convert float16."""
    return targets.is_arm(target.triple) or _has_one(target, "f16c", "avx512f")


def _has_one(target: Target, *features: str) -> bool:
    return any(f"+{name}" in target.flags.split(",") for name in features)
