"""Reductions by groups of threads: what they mean by the interpreter, and that their code has what threads need to wait
for each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from tests.compiler.test_emit_cumulative import assert_same_class, extreme_factors
from tests.cuda.simulated import shared_bytes
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base import dtypes, settings
from weft.base.errors import InternalError
from weft.compiler.compile import compile_program
from weft.compiler.kernel import interpreter
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.grid import repeats
from weft.compiler.kernel.ir import Index, Kernel, Loop, LoopKind
from weft.compiler.kernel.verifier import verify
from weft.compiler.program.ir import Launch
from weft.compiler.target.cuda.groups import SHARED_BYTES, ThreadGroup, choose_group
from weft.compiler.target.cuda.lower import launch_shape, module_text, source_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper
from weft.ir.jaxpr import constants_to_arguments


def compiled(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[Any, list[Kernel]]:
    jaxpr = constants_to_arguments(make_jaxpr(function)(*arrays))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper()).program
    kernels = [verify(s.full) for s in program.all_steps() if isinstance(s, Launch)]
    for kernel in kernels:  # they can be written, with no more memory than a block has
        assert shared_bytes(source_text("kernel", kernel, hopper())) <= SHARED_BYTES
    return program, kernels


def normalised(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / wnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: weft.nn.softmax(x, -1),
    "norm": normalised,
    "columns": lambda x: x.sum(0),
    "all": lambda x: (x * 2).sum(),
    "columns in three passes": lambda x: weft.nn.softmax(x, 0),
    "several": lambda x: (x.max(-1), x.sum(-1), x + x.min(-1, keepdims=True)),
    "any": lambda x: (x > 2.5).any(-1),
    "argmax": lambda x: (wnp.argmax(x, -1), wnp.argmin(x, 0), wnp.argmax(x)),
    "cumulative": lambda x: (wnp.cumsum(x, -1), wnp.cumsum(x, 0), wnp.cumsum(x)),
    "cumulative from the end": lambda x: lax.cummax(x, 1, reverse=True) + lax.cumsum(x, 0, reverse=True),
    "cumulative of what is the same in all lanes": lambda x: (
        wnp.cumsum(wnp.broadcast_to(x[:, :1], x.shape), -1),
        lax.cummax(wnp.broadcast_to(x[:1], x.shape), 0),
    ),
}


@pytest.mark.parametrize("shape", [(7, 5), (6, 33), (3, 100), (2, 1000), (2, 5000), (3000, 3)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_have_their_values(name: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)  # sums are exact, and there are equal ones
    program, kernels = compiled(PROGRAMS[name], x)
    expected = weft.tree.leaves(PROGRAMS[name](x))
    for got, want in zip(interpret(program, [x.copy()]), map(np.asarray, expected), strict=True):
        np.testing.assert_allclose(got.view(want.dtype).reshape(want.shape), want, rtol=2e-5, atol=2e-5)
    assert "masked" not in module_text([(f"k{i}", k) for i, k in enumerate(kernels)], hopper())


@pytest.mark.parametrize("shape", [(70,), (4, 300), (9000,), (2, 9000), (300, 2)], ids=str)
def test_products_are_of_the_class_of_one_after_the_other(shape: tuple[int, ...]) -> None:
    size, axis = max(shape), int(np.argmax(shape))
    rows = np.stack([extreme_factors(size, np.float32, i) for i in range(18)])
    for first in range(0, 18, 4):
        x = rows[first : first + min(shape)].T if axis == 0 and len(shape) > 1 else rows[first : first + shape[0]]
        x = np.ascontiguousarray(rows[first] if len(shape) == 1 else x)
        program, kernels = compiled(lambda x: lax.cumprod(x, axis), x)
        with np.errstate(all="ignore"):
            (got,) = interpret(program, [x.copy()])
            assert_same_class(got.view(np.float32).reshape(x.shape), np.cumprod(x, axis, dtype=np.float32))
        assert "entry" in ptx(module_text([(f"k{i}", k) for i, k in enumerate(kernels)], hopper()), hopper())


@pytest.mark.parametrize("dtype", ["float64", "complex64", "bfloat16", "int8", "bool"])
def test_lanes_of_all_dtypes_go_between_threads(dtype: str) -> None:
    with settings.enable_x64(True):
        x = np.asarray(wnp.asarray(np.random.default_rng(0).integers(0, 3, (3, 700))).astype(dtype))
        program, kernels = compiled(lambda x: (x.any(-1), x.sum(-1)), x)
        got = interpret(program, [x.copy()])
        np.testing.assert_array_equal(got[0].view(np.bool_), x.any(-1))
        total = np.asarray(x.astype(np.complex128 if dtype == "complex64" else np.float64).sum(-1))
        want = np.asarray(wnp.asarray(x).sum(-1))
        np.testing.assert_allclose(got[1].view(want.dtype).astype(total.dtype), total, rtol=1e-2)
        text = ptx(module_text([(f"k{i}", k) for i, k in enumerate(kernels)], hopper()), hopper())
        assert "shfl.sync.down.b32" in text


MIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bytes and indices": (lambda x: wnp.argmax(x, -1), "int8"),
    "short floats and indices": (lambda x: wnp.argmin(x, -1), "bfloat16"),
    "bools and floats": (lambda x: ((x > 2).any(-1), x.sum(-1)), "float32"),
    "floats and bools": (lambda x: (x.sum(-1), (x > 2).any(-1)), "float32"),
}


@pytest.mark.parametrize("name", MIXED)
def test_memory_between_warps_has_room_for_the_widest_lanes(name: str) -> None:
    """A kernel that combines lanes of several sizes has one memory for all of them."""
    f, dtype = MIXED[name]
    _, kernels = compiled(f, np.asarray(wnp.ones((600, 5000), dtype)))
    kernel, group = kernels[-1], choose_group(kernels[-1], hopper())
    assert group is not None and group.members > 32
    found = re.findall(r"addrspace\(3\) global \[(\d+) x i8\]", module_text([("k", kernel)], hopper()))
    assert list(map(int, found)) == [4 * group.width]


def test_a_long_sum_is_of_many_groups() -> None:
    x = np.ones(1 << 20, np.float32)
    program, (partial, final) = compiled(lambda x: x.sum(), x)
    assert partial.count >= 128 and choose_group(partial, hopper()) == ThreadGroup(256, 4)
    blocks, threads = launch_shape(partial, hopper())
    assert (blocks, threads) == (partial.count, 256) and final.count == 1
    assert interpret(program, [x])[0].view(np.float32)[0] == 1 << 20


def test_partial_sums_of_few_columns_lie_side_by_side() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (16384, 96)).astype(np.float32)
    program, kernels = compiled(lambda x: ((x > 0) * x, ((x > 0) * x).sum(0)), x)
    masked, total = (found.view(np.float32) for found in interpret(program, [x.copy()]))
    np.testing.assert_array_equal(masked.reshape(x.shape), np.maximum(x, 0))
    np.testing.assert_array_equal(total, np.maximum(x, 0).sum(0))
    partial, final = (ptx(module_text([("k", kernel)], hopper()), hopper()) for kernel in kernels)
    assert "ld.global.v4" in partial and "st.global.v4" in partial and "ld.global.v4" in final


def test_columns_are_of_many_threads() -> None:
    _, (partial, final) = compiled(lambda x: x.sum(0), np.ones((4096, 256), np.float32))
    assert choose_group(partial, hopper()) is None and partial.count == 128 * 256 // 4  # blocks of 32 rows
    assert final.count == 256


def test_long_rows_of_several_passes_have_larger_groups() -> None:
    """So that the rows that are worked on at a time stay in cache."""
    x = np.random.default_rng(0).integers(-9, 9, (2, 1 << 15)).astype(np.float32)
    program, (kernel,) = compiled(weft.nn.softmax, x)
    assert choose_group(kernel, hopper()) == ThreadGroup(512, 4)
    want = np.asarray(weft.nn.softmax(x))
    np.testing.assert_allclose(interpret(program, [x])[0].view(np.float32).reshape(x.shape), want, rtol=2e-5)
    assert choose_group(compiled(lambda x: x.sum(-1), x)[1][0], hopper()) == ThreadGroup(256, 4)


def scaled_columns(x: Any) -> Any:
    scaled = wnp.tanh(x) * x.max(-1, keepdims=True)
    return scaled, scaled.sum(0) + 1, wnp.abs(x).max(0)


@pytest.mark.parametrize("shape", [(203, 40), (100, 96), (3, 300, 33), (2100, 32)], ids=str)
def test_columns_have_their_values(shape: tuple[int, ...]) -> None:
    """Rows that are no multiple of those read at once, columns that are no multiple of vectors, what is stored on the
    way, and so many partial results that groups of threads add them."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    function = scaled_columns if len(shape) == 2 else lambda x: x.sum(1)
    program, _ = compiled(function, x)
    for got, want in zip(interpret(program, [x.copy()]), weft.tree.leaves(function(x)), strict=True):
        want = np.asarray(want)
        np.testing.assert_allclose(got.view(want.dtype).reshape(want.shape), want, rtol=2e-5, atol=2e-3)


def test_columns_of_short_floats_are_read_as_vectors() -> None:
    x = np.ones((4096, 256), np.float32).astype(dtypes.storage(dtypes.bfloat16))
    _, (partial, _) = compiled(lambda x: x.sum(0), x)
    assert ptx(module_text([("k", partial)], hopper()), hopper()).count("ld.global.v4.b16") == 8


@pytest.mark.parametrize(("length", "members"), [(32, 8), (100, 32), (1000, 256), (5000, 256)])
def test_threads_wait_for_each_other(length: int, members: int) -> None:
    """Those of several warps by barriers, others by what a warp has."""
    _, kernels = compiled(lambda x: weft.nn.softmax(x, -1), np.ones((64, length), np.float32))
    (kernel,) = kernels
    assert choose_group(kernel, hopper()) == ThreadGroup(members, 4)
    text = ptx(module_text([("entry", kernel)], hopper()), hopper())
    assert ("bar.sync" in text) == (members > 32) and "shfl.sync" in text


@pytest.mark.parametrize(
    ("read", "serial", "barriers"),
    [
        ("x", False, 0),
        ("y", False, 1),
        ("x", True, 1),
        ("y", True, 1),
    ],  # a serial loop writes again what it has written
)
def test_what_others_have_written_is_waited_for(read: str, serial: bool, barriers: int) -> None:
    k = KernelBuilder("neighbours")
    buffers = {name: k.buffer(name, "float32", 320, name != "x") for name in "xyz"}
    with k.loop(256, kind=LoopKind.LANES, width=256) as i:
        k.store(buffers["y"], i, k.load(buffers["x"], i))

    def second(first: Any) -> None:
        with k.loop(256, kind=LoopKind.LANES, width=256) as i:
            k.store(buffers["z"], i, k.load(buffers[read], first + i))

    if serial:
        with k.loop(3) as n:
            second(n * 1)
    else:
        second(Index(1))
    text = module_text([("entry", verify(k.finish()))], hopper())
    assert text.count("call void @llvm.nvvm.barrier") == barriers


def test_rows_stay_in_registers() -> None:
    """A softmax reads a row once and writes it once; of one that is not whole vectors of a group, the rest again."""
    for length, loads in ((2048, 2), (768, 3), (8192, 8)):
        _, (kernel,) = compiled(lambda x: weft.nn.softmax(x, -1), np.ones((64, length), np.float32))
        text = ptx(module_text([("entry", kernel)], hopper()), hopper())
        assert (text.count("ld.global.v4"), text.count("st.global.v4")) == (loads, loads)


def test_scans_exchange_lanes_of_all_threads() -> None:
    """Loops in which lanes are exchanged have no thread that ends before the others."""
    _, kernels = compiled(lambda x: wnp.cumsum(x, -1), np.ones((64, 1000), np.float32))
    kernel = kernels[-1]
    assert choose_group(kernel, hopper()) == ThreadGroup(32, 4)
    text = ptx(module_text([("entry", kernel)], hopper()), hopper())
    assert text.count("shfl.sync.up") >= 23


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(256, 160), (133, 270), (8, 5000), (3, 130, 96)], ids=str)
def test_tiles_are_transposed_in_local_memory(shape: tuple[int, ...], dtype: str) -> None:
    x = np.asarray(wnp.asarray(np.random.default_rng(0).integers(0, 9, shape)).astype(dtype))
    program, (kernel,) = compiled(lambda x: wnp.swapaxes(x, -1, -2) == x.ravel()[0], x)
    group = choose_group(kernel, hopper())
    assert kernel.local and group is not None and group.teams > 1
    (got,) = interpret(program, [x.copy()])
    expected = x.swapaxes(-1, -2) == x.ravel()[0]
    np.testing.assert_array_equal(got.view(np.bool_).reshape(expected.shape), expected)
    text = module_text([("entry", kernel)], hopper())
    # All teams wait once, between their loops.
    assert "addrspace(3)" in text and text.count("call void @llvm.nvvm.barrier.cta") == 1 and "warp.sync" not in text


@pytest.mark.parametrize(("apart", "expected"), [(64, False), (20, True)])
def test_iterations_of_loops_with_steps_are_told_apart(apart: int, expected: bool) -> None:
    """4 * 5 = 20 + 0: a step counts."""
    k = KernelBuilder("steps")
    y = k.buffer("y", "float32", 512, written=True)
    with k.loop(4) as i, k.loop(64, step=4) as j:
        k.store(y, i * apart + j, k.constant(1.0, np.dtype(np.float32)))
    *_, loop = k.finish().body
    assert isinstance(loop, Loop) and repeats(loop) is expected


def test_local_memory_begins_empty() -> None:
    k = KernelBuilder("stale")
    y, tile = k.buffer("y", "float32", 64, written=True), k.local("tile", "float32", 32)
    with k.loop(2, kind=LoopKind.THREADS) as i:
        with k.loop(32, kind=LoopKind.LANES, width=32) as lane:
            k.store(y, i * 32 + lane, k.load(tile, lane))
    with pytest.raises(InternalError, match="that was not written before"):
        interpreter.run(verify(k.finish()), [np.zeros(64, np.float32)])
