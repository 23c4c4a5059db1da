"""Kernels that are compiled while their program is built: which, to what code, and that nothing else changes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.running import MACHINES, assert_compiles
from weft.compiler.compile import compile_program
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.cost import launches
from weft.compiler.target.cpu import ahead as ahead_module, link
from weft.compiler.target.cpu.ahead import BackgroundCompilation, hot_kernels
from weft.compiler.target.cpu.kernels import compile_kernels
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import OFTEN, lower
from weft.compiler.target.cpu.targets import host, of_flags
from weft.ir.jaxpr import Jaxpr

ROOT = pathlib.Path(__file__).parents[2]
AVX512 = of_flags(
    "x86_64-unknown-linux-gnu", "skylake-avx512", dict.fromkeys(("avx512f", "avx512vl", "avx512bw", "avx512dq"), True)
)


def layers(size: int, count: int) -> Jaxpr:
    """So many equal layers of an MLP, and one that is another."""

    def function(x: Any, weights: Any) -> Any:
        for w in weights:
            x = wnp.tanh(x @ w)
        return wnp.cos(x @ weights[0].T)

    x = np.zeros((size, size), np.float32)
    return weft.make_jaxpr(function)(x, [x] * count).jaxpr


def names(compilation: Any) -> set[str]:
    return {kernel_symbol(step.kernel) for step, _ in launches(compilation.program.steps)}


def test_code_that_is_begun_is_the_code_of_the_program() -> None:
    jaxpr = layers(70, 2)
    ahead = BackgroundCompilation(host(), 1e9)
    program = compile_program(jaxpr, (), host(), begin=ahead.steps).program
    ahead.complete()
    objects = list(ahead.objects(Tier.QUICK))
    exported = [name for code in objects for name in code.exports]
    assert sorted(exported) == sorted({kernel_symbol(step.kernel) for step, _ in launches(program.steps)})
    assert not list(ahead.objects(Tier.LIGHT)) and not list(ahead.objects(Tier.QUICK))
    assert names(compile_program(jaxpr, (), host())) == set(exported)


def test_nothing_is_begun_for_what_is_in_memory_or_takes_long() -> None:
    jaxpr = layers(71, 1)
    short = BackgroundCompilation(host(), 1.0)
    program = compile_program(jaxpr, (), host(), begin=short.steps).program
    short.complete()
    assert not list(short.objects(Tier.QUICK)) and not list(short.objects(Tier.LIGHT))
    code = compile_kernels([step.kernel for step, _ in launches(program.steps)], host(), Tier.QUICK)
    again = BackgroundCompilation(host(), 1e9)
    compile_program(jaxpr, (), host(), begin=again.steps)
    again.complete()
    assert code and not list(again.objects(Tier.QUICK))


def test_modules_are_smaller_where_more_threads_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left at the end goes to a thread where others are at work, and else to who waits for it."""

    def function(x: Any) -> Any:
        for n in range(3):
            x = wnp.sort(wnp.tanh(x @ x.T) * (n + 2), axis=n % 2)
        return x

    modules = []
    for threads, size in ((1, 40), (2, 41), (16, 42)):
        monkeypatch.setattr(ahead_module, "compiling_threads", lambda threads=threads: threads)
        ahead = BackgroundCompilation(host(), 1e9)
        jaxpr = weft.make_jaxpr(function)(np.zeros((size, size), np.float32)).jaxpr
        program = compile_program(jaxpr, (), host(), begin=ahead.steps).program
        ahead.complete_others()
        found = [code.exports for code in ahead.objects(Tier.QUICK)]
        assert {name for exports in found for name in exports} == {
            kernel_symbol(step.kernel) for step, _ in launches(program.steps)
        }
        modules.append(len(found))
    assert 1 < modules[0] <= modules[1] < modules[2]
    small = BackgroundCompilation(host(), 1e9)
    compile_program(weft.make_jaxpr(wnp.sin)(np.zeros(43, np.float32)).jaxpr, (), host(), begin=small.steps)
    small.complete_others()
    assert not list(small.objects(Tier.QUICK))


def test_contractions_that_run_for_long_have_light_code() -> None:
    """Equal ones count together, and so do devices; other kernels are as good in quick code."""
    for size, count, devices, is_hot in ((64, 1, 1, False), (256, 1, 1, False), (256, 50, 1, True), (256, 1, 50, True)):
        jaxpr = layers(size, count)
        ahead = BackgroundCompilation(host(), 1e12, devices)
        program = compile_program(jaxpr, (), host(), begin=ahead.steps).program
        hot = hot_kernels(program, host(), devices)
        assert bool(hot) == is_hot
        begun = {name for code in ahead.objects(Tier.LIGHT) for name in code.exports}
        assert begun == hot or size == 256  # equal kernels of other tests may be in memory already
        contractions = {kernel_symbol(s.kernel) for s, _ in launches(program.steps) if s.kernel.name == "contraction"}
        assert hot <= contractions


def tanhs(count: int) -> Kernel:
    """A kernel with so many hyperbolic tangents, one of the other."""
    k = KernelBuilder("tanhs")
    x, y = k.buffer("x", np.float32, 64), k.buffer("y", np.float32, 64, written=True)
    with k.loop(64, kind=LoopKind.LANES, width=16) as i:
        value = k.load(x, i)
        for _ in range(count):
            value = k.scalars.tanh(value)
        k.store(y, i, value)
    return k.finish()


def test_long_operations_that_a_kernel_has_often_are_called() -> None:
    few, many = (lower(tanhs(count), host()) for count in (OFTEN - 1, OFTEN))
    assert "@tanh_f32_16" not in few
    assert many.count("define internal <16 x float> @tanh_f32_16") == 1
    assert many.count("call <16 x float> @tanh_f32_16") == OFTEN
    assert len(many) < len(few)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_operations_that_are_called_have_the_same_bits(dtype: str) -> None:
    random = np.random.default_rng(0)
    with weft.enable_x64(True):
        x = wnp.asarray(random.standard_normal((37, 64)), dtype)
        w = wnp.asarray(random.standard_normal((64, 100)) / 4, dtype)
        together = weft.jit(lambda x, w: wnp.tanh(x @ w))(x, w)
        apart = weft.jit(wnp.tanh)(weft.jit(lambda x, w: x @ w)(x, w))
        assert np.asarray(together).tobytes() == np.asarray(apart).tobytes()


def eight_sums(steps: int, in_lanes: bool) -> Kernel:
    """Sums of a matrix over so many steps, in eight vectors: of columns, or of the lanes of rows."""
    k = KernelBuilder("sums")
    x, y = k.buffer("x", np.float32, 128 * steps), k.buffer("y", np.float32, 128, written=True)
    zero = k.constant(0, np.float32)
    if in_lanes:
        with k.loop(16 * steps, kind=LoopKind.LANES, width=16, carries=[zero] * 8) as (i, totals):
            sums = k.carry(*(k.scalars.add(t, k.load(x, i + 16 * steps * n)) for n, t in enumerate(totals)))
        for n, value in enumerate(sums):
            k.store(y, n, k.reduce_lanes("add", value, 16))
    else:
        with k.loop(128, kind=LoopKind.LANES, width=128) as i:
            with k.loop(steps, carries=[zero]) as (step, (total,)):
                (value,) = k.carry(k.scalars.add(total, k.load(x, step * 128 + i)))
            k.store(y, i, value)
    return k.finish()


@pytest.mark.parametrize("in_lanes", [False, True])
def test_quick_code_takes_iterations_together_where_loops_carry_much(in_lanes: bool) -> None:
    """As many as their count is a multiple of, in the same order; what it has on the stack is aligned."""
    for steps, together in ((2, 2), (3, 3), (5, 1), (6, 2), (9, 3)):
        kernel = eight_sums(steps, in_lanes)
        once, quick = (lower(kernel, AVX512, several=several) for several in (False, True))
        added = [text.split("after", 1)[0].count("fadd") for text in (once, quick)]
        assert added[1] == together * added[0]
        spills = [line for line in link.assembly(quick, AVX512, Tier.QUICK).splitlines() if "%zmm" in line]
        assert not any("vmovups" in line and "(%rsp)" in line for line in spills)
        x = np.random.default_rng(0).standard_normal(128 * steps).astype(np.float32)
        for machine in MACHINES.values():
            assert_compiles(kernel, [x, np.zeros(128, np.float32)], machine(), tier=Tier.QUICK)


PROGRAM = """
import numpy as np, weft
from weft.compiler.target.cpu import link
texts = []
make = link._object
link._object = lambda *args: texts.append(args[2].name) or make(*args)
x = np.ones((1000, 1000), np.float32)
y = weft.jit(lambda x: weft.numpy.sin(x @ x).sum(0)[::7])(x)
print(float(y[0]), *sorted(texts))
"""


def test_hot_kernels_come_from_disk(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    lines = [
        subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True)
        for _ in range(2)
    ]
    (first, *compiled_first), (second, *compiled_second) = (line.stdout.split() for line in lines)
    assert first == second and "QUICK" in compiled_first and "LIGHT" in compiled_first and not compiled_second
