"""Targets: the settings, and that all choices depend on the target alone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.compiler.host import AVX2, AVX512, compile_program, run_passes
from weft.compiler import cache
from weft.compiler.emit.contractions.tiling import fits
from weft.compiler.emit.key import fusion_key
from weft.compiler.fuse.driver import fuse
from weft.compiler.program.ir import Call
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.targets import ASKED, aarch64, host_avx2
from weft.compiler.target.target import Libraries, Target

CODE = (
    "import numpy as np, weft; from weft.compiler.target.cpu.targets import host;"
    "x = np.linspace(-1, 1, 37, dtype=np.float32).reshape(1, 37);"
    "y = weft.jit(lambda x: weft.numpy.exp(x) @ x.T)(x); np.testing.assert_allclose(y, np.exp(x) @ x.T, rtol=1e-5);"
    "print(host().vector_bits)"
)


@pytest.mark.skipif(host_avx2().vector_bits != 256, reason="the machine has no AVX2")
def test_programs_for_an_older_machine_run_here() -> None:
    environment = {**os.environ, ASKED: "avx2"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "256"


def test_other_names_are_refused() -> None:
    environment = {**os.environ, ASKED: "mmx"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "must be avx2" in done.stderr


# ---------------------------------------------------------------------------------------------------- choices by target


def routines(size: int, target: Target) -> list[str]:
    """What libraries a product of matrices calls on a machine."""
    a = weft.ShapeDtypeStruct((size, size), np.float32)
    program = compile_program(weft.make_jaxpr(lambda x, y: x @ y)(a, a), target=target).program
    return [step.label for step in program.all_steps() if isinstance(step, Call)]


@pytest.mark.parametrize("target", [host_avx2(), AVX2, aarch64()], ids=["host", "x86", "arm"])
def test_large_matmuls_use_blas_on_machines_with_narrow_registers(target: Target) -> None:
    assert routines(400, target) == ["dot_general"]
    assert routines(300, target) == []


def test_large_matmuls_use_our_kernels_on_machines_with_wide_registers() -> None:
    assert routines(400, AVX512) == []
    assert routines(400, replace(AVX512, libraries=Libraries())) == ["dot_general"]


def test_tiles_have_the_registers_of_the_machine() -> None:
    """AVX2 has half as many registers as AArch64, so its tiles of sums are smaller."""
    assert (AVX2.vector_registers, aarch64().vector_registers, AVX512.vector_registers) == (16, 32, 32)
    assert fits(aarch64(), np.dtype(np.float32), 6, 4) and not fits(AVX2, np.dtype(np.float32), 6, 4)


def test_equal_targets_have_equal_keys() -> None:
    again = replace(AVX512)
    assert again == AVX512 and hash(again) == hash(AVX512) and again.key == AVX512.key
    assert "set(" not in AVX512.key


@pytest.mark.parametrize(
    "changed",
    [
        replace(AVX512, vector_registers=16),
        replace(AVX512, masks=False),
        replace(AVX512, tiles=True),
        replace(AVX512, fusion=replace(AVX512.fusion, values=4)),
        replace(AVX512, matmul=replace(AVX512.matmul, load=0.5)),
        replace(AVX512, kernel=replace(AVX512.kernel, simple=0.5)),
        replace(AVX512, libraries=Libraries()),
    ],
)
def test_every_property_is_in_every_key(changed: Target) -> None:
    assert changed != AVX512 and changed.key != AVX512.key
    assert cache.make_key("text", changed, Tier.LIGHT.name) != cache.make_key("text", AVX512, Tier.LIGHT.name)
    jaxpr = weft.make_jaxpr(lambda x: x + 1)(np.ones(3, np.float32))
    assert fusion_key("loop", jaxpr, None, changed) != fusion_key("loop", jaxpr, None, AVX512)


def test_fusion_is_cached_per_target() -> None:
    jaxpr = run_passes(weft.make_jaxpr(lambda x: weft.numpy.exp(x) * 2 + 1)(np.ones(300, np.float32)))
    tight = replace(AVX512, fusion=replace(AVX512.fusion, values=1))
    assert len(fuse(jaxpr, tight).eqns) == 3 and len(fuse(jaxpr, AVX512).eqns) == 1
