"""Kernels of scatters: all primitives on their samples, then modes, dtypes, order and threading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.emitting import array, check, close, fused_program, fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import assert_same, compiled
from weft.base import dtypes, errors
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission
from weft.compiler.emit.maps import scatter_split
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.printer import to_text
from weft.compiler.target.cpu.targets import host
from weft.ir.interpreter import run as interpret
from weft.ir.primitive import lookup
from weft.primitives.movement.gather import GatherScatterMode
from weft.primitives.movement.scatter import ScatterDimensionNumbers, scatter_params

pytestmark = pytest.mark.usefixtures("sixty_four_bits")
FAMILY = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
MODES = (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS)
DTYPES = ("bool", "int4", "uint8", "int32", "float8_e4m3fn", "bfloat16", "float16", "float32", "float64", "complex64")
ROWS = ScatterDimensionNumbers((1,), (0,), (0,))
SCALARS = ScatterDimensionNumbers((), (0,), (0,))


def scattered(name: str, numbers: ScatterDimensionNumbers, mode: Any, unique: bool = False) -> Callable[..., Any]:
    params = scatter_params(numbers, mode, unique)
    primitive: Any = lookup(name)
    return lambda x, i, u: primitive(x, i, u, **params)


def emissions_of(function: Callable[..., Any], *args: Any) -> list[Emission]:
    found = [f.params for f in fusions(fused_program(function, *args))]
    return [emit(p["kind"], p["jaxpr"], p["hero"], AVX512) for p in found if p["kind"] == "scatter"]


@pytest.mark.parametrize("name", FAMILY)
def test_scatters_match_eval(name: str) -> None:
    primitive: Any = lookup(name)
    for sample in primitive.samples():
        kinds = check(lambda *args, p=sample.params: primitive(*args, **p), *sample.args, compare=assert_same)
        assert kinds == ["scatter"]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", FAMILY)
def test_indices_out_of_bounds(name: str, mode: GatherScatterMode) -> None:
    i = np.array([[3], [-1], [4], [5], [3], [2**31 - 1], [-(2**31)]], np.int32)
    function = scattered(name, ROWS, mode)
    assert check(function, array(5, 21), i, array(7, 21, seed=1), compare=assert_same) == ["scatter"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILY)
def test_every_dtype_is_scattered(name: str, dtype: str) -> None:
    if dtypes.kind(dtypes.as_dtype(dtype)) not in lookup(name).kinds:  # type: ignore[attr-defined]
        pytest.skip("there is no such scatter")
    i = np.array([[3], [1], [3], [3]], np.int32)
    function = scattered(name, ROWS, GatherScatterMode.CLIP)
    x, u = array(5, 19, dtype=dtype), array(4, 19, dtype=dtype, seed=1)
    assert check(function, x, i, u, compare=assert_same) == ["scatter"]


def test_the_last_update_of_an_element_wins() -> None:
    i = (np.arange(200, dtype=np.int32) * 7 % 13)[:, None]
    u = np.arange(200, dtype=np.float32)
    assert check(scattered("scatter", SCALARS, GatherScatterMode.CLIP), array(13), i, u) == ["scatter"]


def test_short_floats_are_rounded_once() -> None:
    # In bfloat16 256 + 1 is 256, so that sums rounded one by one would never grow.
    x, i = np.full(4, 256, dtypes.bfloat16), np.zeros((64, 1), np.int32)
    function = scattered("scatter-add", SCALARS, GatherScatterMode.CLIP)
    assert check(function, x, i, np.ones(64, dtypes.bfloat16), compare=assert_same) == ["scatter"]
    assert not emissions_of(function, x, i, np.ones(64, dtypes.bfloat16))[0].updated


def test_indices_that_are_unique_need_no_wider_copy() -> None:
    x, i = array(9, dtype="bfloat16"), np.array([[3], [0], [8]], np.int32)
    function = scattered("scatter-add", SCALARS, GatherScatterMode.CLIP, unique=True)
    u = array(3, dtype="bfloat16", seed=1)
    assert check(function, x, i, u, compare=assert_same) == ["scatter"]
    (emission,) = emissions_of(function, x, i, u)
    assert not emission.scratch and len(emission.launches) == 1


def test_sums_are_those_of_the_order_of_indices() -> None:
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(30, 40)).astype(np.float32), rng.normal(size=(100, 40)).astype(np.float32)
    i = rng.integers(0, 30, (100, 1)).astype(np.int32)
    function = scattered("scatter-add", ROWS, GatherScatterMode.FILL_OR_DROP)
    assert check(function, x, i, u, compare=assert_same) == ["scatter"]


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "rows": (lambda x, i, u: x.at[i].set(u), (array(9, 70), np.array([3, 0, 3]), array(3, 70, seed=1))),
    "columns": (lambda x, i, u: x.at[:, i].add(u), (array(9, 70), np.array([3, 0, 3]), array(9, 3, seed=1))),
    "scalars": (lambda x, i, u: x.at[i].max(u), (array(9), np.arange(20) % 7, array(20, seed=1))),
    "unique scalars": (
        lambda x, i, u: x.at[i].add(u, unique_indices=True),
        (array(33), np.arange(20) * 7 % 33, array(20, seed=1)),
    ),
    "pairs": (lambda x, i, j: x.at[i, j].add(2.0), (array(5, 6), np.arange(20) % 5, np.arange(20) % 6)),
    "work before": (
        lambda x, i, u: x.at[i + 1].add(u.T * 2.0),
        (array(9, 33), np.array([3, 0, 5]), array(33, 3, seed=1)),
    ),
    "of zeros": (lambda i, u: (u[0] * 0.0).at[i].add(u[1]), (np.array([3, 0, 3]), array(2, 3, seed=1))),
    "wide rows": (lambda x, i, u: x.at[i].add(u), (array(4, 700), np.array([3, 0, 3]), array(3, 700, seed=1))),
    "batches": (
        lambda x, i, u: weft.vmap(lambda a, b, c: a.at[b].add(c))(x, i, u),
        (array(6, 9), np.arange(24).reshape(6, 4) * 5 % 9, array(6, 4, seed=1)),
    ),
    "slices in batches": (
        lambda x, i, u: weft.vmap(lambda a, b, c: weft.lax.dynamic_update_slice(a, c, (b, 1)))(x, i, u),
        (array(6, 9, 5), np.arange(6) * 3, array(6, 2, 3, seed=1)),
    ),
    "nothing": (lambda x, i, u: x.at[i].add(u), (array(9, 4), np.zeros(0, np.int32), array(0, 4))),
}


@pytest.mark.parametrize("name", CASES)
def test_scatters(name: str) -> None:
    function, args = CASES[name]
    assert "scatter" in check(function, *args, compare=close(1e-6))


def test_threads_take_batches_or_parts_of_windows() -> None:
    def parallel(name: str) -> list[int]:
        function, args = CASES[name]
        loops = [launch.kernel.parallel for e in emissions_of(function, *args) for launch in e.launches]
        return [loop.count for loop in loops if loop is not None]

    assert parallel("batches") == [6]
    assert parallel("wide rows") == [6]  # 700 columns by 128
    assert parallel("scalars") == []
    assert parallel("unique scalars") == []  # few enough for lanes alone


@pytest.mark.parametrize("name", ["batches", "wide rows", "unique scalars", "slices in batches"])
def test_parts_of_a_scatter_do_not_overlap(name: str) -> None:
    function, args = CASES[name]
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], AVX512)
        got = launched(emission, operands, jaxpr, lambda k, arrays: compiled(k, arrays, host(), parts=3))
        for one, want in zip(got, interpret(jaxpr, operands), strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-6)


def test_large_scatters() -> None:
    rng = np.random.default_rng(0)
    i = rng.integers(0, 5000, (3000, 1)).astype(np.int32)
    function = scattered("scatter-add", ROWS, GatherScatterMode.FILL_OR_DROP)
    args = array(5000, 64), i, array(3000, 64, seed=1)
    assert check(function, *args, interpret=False, compare=assert_same) == ["scatter"]


MANY: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "sums": (lambda x, i, u: x.at[i].add(u), (array(7000), np.arange(5000) * 7 % 7200 - 100, array(5000, seed=1))),
    "the last stays": (lambda x, i, u: x.at[i].set(u), (array(90), np.arange(5000) * 7 % 101, array(5000, seed=1))),
    "one place": (lambda x, i, u: x.at[i].mul(u), (array(900), np.full(40, 899), array(40, seed=1))),
    "pairs": (
        lambda x, i, j, u: x.at[i, j].min(u),
        (array(50, 60), np.arange(4000).reshape(40, 100) % 49, np.arange(100) % 61, array(40, 100, seed=1)),
    ),
    "work before": (lambda x, i: x.at[i * 2].add(i * 0.5, mode="clip"), (array(3000), np.arange(2001) * 5 % 1700)),
    "all outside": (lambda x, i: x.at[i].add(1.0), (array(300), np.full(100, 300))),
}


@pytest.fixture
def always_split(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LEAST": 1, "LARGE": 1, "PART": 256}.items():
        monkeypatch.setattr(scatter_split, name, value)


@pytest.mark.usefixtures("always_split")
@pytest.mark.parametrize("name", MANY)
def test_many_scalars_are_sorted_by_blocks_of_the_array(name: str) -> None:
    function, args = MANY[name]
    assert "scatter" in check(function, *args, compare=assert_same)
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], AVX512)
        names = [launch.kernel.name for launch in emission.launches]
        if equation.params["kind"] == "scatter":
            assert names == ["scatter_count", "scatter_scan", "scatter_partition", "scatter"]
        got = launched(emission, operands, jaxpr, lambda k, arrays: compiled(k, arrays, host(), parts=3))
        for one, want in zip(got, interpret(jaxpr, operands), strict=True):
            assert_same(one, want)


@pytest.mark.usefixtures("always_split")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILY)
def test_scalars_of_every_dtype_are_sorted_by_blocks(name: str, dtype: str) -> None:
    if dtypes.kind(dtypes.as_dtype(dtype)) not in lookup(name).kinds:  # type: ignore[attr-defined]
        pytest.skip("there is no such scatter")
    i = (np.arange(50, dtype=np.int32) * 7 % 13)[:, None]
    function = scattered(name, SCALARS, GatherScatterMode.FILL_OR_DROP)
    x, u = array(12, dtype=dtype), array(50, dtype=dtype, seed=1)
    assert check(function, x, i, u, compare=assert_same) == ["scatter"]


@pytest.mark.parametrize("outside", [0, 1])
def test_checks_of_many_scalars(outside: int) -> None:
    x, i = np.zeros(1 << 20, np.float32), np.arange(1 << 17, dtype=np.int32) * 8
    i[70_000] += outside << 20
    with weft.checks("all"):
        function = weft.jit(lambda x, i: x.at[i].add(1.0))
        if outside:
            with pytest.raises(errors.OutOfBoundsIndexError):
                function(x, i)
        else:
            assert float(function(x, i).sum()) == 1 << 17


def test_what_is_read_under_another_shape_is_not_overwritten() -> None:
    i = np.array([[3, 2], [1, 0]], np.int32)

    @weft.jit
    def function(x: Any) -> Any:
        y = x * 2.0
        return weft.numpy.cumsum(y.at[i].set(y.reshape(2, 2, 5)), 1)

    x = array(4, 5)
    wanted = x * 2
    wanted[i] = (x * 2).reshape(2, 2, 5)
    np.testing.assert_array_equal(np.asarray(function(x)), np.cumsum(wanted, 1))


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float32", "complex64"])
def test_unique_scalars_are_scattered_by_lanes(name: str, dtype: str) -> None:
    if dtypes.kind(dtypes.as_dtype(dtype)) not in lookup(name).kinds:  # type: ignore[attr-defined]
        pytest.skip("there is no such scatter")
    # Those outside are dropped; they are unique too.
    i = np.random.default_rng(0).permutation(np.arange(-30, 71, dtype=np.int32))[:, None]
    x, u = array(53, dtype=dtype), array(101, dtype=dtype, seed=1)
    function = scattered(name, SCALARS, GatherScatterMode.FILL_OR_DROP, unique=True)
    assert check(function, x, i, u, compare=assert_same) == ["scatter"]
    (emission,) = emissions_of(function, x, i, u)
    assert "lanes" in to_text(emission.launches[-1].kernel)


def test_unique_scalars_are_scattered_by_threads() -> None:
    function = scattered("scatter", SCALARS, GatherScatterMode.FILL_OR_DROP, unique=True)
    x, i, u = array(40_000), np.arange(40_000, dtype=np.int32)[::-1, None].copy(), array(40_000, seed=1)
    (emission,) = emissions_of(function, x, i, u)
    assert emission.launches[-1].kernel.parallel is not None
    assert check(function, x, i, u, compare=assert_same, interpret=False) == ["scatter"]


def test_unique_scalars_in_several_dimensions() -> None:
    numbers = ScatterDimensionNumbers((), (0, 1), (0, 1))
    indices = np.stack(np.meshgrid(np.arange(6), np.arange(1, 8), indexing="ij"), -1).astype(np.int32)
    function = scattered("scatter-add", numbers, GatherScatterMode.FILL_OR_DROP, unique=True)
    assert check(function, array(6, 7), indices, array(6, 7, seed=1), compare=assert_same) == ["scatter"]
