"""The programs of examples/c_library, in C, Rust and Go, compute what the function computes in Python."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

import weft

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "c_library"
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """Import the script that compiles the library."""
    spec = importlib.util.spec_from_file_location("c_library_build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Copy the programs to a folder, beside which the library is."""
    root = tmp_path_factory.mktemp("examples")
    shutil.copytree(FOLDER, root / "c_library", ignore=shutil.ignore_patterns("__pycache__"))
    build.compile_model().save(root / "out" / "c_library")
    return root / "c_library"


def numbers(state: int) -> Iterator[np.float32]:
    """Yield the sequence of numbers that the programs draw."""
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield np.float32(state >> 8) / np.float32(8388608) - np.float32(1)


@pytest.fixture(scope="module")
def expected(build: ModuleType) -> list[str]:
    """Compute the lines that the programs print."""
    drawn, lines = numbers(1), []

    def draw(*shape: int) -> np.ndarray:
        return np.array([next(drawn) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)

    params = {"w1": draw(build.INPUTS, build.HIDDEN), "b1": np.zeros(build.HIDDEN, np.float32)}
    params["w2"] = draw(build.HIDDEN, 1) / np.float32(4)
    step = weft.jit(build.step)
    for n in range(1, 4001):
        x = draw(build.BATCH, build.INPUTS)
        params, loss = step(params, x, x[:, 0] * x[:, 1])
        if n % 1000 == 0:
            lines.append(f"step {n}: loss {float(loss):.6f}")
    halves = np.full((build.BATCH, build.INPUTS), 0.5, np.float32)
    return [*lines, f"0.5 * 0.5 = {float(weft.jit(build.predict)(params, halves)[0]):.6f}"]


def check_output(command: list[str], expected: list[str], **options: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(
    "options", [[], ["-fsanitize=address,undefined", "-static-libasan"]], ids=["plain", "sanitized"]
)
def test_c(sources: pathlib.Path, expected: list[str], options: list[str]) -> None:
    library = sources.parent / "out" / "c_library"
    program = sources / "main"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror", *options]
    command = [str(COMPILER), *warnings, f"-I{library}", str(sources / "main.c"), str(library / "libmodel.a")]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    if options and "libasan" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    check_output([str(program)], expected)


@pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no Rust compiler")
def test_rust(sources: pathlib.Path, expected: list[str]) -> None:
    library = sources.parent / "out" / "c_library"
    program = sources / "main_rust"
    command = ["rustc", "--edition", "2021", "-D", "warnings", "-O", "-L", str(library), "-o", str(program)]
    subprocess.run([*command, str(sources / "main.rs")], check=True, timeout=300)
    check_output([str(program)], expected)
    # The example has memory of a fixed size, since Rust does not read the header.
    wanted = re.search(r"#define MODEL_WORKSPACE_BYTES (\d+)", (library / "model.h").read_text())
    reserved = re.search(r"struct Workspace\(\[u8; (\d+)\]\)", (sources / "main.rs").read_text())
    assert wanted is not None and reserved is not None and int(wanted[1]) <= int(reserved[1])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go compiler")
def test_go(sources: pathlib.Path, expected: list[str], tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "1"}
    check_output(["go", "run", str(sources / "main.go")], expected, env=environment)
