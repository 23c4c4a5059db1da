"""Sorts and top_k: their kernels return the bits of `eval`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.emitting import check, fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import assert_same, compiled
from weft.base import dtypes
from weft.base.settings import num_threads
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.sorts import sort as emitter, sort_radix, sort_split
from weft.compiler.target.cpu.targets import host
from weft.primitives.movement.sort import sort, top_k

SHORT_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu")
KEYS = ("bool", "int8", "uint8", "int4", "uint2", "int16", "int32", "uint32", "float32", *SHORT_FLOATS)
WIDE = ("int64", "uint64", "float64")


def elements(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Numbers with ties, zeros of both signs, infinities and nans, where the dtype has them."""
    rng = np.random.default_rng(seed)
    kind, result = dtypes.kind(dtypes.as_dtype(dtype)), dtypes.as_dtype(dtype)
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        info = dtypes.iinfo(result)
        whole = (
            rng.integers(
                info.min, int(info.max) + 1, shape, dtype=np.uint64 if kind == "u" else np.int64, endpoint=False
            )
            if info.bits < 64
            else rng.integers(0, 2**63, shape).astype(np.uint64) * np.uint64(2)
        )
        few = rng.integers(0, 2, shape)
        return np.where(rng.random(shape) < 0.3, few.astype(whole.dtype), whole).astype(result)
    if kind == "c":
        part = "float32" if result == np.complex64 else "float64"
        whole = np.empty(shape, result)
        whole.real, whole.imag = elements(part, *shape, seed=seed), elements(part, *shape, seed=seed + 1)
        return whole
    x = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 2, shape)
    special = rng.choice([0.0, -0.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.4, special, x).astype(result)


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert_same(got, want)


def check_sort(*operands: np.ndarray, dimension: int = 0, num_keys: int = 1, **options: Any) -> None:
    with weft.enable_x64(True):
        kinds = check(
            lambda *xs: sort(*xs, dimension=dimension, is_stable=True, num_keys=num_keys),
            *operands,
            compare=same,
            **options,
        )
    assert kinds == ["sort"]


def check_top_k(operand: np.ndarray, k: int, axis: int = 0, **options: Any) -> None:
    with weft.enable_x64(True):
        kinds = check(lambda x: top_k(x, k=k, axis=axis), operand, compare=same, **options)
    assert kinds == ["sort"]


@pytest.mark.parametrize("dtype", KEYS + WIDE + ("complex64", "complex128"))
def test_short_rows_of_every_dtype(dtype: str) -> None:
    check_sort(elements(dtype, 3, 21), dimension=1)


@pytest.mark.parametrize("dtype", KEYS + WIDE + ("complex64", "complex128"))
def test_long_rows_of_every_dtype(dtype: str) -> None:
    x = elements(dtype, 2, 140)
    check_sort(x, dimension=1, machines=("host",), interpret=dtype in ("float32", "int8", "complex128"))
    order = np.arange(280, dtype=np.int32).reshape(2, 140)
    check_sort(x, order, dimension=1, machines=("avx2",), interpret=False)


@pytest.mark.parametrize(
    "shape, dimension", [((17, 40), 0), ((3, 9, 21), 1), ((2, 5, 3), 1), ((1, 7, 1), 1), ((1,), 0)]
)
def test_every_dimension_of_short_rows(shape: tuple[int, ...], dimension: int) -> None:
    x = elements("float32", *shape)
    check_sort(x, dimension=dimension)
    check_sort(x, x[..., ::-1].copy(), dimension=dimension)


@pytest.mark.parametrize("shape, dimension", [((150, 3), 0), ((2, 140, 5), 1), ((19, 131), 1), ((1, 129), 1)])
def test_every_dimension_of_long_rows(shape: tuple[int, ...], dimension: int) -> None:
    x = elements("float32", *shape)
    check_sort(x, dimension=dimension, machines=("host",), interpret=False)
    check_sort(x, x[..., ::-1].copy(), x, dimension=dimension, machines=("host",), interpret=False)


@pytest.mark.parametrize("size", [20, 200])
def test_several_keys(size: int) -> None:
    few = np.random.default_rng(0).integers(0, 3, size).astype(np.int8)
    x, y, z = elements("float32", size), elements("float64", size, seed=1), elements("complex64", size, seed=2)
    options: dict[str, Any] = {"interpret": size < 100}
    check_sort(few, np.sign(x), y, num_keys=2, **options)
    check_sort(few, np.sign(y), x, z, num_keys=3, **options)
    check_sort(few, np.sign(z.real).astype(np.complex128), y, num_keys=3, **options)


@pytest.mark.parametrize("dtype", ["bool", "int4", "float16", "float8_e5m2", "float64", "complex128", "uint16"])
def test_values_are_permuted_exactly(dtype: str) -> None:
    key = np.random.default_rng(0).integers(0, 5, 160).astype(np.int32)
    check_sort(key, elements(dtype, 160), interpret=False)
    check_sort(key[:30], elements(dtype, 30))


def test_random_keys_are_permuted() -> None:
    order = np.array([3, 1, 2, 0], np.int32)
    words = np.arange(8, dtype=np.uint32).reshape(4, 2)

    def shuffled(x: Any, data: Any) -> Any:
        _, keys = sort(x, weft.random.wrap_key_data(data), dimension=0, is_stable=True, num_keys=1)
        return weft.random.key_data(keys)

    assert "sort" in check(shuffled, order, words)


def test_many_rows_are_split_for_threads() -> None:
    check_sort(elements("float32", 37, 150), dimension=1, interpret=False)
    check_sort(elements("float32", 37, 12), dimension=1, interpret=False)


def test_digits_that_are_all_equal_are_skipped() -> None:
    rng = np.random.default_rng(0)
    check_sort(rng.integers(0, 50, 400).astype(np.int32))
    check_sort(np.full(400, 7, np.int32), np.arange(400, dtype=np.int32))
    check_sort((rng.integers(0, 2, 300) << 20).astype(np.int64))


def test_long_arrays() -> None:
    x = np.random.default_rng(0).normal(size=40_000).astype(np.float32)
    x[::100], x[50::100], x[7] = 0.0, -0.0, np.nan
    check_sort(x, interpret=False)
    check_sort(x, np.arange(x.size, dtype=np.int32), interpret=False, machines=("host",))
    check_sort(x.astype(np.float64), x, x, interpret=False, machines=("host",))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float16", *WIDE])
def test_one_row_in_blocks_and_buckets(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_split, "LEAST", 300)
    for size in (300, 1001):
        x = elements(dtype, size)
        check_sort(x, interpret=dtype == "float32" and size == 300)
        check_sort(x, np.arange(size, dtype=np.int32), machines=("host",), interpret=False)
        check_sort(x, x.astype(np.float64), x, machines=("host",), interpret=False)


@pytest.mark.parametrize("low, high", [(5, 6), (0, 3), (-3, 1 << 12), (7, 1 << 20), (-(1 << 31), (1 << 31) - 1)])
def test_blocks_and_buckets_of_any_range(low: int, high: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_split, "LEAST", 300)
    x = np.random.default_rng(0).integers(low, high, 1000).astype(np.int32)
    check_sort(x, interpret=False)
    check_sort(x, np.arange(x.size, dtype=np.int32), interpret=False)
    check_sort(x.astype(np.int64) << 20, interpret=False, machines=("host",))
    y = np.sort(x)[::-1].copy()
    y[::7] = high - 1
    check_sort(y, interpret=False, machines=("host",))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "float64"])
def test_large_buckets_have_wider_digits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_split, "LEAST", 300)
    monkeypatch.setattr(sort_split, "MANY", 20)
    # One bucket with most elements, and others with few.
    x = np.concatenate([elements(dtype, 100), elements(dtype, 900, seed=1) / 64]).astype(dtype)
    check_sort(x, interpret=dtype == "float32")
    check_sort(x, np.arange(x.size, dtype=np.int32), interpret=False)
    check_sort(np.full(400, 7, dtype), interpret=False, machines=("host",))


def test_one_long_row_by_several_threads() -> None:
    x = elements("float32", 150_001)
    wanted = np.sort(x, kind="stable")
    for threads in (1, 2, 3):
        with num_threads(threads):
            same(np.asarray(weft.jit(weft.numpy.sort)(x)), wanted)
            same(np.asarray(weft.jit(weft.numpy.argsort)(x)), np.argsort(x, kind="stable").astype(np.int32))


def test_argsort() -> None:
    x = elements("float32", 4, 200)
    assert check(lambda v: weft.numpy.argsort(v, axis=1), x, compare=same, interpret=False)[-1] == "sort"


@pytest.mark.parametrize("shape, dimension", [((0,), 0), ((0, 3), 0), ((3, 0), 0), ((2, 0, 300), 2)])
def test_no_elements(shape: tuple[int, ...], dimension: int) -> None:
    check_sort(np.zeros(shape, np.float32), dimension=dimension)


def test_samples_of_the_primitives() -> None:
    for primitive in (sort, top_k):
        for sample in primitive.samples():
            check(lambda *xs, p=sample.params, primitive=primitive: primitive(*xs, **p), *sample.args, compare=same)


# ---------------------------------------------------------------------------------------------------------- k largest


@pytest.mark.parametrize("dtype", KEYS + WIDE)
def test_largest_of_every_dtype(dtype: str) -> None:
    check_top_k(elements(dtype, 2, 30), 5, axis=1, machines=("host",))
    check_top_k(elements(dtype, 2, 200), 5, axis=1, interpret=dtype == "float32")


@pytest.mark.parametrize("k", [1, 2, 8, 16, 17, 150, 200])
def test_largest_of_long_rows(k: int) -> None:
    check_top_k(elements("float32", 3, 200), k, axis=1, interpret=False)


@pytest.mark.parametrize("shape, axis", [((140, 37), 0), ((2, 150, 3), 1), ((30, 37), 0), ((2, 10, 3), 1), ((200,), 0)])
def test_largest_along_every_axis(shape: tuple[int, ...], axis: int) -> None:
    check_top_k(elements("float32", *shape), 4, axis=axis, interpret=len(shape) > 1 and shape[0] < 100)


@pytest.mark.parametrize("case", ["random", "equal", "rising", "falling", "in one lane", "nan"])
def test_a_few_more_of_very_long_rows(case: str) -> None:
    size = 1300
    x = {
        "random": elements("float32", size),
        "equal": np.zeros(size, np.float32),
        "rising": np.arange(size, dtype=np.float32),
        "falling": -np.arange(size, dtype=np.float32),
        "in one lane": np.where(np.arange(size) % 64 == 5, 1.0, 0.0).astype(np.float32) * np.arange(size),
        "nan": np.full(size, np.nan, np.float32),
    }[case]
    both = np.stack([x, x[::-1]]).astype(np.float32)
    check_top_k(both, 20, axis=1, interpret=case == "random", machines=("host",))
    check_top_k(both.T.copy(), 96, interpret=False, machines=("host", "avx2") if case == "random" else ("host",))


@pytest.mark.parametrize("shape", [(37, 9), (37, 150), (5, 40, 37)])
def test_rows_may_be_split_in_any_way(shape: tuple[int, ...]) -> None:
    x = elements("float32", *shape)
    for function in (
        lambda v: sort(v, dimension=1, is_stable=True, num_keys=1),
        lambda v: top_k(v, k=5, axis=1),
        lambda v: top_k(v, k=18 if shape[1] > 18 else 9, axis=1),
    ):
        ((fusion, operands),) = fusions_with_operands(function, x)
        jaxpr = fusion.params["jaxpr"]
        emission = emit("sort", jaxpr, fusion.params["hero"], AVX512)
        whole, parts = (
            launched(emission, operands, jaxpr, lambda kernel, arrays, n=n: compiled(kernel, arrays, host(), parts=n))
            for n in (1, 5)
        )
        for one, other in zip(whole, parts, strict=True):
            same(one, other)


def test_largest_of_nothing() -> None:
    check_top_k(np.zeros((3, 5), np.float32), 0, axis=1)
    check_top_k(np.zeros((0, 5), np.float32), 2, axis=1)


def test_the_algorithm_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    x = elements("float32", 3, 60)
    for ranked, selected in ((128, 16), (0, 16), (0, 0)):
        monkeypatch.setattr(emitter, "RANKED", ranked)
        monkeypatch.setattr(emitter, "SELECTED", selected)
        check_top_k(x, 7, axis=1)
        check_sort(x, dimension=1)


def test_indices_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_radix, "NARROW", 100)
    x = elements("float32", 2, 150)
    check_sort(x, dimension=1)
    check_sort(x, x, x[:, ::-1].copy(), x[::-1].copy(), dimension=1, interpret=False)
    check_top_k(x, 20, axis=1, interpret=False)


def test_machines_without_vectors() -> None:
    x = elements("float32", 3, 150)
    check_sort(x, dimension=1, machines=("scalar",), interpret=False)
    check_sort(x, x[::-1].copy(), dimension=0, machines=("scalar",), interpret=False)
    check_top_k(x, 3, axis=1, machines=("scalar",), interpret=False)
    check_top_k(x, 18, axis=1, machines=("scalar",), interpret=False)
    check_top_k(x, 2, axis=0, machines=("scalar",), interpret=False)
