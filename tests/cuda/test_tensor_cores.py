"""Contractions by tensor cores: what they mean by the interpreter, and their code by a block of simulated threads."""

from __future__ import annotations

import itertools
import pathlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from tests.cuda.block_of_threads import Block
from tests.cuda.simulated import shared_bytes
from tests.cuda.test_ptx import ptxas
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base import settings
from weft.base.errors import InternalError
from weft.compiler.compile import compile_program
from weft.compiler.emit.contractions import matrix_contraction
from weft.compiler.emit.contractions.matrix_contraction import TILES, Tile
from weft.compiler.kernel import interpreter
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.group_matmuls import group_matmul
from weft.compiler.kernel.ir import GroupMatmul, Index, Kernel, LoopKind, MatmulOperand
from weft.compiler.kernel.verifier import verify
from weft.compiler.program import emissions
from weft.compiler.program.ir import Call, Launch
from weft.compiler.target.cuda.groups import SHARED_BYTES
from weft.compiler.target.cuda.loops import find_loops
from weft.compiler.target.cuda.lower import launch_bytes, launch_shape, module_text, source_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper, of_capability
from weft.compiler.target.target import Target
from weft.ir.jaxpr import constants_to_arguments
from weft.runtime.cuda.code import Code, read_stored, store

BFLOAT16 = ml_dtypes.bfloat16
DTYPES = [BFLOAT16, np.float16, np.float32]
LAYOUTS = list(itertools.product((False, True), repeat=2))


def some(pairs: list[tuple[Any, ...]], quick: set[int]) -> list[Any]:
    """Parameters of a test, of which some are quick enough for all runs."""
    return [pytest.param(*p, marks=() if n in quick else pytest.mark.slow) for n, p in enumerate(pairs)]


# Every dtype and every layout of each operand is in the first four.
PAIRS = [(d, LAYOUTS[n]) for d, n in ((BFLOAT16, 0), (np.float16, 3), (np.float32, 1), (np.float32, 2))]
PAIRS += [pair for pair in itertools.product(DTYPES, LAYOUTS) if pair not in PAIRS]
PAIRS_OF_SHORT = [pair for pair in PAIRS if pair[0] is not np.float32]
SMALLEST = TILES[-1]
# A GPU whose warps multiply together, and the same by single warps.
WARPGROUPS = replace(hopper(), matrices=replace(hopper().matrices, warpgroups=128))
WARPS = replace(hopper(), matrices=replace(hopper().matrices, warpgroups=0))


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest tiles, for contractions of any size."""
    monkeypatch.setattr(matrix_contraction, "TILES", (SMALLEST,))
    monkeypatch.setattr(matrix_contraction, "LEAST_WORK", 1)
    monkeypatch.setattr(matrix_contraction, "LEAST_MATRIX", 1)
    monkeypatch.setattr(matrix_contraction, "MOST_PADDING", 100.0)
    monkeypatch.setattr(emissions, "_emissions", type(emissions._emissions)(64))


def compiled(function: Callable[..., Any], *arrays: Any, target: Target | None = None) -> tuple[Any, list[Kernel]]:
    jaxpr = constants_to_arguments(make_jaxpr(function)(*arrays))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), target or WARPS).program
    return program, [verify(s.full) for s in program.all_steps() if isinstance(s, Launch)]


def names(function: Callable[..., Any], *arrays: Any, target: Target | None = None) -> list[str]:
    return [kernel.name for kernel in compiled(function, *arrays, target=target)[1]]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def product(transposes: tuple[bool, bool]) -> Callable[[Any, Any], Any]:
    return lambda a, b: (a.T if transposes[0] else a) @ (b.T if transposes[1] else b)


def operands(m: int, n: int, k: int, transposes: tuple[bool, bool], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    return (
        normal(*((k, m) if transposes[0] else (m, k)), dtype=dtype),
        normal(*((n, k) if transposes[1] else (k, n)), dtype=dtype, seed=1),
    )


def assert_near(function: Callable[..., Any], *arrays: np.ndarray, kernels: list[str]) -> None:
    """The interpreted program has the function's values in float64, but for the rounding of operands and results."""
    program, found = compiled(function, *arrays)
    assert [kernel.name for kernel in found] == kernels
    (got,) = interpret(program, [x.copy() for x in arrays])
    want = np.asarray(function(*(x.astype(np.float64) for x in arrays)))
    dtype = make_jaxpr(function)(*arrays).out_avals[0].dtype
    # tf32 has 10 bits of mantissa, bfloat16 7.
    error = np.abs(got.view(dtype).reshape(want.shape).astype(np.float64) - want).max() / np.abs(want).max()
    assert error < (2.0**-8 if arrays[0].dtype == BFLOAT16 else 2.0**-10)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("transposes", LAYOUTS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.usefixtures("small_tiles")
def test_layouts_and_sizes(dtype: Any, transposes: tuple[bool, bool]) -> None:
    assert_near(product(transposes), *operands(152, 40, 136, transposes, dtype), kernels=["matrices"])
    # Rows that do not begin at multiples of 16 bytes are copied.
    assert_near(product(transposes), *operands(35, 33, 21, transposes, dtype), kernels=["pack", "pack", "matrices"])


@pytest.mark.usefixtures("small_tiles")
def test_batches_prologues_and_epilogues() -> None:
    a, b, c = normal(3, 72, 24, dtype=BFLOAT16), normal(3, 24, 40, dtype=BFLOAT16, seed=1), normal(40)
    one = ["matrices"]
    assert_near(lambda a, b: a @ b, a, b, kernels=one)
    assert_near(lambda a, b: wnp.einsum("bmk,kn->bmn", a, b[1]), a, b, kernels=one)
    assert_near(lambda a, b: wnp.einsum("bmk,bnk->mn", a, a[:, ::1]), a, b, kernels=["pack", "pack", *one])
    assert_near(lambda a, b, c: wnp.maximum((a @ b).astype("float32") * 2 + c, 0), a, b, c, kernels=one)
    assert_near(lambda a, b: wnp.tanh(lax.dot(a[0], b[2], preferred_element_type=np.float32) / 9), a, b, kernels=one)
    q, k = normal(2, 36, 4, 16, dtype=np.float16), normal(2, 40, 4, 16, dtype=np.float16, seed=1)
    assert_near(lambda q, k: wnp.einsum("bqhd,bkhd->bhqk", q, k), q, k, kernels=one)


@pytest.mark.usefixtures("small_tiles")
def test_results_may_be_smaller_than_a_tile() -> None:
    for m, n, k in ((40, 16, 64), (8, 24, 32), (72, 8, 40)):
        _, (kernel,) = compiled(lambda a, b: a @ b, *operands(m, n, k, (False, False), BFLOAT16))
        run_blocks(kernel, [0])


def test_few_results_are_sums_of_parts() -> None:
    a, b, c = normal(40, 4096, dtype=BFLOAT16), normal(4096, 72, dtype=BFLOAT16, seed=1), normal(72)
    kernels = ["matrices", "contraction_sum"]
    assert_near(lambda a, b, c: lax.dot(a, b, preferred_element_type=np.float32) + c, a, b, c, kernels=kernels)


@pytest.mark.usefixtures("small_tiles")
def test_nan_and_infinity_stay_in_their_rows() -> None:
    """Zeros beyond the ends of operands do not meet what is not finite."""
    a, b = normal(66, 40, dtype=BFLOAT16), normal(40, 40, dtype=BFLOAT16, seed=1)
    a[65, 39], a[3, 5], b[7, 39] = np.nan, np.inf, np.inf
    program, _ = compiled(lambda a, b: a @ b, a, b)
    got = interpret(program, [a, b])[0].view(BFLOAT16).reshape(66, 40)
    finite = np.isfinite(got.astype(np.float32))
    rows, columns = np.ones(66, bool), np.ones(40, bool)
    rows[[3, 65]], columns[39] = False, False
    assert (finite == rows[:, None] & columns).all()


# -- the code of all threads ----------------------------------------------------------------------------------------


def run_blocks(kernel: Kernel, blocks: list[int], text: str | None = None, target: Target | None = None) -> None:
    """Blocks of threads have the bits of the interpreter, where sums are exact."""
    target = target or WARPS
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-8, 9, int(b.size)).astype(b.dtype) for b in kernel.buffers]
    count, threads = launch_shape(kernel, target)
    for n in blocks:
        want = [x.copy() for x in arrays]
        interpreter.run(kernel, want, n % count, n % count + 1)
        Block(text or module_text([("k", kernel)], target), arrays, threads, n % count).run()
        for one, other in zip(arrays, want, strict=True):
            np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


@pytest.mark.parametrize(("dtype", "transposes"), some(PAIRS, {0, 1, 2, 3}))
@pytest.mark.usefixtures("small_tiles")
def test_threads_have_the_bits_of_the_interpreter(dtype: Any, transposes: tuple[bool, bool]) -> None:
    function = product(transposes)
    a, b = operands(72, 40, 104, transposes, dtype)
    _, (kernel,) = compiled(lambda a, b, c: wnp.maximum(function(a, b) + c, 0), a, b, normal(40, dtype=dtype))
    run_blocks(kernel, [0, -1])


@pytest.fixture
def tiles_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tile], None]:
    """Has contractions computed by tiles of one kind."""

    def choose(tile: Tile) -> None:
        monkeypatch.setattr(matrix_contraction, "TILES", (tile,))
        monkeypatch.setattr(matrix_contraction, "LEAST_WORK", 1)
        monkeypatch.setattr(matrix_contraction, "MOST_PADDING", 100.0)
        monkeypatch.setattr(emissions, "_emissions", type(emissions._emissions)(64))

    return choose


@pytest.mark.parametrize(
    ("dtype", "tile"), some([(d, t) for t in TILES for d in (BFLOAT16, np.float32)], {7, 8}), ids=str
)
def test_tiles_of_all_sizes(tile: Tile, dtype: Any, tiles_of: Callable[[Tile], None]) -> None:
    tiles_of(tile)
    _, (kernel,) = compiled(lambda a, b: a @ b, *operands(tile.rows * 2, 256, 72, (False, False), dtype))
    run_blocks(kernel, [0])


@pytest.mark.parametrize(("dtype", "transposes"), some(PAIRS_OF_SHORT, {0, 1}))
def test_warps_multiply_together(dtype: Any, transposes: tuple[bool, bool], tiles_of: Callable[[Tile], None]) -> None:
    tiles_of(Tile(128, 64, 128, 2) if transposes[0] else Tile(128, 64, 128, 4, 256))
    _, (kernel,) = compiled(product(transposes), *operands(136, 136, 136, transposes, dtype), target=WARPGROUPS)
    text = module_text([("k", kernel)], WARPGROUPS)
    assert "wgmma" in text and "llvm.nvvm.mma" not in text
    run_blocks(kernel, [-1], text, WARPGROUPS)
    with pytest.raises(AssertionError, match="visible"):
        run_blocks(kernel, [0], _without(text, "fence.proxy", 0), WARPGROUPS)


def test_what_only_one_architecture_has_is_for_it() -> None:
    a, b = operands(1024, 1024, 1024, (False, False), BFLOAT16)
    _, (kernel,) = compiled(lambda a, b: a @ b, a, b, target=WARPGROUPS)
    code = ptx(module_text([("k", kernel)], WARPGROUPS), WARPGROUPS)
    assert ".version 8.0\n.target sm_90a\n" in code and "wgmma.mma_async" in code
    _, (kernel,) = compiled(lambda a, b: a @ b, a.astype("f4"), b.astype("f4"), target=WARPGROUPS)
    code = ptx(module_text([("k", kernel)], WARPGROUPS), WARPGROUPS)
    assert ".version 7.8\n.target sm_90\n" in code and "mma.sync" in code


@pytest.mark.parametrize("alignment", [8, 4, 2])
@pytest.mark.usefixtures("small_tiles")
def test_operands_in_slices_are_copied_by_smaller_pieces(alignment: int) -> None:
    a, b = operands(40, 32, 72, (False, False), BFLOAT16)
    _, (kernel,) = compiled(lambda a, b: a @ b, a, b)
    run_blocks(replace(kernel, alignments=(alignment, 16, 16)), [0])


@pytest.mark.usefixtures("small_tiles")
def test_a_missing_barrier_or_wait_is_found() -> None:
    _, (kernel,) = compiled(lambda a, b: a @ b, *operands(64, 32, 128, (False, False), BFLOAT16))
    text = module_text([("k", kernel)], WARPS)
    run_blocks(kernel, [0], text)
    for what, count in (("barrier.cta", 3), ("cp.async.wait.group", 2)):
        lines = [line for line in text.splitlines() if what in line and line.startswith("  ")]
        assert len(lines) == count
        for n in range(count - (what == "cp.async.wait.group")):  # nothing is under way at the end
            with pytest.raises(AssertionError):
                run_blocks(kernel, [0], _without(text, what, n))


def _without(text: str, what: str, n: int) -> str:
    """A text without the n-th line that calls something."""
    lines = text.splitlines()
    found = [i for i, line in enumerate(lines) if what in line and line.startswith("  ")]
    return "\n".join(line for i, line in enumerate(lines) if i != found[n])


@pytest.mark.parametrize("target", [of_capability(8, 0), of_capability(8, 6), WARPS], ids=["8.0", "8.6", "9.0"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_code_is_ptx_of_tensor_cores(target: Target, dtype: Any) -> None:
    _, (kernel,) = compiled(lambda a, b: a @ b, *operands(2048, 1024, 64, (False, False), dtype), target=target)
    code = ptx(module_text([("k", kernel)], target), target)
    kind = {"bfloat16": "m16n8k16.row.col.f32.bf16", "float16": "m16n8k16.row.col.f32.f16"}.get(np.dtype(dtype).name)
    assert f"mma.sync.aligned.{kind or 'm16n8k8.row.col.f32.tf32'}" in code and "cp.async.cg.shared.global" in code
    assert 48 << 10 < launch_bytes(kernel, target) <= target.matrices.local_bytes
    assert ".extern .shared" in code


@pytest.mark.slow
@pytest.mark.skipif(ptxas() is None, reason="the extra ptxas is not installed")
@pytest.mark.parametrize("target", [of_capability(8, 0), WARPS, WARPGROUPS], ids=["sm_80", "sm_90", "sm_90a"])
def test_code_is_assembled_without_spills(target: Target, tmp_path: pathlib.Path) -> None:
    kernels = []
    for dtype, transposes in itertools.product(DTYPES, LAYOUTS):
        for size in (2048, 1000):
            _, found = compiled(product(transposes), *operands(size, size, 1000, transposes, dtype), target=target)
            kernels += [(f"k{len(kernels)}_{n}", k) for n, k in enumerate(found)]
    path = tmp_path / "kernels.ptx"
    path.write_text(ptx(module_text(kernels, target), target))
    architecture = f"{target.cpu}{'a' * (target.matrices.warpgroups > 0)}"
    command = [str(ptxas()), f"-arch={architecture}", "-v", "-o", str(tmp_path / "kernels.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert len(spills) >= len(kernels) and not any(spills)


# -- when ------------------------------------------------------------------------------------------------------------


def test_libraries_come_first() -> None:
    a, b = operands(512, 512, 512, (False, False), BFLOAT16)
    program, kernels = compiled(lambda a, b: a @ b, a, b, target=hopper(frozenset({"cublasLt"})))
    assert not kernels and any(isinstance(step, Call) for step in program.all_steps())
    assert names(lambda a, b: a @ b, a, b) == ["matrices"]
    assert "matrices" not in names(lambda a, b: a @ b, a, b, target=of_capability(7, 5))


def test_precision_and_size() -> None:
    a, b = operands(512, 512, 512, (False, False), np.float32)
    assert names(lambda a, b: a @ b, a, b) == ["matrices"]
    assert names(lambda a, b: wnp.dot(a, b, precision="highest"), a, b) == ["contraction"]
    with weft.default_matmul_precision("float32"):
        assert names(lambda a, b: a @ b, a, b) == ["contraction"]
    assert names(lambda a, b: a[:64, :64] @ b[:64, :64], a, b) == ["contraction"]
    assert names(lambda a, b: a[:4] @ b, a, b) == ["contraction"]  # mostly padding
    assert names(lambda a, b: a @ b, a.astype("int32"), b.astype("int32")) == ["contraction"]


def test_loops_have_small_tiles_until_contractions_are_large() -> None:
    def repeated(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, x: wnp.tanh(x @ w), x)

    for size, columns in ((256, 32), (1024, 128)):
        _, kernels = compiled(repeated, normal(size, size, dtype=BFLOAT16), normal(size, size, dtype=BFLOAT16))
        (found,) = [s for k in kernels if k.parallel for s in k.parallel.body if isinstance(s, GroupMatmul)]
        assert found.columns == (columns if size == 256 else found.columns) and (size == 256) == (found.copies == 2)


def test_a_loop_with_products_is_one_kernel() -> None:
    def repeated(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, wnp.tanh(c[1] @ w)), (0, x))[1]

    program, _ = compiled(repeated, normal(256, 256), normal(256, 256))
    (code,) = find_loops(program, hopper(), 132, lambda step: False).values()
    text = source_text(code.symbol, code, hopper())
    # Two groups of a block have barriers and memory of their own.
    assert "llvm.nvvm.mma" in text and "barrier.cta.sync.aligned.count" in text
    assert shared_bytes(text) <= SHARED_BYTES and ".entry" in ptx(text, hopper())


def test_code_on_disk_knows_its_memory(tmp_path: pathlib.Path) -> None:
    with settings.compilation_cache_dir(str(tmp_path)):
        code = Code(b"code", 3, 128, 110_592)
        store("a_kernel", code, hopper(), "a version")
        assert read_stored("a_kernel", hopper(), "a version") == code


# -- rules -----------------------------------------------------------------------------------------------------------


def kernel_with(**changes: Any) -> Kernel:
    """A kernel with one product, changed."""
    k = KernelBuilder("matmul")
    a, b = (k.buffer(name, BFLOAT16, 64 * 64, written=changes.get("written", False)) for name in "ab")
    y = k.buffer("y", np.float32, 64 * 72, written=True)
    out = y if changes.get("global_sums") else k.local("sums", changes.get("sums", np.float32), 64 * 72)
    left = MatmulOperand(a, Index(), changes.get("stride", 64), changes.get("k_stride", 1))
    right = MatmulOperand(b, Index(changes.get("first", 0)), 1, 64)
    sizes = {"rows": 64, "columns": 64, "k_size": 64, "chunk": 32, "copies": 2, "threads": 128}
    sizes |= {name: changes[name] for name in sizes if name in changes}
    statement = GroupMatmul(out, changes.get("out_stride", 72), left, right, **sizes)
    with k.loop(1, kind=LoopKind.THREADS):
        if changes.get("in_loop"):
            with k.loop(2):
                k.matmul(statement)
        else:
            k.matmul(statement)
        with k.loop(64) as i, k.loop(64, kind=LoopKind.LANES, width=64) as j:
            k.store(y, i * 72 + j, k.load(out, i * 72 + j))
    return k.finish()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 48}, "powers of two"),
        ({"columns": 16}, "powers of two"),
        ({"threads": 64}, "threads"),
        ({"chunk": 16}, "at least two steps"),
        ({"copies": 1}, "at least two of them"),
        ({"out_stride": 71}, "pairs"),
        ({"out_stride": 62}, "pairs"),
        ({"sums": np.float16}, "no products"),
        ({"global_sums": True}, "local memory"),
        ({"written": True}, "which it multiplies"),
        ({"stride": 2, "k_stride": 2}, "side by side"),
        ({"first": 1}, "elements"),
        ({"k_size": 65}, "elements"),
        ({"in_loop": True}, "together"),
    ],
)
def test_the_verifier_refuses(changes: dict[str, Any], message: str) -> None:
    verify(kernel_with())
    with pytest.raises(InternalError, match=message):
        verify(kernel_with(**changes))


def test_the_model_rounds_as_tf32() -> None:
    x = np.array([[1 + 2.0**-11, 1 + 2.0**-12, -(1 + 2.0**-11), np.nan, np.inf]], np.float32).T
    got = group_matmul(x, np.ones((1, 1), np.float32))[:, 0]
    np.testing.assert_array_equal(got, np.array([1 + 2.0**-10, 1, -(1 + 2.0**-10), np.nan, np.inf], np.float32))
