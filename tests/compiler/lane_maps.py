"""Elementwise bodies over lanes, compiled to functions of NumPy arrays, many in one module to save time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from weft.compiler.target.cpu import link
from weft.compiler.target.lanes import Lane, Lanes
from weft.compiler.target.llvm import Function, Module, Parameter, constant, constant_vector, i32, i64, ptr, void

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

HOST_FEATURES = dict(llvm.get_host_cpu_features())
HAS_AVX512 = HOST_FEATURES.get("avx512f", False) and HOST_FEATURES.get("avx512dq", False)


@dataclass(frozen=True)
class Target:
    """How wide the lanes are, and whether only what AVX2 has may be used."""

    name: str
    width: int
    narrow: bool = False
    # The last lanes are masked; else arrays are made longer. Without AVX-512 masks of short types are slow to compile.
    masked: bool = False


WIDE = Target("wide", 16, masked=True) if HAS_AVX512 else Target("wide", 8)
SCALAR = Target("scalar", 1)
AVX2 = Target("avx2", 8, narrow=True)


@dataclass(frozen=True)
class Map:
    """A body and the dtypes it takes; `body(lanes, *operands)` returns one lane or several."""

    body: Callable[..., Lane]
    operands: tuple[np.dtype[Any], ...]


def machine(target: Target) -> Any:
    """What makes code for this computer, or for one like it that ends at AVX2."""
    flags = dict(HOST_FEATURES)
    if target.narrow:
        flags = {name: on and not name.startswith("avx512") for name, on in flags.items()}
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in flags.items())
    cpu = "haswell" if target.narrow and HAS_AVX512 else llvm.get_host_cpu_name()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=text, opt=1, reloc="pic", codemodel="small"
    )


def write_map(module: Module, name: str, item: Map, target: Target) -> np.dtype[Any]:
    """Write a function `name(inputs..., output, count)`; return the dtype of the result."""
    inputs = [Parameter(f"x{n}", ptr, ("noalias", "readonly")) for n in range(len(item.operands))]
    f = module.function(name, void, [*inputs, Parameter("y", ptr, ("noalias",)), Parameter("count", i64)])
    *pointers, result, count = f.arguments
    lanes = Lanes(f, target.width)
    with f.loop(constant(0, i64), count, target.width) as i:
        mask = None
        if target.masked:
            left = f.splat(f.trunc(f.smin(f.sub(count, i), constant(target.width, i64)), i32), target.width)
            mask = f.icmp("slt", constant_vector(range(target.width), i32), left)
        args = [lanes.load(_element(f, p, d, i), d, mask) for p, d in zip(pointers, item.operands, strict=True)]
        out = item.body(lanes, *args)
        lanes.store(out, _element(f, result, out.dtype, i), mask)
    f.ret()
    return out.dtype


def _element(f: Function, pointer: Any, dtype: np.dtype[Any], index: Any) -> Any:
    element, parts = Lanes.storage(dtype)
    return f.offset(pointer, element, index if parts == 1 else f.mul(index, constant(2, i64)))


class Compiled:
    """Maps as functions of arrays."""

    def __init__(self, maps: dict[str, Map], target: Target) -> None:
        module = Module(triple=llvm.get_process_triple())
        self.target = target
        self.maps = maps
        self.names = {key: f"map{i}" for i, key in enumerate(maps)}
        self.results = {key: write_map(module, self.names[key], item, target) for key, item in maps.items()}
        self.text = module.text()
        parsed = llvm.parse_assembly(self.text)
        parsed.verify()
        self.machine = machine(target)
        self._optimise(parsed)
        # By the linker that programs have: LLVM's older one aborts in an address space that a driver of GPUs crowds.
        code = link.Object(self.machine.emit_object(parsed), tuple(self.names.values()), ())
        self.library = link.load(code)

    def _optimise(self, parsed: Any) -> None:
        builder = llvm.create_pass_builder(self.machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(parsed, builder)

    def __call__(self, key: str, *arrays: Any) -> np.ndarray:
        """Apply a map to arrays of one length."""
        operands = self.maps[key].operands
        args = [np.ascontiguousarray(a) for a in arrays]
        assert [a.dtype for a in args] == list(operands), (key, [a.dtype for a in args])
        size = len(args[0])
        room = 0 if self.target.masked else -size % self.target.width
        if room:
            args = [np.concatenate([a, np.repeat(a[-1:], room)]) for a in args]
        # One more element than is written shows whether masks hold.
        result = np.zeros(size + room + 1, self.results[key])
        kinds = [ctypes.c_void_p] * (len(args) + 1) + [ctypes.c_int64]
        function = ctypes.CFUNCTYPE(None, *kinds)(self.library.addresses[self.names[key]])
        function(*(a.ctypes.data for a in args), result.ctypes.data, size + room)
        assert not result[-1:].view(np.uint8).any(), f"{key} wrote beyond the end"
        return result[:size]


def units_in_the_last_place(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How far numbers are from exact ones, in steps of their own dtype; equal infinities and nans are 0 apart."""
    limits = ml_dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        wide, got = expected.astype(np.longdouble), found.astype(np.longdouble)
        _, exponent = np.frexp(np.abs(wide))
        step = np.ldexp(np.ones_like(wide), np.maximum(exponent - 1, int(limits.minexp)) - int(limits.nmant))
        apart = np.abs(got - wide) / step
        # What is beyond the largest number may be infinite.
        beyond = np.isinf(got) & (np.abs(wide) > np.longdouble(float(limits.max))) & (np.sign(got) == np.sign(wide))
        apart = np.where(beyond | (np.isnan(got) & np.isnan(wide)) | (got == wide), 0, apart)
        return np.where(np.isnan(apart), np.inf, apart).astype(np.float64)


def same_bits(found: np.ndarray, expected: np.ndarray, zeros: bool = True) -> np.ndarray:
    """Where numbers are equal to the bit; any nan is like any other, and zeros of both signs are if `zeros` is off."""
    same = found.view(_words(found)) == expected.view(_words(expected))
    if found.dtype.kind == "c":
        return same_bits(found.real.copy(), expected.real.copy(), zeros) & same_bits(
            found.imag.copy(), expected.imag.copy(), zeros
        )
    if found.dtype.kind == "f" or "float" in found.dtype.name:
        with np.errstate(invalid="ignore"):
            a, b = found.astype(np.float64), expected.astype(np.float64)
        same = same | (np.isnan(a) & np.isnan(b))
        if not zeros:
            same = same | (a == b)
    return same


def _words(x: np.ndarray) -> Any:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(x.dtype.itemsize, np.uint64)
