"""Every elementwise primitive over lanes returns what its `eval` returns, in every dtype and width."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as binding
import numpy as np
import pytest

from tests.compiler.lane_maps import (
    AVX2,
    SCALAR,
    WIDE,
    Compiled,
    Map,
    Target,
    same_bits,
    units_in_the_last_place,
    write_map,
)
from tests.laws.samples import registered
from weft.base import dtypes
from weft.base.errors import InternalError
from weft.base.promotion import DTYPES
from weft.compiler.target.lanes import Lanes
from weft.compiler.target.llvm import Module, i64, vector, void
from weft.ir.primitive import lookup
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.rounding import RoundingMethod

# Iterative ones are tested in test_lanes_special: for any bits `eval` would take hours.
ITERATED = {
    "zeta", "polygamma", "igamma", "igammac", "igamma_grad_a", "igamma_derivative", "random_gamma_grad",
    "regularized_incomplete_beta",
}  # fmt: skip
OPERANDS = {"select_n": 0, "clamp": 3} | dict.fromkeys(
    ["add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "pow",
     "shift_left", "shift_right_logical", "shift_right_arithmetic", "mulhi", "complex", "nextafter", "atan2", "zeta",
     "polygamma", "igamma", "igammac", "igamma_grad_a", "igamma_derivative", "random_gamma_grad"], 2
) | {"regularized_incomplete_beta": 3}  # fmt: skip
PARAMS: dict[str, list[dict[str, Any]]] = {
    "igamma_derivative": [{"order": 2}],
    "integer_pow": [{"y": y} for y in (0, 1, 3, 7, -2)],
    "reduce_precision": [{"exponent_bits": e, "mantissa_bits": m} for e, m in ((5, 10), (8, 7), (4, 3), (2, 1))],
    "round": [{"rounding_method": method} for method in RoundingMethod],
    "name": [{"name": "n"}],
    "device_put": [{"device": None, "source": None}],
}
SPECIAL = {"erf", "erfc", "erf_inv", "lgamma", "digamma", "bessel_i0e", "bessel_i1e"}
MAIN = [
    DTYPES[name]
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bfloat16", "float16",
                 "float32", "float64", "complex64", "complex128")
]  # fmt: skip
FEW = [DTYPES[name] for name in ("bool", "int32", "uint8", "int64", "bfloat16", "float32", "float64", "complex64")]
SMALL = [d for d in DTYPES.values() if d not in MAIN]
OF_SMALL = {
    "add", "mul", "div", "neg", "abs", "sign", "max", "lt", "eq", "exp", "floor", "nextafter", "and", "not", "clz",
    "population_count", "shift_left", "shift_right_arithmetic", "shift_right_logical", "mulhi", "rem", "sub", "xor",
    "reduce_precision", "sqrt", "is_finite",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A primitive in a dtype."""

    primitive: Any
    dtype: np.dtype[Any]
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        shown = ",".join(str(v) for v in self.params.values())
        return f"{self.primitive.name}[{shown}] {self.dtype.name}"

    @property
    def count(self) -> int:
        return OPERANDS.get(self.primitive.name, 1)

    @property
    def map(self) -> Map:
        return Map(lambda lanes, *xs: self.primitive.emit(lanes, *xs, **self.params), (self.dtype,) * self.count)


def elementwise_names() -> list[str]:
    names = [c.name for c in registered() if isinstance(c, Elementwise)]
    return sorted(set(names) - ITERATED - {"convert_element_type", "select_n"})


def cases(names: Iterable[str], chosen: Iterable[np.dtype[Any]]) -> Iterator[Case]:
    chosen = list(chosen)
    for name in names:
        primitive: Any = lookup(name)
        for dtype in chosen:
            kind = dtypes.kind(dtype)
            partly = name in ("complex", "conj") and kind == "f" and dtype not in (dtypes.float32, dtypes.float64)
            if kind not in primitive.kinds or partly:
                continue
            for params in PARAMS.get(name, [{}]):
                if not (kind in "iu" and params.get("y", 0) < 0):
                    yield Case(primitive, dtype, params)


# ---------------------------------------------------------------------------------------------------------- numbers

EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e-310, 3e38, -3e38,
    65504.0, 1e5, -7.0, 100.25, 88.8, -104.0, 710.0, 2e305, 3e305, 1e306,
]  # fmt: skip


def numbers(dtype: np.dtype[Any], rng: np.random.Generator, size: int = 150) -> np.ndarray:
    """Edges, ordinary numbers and random bits of a dtype; all numbers there are, of the smallest."""
    with np.errstate(all="ignore"):
        return _numbers(dtype, rng, size)


def _numbers(dtype: np.dtype[Any], rng: np.random.Generator, size: int) -> np.ndarray:
    kind, bits = dtypes.kind(dtype), dtypes.itemsize_bits(dtype)
    if kind == "b":
        return rng.integers(0, 2, size).astype(np.bool_)
    if kind in "iu":
        if bits < 8:
            return np.resize(np.arange(1 << bits), size).astype(np.uint8).astype(np.int8).astype(dtype)
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        edges = np.array([low, high, 0, 1, max(low, -1), high // 2, 7, 2, bits - 1, bits], dtype=object)
        wide = rng.integers(low, high, size, dtype=dtype, endpoint=True)
        return np.concatenate([edges.astype(dtype), wide, rng.integers(0, 12, size).astype(dtype)])
    if kind == "f":
        if dtype.itemsize == 1:
            return np.resize(np.arange(1 << bits, dtype=np.uint8), 256).view(dtype)
        words = rng.integers(0, 1 << 8, size * dtype.itemsize).astype(np.uint8).view(dtype)
        return np.concatenate([np.array(EDGES).astype(dtype), (rng.normal(size=size) * 3).astype(dtype), words])
    limits = np.finfo(dtype)
    parts = [
        0.0,
        -0.0,
        1.0,
        -0.5,
        2.5,
        90.0,
        np.inf,
        -np.inf,
        np.nan,
        limits.max,
        limits.tiny,
        -limits.smallest_subnormal,
    ]
    edges = rng.permutation([complex(a, b) for a in parts for b in parts])
    near = rng.normal(size=size) + 1j * rng.normal(size=size)
    return np.concatenate([edges, near, near[::-1] * 9]).astype(dtype)


def operands(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Arrays of one length: random pairs, then every pair of the first numbers."""
    result = [numbers(case.dtype, rng) for _ in range(case.count)]
    if case.count == 1:
        return result
    first = [x[:24] for x in result] if case.count == 2 else [x[:8] for x in result]
    grids = np.meshgrid(*first)
    return [np.concatenate([rng.permutation(x), g.ravel()]) for x, g in zip(result, grids, strict=True)]


def evaluated(primitive: Any, *arrays: Any, **params: Any) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(primitive.eval(*arrays, **params))


def compare(case: Case, found: np.ndarray, args: list[np.ndarray]) -> str:
    """What is wrong with a result, if anything."""
    expected = evaluated(case.primitive, *args, **case.params)
    if found.dtype != expected.dtype:
        return f"{case.key} returns {found.dtype}, not {expected.dtype}"
    budget = case.primitive.ulp.get(case.dtype.name, case.primitive.ulp[""])
    if case.dtype.kind == "c" and budget:
        apart = complex_distance(case, found, expected, args)
    elif budget and found.dtype != np.bool_:
        apart = float_distance(case, found, expected, args)
    else:
        # Which of two zeros is the greater NumPy leaves open, and what a nan is where there is none.
        signed = case.primitive.name not in ("max", "min", "clamp") and case.dtype.name[:6] not in ("float4", "float6")
        apart, budget = np.where(same_bits(found, expected, zeros=signed), 0.0, np.inf), 0.0
    worst = int(np.argmax(apart))
    if apart[worst] <= budget:
        return ""
    return f"{case.key}{[x[worst] for x in args]} = {found[worst]}, not {expected[worst]}: {apart[worst]} > {budget}"


def float_distance(case: Case, found: np.ndarray, expected: np.ndarray, args: list[np.ndarray]) -> np.ndarray:
    """In units of the last place. `eval` itself is inexact, so it is asked in float64 where that is more."""
    if case.primitive.name == "erf_inv" and case.dtype != dtypes.float64:
        return units_in_the_last_place(found, expected)  # its float32 polynomial is its definition
    if case.dtype == dtypes.float64:
        # NumPy and SciPy err too, SciPy most at denormal numbers; the exact test is in test_math_accuracy.
        special = case.primitive.name in SPECIAL
        slack, least = (1e-12, 1e-12) if special else (9e-16, 5e-324)
        near = np.isclose(found, expected, rtol=slack, atol=least, equal_nan=True)
        return np.where(near | (special & (np.abs(args[0]) < 1e-307)), 0.0, np.inf)
    with np.errstate(all="ignore"):
        exact = evaluated(case.primitive, *(x.astype(np.float64) for x in args), **case.params)
        if case.dtype.itemsize == 1:  # few numbers, far apart: only rounding decides
            return np.where(same_bits(found, exact.astype(np.float32).astype(case.dtype), zeros=False), 0.0, np.inf)
    return units_in_the_last_place(found, exact)


def complex_distance(case: Case, found: np.ndarray, expected: np.ndarray, args: list[np.ndarray]) -> np.ndarray:
    """Relative to the magnitude, in units of the last place of the parts. Infinities, nan and zeros are the same."""
    limits = np.finfo(case.dtype)
    with np.errstate(all="ignore"):
        # Products and quotients are made of parts of their own dtype, all else is computed in complex128.
        short = case.primitive.name in ("mul", "div", "square", "integer_pow")
        wide = args if short else [x.astype(np.complex128) for x in args]
        exact = evaluated(case.primitive, *wide, **case.params).astype(np.complex128)
        size = np.maximum(np.abs(exact), limits.tiny)
        apart = np.abs(found.astype(np.complex128) - exact) / (size * limits.eps)
        usual = np.isfinite(expected) & np.isfinite(exact) & (size < limits.max)
        if case.primitive.name == "pow":  # its angle is the exponent times a logarithm, and so is the error of that
            usual &= np.abs(args[1] * np.log(args[0])) < 100
            return np.where(usual, np.where(np.isnan(apart), np.inf, apart), 0.0)
        unlike = np.zeros(found.shape, bool)
        for a, b in ((found.real, expected.real), (found.imag, expected.imag)):
            known = ~(np.isnan(a) & np.isnan(b))
            ends = ~np.isfinite(a) | ~np.isfinite(b)
            unlike |= known & ((ends & (a != b)) | ((a == b) & (np.signbit(a) != np.signbit(b))))
    return np.where(unlike | (usual & np.isnan(apart)), np.inf, np.where(usual, apart, 0.0))


def check(chosen: Iterable[Case], target: Target, rng: np.random.Generator) -> None:
    """Compile all in one module, run them, and tell of all that differ."""
    wanted = {case.key: case for case in chosen}
    assert wanted
    compiled = Compiled({key: case.map for key, case in wanted.items()}, target)
    wrong = []
    for key, case in wanted.items():
        args = operands(case, rng)
        wrong.append(compare(case, compiled(key, *args), args))
    assert not any(wrong), "\n" + "\n".join(w for w in wrong if w)


NAMES = elementwise_names()
TARGETS = [pytest.param(t, id=t.name) for t in (WIDE, SCALAR, AVX2)]


# ------------------------------------------------------------------------------------------------------------ tests


def test_every_primitive_is_tested() -> None:
    missing = [
        name
        for name in {*NAMES, *ITERATED}
        if name not in ("stop_gradient", "name", "device_put", "copy", "stage", "square", "clamp")
        and not hasattr(Lanes, name)
    ]
    assert not missing
    with pytest.raises(InternalError, match="dot_general"):
        function = Module().function("f", void, [])
        lanes = Lanes(function, 4)
        lanes.apply("dot_general", [lanes.constant(1.0, dtypes.float32)] * 2, {})


@pytest.mark.parametrize("kinds", ["biu", "f", "c"])
def test_lanes_match_eval(kinds: str, rng: np.random.Generator) -> None:
    check(cases(NAMES, [d for d in MAIN if dtypes.kind(d) in kinds]), WIDE, rng)


@pytest.mark.parametrize("target", [pytest.param(t, id=t.name) for t in (SCALAR, AVX2)])
def test_other_widths_match(target: Target, rng: np.random.Generator) -> None:
    check(cases(NAMES, FEW), target, rng)


def test_small_types(rng: np.random.Generator) -> None:
    check(cases([n for n in NAMES if n in OF_SMALL], SMALL), WIDE, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_primitives_on_all_machines(target: Target, rng: np.random.Generator) -> None:
    check(cases(NAMES, DTYPES.values()), target, rng)


def conversion(source: np.dtype[Any], target: np.dtype[Any]) -> Map:
    return Map(lambda lanes, x: lanes.apply("convert_element_type", [x], {"new_dtype": target}), (source,))


def check_conversions(pairs: Iterable[tuple[Any, Any]], target: Target, rng: np.random.Generator) -> None:
    primitive: Any = lookup("convert_element_type")
    chosen = {f"{a.name} to {b.name}": (a, b) for a, b in pairs}
    compiled = Compiled({key: conversion(a, b) for key, (a, b) in chosen.items()}, target)
    wrong = []
    for key, (a, b) in chosen.items():
        x = numbers(a, rng)
        try:
            expected = evaluated(primitive, x, new_dtype=b)
        except TypeError:  # NumPy has no conversion between some of the smallest types
            continue
        found = compiled(key, x)
        same = same_bits(found, expected, zeros=b.name[:6] not in ("float4", "float6"))
        wrong += [f"{key}: {x[i]} becomes {found[i]}, not {expected[i]}" for i in np.flatnonzero(~same)[:1]]
    assert not wrong, "\n" + "\n".join(wrong)


def test_conversions(rng: np.random.Generator) -> None:
    wide = [(a, b) for a in MAIN for b in MAIN if a != b]
    small = [(a, b) for s in SMALL for a, b in ((s, dtypes.float32), (dtypes.float32, s), (dtypes.int32, s), (s, s))]
    check_conversions(wide + small, WIDE, rng)


@pytest.mark.parametrize("target", [pytest.param(t, id=t.name) for t in (SCALAR, AVX2)])
def test_conversions_in_other_widths(target: Target, rng: np.random.Generator) -> None:
    check_conversions([(a, b) for a in FEW for b in FEW if a != b], target, rng)


@pytest.mark.slow
def test_all_conversions(rng: np.random.Generator) -> None:
    check_conversions([(a, b) for a in DTYPES.values() for b in DTYPES.values()], WIDE, rng)


def test_every_float32_near_a_tie_is_rounded_as_numpy_does(rng: np.random.Generator) -> None:
    """Random bits rarely are halfway between two short floats, so halfway numbers and their neighbours are made."""
    floats = [d for d in DTYPES.values() if dtypes.kind(d) == "f" and d.itemsize < 4]
    compiled = Compiled({d.name: conversion(dtypes.float32, d) for d in floats}, WIDE)
    for dtype in floats:
        codes = np.arange(1 << min(8 * dtype.itemsize, 16), dtype=np.uint16 if dtype.itemsize == 2 else np.uint8)
        with np.errstate(all="ignore"):
            known = np.sort(codes.view(dtype).astype(np.float32))
            known = known[np.isfinite(known)]
            middle = (known[1:].astype(np.float64) + known[:-1]) * 0.5
            middle = np.concatenate([middle, [2.0 * known[-1] - known[-2]]]).astype(np.float32)
            x = np.concatenate(
                [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
            )
            expected = x.astype(dtype)
        found = compiled(dtype.name, x)
        same = same_bits(found, expected)
        assert same.all(), (dtype, x[~same][:3], found[~same][:3], expected[~same][:3])


def test_bits_read_as_another_type(rng: np.random.Generator) -> None:
    pairs = [
        (a, b)
        for a in DTYPES.values()
        for b in DTYPES.values()
        if dtypes.kind(a) in "iuf"
        and dtypes.kind(b) in "iuf"
        and dtypes.itemsize_bits(a) == dtypes.itemsize_bits(b) >= 8
    ]
    maps = {f"{a.name} as {b.name}": (a, b) for a, b in pairs}
    compiled = Compiled(
        {
            k: Map(lambda lanes, x, b=b: lanes.apply("bitcast_convert_type", [x], {"new_dtype": b}), (a,))
            for k, (a, b) in maps.items()
        },
        WIDE,
    )
    for key, (a, b) in maps.items():
        x = numbers(a, rng)
        with np.errstate(all="ignore"):
            # A conversion of float16 to float32 makes a nan quiet.
            unknown = np.isnan(x.astype(np.float32)) if a == dtypes.float16 else np.zeros(len(x), bool)
        assert (same_bits(compiled(key, x), x.view(b)) | unknown).all(), key


def test_select_n(rng: np.random.Generator) -> None:
    primitive: Any = lookup("select_n")
    whiches = [np.array(v) for v in (rng.integers(0, 2, 60) > 0, rng.integers(-2, 5, 60).astype(np.int32))]
    whiches += [rng.integers(0, 5, 60).astype(np.uint8), rng.integers(0, 1 << 63, 60, dtype=np.uint64)]
    chosen = {}
    for which in whiches:
        for dtype in FEW:
            cases_values = [numbers(dtype, rng)[:60] for _ in range(2 if which.dtype == np.bool_ else 3)]
            chosen[f"{which.dtype} {dtype.name}"] = (which, cases_values)
    maps = {
        key: Map(lambda lanes, *xs: primitive.emit(lanes, *xs), (which.dtype, *(c.dtype for c in args)))
        for key, (which, args) in chosen.items()
    }
    compiled = Compiled(maps, WIDE)
    for key, (which, args) in chosen.items():
        assert same_bits(compiled(key, which, *args), np.asarray(primitive.eval(which, *args))).all(), key


def test_powers_with_integer_exponents(rng: np.random.Generator) -> None:
    primitive: Any = lookup("pow")
    bases = [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.complex64]
    exponents = [dtypes.int32, dtypes.uint32, DTYPES["int8"]]
    maps = {
        f"{a.name} {b.name}": Map(lambda lanes, x, y: primitive.emit(lanes, x, y), (a, b))
        for a in bases
        for b in exponents
    }
    compiled = Compiled(maps, WIDE)
    for key, item in maps.items():
        a, b = item.operands
        x = np.concatenate([rng.normal(size=64), [0.0, -0.0, np.inf, 1.0, -1.0, 2.0]]).astype(a)
        y = np.concatenate([rng.integers(0 if dtypes.kind(b) == "u" else -9, 9, 64), [0, 3, 2, 100, 99, 16]]).astype(b)
        found, expected = compiled(key, x, y), evaluated(primitive, x, y)
        if a.kind == "c":
            usual = np.isfinite(expected) & (x != 0)
            np.testing.assert_allclose(found[usual], expected[usual], rtol=1e-6)
        else:
            assert (units_in_the_last_place(found, expected.astype(np.float64)) <= 2).all(), key


def test_constants_and_loops_carry_lanes() -> None:
    f = Module().function("f", void, [])
    lanes = Lanes(f, 8)
    for dtype in DTYPES.values():
        result = lanes.constant(1, dtype)
        assert result.dtype == dtype and result.width == 8 and len(result.parts) == 1 + (dtypes.kind(dtype) == "c")
        again = result.with_parts(result.parts)
        assert again.parts == result.parts and again.dtype == dtype
    assert lanes.constant(3, dtypes.int32).wide_integer(f).type is vector(i64, 8)


@pytest.mark.parametrize(
    ("triple", "cpu", "width", "call"),
    [
        ("aarch64-unknown-linux-gnu", "neoverse-n1", 4, r"\bbl\s+(\S+)"),
        ("nvptx64-nvidia-cuda", "sm_80", 1, r"\.extern \.func.*?(\w+)\s*\("),
    ],
    ids=["aarch64", "nvptx64"],
)
def test_other_machines_call_no_library_functions(triple: str, cpu: str, width: int, call: str) -> None:
    """The same text is code for other machines, without functions of a library that may not be there."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = Module(triple=triple)
    few = [DTYPES[name] for name in ("float32", "float16", "bfloat16", "int32")]
    for i, case in enumerate(cases([*NAMES, *sorted(ITERATED)], few)):
        write_map(module, f"map{i}", case.map, Target("other", width))
    parsed = binding.parse_assembly(module.text())
    parsed.verify()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=1, reloc="pic", codemodel="small")
    called = set(re.findall(call, machine.emit_assembly(parsed)))
    assert all(name.strip('"').startswith("weft.") for name in called), called
