"""Libraries that call BLAS and LAPACK: linked against functions of these names, they compute the bits of jit."""

from __future__ import annotations

import ctypes
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export
from weft.compiler.target.cpu.library import capsules
from weft.errors import ArgumentError, NotSupportedError

CC, NM = shutil.which("cc"), shutil.which("nm")
pytestmark = pytest.mark.skipif(CC is None or NM is None, reason="there is no C compiler")
# Passes at least as many pointers as any function of LAPACK has.
MOST_ARGUMENTS = 32


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def definite(*shape: int) -> np.ndarray:
    a = normal(*shape)
    return a @ np.swapaxes(a, -1, -2) + 40 * np.eye(shape[-1], dtype=np.float32)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (wnp.linalg.cholesky, (definite(3, 20, 20),)),
    "solve": (wnp.linalg.solve, (definite(30, 30), normal(30, 2))),
    "triangular": (lambda a, b: weft.scipy.linalg.solve_triangular(a, b), (np.triu(definite(30, 30)), normal(30, 2))),
    "qr": (wnp.linalg.qr, (normal(2, 9, 5),)),
    "svd": (lambda a: wnp.linalg.svd(a), (normal(2, 9, 5),)),
    "eigh": (wnp.linalg.eigh, (definite(2, 33, 33),)),
    "eig": (wnp.linalg.eigvals, (normal(7, 7),)),
    "lstsq": (lambda a, b: wnp.linalg.lstsq(a, b)[0], (normal(9, 4), normal(9))),
    "in a loop": (
        lambda a: weft.lax.fori_loop(0, 3, lambda n, c: wnp.linalg.cholesky(c @ c.T + 40 * wnp.eye(20)), a),
        (definite(20, 20),),
    ),
    "matmul": (lambda a: (a.astype(wnp.complex64) @ a.astype(wnp.complex64).T).real, (normal(400, 400),)),
}


QUICK = ("cholesky", "in a loop", "matmul")


class Forwarder:
    """Shared library that defines functions of BLAS and LAPACK, which call those of SciPy."""

    def __init__(self, names: Sequence[str], folder: pathlib.Path) -> None:
        parameters = ", ".join(f"void *a{n}" for n in range(MOST_ARGUMENTS))
        operands = ", ".join(f"a{n}" for n in range(MOST_ARGUMENTS))
        text = "".join(
            f"void (*at_{n})({parameters});\nvoid {n}({parameters}) {{ at_{n}({operands}); }}\n" for n in names
        )
        (folder / "forward.c").write_text(text)
        command = [CC, "-shared", "-fPIC", "-O1", "-o", "libforward.so", "forward.c"]
        subprocess.run([str(c) for c in command], cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "libforward.so"), ctypes.RTLD_GLOBAL)
        for name in names:
            address = _address(name.removesuffix("_"))
            ctypes.c_void_p.in_dll(self.library, f"at_{name}").value = address


def _address(name: str) -> int:
    try:
        return capsules.address(f"weft_lapack_{name}")
    except KeyError:
        return capsules.address(f"weft_blas_{name}")


def undefined(files: Sequence[pathlib.Path]) -> list[str]:
    """Return the functions of Fortran that objects call."""
    found: set[str] = set()
    for file in files:
        if file.suffix == ".o":
            out = subprocess.run([str(NM), "-u", str(file)], capture_output=True, text=True, check=True).stdout
            found |= set(re.findall(r"U ([a-z]\w*_)$", out, re.MULTILINE))
    return sorted(found)


@pytest.mark.parametrize("threads", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one thread", "threads"])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FUNCTIONS])
def test_lapack(name: str, threads: bool, tmp_path: pathlib.Path) -> None:
    function, args = FUNCTIONS[name]
    library = export.library(function, *args, name="f", lapack="system", threads=threads)
    files = library.save(tmp_path)
    names = undefined(files)
    if name != "matmul":  # machines with wide registers multiply by kernels
        assert names and "-llapack" in library.header
    if names:
        forwarder = Forwarder(names, tmp_path)
        assert forwarder.library is not None
    loaded = export.load(next(path for path in files if path.suffix == ".so"))
    results, expected = (weft.tree.leaves(t) for t in (loaded(*args), weft.jit(function)(*args)))
    for actual, wanted in zip(results, expected, strict=True):
        assert np.asarray(actual).tobytes() == np.asarray(wanted).tobytes()


def test_what_remains_an_error() -> None:
    x = normal(1021)
    with pytest.raises(NotSupportedError, match=r"fft[\s\S]*test_export_library_lapack\.py"):
        export.library(lambda x: wnp.fft.fft(x).real, x, lapack="system")
    with pytest.raises(NotSupportedError, match="LAPACK"):
        export.library(wnp.sin, x, lapack="system", target="wasm32")
    with pytest.raises(ArgumentError, match="library"):
        export.library(wnp.sin, x, lapack="own")
    with pytest.raises(NotSupportedError, match="lapack="):
        export.library(wnp.linalg.eigvals, normal(4, 4))
