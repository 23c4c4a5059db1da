"""Kernels of data movement: all primitives on their samples, then tiles, concatenation, slices and gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import array, check, fused_program, fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import assert_same, compiled
from weft import lax
from weft.base import dtypes
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission, get_size, literal_arrays, storage
from weft.compiler.emit.indices import floor_divide
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.interpreter import run
from weft.compiler.kernel.ir import Compute, Index, Load, Loop, LoopKind, Shuffle
from weft.compiler.target.cpu.targets import host
from weft.ir.interpreter import run as interpret
from weft.ir.primitive import lookup

pytestmark = pytest.mark.usefixtures("sixty_four_bits")
MOVEMENT = (
    "transpose",
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "rev",
    "tile",
    "slice",
    "dynamic_slice",
    "dynamic_update_slice",
    "concatenate",
    "split",
    "pad",
    "iota",
    "gather",
    "bitcast_convert_type",
    "random_wrap",
)
DTYPES = (
    "bool",
    "int4",
    "uint8",
    "int16",
    "int32",
    "uint64",
    "float8_e4m3fn",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


def counting(*shape: int) -> np.ndarray:
    """Each element another number."""
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("name", MOVEMENT)
def test_data_movement_matches_eval(name: str) -> None:
    primitive: Any = lookup(name)
    for sample in primitive.samples():
        check(lambda *args, p=sample.params: primitive(*args, **p), *sample.args, compare=assert_same)


def emission_of(function: Callable[..., Any], *args: Any) -> Emission:
    (fusion,) = fusions(fused_program(function, *args))
    return emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)


def statements(body: Any, kind: type) -> list[Any]:
    found = []
    for statement in body:
        if isinstance(statement, kind):
            found.append(statement)
        found += statements(getattr(statement, "body", ()), kind)
    return found


# ------------------------------------------------------------------------------------------------------ transposes

TRANSPOSES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "whole tiles": (lambda x: x.T, (counting(64, 80),)),
    "edges on both sides": (lambda x: x.T, (counting(67, 75),)),
    "few rows": (lambda x: x.T, (counting(3, 2000),)),
    "few columns": (lambda x: x.T, (counting(2000, 3),)),
    "one tile less one": (lambda x: x.T, (counting(15, 400),)),
    "channels first": (lambda x: x.transpose(0, 3, 1, 2), (counting(2, 6, 7, 60),)),
    "channels last": (lambda x: x.transpose(0, 2, 3, 1), (counting(2, 60, 6, 7),)),
    "all reversed": (lambda x: x.transpose(3, 2, 1, 0), (counting(17, 5, 3, 18),)),
    "inner dimension first": (lambda x: x.transpose(2, 0, 1), (counting(4, 33, 40),)),
    "with dimensions of one": (lambda x: x.transpose(3, 1, 2, 0), (counting(70, 1, 1, 71),)),
    "work before": (lambda x, y: (x * 2.0 + y).T, (counting(70, 71), counting(71))),
    "work after": (lambda x, y, b: x.T * 2.0 + y + b, (counting(70, 71), counting(71, 70), counting(70))),
    "two turned": (lambda x, y: x.T - y.T, (counting(70, 71), counting(70, 71)[::-1].copy())),
    "two results": (lambda x, y: (x.T, x.T + y), (counting(70, 71), counting(71, 70))),
    "a row before": (lambda x, b: (x + b[None, :, None]).transpose(0, 2, 1), (counting(2, 65, 66), counting(65))),
    "much work before": (lambda x, y: (wnp.floor(x / 3.0) / 5.0 - y).T + 1.0, (counting(70, 71), counting(71))),
    "much work on both sides": (
        lambda x, y: wnp.sqrt(wnp.sqrt(wnp.floor(x / 3.0) / 5.0).T + y),
        (counting(70, 71), counting(71, 70)),
    ),
    "much work to another dtype": (
        lambda x, y: (wnp.floor(x.T / 3.0) / 5.0 - y).astype(wnp.int32),
        (counting(70, 71), counting(71, 70)),
    ),
    "much work after two": (
        lambda x, y: wnp.floor((x.T / 3.0 - y.T) / 5.0),
        (counting(70, 71), counting(70, 71)[::-1].copy()),
    ),
    "much work": (
        lambda x: abs(abs(abs(abs(abs(abs(abs(x.T - 1) - 2) - 3) - 4) - 5) - 6) - 7),
        (counting(67, 75),),
    ),
}


@pytest.mark.parametrize("name", TRANSPOSES)
def test_transposes(name: str) -> None:
    function, args = TRANSPOSES[name]
    assert "transpose" in check(function, *args, compare=assert_same)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_transposed(dtype: str) -> None:
    x = array(150, 147, dtype=dtype)
    assert check(lambda x: x.T, x, compare=assert_same) == ["transpose"]


def test_large_tiles() -> None:
    assert check(lambda x: x.T * 2.0, counting(530, 520), interpret=False, compare=assert_same) == ["transpose"]


def test_tiles_are_read_and_written_in_whole_vectors() -> None:
    (launch,) = emission_of(lambda x: x.T, counting(512, 1024)).launches
    loops = statements(launch.kernel.body, Loop)
    assert [loop.width for loop in loops if loop.kind is LoopKind.LANES] == [16, 16]
    assert len(statements(launch.kernel.body, Shuffle)) == 16 * 4
    assert len(statements(launch.kernel.body, Load)) == 16


# ------------------------------------------------------------------------------------------------ joined and cut

CONCATENATED: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "rows": (lambda x, y: wnp.concatenate([x, y]), (counting(3, 7), counting(2, 7) + 100)),
    "columns": (lambda x, y: wnp.concatenate([x, y], 1), (counting(33, 20), counting(33, 3) + 100)),
    "middle": (lambda x, y: wnp.concatenate([x, y], 1), (counting(3, 2, 5), counting(3, 4, 5) + 100)),
    "many short columns": (lambda x, y, z: wnp.stack([x, y, z], 1), tuple(counting(50) + 100 * n for n in range(3))),
    "single elements": (lambda x, y: wnp.stack([x, y]) * 2.0, (counting(), counting() + 5)),
    "nothing among them": (
        lambda x, y, z: lookup("concatenate")(x, y, z, dimension=0) + 1.0,
        (counting(0, 4), counting(5, 4), counting(2, 4)),
    ),
    "work around": (
        lambda x, y, z, b: wnp.concatenate([x * 2.0, y[::-1], z.T], 1) * 3.0 + b,
        (counting(4, 5), counting(4, 6), counting(7, 4), counting(18)),
    ),
    "two results": (
        lambda x, y, z: (wnp.concatenate([x, y]) + z, wnp.concatenate([x, y]) * z),
        (counting(9), counting(30), counting(39)),
    ),
}


@pytest.mark.parametrize("name", CONCATENATED)
def test_concatenated_arrays(name: str) -> None:
    function, args = CONCATENATED[name]
    assert "concatenate" in check(function, *args, compare=assert_same)


def test_long_concatenated_arrays_are_split_for_threads() -> None:
    x, y = counting(40_000), counting(30_000)
    assert check(lambda x, y: wnp.concatenate([x, y]), x, y, interpret=False) == ["concatenate"]
    emission = emission_of(lambda x, y: wnp.concatenate([x, y]), x, y)
    assert [launch.kernel.parallel is not None for launch in emission.launches] == [True, True]


def test_concatenation_has_no_condition_per_element() -> None:
    emission = emission_of(lambda x, y: wnp.concatenate([x, y], 1), counting(33, 20), counting(33, 3))
    assert not any(statements(launch.kernel.body, Compute) for launch in emission.launches)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_concatenated_and_sliced(dtype: str) -> None:
    x, y = array(5, 30, dtype=dtype), array(5, 7, dtype=dtype, seed=1)
    assert check(lambda x, y: wnp.concatenate([x, y], 1), x, y, compare=assert_same) == ["concatenate"]
    assert check(lambda x: lax.split(x, (3, 20, 7), 1), x, compare=assert_same) == ["slices"]


SLICES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "columns": (lambda x: lax.split(x, (5, 20, 8), 1), (counting(12, 33),)),
    "rows": (lambda x: lax.split(x, (1, 5), 0), (counting(6, 33),)),
    "short columns": (lambda x: lax.split(x, (1, 1, 1), 1), (counting(100, 3),)),
    "after work": (lambda x, b: lax.split(x * 2.0 + b, (2, 4), 1), (counting(5, 6), counting(6))),
    "of different spaces": (lambda x: (x[1:4, ::2], x[0], x[2:, 3:4]), (counting(9, 11),)),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices(name: str) -> None:
    function, args = SLICES[name]
    assert set(check(function, *args, compare=assert_same)) <= {"slices", "loop", "alias"}


# ---------------------------------------------------------------------------------------------------- updated slices

UPDATES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "inside": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 2)), (counting(9, 40), counting(3, 20), np.int32(4))),
    "beyond": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), (counting(9, 40), counting(3, 20), np.int8(99))),
    "before": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)),
        (counting(9, 40), counting(3, 20), np.int32(-5)),
    ),
    "huge": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), (counting(9), counting(3), np.uint64(2**63 + 1))),
    "short rows": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)),
        (counting(90, 7), counting(60, 2), np.int32(4)),
    ),
    "after work": (
        lambda x, u, i: lax.dynamic_update_slice(x, u.T * 2.0, (i + 1, 0)),
        (counting(9, 4), counting(4, 3), np.int32(2)),
    ),
    "nothing": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), (counting(9, 4), counting(0, 4), np.int32(2))),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updated_slices(name: str) -> None:
    function, args = UPDATES[name]
    assert "dynamic_update_slice" in check(function, *args, compare=assert_same)


def test_an_update_writes_only_its_slice() -> None:
    args = counting(99), counting(7), np.int32(1)
    (fusion,) = fusions(fused_program(lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), *args))
    emission = emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)
    assert [fusion.invars[a].aval.shape for a, _ in emission.updated] == [(99,)]  # type: ignore[attr-defined]
    assert statements(emission.launches[0].kernel.body, Loop)[0].stop == 7


def test_what_is_read_and_updated_is_copied_first() -> None:
    # The update is the operand itself, in another order: reading it while it is written would mix old and new.
    x = counting(20)
    kinds = check(lambda x, i: x.at[i].set(x), x, np.arange(20, dtype=np.int32)[::-1].copy(), compare=assert_same)
    assert "scatter" in kinds


# --------------------------------------------------------------------------------------------------------- lookups

LOOKUPS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "rows": (lambda x, i: x[i], (counting(9, 70), np.array([3, 0, 8, 3], np.int32))),
    "short rows": (lambda x, i: x[i], (counting(9, 3), np.arange(40, dtype=np.int32) % 9)),
    "scalars": (lambda x, i: x[i], (counting(50), np.arange(37, dtype=np.int32) * 7 % 50)),
    "scalars of a table": (lambda x, i, j: x[i, j], (counting(5, 6), np.arange(20) % 5, np.arange(20) % 6)),
    "outside is clipped": (
        lambda x, i: x.at[i].get(mode="clip"),
        (counting(5, 6), np.array([-(2**31), -1, 4, 5, 2**31 - 1], np.int32)),
    ),
    "outside is filled": (
        lambda x, i: x.at[i].get(mode="fill", fill_value=-7.0),
        (counting(5, 6), np.array([-(2**31), -9, 4, 5, 2**31 - 1], np.int32)),
    ),
    "outside is nan": (lambda x, i: x.at[i].get(mode="fill"), (counting(5), np.array([7, 1, 2**40, 4], np.int64))),
    "small indices": (lambda x, i: x.at[i].get(mode="clip"), (counting(300), np.array([255, 7], np.uint8))),
    "work around": (lambda x, i, b: (x * 2.0)[i + 1] * 3.0 + b, (counting(9, 33), np.arange(5), counting(33))),
    "of a lookup": (lambda x, i, j: x[i[j]], (counting(9, 33), np.arange(9)[::-1].copy(), np.array([1, 5, 2]))),
    "along an axis": (
        lambda x, i: wnp.take_along_axis(x, i, 1),
        (counting(4, 30), np.arange(4 * 20).reshape(4, 20) % 30),
    ),
    "padded afterwards": (lambda x, i: lax.pad(x[i], 1.0, ((1, 2, 0),)), (counting(9), np.array([8, 0, 3]))),
    "every other": (lambda x, i: x[i][::-2], (counting(9, 8), np.array([8, 0, 3, 5]))),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_gathers(name: str) -> None:
    function, args = LOOKUPS[name]
    assert "gather" in check(function, *args, compare=assert_same)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_gathered(dtype: str) -> None:
    x, i = array(9, 21, dtype=dtype), np.array([8, 1, 1], np.int32)
    assert check(lambda x, i: x.at[i].get(mode="promise_in_bounds"), x, i, compare=assert_same) == ["gather"]


def test_an_index_of_several_components_is_not_materialized() -> None:
    x, i, j = counting(5, 6), np.arange(20) % 5, np.arange(20) % 6
    assert check(lambda x, i, j: x[i, j], x, i, j, compare=assert_same) == ["gather"]
    assert check(lambda x, i: wnp.take_along_axis(x, i, 1), x, i.reshape(5, 4), compare=assert_same) == ["gather"]
    # What is no index is joined part by part.
    assert check(lambda i, j: wnp.stack([i, j], 1), i, j, compare=assert_same) == ["loop"]
    assert check(lambda i, j: wnp.stack([i, j], 1) * 2 + 1, i, j, compare=assert_same) == ["loop"]
    assert check(lambda i, j: wnp.stack([i, j], 1)[::-1] * 2, i, j, compare=assert_same)
    emission = emission_of(lambda i, j: wnp.stack([i, j], 1) * 2, i, j)
    assert {s.op for s in statements(emission.launches[0].kernel.body, Compute)} == {"mul"}


def test_a_row_is_copied_with_one_index() -> None:
    emission = emission_of(lambda x, i: x.at[i].get(mode="clip"), counting(50, 64), np.arange(20, dtype=np.int32))
    (threads,) = (s for s in emission.launches[0].kernel.body if isinstance(s, Loop))
    assert threads.kind is LoopKind.THREADS and threads.stop == 20
    lanes = threads.body[-1]
    assert isinstance(lanes, Loop) and lanes.width == 64 and not statements(lanes.body, Compute)


# ------------------------------------------------------------------------------------------------------ memory


IN_PLACE: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "transposed": TRANSPOSES["work after"],
    "transposed, two results": TRANSPOSES["two results"],
    "transposed, tiles wait in a result": (
        lambda x, y: wnp.tanh(wnp.exp2(x.T)) * y + wnp.floor(y),
        (counting(80, 72) % 7, counting(72, 80) % 5),
    ),
    "joined, two results": CONCATENATED["two results"],
    "looked up": (lambda x, i, y: x[i] * 2.0 + y, (counting(9, 33), np.arange(5), counting(5, 33))),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_results_may_overwrite_the_operands_that_emissions_name(name: str) -> None:
    function, args = IN_PLACE[name]
    shared = 0
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], AVX512)
        wanted = interpret(jaxpr, operands)
        for argument, result in emission.in_place:
            buffers = [np.array(a).reshape(-1) for a in operands]
            buffers += [np.zeros(get_size(v), storage(v)) for v in jaxpr.outvars]
            buffers += literal_arrays(jaxpr)
            buffers[len(operands) + result] = buffers[argument]
            for launch in emission.launches:
                run(launch.kernel, [buffers[n] for n in launch.operands])
            for i, want in enumerate(wanted):
                np.testing.assert_allclose(buffers[len(operands) + i], np.asarray(want).reshape(-1), 1e-6)
            shared += 1
    assert shared or "wait" in name


PARTS = (
    (TRANSPOSES, ("whole tiles", "few columns", "channels first", "much work on both sides")),
    (CONCATENATED, ("columns", "work around")),
    (SLICES, ("columns", "after work")),
    (UPDATES, ("inside", "short rows")),
    (LOOKUPS, ("rows", "work around")),
)


@pytest.mark.parametrize(("function", "args"), [cases[name] for cases, names in PARTS for name in names])
def test_parts_for_threads_do_not_overlap(function: Callable[..., Any], args: Any) -> None:
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], AVX512)
        got = launched(emission, operands, jaxpr, lambda k, arrays: compiled(k, arrays, host(), parts=3))
        for one, want in zip(got, interpret(jaxpr, operands), strict=True):
            assert_same(one, np.asarray(want))


@pytest.mark.parametrize("dtype", ["bool", "float8_e4m3fn", "bfloat16", "float16", "complex64"])
def test_data_movement_preserves_bits(dtype: str) -> None:
    # All bytes, so nan of every kind too; a bool has two.
    exact = dtypes.as_dtype(dtype)
    data = np.arange(256, dtype=np.uint8) if dtype != "bool" else np.arange(256, dtype=np.uint8) % 2
    x = np.tile(data, 256).view(exact).reshape(128, -1)

    def same(got: np.ndarray, want: np.ndarray) -> None:
        assert got.tobytes() == want.tobytes()

    def movement(x: Any) -> Any:
        return x.T, wnp.concatenate([x, x[::-1]], 1)

    assert check(movement, x, compare=same, machines=("host",), interpret=False)
    for fusion in fusions(fused_program(movement, x)):
        emission = emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)
        assert all(b.dtype.kind == "u" for launch in emission.launches for b in launch.kernel.buffers)


# ------------------------------------------------------------------------------------------------- padding and tiles

OTHERS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "padding between": (lambda x: lax.pad(x, 0.5, ((2, 1, 3), (-1, 2, 2))), (counting(4, 9),)),
    "padding after padding": (
        lambda x: lax.pad(lax.pad(x, 1.0, ((1, 1, 1),)) * 2.0, 3.0, ((-2, 4, 0),)),
        (counting(9),),
    ),
    "tiled": (lambda x: wnp.tile(x, (3, 4)), (counting(5, 7),)),
    "tiled rows": (lambda x: wnp.tile(x, (3, 1)), (counting(5, 37),)),
    "tiled, work after": (lambda x: wnp.tile(x, (3, 4)) * 2.0, (counting(5, 7),)),
    "one dimension repeated": (lambda x: wnp.tile(x, 6), (counting(3),)),
    "split dimensions": (lambda x, y: x.reshape(3, 4, 5) + y, (counting(12, 5), counting(3, 4, 5))),
    "fold of one": (lambda x: wnp.sum(x * 1.0, axis=1), (np.full((5, 1), -0.0, np.float32),)),
    "bytes of floats": (lambda x: lax.bitcast_convert_type(x * 2.0, wnp.uint8), (counting(5, 6),)),
    "floats of bytes": (
        lambda x: lax.bitcast_convert_type(x, wnp.float64) * 1.0,
        (np.frombuffer(np.arange(12.0).tobytes(), np.uint8).reshape(3, 4, 8),),
    ),
    "halves of words": (lambda x: lax.bitcast_convert_type(x, wnp.bfloat16), (counting(5, 6),)),
    "counting backwards": (lambda x: lax.rev(lax.iota(wnp.int32, 30), (0,)) + x, (np.arange(30, dtype=np.int32),)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_data_movement(name: str) -> None:
    function, args = OTHERS[name]
    assert check(function, *args, compare=assert_same)


def test_indices_are_divided_exactly() -> None:
    rng = np.random.default_rng(0)
    for divisor in (1, 2, 3, 7, 10, 64, 1000, 2**20 + 7):
        for count, step, first in (
            (100, 1, 0),
            (50, 3, -70),
            (40, -5, 11),
            (30, 2**33 + 1, 0),
            (7, divisor, divisor - 1),
        ):
            k = KernelBuilder("divide")
            out = k.buffer("out", np.int64, count, written=True)
            outer = int(rng.integers(1, 5)) * divisor
            with k.loop(1) as j, k.loop(count, kind=LoopKind.LANES, width=8) as i:
                index = floor_divide(k, i * step + first + j * outer, divisor)
                k.store(out, i, k.position(index))
            result = np.zeros(count, np.int64)
            run(k.finish(), [result])
            np.testing.assert_array_equal(result, (np.arange(count) * step + first) // divisor)


def test_multiples_of_a_divisor_need_no_division() -> None:
    k = KernelBuilder("divide")
    with k.loop(10) as i, k.loop(8) as j:
        assert floor_divide(k, i * 8 + j, 8) == Index.of(i)
        assert floor_divide(k, i * 16 + j + 8, 8) == i * 2 + 1
    assert not statements(k.finish().body, Compute)


# ------------------------------------------------------------------------------------------------------ random keys


def words(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, (*shape, 2), dtype=np.uint32)


KEYS: dict[str, Callable[[Any], Any]] = {
    "there and back": lambda w: weft.random.key_data(weft.random.wrap_key_data(w)),
    "split": lambda w: weft.random.key_data(weft.random.split(weft.random.wrap_key_data(w[0, 0]), 5)),
    "transposed": lambda w: weft.random.key_data(weft.random.wrap_key_data(w).T[1:]),
    "chosen": lambda w: weft.random.key_data(
        wnp.where(w[:, :, 0] > 2**31, weft.random.wrap_key_data(w), weft.random.wrap_key_data(w[::-1]))
    ),
    "looked up": lambda w: weft.random.key_data(weft.random.wrap_key_data(w)[:, wnp.array([2, 0])]),
    "drawn from": lambda w: weft.random.bits(weft.random.wrap_key_data(w[1, 1]), (7,)),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    assert check(KEYS[name], words(4, 3), compare=assert_same)
