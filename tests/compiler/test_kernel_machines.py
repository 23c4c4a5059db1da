"""Machine code: its instructions on each machine, how it is linked, and that it is reproducible."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.compiler import kernels
from tests.compiler.running import aligned, numbers
from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import lower, module_text
from weft.compiler.target.cpu.targets import aarch64, host, host_avx2, host_scalar, of_flags
from weft.compiler.target.target import Target

ROOT = pathlib.Path(__file__).parents[2]
AVX512 = of_flags(
    "x86_64-unknown-linux-gnu", "skylake-avx512", dict.fromkeys(("avx512f", "avx512vl", "avx512bw", "avx512dq"), True)
)
AVX2 = of_flags("x86_64-unknown-linux-gnu", "haswell", {"avx2": True, "fma": True})

EXAMPLES: dict[str, Kernel] = {
    "fused_map": kernels.fused_map(1001),
    "row_sum": kernels.row_reduction(30, 41),
    "column_sum": kernels.column_reduction(30, 41),
    "transposed": kernels.transposed(30, 41),
    "padded": kernels.padded(100, 3, 5),
    "taken": kernels.taken(100, 7),
    "reversed": kernels.reversed_copy(101),
    "bytes": kernels.padded(101, 3, 5, np.int8, 32),
    "complex": kernels.row_reduction(3, 41, dtype=np.complex64),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("target", [AVX512, AVX2, aarch64()], ids=["avx512", "avx2", "aarch64"])
def test_every_machine_compiles(name: str, target: Target) -> None:
    text = lower(EXAMPLES[name], target)
    link.check(text, target)
    result = link.make_object(text, target)
    assert result.exports == ("kernel",)
    # Everything is code of its own: no call of a function that a machine would have to offer.
    assert result.imports == ()
    machine = {"x": 0x3E, "a": 0xB7}[target.triple[0]]
    assert result.code[:4] == b"\x7fELF" and int.from_bytes(result.code[18:20], "little") == machine


def test_vectors_are_those_of_the_machine() -> None:
    text = {f.vector_bits: link.assembly(lower(EXAMPLES["fused_map"], f), f) for f in (AVX512, AVX2, aarch64())}
    assert re.search(r"vmulps.*zmm", text[512]) and "%k" in text[512]
    assert re.search(r"vmulps.*ymm", text[256]) and "zmm" not in text[256]
    assert re.search(r"fmul\s+v\d+\.4s", text[128])
    # Each operation rounds by itself: nothing is contracted to a fused multiply-add.
    assert not re.search(r"\bv?fn?m(add|la|sub|ls)", "".join(text.values()))


def test_a_size_that_fits_needs_no_masks() -> None:
    for kernel in (kernels.row_reduction(4, 64), kernels.column_reduction(4, 64)):
        assert "masked" not in lower(kernel, AVX512)
    assert "masked" in lower(kernels.row_reduction(4, 65), AVX512)


def test_only_the_tail_of_light_loops_is_masked() -> None:
    """Whole vectors have a body without masks, and one masked vector follows; where that pays."""

    def doubled(size: int, op: str = "add") -> Kernel:
        return kernels.flat_map(op, (np.float32,) * (2 if op == "add" else 1), np.float32, size, 16)

    for size in (129, 143, 1001):
        text = lower(doubled(size), AVX512)
        assert len(re.findall(r"call .*@llvm\.masked\.(load|store)", text)) == 3, "in the tail"
        assert len(re.findall(r"(load|store) <16 x float>", text)) == 3, "in whole vectors"
        assert "load <16 x float>" in lower(kernels.row_reduction(4, size), AVX512)
    # Fewer than eight vectors, expensive work, a loop in the body, a bound that only comes at run time: one body.
    for kernel in (doubled(127), doubled(1001, "tanh"), kernels.column_reduction(4, 1001), kernels.fused_map(1001)):
        assert "masked.load" in lower(kernel, AVX512) and "load <16 x float>" not in lower(kernel, AVX512)


def test_accesses_are_what_the_index_says() -> None:
    text = lower(kernels.transposed(64, 64), AVX512)
    assert "masked.gather" in text and "masked.scatter" not in text and "store <16 x float>" in text
    text = lower(kernels.scattered(64, 64), AVX512)
    assert "masked.scatter" in text and "masked.gather" not in text and "load <16 x float>" in text
    assert "gather" not in lower(kernels.reversed_copy(64), AVX512)


def test_lanes_of_machines() -> None:
    for target, expected in (
        (AVX512, (16, 8, 64)),
        (AVX2, (8, 4, 32)),
        (aarch64(), (4, 2, 16)),
        (host_scalar(), (1, 1, 1)),
    ):
        assert tuple(target.lanes(d) for d in (np.float32, np.float64, np.int8)) == expected
    assert AVX512.lanes(np.float16) == AVX512.lanes(kernels.dtype("bfloat16")) == 16
    assert AVX512.lanes(np.complex64) == 16
    assert host_avx2().vector_bits <= 256 and host().vector_bits >= host_avx2().vector_bits


@pytest.mark.parametrize("tier", Tier)
def test_tiers_compute_the_same_bits(tier: Tier) -> None:
    kernel = kernels.row_reduction(3, 1000)
    rng = np.random.default_rng(0)
    x, y = aligned(3000, np.float32), aligned(3, np.float32)
    x[:] = rng.standard_normal(3000)
    library = link.compile_and_load(lower(kernel, host()), tier=tier)
    library.run("kernel", [x.ctypes.data, y.ctypes.data], 0, 3)
    lanes = np.zeros((3, 16), np.float32)
    for start in range(0, 1000, 16):
        part = x.reshape(3, 1000)[:, start : start + 16]
        lanes[:, : part.shape[1]] += part
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    np.testing.assert_array_equal(y, lanes[:, 0])


def test_an_object_can_be_stored() -> None:
    result = pickle.loads(pickle.dumps(link.make_object(lower(kernels.reversed_copy(5), host()))))
    x, y = numbers(np.random.default_rng(0), "float32", 5), np.zeros(5, np.float32)
    for _ in range(2):
        y[:] = 0
        link.load(result).run("kernel", [x.ctypes.data, y.ctypes.data])
        np.testing.assert_array_equal(y, x[::-1])


CALLER = """
define i64 @twice(i64 %x) {
  %y = call i64 @weft_test_symbol(i64 %x)
  %z = call i64 @weft_test_symbol(i64 %y)
  ret i64 %z
}
declare i64 @weft_test_symbol(i64)
"""


def test_symbols_of_the_process() -> None:
    result = link.make_object(CALLER)
    assert result.imports == ("weft_test_symbol",)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    add_three, add_five = function(lambda x: x + 3), function(lambda x: x + 5)
    three, five = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (add_three, add_five))
    library = link.load(result, {"weft_test_symbol": five})
    assert library.function("twice", ctypes.c_int64, ctypes.c_int64)(1) == 11
    link.provide({"weft_test_symbol": three})
    library = link.load(result)
    assert library.function("twice", ctypes.c_int64, ctypes.c_int64)(1) == 7


def test_a_symbol_that_is_missing_is_named() -> None:
    with pytest.raises(InternalError, match="weft_no_such_symbol"):
        link.compile_and_load(CALLER.replace("weft_test_symbol", "weft_no_such_symbol"))


def test_text_that_is_wrong_is_shown() -> None:
    with pytest.raises(InternalError, match="LLVM cannot parse") as caught:
        link.make_object("define void @f() { ret i32 0 }")
    assert "define void @f()" in (caught.value.text or "")


def test_threads_compile_at_once() -> None:
    wrong: list[str] = []

    def work(size: int) -> None:
        x, y = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        library = link.compile_and_load(lower(kernels.reversed_copy(size), host()), tier=Tier.QUICK)
        library.run("kernel", [x.ctypes.data, y.ctypes.data])
        if not np.array_equal(y, x[::-1]):
            wrong.append(f"size {size}")

    threads = [threading.Thread(target=work, args=(size,)) for size in range(20, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_generate_the_same_code() -> None:
    result = {f"reversed_{size}": kernels.reversed_copy(size) for size in (5, 17, 33, 64, 100)}
    texts = [functools.partial(module_text, [item], host()) for item in result.items()]
    for tier in Tier:
        alone = [link.make_object(text(), host(), tier) for text in texts]
        assert link.make_objects(texts, host(), tier) == alone
    with pytest.raises(InternalError, match="cannot parse"):
        link.make_objects([*texts, lambda: "define void @f() { ret i32 0 }"], host(), Tier.LIGHT)


ENDING = """
import numpy as np, weft, weft.numpy as wnp
def f(x):
    parts = [wnp.cumsum(x, 0), wnp.sort(x, 1), wnp.argmax(x, 0), x @ x, x.T @ x + 1, wnp.flip(x, 0).cumsum(1), x.sum(0)]
    parts += [wnp.linalg.cholesky(x @ x.T + 9 * wnp.eye(8)), x[wnp.argsort(x[0])], wnp.tanh(x).max(1)]
    return parts
f = weft.jit(f)
x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
for _ in range(3):
    f(x)
"""


def test_a_process_may_end_during_background_compilation(tmp_path: pathlib.Path) -> None:
    """Python's pools of threads take no more work then, before the thread that asks for code has ended."""
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "objects")}
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stderr == ""
