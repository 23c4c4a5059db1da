"""Kernels for GPUs, on machines without one: every sample of the laws becomes PTX, and where NVIDIA's assembler is
installed (the extra `ptxas`), machine code without spills."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.laws.samples import Case
from tests.laws.test_compiled import GROUPS, merged
from weft import lax
from weft.base.errors import ArgumentError
from weft.compiler.compile import compile_program
from weft.compiler.program.ir import Launch
from weft.compiler.target.cuda.lower import BLOCK, launch_shape, module_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper, of_capability

# Operations that only libraries compute, or the host.
OF_LIBRARIES = {
    "cholesky", "eig", "eigh", "fft", "geqrf", "hessenberg", "householder_product", "linear_solve",
    "lu", "lu_pivots_to_permutation", "qr",
    "schur", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve",
}  # fmt: skip
KERNELS = [(name, cases) for name, cases in GROUPS if cases[0].primitive.name not in OF_LIBRARIES]
# What depends on the platform has another value on GPUs.
SAME = [(name, cases) for name, cases in KERNELS if cases[0].primitive.name != "platform_index"]


def kernels_of(cases: list[Case], prefix: str = "kernel") -> list[tuple[str, Any]]:
    """The kernels of one program with all these samples, and names for them."""
    jaxpr = merged(cases)
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper()).program
    found = {id(step.full): step.full for step in program.all_steps() if isinstance(step, Launch)}
    return [(f"{prefix}{n}", kernel) for n, kernel in enumerate(found.values())]


@pytest.mark.parametrize("cases", [cases for _, cases in KERNELS], ids=[name for name, _ in KERNELS])
def test_samples_become_ptx(cases: list[Case]) -> None:
    kernels = kernels_of(cases)
    if not kernels:  # nothing but copies
        return
    text = module_text(kernels, hopper())
    assert "masked" not in text  # on which LLVM ends the process
    assert ptx(text, hopper()).count(".visible .entry") == len(kernels)


def test_a_thread_has_an_iteration() -> None:
    ((_, kernel),) = kernels_of(next(cases for name, cases in KERNELS if name == "sin-0")[:1])
    assert launch_shape(kernel, hopper()) == (-(-kernel.count // BLOCK), BLOCK)
    code = ptx(module_text([("entry", kernel)], hopper()), hopper())
    assert ".target sm_90" in code and "%ctaid.x" in code and "%tid.x" in code


def test_vectors_are_at_addresses_that_allow_them() -> None:
    def codes(columns: int) -> str:
        return code_of(lambda x: lax.scan(lambda c, row: (c, row * 2), 0, x)[1], np.ones((3, columns), "f4"))

    assert "ld.global.v4" in codes(32) and "v4" not in codes(30)


def code_of(function: Any, *arguments: Any) -> str:
    """The PTX of the last kernel of a program."""
    traced = weft.make_jaxpr(function)(*arguments)
    program = compile_program(traced, [False] * len(arguments), hopper()).program
    kernels = [("entry", step.full) for step in program.all_steps() if isinstance(step, Launch)]
    return ptx(module_text(kernels[-1:], hopper()), hopper())


def test_tiles_of_threads_are_read_and_written_by_vectors() -> None:
    def counted(spec: str, dtype: str) -> list[int]:
        x = np.ones((8192, 32, 32), dtype)
        code = code_of(lambda x: wnp.einsum(spec, x, x), x)
        return [len(re.findall(text, code)) for text in (r"fma\.rn", r"ld\.global\.v[24]", r"st\.global\.v[24]")]

    # Sixteen terms of four rows and four columns, and four of eight rows.
    assert counted("bik,bkj->bij", "float32") == [256, 32, 4]
    assert counted("bik,bjk->bij", "float32") == [128, 12, 8]
    with weft.enable_x64():
        assert counted("bik,bkj->bij", "float64") == [128, 24, 16]


def test_what_follows_tiles_of_threads_is_not_long() -> None:
    x = np.ones((8192, 24, 24), np.float32)
    lines = [len(code_of(lambda x, f=f: f(x @ x), x).splitlines()) for f in (wnp.tanh, lax.lgamma)]
    assert lines[0] < 1000 and lines[1] < 3000  # by groups of threads


def test_sums_of_random_bits_leave_the_units_for_logic_alone() -> None:
    code = code_of(lambda key: weft.random.bits(key, (1 << 16,)), weft.random.key(0))
    # Ten parts of the key for each of four elements of a thread.
    assert [code.count(text) for text in ("shf.l.wrap", "mad.lo.u32")] == [80, 40]


def test_capabilities() -> None:
    assert of_capability(8, 0).cpu == "sm_80"
    assert of_capability(8, 6) is of_capability(8, 6)
    assert of_capability(12, 1).cpu == "sm_120"  # of an earlier one
    with pytest.raises(ArgumentError, match=r"compute capability 7.5 or later"):
        of_capability(6, 1)


def ptxas() -> pathlib.Path | None:
    """NVIDIA's assembler, from its wheel."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in pathlib.Path(folder).glob("*/bin/ptxas"):
            return path
    return None


@pytest.mark.slow
@pytest.mark.skipif(ptxas() is None, reason="the extra ptxas is not installed")
def test_kernels_are_assembled_without_spills(tmp_path: pathlib.Path) -> None:
    kernels = [k for i, (_, cases) in enumerate(KERNELS) for k in kernels_of(cases, f"kernel{i}_")]
    code = tmp_path / "kernels.ptx"
    code.write_text(ptx(module_text(kernels, hopper()), hopper()))
    command = [str(ptxas()), "-arch=sm_90", "-v", "-o", str(tmp_path / "kernels.cubin"), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert len(spills) >= len(kernels) and not any(spills)
