"""Operations that only kernels have: a fused multiply-add and the threefry hash."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler import kernels
from tests.compiler.emitting import check, close
from tests.compiler.host import run_passes
from tests.compiler.running import MACHINES, assert_compiles
from weft.base.errors import InternalError
from weft.base.settings import threefry_partitionable
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Compute, Kernel, LoopKind, Value
from weft.compiler.kernel.operations import fma
from weft.compiler.kernel.verifier import verify
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.lower import lower
from weft.compiler.target.cpu.targets import host
from weft.primitives.random.threefry import threefry_arrays

FLOATS = {"float32": np.float32, "float64": np.float64}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5, 2.0**-149, 2.0**-126, 5e-324, 2.0**-1022, 3e38, 1e308]


def triples(dtype: Any, rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """Numbers of all sizes, sums that nearly cancel, sums near the middle between two floats, and all edges."""
    nmant = np.finfo(dtype).nmant
    with np.errstate(all="ignore"):
        words = [rng.integers(0, 256, size * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype) for _ in range(3)]
        a, b = ((rng.integers(1 << nmant, 2 << nmant, size) * 2.0**-nmant).astype(dtype) for _ in range(2))
        product = a * b
        cancelling = [a, b, -product]
        # The product has a bit just below half a unit of c, or of its own result.
        near_one = (1 + 2.0 ** -rng.integers(1, nmant + 1, size)).astype(dtype)
        half = [a, near_one, np.ldexp(b, rng.integers(-70, 70, size))]
        least = np.finfo(dtype).minexp
        denormal = [np.ldexp(a, -60), np.ldexp(b, least + 60 - rng.integers(0, 60, size))]
        denormal.append(np.ldexp(product, least - rng.integers(0, 40, size)))
        edges = [g.ravel() for g in np.meshgrid(*[np.array(EDGES).astype(dtype)] * 3)]
    parts = zip(words, cancelling, half, denormal, edges, strict=True)
    return [np.concatenate([np.asarray(x, dtype) for x in part]) for part in parts]


def rounded_once(a: float, b: float, c: float, dtype: Any) -> float:
    """By fractions: the nearest float, the even one of two; from the middle beyond the greatest on it is infinite."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    limits = np.finfo(dtype)
    if abs(exact) >= Fraction(2) ** int(limits.maxexp) - Fraction(2) ** int(limits.maxexp - limits.nmant - 2):
        return np.inf if exact > 0 else -np.inf
    near = dtype(exact.numerator / exact.denominator)
    near = max(min(near, limits.max), limits.min)
    found = [f for f in (np.nextafter(near, dtype(-np.inf)), near, np.nextafter(near, dtype(np.inf))) if np.isfinite(f)]
    distances = [abs(Fraction(float(f)) - exact) for f in found]
    best = [f for f, d in zip(found, distances, strict=True) if d == min(distances)]
    word = np.uint32 if dtype is np.float32 else np.uint64
    return float(min(best, key=lambda f: int(f.view(word)) & 1))


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_fma_is_rounded_once(dtype: Any, rng: np.random.Generator) -> None:
    a, b, c = triples(dtype, rng, 400)
    found = fma(a, b, c)
    with np.errstate(all="ignore"):
        plain = a * b + c
        factors = np.isfinite(a) & np.isfinite(b)
        unusual = ~(factors & np.isfinite(c))
        wanted = np.where(factors, c, plain)
    # What is infinite or not a number has no digits to round.
    assert np.array_equal(found[unusual], wanted[unusual], equal_nan=True)
    twice = 0
    for i in np.flatnonzero(~unusual):
        with np.errstate(all="ignore"):
            once = rounded_once(float(a[i]), float(b[i]), float(c[i]), dtype)
        assert found[i] == once, (a[i], b[i], c[i])
        twice += found[i] != plain[i]
    assert twice > 100, "the samples do not show the difference to two roundings"


def test_signs_of_zeros() -> None:
    for dtype in FLOATS.values():
        tiny = np.finfo(dtype).smallest_subnormal
        a = np.array([0.0, -0.0, 0.0, 1.0, tiny, -tiny, tiny], dtype)
        b = np.array([1.0, 1.0, -1.0, -1.0, tiny, tiny, -tiny], dtype)
        c = np.array([0.0, -0.0, 0.0, 1.0, -0.0, 0.0, -0.0], dtype)
        assert np.signbit(fma(a, b, c)).tolist() == [False, True, False, False, False, True, True]


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("machine", MACHINES)
def test_machines_fuse_as_the_interpreter_does(machine: str, dtype: Any, rng: np.random.Generator) -> None:
    target = MACHINES[machine]()
    for width in (1, 16):
        args = triples(dtype, rng, 50 * width)
        size = len(args[0])
        kernel = kernels.flat_map("fma", (dtype,) * 3, dtype, size, width)
        assert_compiles(kernel, [*args, np.zeros(size, dtype)], target)


def test_fma_is_one_instruction() -> None:
    kernel = kernels.flat_map("fma", (np.float32,) * 3, np.float32, 1024, 16)
    assert "llvm.fma.v16f32" in lower(kernel, host())


def test_multiplications_and_additions_are_not_fused() -> None:
    k = KernelBuilder("short")
    half, whole = k.constant(1, np.float16), k.constant(1, np.int32)
    single, double = k.constant(1, np.float32), k.constant(1, np.float64)
    for operands in ([half] * 3, [whole] * 3, [single, single, double], [single, single]):
        with pytest.raises(InternalError, match="fma"):
            k.compute("fma", *operands)
    constants = k.finish().body
    assert k.compute("fma", double, double, double).dtype == np.float64
    wrong = Kernel("wrong", (), (*constants, Compute(Value(np.dtype(np.float32)), "fma", (double,) * 3)))
    with pytest.raises(InternalError, match="fma does not return float32"):
        verify(wrong)


def ciphers(size: int, width: int, both: bool = True) -> Kernel:
    """The cipher of counts under one key, one word or both."""
    k = KernelBuilder("ciphers")
    keys = k.buffer("keys", np.uint32, 2)
    counts = k.buffer("counts", np.uint32, size)
    written = [k.buffer(f"y{n}", np.uint32, size, written=True) for n in range(1 + both)]
    with k.loop(size, kind=LoopKind.LANES, width=width) as i:
        words = [k.load(keys, 0), k.load(keys, 1), k.constant(7, np.uint32), k.load(counts, i)]
        for part, y in enumerate(written):
            k.store(y, i, k.scalars.threefry2x32(*words, part=part))
    return k.finish()


@pytest.mark.parametrize("machine", MACHINES)
def test_threefry_matches_eval(machine: str, rng: np.random.Generator) -> None:
    size = 101
    keys = rng.integers(0, 1 << 32, 2, dtype=np.uint32)
    counts = rng.integers(0, 1 << 32, size, dtype=np.uint32)
    for width in (1, 8, 16):
        arrays = [keys, counts, np.zeros(size, np.uint32), np.zeros(size, np.uint32)]
        result = assert_compiles(ciphers(size, width), arrays, MACHINES[machine]())
        expected = threefry_arrays(keys[0], keys[1], np.uint32(7), counts)
        np.testing.assert_array_equal(result[2], expected[0])
        np.testing.assert_array_equal(result[3], expected[1])


def test_both_words_are_computed_once() -> None:
    """20 rounds have 20 rotations, for one word as for two."""
    for both in (False, True):
        text = lower(ciphers(1024, 16, both), host())
        assert len(re.findall(r"call <16 x i32> @llvm\.fshl", text)) == 20
    code = link.assembly(lower(ciphers(1024, 16), host()), host())
    assert "call" not in code


def test_a_word_computed_in_a_branch_is_not_available_after_it(rng: np.random.Generator) -> None:
    k = KernelBuilder("branch")
    x, y = k.buffer("x", np.uint32, 8), k.buffer("y", np.uint32, 8, written=True)
    with k.loop(4) as i:
        with k.when(k.compute("lt", k.load(x, i), k.constant(1 << 31, np.uint32))):
            words = [k.load(x, i + 4)] * 4
            k.store(y, i, k.scalars.threefry2x32(*words, part=0))
        words = [k.load(x, i + 4)] * 4
        k.store(y, i + 4, k.scalars.threefry2x32(*words, part=1))
    args = rng.integers(0, 1 << 32, 8, dtype=np.uint32)
    assert_compiles(k.finish(), [args, np.zeros(8, np.uint32)], host())


@pytest.mark.parametrize("partitionable", [True, False])
def test_random_numbers_are_few_equations(partitionable: bool) -> None:
    """A draw is the hash of counts and a conversion of it; its kernels return the bits of `eval`."""
    seed = np.int32(7)
    with threefry_partitionable(partitionable):

        def draw(seed: Any) -> Any:
            key = weft.random.key(seed)
            more = weft.random.split(key, 3)
            return weft.random.bits(key, (5, 21)), weft.random.key_data(more), weft.random.uniform(more[1], (40,))

        jaxpr = run_passes(weft.make_jaxpr(draw)(seed), check=True)
        counted = Counter(e.primitive.name for e in jaxpr.eqns)
        assert counted["threefry2x32"] == 3 and len(jaxpr.eqns) < 60
        assert check(draw, seed)
        assert check(lambda s: weft.random.normal(weft.random.key(s), (1000,)), seed, compare=close(1e-6))
