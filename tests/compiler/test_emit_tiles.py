"""Contractions by tile registers: interpreted everywhere, compiled for a machine that has them, and run where this one
does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import assert_same, compiled, interpreted
from weft import lax
from weft.base.errors import InternalError
from weft.compiler.compile import compile_program
from weft.compiler.emit.contractions import tiles
from weft.compiler.emit.dispatch import emit
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, TileMatmul
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.tiles import tile_matmul
from weft.compiler.kernel.verifier import verify
from weft.compiler.program.cost import launches
from weft.compiler.target.cpu import link, tiles as cpu_tiles
from weft.compiler.target.cpu.lower import lower
from weft.compiler.target.cpu.targets import host, sapphire_rapids
from weft.ir.interpreter import run

BFLOAT16 = ml_dtypes.bfloat16
# Both operands packed first; or the left one read where it is, and the right one packed by the tasks that need it.
TILED, PACKING = ["pack", "tiles"], ["tiles"]


def whole(*shape: int, dtype: Any, seed: int = 0) -> np.ndarray:
    """Integers of which all sums are exact."""
    rng = np.random.default_rng(seed)
    if dtype == BFLOAT16:
        return rng.integers(-8, 9, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def kernels_of(function: Callable[..., Any], *args: np.ndarray) -> list[str]:
    """Run every fusion of a function with tiles; return the names of the kernels of its contraction."""
    names: list[str] = []
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], replace(AVX512, tiles=True))
        if equation.params["kind"] == "contraction":
            names += [launch.kernel.name for launch in emission.launches]
        got = launched(emission, operands, jaxpr, interpreted)
        for one, other in zip(got, run(jaxpr, operands), strict=True):
            np.testing.assert_array_equal(one.astype(np.float64), np.asarray(other).astype(np.float64))
        if host().tiles:
            native = launched(emission, operands, jaxpr, lambda kernel, arrays: compiled(kernel, arrays, host()))
            for one, other in zip(native, got, strict=True):
                assert_same(one, other)
    return names


LAYOUTS: dict[str, tuple[Any, bool, bool]] = {
    "nn": ((((1,), (0,)), ((), ())), False, False),
    "nt": ((((1,), (1,)), ((), ())), False, True),
    "tn": ((((0,), (0,)), ((), ())), True, False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [BFLOAT16, np.int8, np.uint8], ids=lambda d: np.dtype(d).name)
def test_layouts_and_dtypes(layout: str, dtype: Any) -> None:
    dimensions, turned_left, turned_right = LAYOUTS[layout]
    result = np.float32 if dtype == BFLOAT16 else np.int32
    for m, k, n in ((64, 128, 32), (57, 101, 61)):
        a, b = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype, seed=1)
        a, b = a.T.copy() if turned_left else a, b.T.copy() if turned_right else b
        contract = lambda a, b: lax.dot_general(a, b, dimensions, preferred_element_type=result)
        assert kernels_of(contract, a, b) == (TILED if turned_left or m % 2 else PACKING)


@pytest.mark.parametrize("small", [0, 64 << 10], ids=["panel by panel", "all panels first"])
@pytest.mark.parametrize("dtype", [BFLOAT16, np.int8], ids=lambda d: np.dtype(d).name)
def test_tasks_that_pack(dtype: Any, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks along both sides, tasks that do not fill a side, one tile instead of two, edges of the right side,
    a left operand with rows further apart than they are long, batches."""
    monkeypatch.setattr(tiles, "SMALL_PANELS", small)
    monkeypatch.setattr(tiles, "ENOUGH_TASKS", ((32, 1 << 12),))
    monkeypatch.setattr(tiles, "MANY_TASKS", 4)
    monkeypatch.setattr(tiles, "ONE_TASK", 0)
    contract = lambda a, b: lax.dot(a, b, preferred_element_type=np.float32 if dtype == BFLOAT16 else np.int32)
    for m, k, n in ((160, 64, 96), (16, 128, 72)):
        a, b = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype, seed=1)
        assert kernels_of(contract, a, b) == kernels_of(lambda a, b: contract(a, b) * 2, a, b) == PACKING
    a, b = whole(2, 64, 128, dtype=dtype), whole(2, 64, 32, dtype=dtype, seed=1)
    assert kernels_of(lambda a, b: contract(a[1, :, 64:], b[0]), a, b) == PACKING
    batched = (((2,), (1,)), ((0,), (0,)))
    result = np.float32 if dtype == BFLOAT16 else np.int32
    many = lambda a, b: lax.dot_general(a[:, :, :64], b, batched, preferred_element_type=result)
    assert kernels_of(many, a, b) == PACKING
    assert kernels_of(lambda a, b: many(a, b) + 1, a, b) == PACKING
    monkeypatch.setattr(tiles, "LAUNCH_BYTES", -(1 << 40))
    assert kernels_of(many, a, b) == TILED


def test_tasks_are_what_threads_share() -> None:
    """Of small matrices 16, of large ones at most 64 pieces; of tiny ones one."""
    target = replace(sapphire_rapids(), tiles=True)
    for size, dtype, tasks, grain in (
        (128, np.int8, 1, 0),
        (256, np.int8, 16, 1),
        (256, BFLOAT16, 16, 1),
        (512, BFLOAT16, 32, 1),
        (4096, np.int8, 128, 2),
    ):
        result = np.float32 if dtype == BFLOAT16 else np.int32
        x = np.zeros((size, size), dtype)
        contract = lambda a, b, result=result: lax.dot(a, b, preferred_element_type=result)
        program = compile_program(weft.make_jaxpr(contract)(x, x).jaxpr, (), target).program
        launch = [step for step, _ in launches(program.steps)][-1]
        assert (launch.kernel.count, launch.grain) == (tasks, grain)


def test_signs_may_differ() -> None:
    a, b = whole(64, 64, dtype=np.int8), whole(64, 64, dtype=np.uint8, seed=1)
    for pair in ((a, b), (b, a)):
        assert kernels_of(lambda a, b: lax.dot(a, b, preferred_element_type=np.int32), *pair) == PACKING


def test_batch_dimensions_prologues_and_epilogues() -> None:
    a, b = whole(3, 50, 64, dtype=BFLOAT16), whole(3, 64, 60, dtype=BFLOAT16, seed=1)
    assert kernels_of(lambda a, b: a @ b, a, b) == TILED
    assert kernels_of(lambda a, b: wnp.einsum("bmk,kn->mbn", a, b[0]), a, b) == TILED
    assert kernels_of(lambda a, b: wnp.einsum("bmk,bkn->mn", a, b), a, b) == TILED
    assert kernels_of(lambda a, b, c: wnp.maximum(-a @ b[0] + c, 0), a, b, whole(60, dtype=BFLOAT16)) == TILED
    a, b, c = (whole(64, 64, dtype=BFLOAT16, seed=seed) for seed in range(3))
    assert kernels_of(lambda a, b, c: wnp.maximum(a @ -b + c, 0), a, b, c) == PACKING
    assert kernels_of(lambda a, b: a + a @ b, a, b) == PACKING


def test_large_k_is_split_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = lambda a, b: lax.dot(a, b, preferred_element_type=np.float32)
    assert "accumulate" in last_kernel(contract, whole(60, 6200, dtype=BFLOAT16), whole(6200, 50, dtype=BFLOAT16))
    # Chunks of the least size, so that few elements make several.
    a, b = whole(60, 700, dtype=BFLOAT16), whole(700, 50, dtype=BFLOAT16, seed=1)
    assert "accumulate" not in last_kernel(contract, a, b)
    monkeypatch.setattr(tiles, "CHUNK_BYTES", 1)
    assert "accumulate" in last_kernel(contract, a, b)
    assert kernels_of(contract, a, b) == TILED


def last_kernel(function: Callable[..., Any], *args: np.ndarray) -> str:
    """The text of the kernel that a contraction ends with."""
    (equation, _) = fusions_with_operands(function, *args)[0]
    emission = emit("contraction", equation.params["jaxpr"], equation.params["hero"], replace(AVX512, tiles=True))
    return to_text(emission.launches[-1].kernel)


def test_small_contractions_do_not_use_tiles() -> None:
    assert "tiles" not in kernels_of(lambda a, b: a @ b, whole(4, 256, dtype=BFLOAT16), whole(256, 256, dtype=BFLOAT16))
    assert "tiles" not in kernels_of(lambda a, b: a @ b, whole(16, 32, dtype=BFLOAT16), whole(32, 16, dtype=BFLOAT16))


def test_the_instructions_are_those_of_the_machine() -> None:
    (equation, _) = fusions_with_operands(lambda a, b: a @ b, *[whole(64, 64, dtype=BFLOAT16)] * 2)[0]
    emission = emit("contraction", equation.params["jaxpr"], equation.params["hero"], replace(AVX512, tiles=True))
    machine = sapphire_rapids()
    (kernel,) = (launch.kernel for launch in emission.launches if launch.kernel.name == "tiles")
    text = link.assembly(lower(kernel, machine), machine)
    assert text.count("tdpbf16ps") == 4 and text.count("ldtilecfg") == 1 and text.count("tilerelease") == 1
    # Sums are never denormal, so the instruction that takes denormals for zeros rounds them; nothing else does.
    assert "vcvtneps2bf16" in text and cpu_tiles.sums(kernel)
    (equation, _) = fusions_with_operands(lambda a, b: (a @ b) * b, *[whole(64, 64, dtype=BFLOAT16)] * 2)[0]
    emission = emit("contraction", equation.params["jaxpr"], equation.params["hero"], replace(AVX512, tiles=True))
    text = link.assembly(lower(emission.launches[-1].kernel, machine), machine)
    assert "vcvtneps2bf16" in text and "vcmpunordps" in text


def test_sums_of_extreme_numbers_are_rounded_as_others_are() -> None:
    rng = np.random.default_rng(0)
    ends = np.array([0, -0.0, 1e-38, -1e-39, 3e-20, 1e20, 3e38, 1, -1 / 3]).astype(BFLOAT16)
    a, b = (rng.choice(ends, (64, 64), p=[0.4, 0.4, 0.04, 0.04, 0.04, 0.005, 0.005, 0.04, 0.03]) for _ in range(2))
    a[:3, 0] = np.inf, -np.inf, np.nan
    for equation, operands in fusions_with_operands(lambda a, b: a @ b, a, b):
        jaxpr = equation.params["jaxpr"]
        emission = emit("contraction", jaxpr, equation.params["hero"], replace(AVX512, tiles=True))
        (got,) = launched(emission, operands, jaxpr, interpreted)
        assert np.isnan(got).any() and np.isinf(got).any() and np.isfinite(got).any()
        if host().tiles:
            (native,) = launched(emission, operands, jaxpr, lambda kernel, arrays: compiled(kernel, arrays, host()))
            assert_same(native, got)


def test_what_is_stored_besides_sums_may_be_denormal() -> None:
    k = KernelBuilder("tiles")
    a, b = k.buffer("a", np.uint16, 512), k.buffer("b", np.uint16, 512)
    c, d = (k.buffer(name, np.float32, 256, written=True) for name in "cd")
    for out in (c, d):
        k.matmul(TileMatmul(out, Index(), 16, a, Index(), 0, 32, 512, b, Index(), 0, 1, 1, 1, (BFLOAT16,) * 2))
    with k.loop(256, kind=LoopKind.LANES, width=16) as i:
        k.store(d, Index.of(i), k.load(c, Index.of(i)))
    assert cpu_tiles.sums(k.finish()) == {c}


# -- what a tile is --------------------------------------------------------------------------------------------------


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return tile_matmul(np.zeros((16, 16), np.float32), left, right, (np.dtype(BFLOAT16),) * 2)


def test_even_and_odd_products_are_summed_separately() -> None:
    left, right = np.zeros((16, 32), BFLOAT16), np.zeros((16, 16, 2), BFLOAT16)
    # 2^24 + 1 rounds to 2^24, so the sum of the even ones loses what is added one by one; the odd ones keep it.
    left[0, 0], left[0, 2:8:2], left[0, 1:8:2] = 2.0**24, 1.0, 1.0
    right[:4, 0, :] = 1.0
    total = product(left, right)
    assert total[0, 0] == 2.0**24 + 4
    assert not total[1:].any()


def test_denormals_are_zeros() -> None:
    left, right = np.zeros((16, 32), BFLOAT16), np.zeros((16, 16, 2), BFLOAT16)
    left[0, 0], right[0, 0, 0] = 1e-39, 1e10
    left[1, 0], right[0, 1, 0] = 1e-20, 1e-20
    total = product(left, right)
    assert total[0, 0] == 0 and total[1, 1] == 0
    assert total[1, 0] == np.float32(BFLOAT16(1e-20)) * np.float32(BFLOAT16(1e10))


def tile_kernel(steps: int = 1, size: int = 512, out: int = 256, lanes: bool = False, dtype: Any = BFLOAT16) -> Any:
    k = KernelBuilder("tiles")
    a, b = k.buffer("a", np.uint16, size), k.buffer("b", np.uint16, size)
    c = k.buffer("c", np.float32, out, written=True)
    statement = TileMatmul(c, Index(), 16, a, Index(), 0, 32, 512, b, Index(), 0, 1, 1, steps, (np.dtype(dtype),) * 2)
    if lanes:
        with k.loop(16, kind=LoopKind.LANES, width=16):
            k.matmul(statement)
    else:
        k.matmul(statement)
    return k.finish()


@pytest.mark.parametrize(
    "wrong", [{"steps": 2}, {"size": 511}, {"out": 255}, {"lanes": True}, {"dtype": np.float32}], ids=str
)
def test_the_verifier_knows_tiles(wrong: dict[str, Any]) -> None:
    verify(tile_kernel())
    with pytest.raises(InternalError):
        verify(tile_kernel(**wrong))
