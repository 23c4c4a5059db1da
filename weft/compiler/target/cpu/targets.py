"""CPU targets: the host, optionally restricted to older features, and other machines whose code can be inspected."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import replace

from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.compiler.target import native
from weft.compiler.target.target import Libraries, Target

# Dtypes whose contractions are as fast in our own tiles as in a library, or faster, at every measured size, where
# registers are at least this wide.
OWN_DTYPES = frozenset(dtypes.as_dtype(name) for name in ("float32", "float64"))
OWN_VECTOR_BITS = 512


def of_flags(triple: str, cpu: str, flags: dict[str, bool]) -> Target:
    """Return the target of a CPU with these LLVM features."""
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
    """Return whether a triple is of a 64-bit ARM machine."""
    return triple.startswith(("aarch64", "arm64"))


# Environment variable that compiles programs for an older machine than the host, to test their behaviour there: `avx2`.
ASKED = "WEFT_CPU_FEATURES"


@functools.cache
def host() -> Target:
    """Return the target of the host, restricted by the environment variable if it is set."""
    asked = os.environ.get(ASKED, "")
    if asked == "avx2":
        return host_avx2()
    if asked:
        raise ArgumentError(f"{ASKED} must be avx2, or unset for all features of this machine; got {asked!r}.")
    triple, cpu, flags = native.host()
    target = of_flags(triple, cpu, flags)
    return replace(target, tiles=target.masks and all(flags.get(name) for name in _TILES) and _may_use_tiles())


# Features that code with tiles uses: the registers, and the instruction that rounds their sums to bfloat16.
_TILES = ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16")
# Linux lets a process use tile registers after a request: the system call `arch_prctl`, its code for requests, and the
# number of the permission.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _may_use_tiles() -> bool:
    """Request the tile registers from the system. The permission holds for all threads, and for forked processes."""
    if not sys.platform.startswith("linux"):
        return False
    result: bool = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
    return result


# Features newer than AVX2 on x86, as prefixes of LLVM's names.
_AFTER_AVX2 = ("avx512", "avx10", "amx", "evex512", "avxvnni", "avxifma", "avxneconvert")


@functools.cache
def host_avx2() -> Target:
    """Return the host without features newer than AVX2: its code runs here, as on older machines."""
    triple, _, flags = native.host()
    older = {name: on and not name.startswith(_AFTER_AVX2) for name, on in flags.items()}
    return of_flags(triple, "haswell", older)


@functools.cache
def host_scalar() -> Target:
    """Return the host without vectors: one element at a time."""
    return replace(host(), vector_bits=0, vector_registers=16, masks=False, tiles=False, libraries=Libraries())


@functools.cache
def sapphire_rapids() -> Target:
    """Return an x86 server with tile registers, whatever the host is."""
    names = ("avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq", "fma", *_TILES)
    target = of_flags("x86_64-unknown-linux-gnu", "sapphirerapids", dict.fromkeys(names, True))
    return replace(target, tiles=True)


def aarch64() -> Target:
    """Return a 64-bit ARM server; its code cannot run on other hosts."""
    return of_flags("aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True})
