"""What a CPU offers: its vectors, and the names by which LLVM knows it. It need not be the CPU of this machine."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.compiler.target.cpu import native


@dataclass(frozen=True)
class Features:
    """A machine to compile for. `masks`: a load or store of some lanes is one instruction, whatever the type. `tiles`:
    it has tile registers for products of bfloat16 and of bytes, and the process may use them."""

    triple: str
    cpu: str
    flags: str
    vector_bits: int
    masks: bool = False
    tiles: bool = False

    @property
    def vector_bytes(self) -> int:
        """The width of a register; that of one number, where there are no vectors."""
        return max(self.vector_bits // 8, 4)

    def lanes(self, dtype: Any) -> int:
        """How many elements one register holds, as they are computed: bits are bytes, short floats are float32."""
        if not self.vector_bits:
            return 1
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        if kind == "c":
            size //= 2
        elif kind in "fV" and size < 4:
            size = 4
        return max(1, self.vector_bits // (8 * size))


def of_flags(triple: str, cpu: str, flags: dict[str, bool]) -> Features:
    """The machine with these abilities."""
    if triple.startswith("aarch64") or triple.startswith("arm64"):
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
    return Features(triple, cpu, text, bits, masks)


# The variable of the environment that has programs compiled for an older machine than this one, to see what they are
# like there: `avx2`.
ASKED = "WEFT_CPU_FEATURES"


@functools.cache
def host() -> Features:
    """This machine, or as much of it as the environment asks for."""
    asked = os.environ.get(ASKED, "")
    if asked == "avx2":
        return host_avx2()
    if asked:
        raise ArgumentError(f"{ASKED} is {asked!r}; it can be avx2, or unset for all that this machine has.")
    triple, cpu, flags = native.host()
    made = of_flags(triple, cpu, flags)
    return replace(made, tiles=made.masks and all(flags.get(name) for name in _TILES) and _may_use_tiles())


_TILES = ("amx-tile", "amx-bf16", "amx-int8")
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
def host_avx2() -> Features:
    """This machine without what came after AVX2: its code runs here, as on older ones."""
    triple, _, flags = native.host()
    kept = {name: on and not name.startswith(_AFTER_AVX2) for name, on in flags.items()}
    return of_flags(triple, "haswell", kept)


@functools.cache
def host_scalar() -> Features:
    """This machine, one element at a time."""
    return Features(host().triple, host().cpu, host().flags, 0)


@functools.cache
def sapphire_rapids() -> Features:
    """An x86 server with tile registers, for which code is made wherever this is."""
    names = ("avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq", "fma", *_TILES)
    made = of_flags("x86_64-unknown-linux-gnu", "sapphirerapids", dict.fromkeys(names, True))
    return replace(made, tiles=True)


def aarch64() -> Features:
    """A 64-bit ARM server, for which code is made but not run here."""
    return of_flags("aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True})
