"""The CPUs that code is compiled for: this machine, as much of it as is asked for, and others to look at their code."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import replace

from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.compiler.target import native
from weft.compiler.target.tables import Tables, register
from weft.compiler.target.target import Libraries, Target


def _tables() -> Tables:
    from weft.compiler.target.cpu.tables import TABLES

    return TABLES


register("cpu", _tables)

# Contractions of these dtypes are as fast by our own tiles as by a library, or faster, at every size that was measured,
# where registers are this wide.
OWN_DTYPES = frozenset(dtypes.as_dtype(name) for name in ("float32", "float64"))
OWN_VECTOR_BITS = 512


def of_flags(triple: str, cpu: str, flags: dict[str, bool]) -> Target:
    """The machine with these abilities."""
    if is_arm(triple):
        bits, masks = 128, False
    elif all(flags.get(name) for name in ("avx512f", "avx512vl", "avx512bw", "avx512dq")):
        bits, masks = 512, True
    elif flags.get("avx2"):
        bits, masks = 256, False
    elif flags.get("sse4.1"):
        bits, masks = 128, False
    else:
        bits, masks = 0, False
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))
    registers = 32 if bits == 512 or is_arm(triple) else 16
    libraries = Libraries(own_dtypes=OWN_DTYPES if bits >= OWN_VECTOR_BITS else frozenset())
    return Target("cpu", triple, cpu, text, bits, registers, masks, libraries=libraries, toolchain=native.toolchain())


def is_arm(triple: str) -> bool:
    """Whether a triple is of a 64-bit ARM machine."""
    return triple.startswith(("aarch64", "arm64"))


# The variable of the environment that has programs compiled for an older machine than this one, to see what they are
# like there: `avx2`.
ASKED = "WEFT_CPU_FEATURES"


@functools.cache
def host() -> Target:
    """This machine, or as much of it as the environment asks for."""
    asked = os.environ.get(ASKED, "")
    if asked == "avx2":
        return host_avx2()
    if asked:
        raise ArgumentError(f"{ASKED} is {asked!r}; it can be avx2, or unset for all that this machine has.")
    triple, cpu, flags = native.host()
    target = of_flags(triple, cpu, flags)
    return replace(target, tiles=target.masks and all(flags.get(name) for name in _TILES) and _may_use_tiles())


# What code with tiles uses: the registers, and the instruction that rounds their sums to bfloat16.
_TILES = ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16")
# Linux lets a process use tile registers once it has asked: the system call `arch_prctl`, its code for asking, and the
# number of what is asked for.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _may_use_tiles() -> bool:
    """Ask the system for the tile registers. What it grants holds for all threads, and for forked processes."""
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


# What came after AVX2 on x86, by the beginnings of LLVM's names.
_AFTER_AVX2 = ("avx512", "avx10", "amx", "evex512", "avxvnni", "avxifma", "avxneconvert")


@functools.cache
def host_avx2() -> Target:
    """This machine without what came after AVX2: its code runs here, as on older ones."""
    triple, _, flags = native.host()
    older = {name: on and not name.startswith(_AFTER_AVX2) for name, on in flags.items()}
    return of_flags(triple, "haswell", older)


@functools.cache
def host_scalar() -> Target:
    """This machine, one element at a time."""
    return replace(host(), vector_bits=0, vector_registers=16, masks=False, tiles=False, libraries=Libraries())


@functools.cache
def sapphire_rapids() -> Target:
    """An x86 server with tile registers, for which code is made wherever this is."""
    names = ("avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq", "fma", *_TILES)
    target = of_flags("x86_64-unknown-linux-gnu", "sapphirerapids", dict.fromkeys(names, True))
    return replace(target, tiles=True)


def aarch64() -> Target:
    """A 64-bit ARM server, for which code is made but not run here."""
    return of_flags("aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True})
