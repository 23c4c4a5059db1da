"""Programs on disk: what a process stored is what the next one runs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compilation_of, compile_program
from weft import lax
from weft.base import settings
from weft.compiler import cache
from weft.compiler.fingerprint import fingerprint
from weft.compiler.load import from_steps
from weft.compiler.program import stored
from weft.compiler.target.cpu import kernels
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.runtime.cpu.executable import Executable

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "programs"
    with settings.compilation_cache_dir(str(path)):
        yield path


def traced(function: Callable[..., Any], *arguments: Any) -> Jaxpr:
    return constants_to_arguments(weft.make_jaxpr(function)(*arguments))


def looped(x: Any, w: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        new = wnp.tanh(carry @ w + row)
        return lax.cond(new.sum() > 0, lambda: new, lambda: -new), new.max()

    last, all_of_them = lax.scan(body, wnp.zeros(8), x)
    return lax.while_loop(lambda v: (v < 100).all(), lambda v: v * 2 + 1, last), all_of_them


X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
BIG = np.random.default_rng(2).normal(size=(128, 128)).astype(np.float32)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "map": (lambda x: wnp.sin(x) * 2 + 1, (X,)),
    "loops": (looped, (X, W)),
    "gradient of loops": (weft.grad(lambda x, w: looped(x, w)[1].sum(), 1), (X, W)),
    "product": (lambda a, b: wnp.exp(a @ b) @ a, (BIG, BIG)),
    "solve": (lambda a, b: wnp.linalg.solve(a, b), (BIG, BIG)),
    "sort": (lambda x: (wnp.sort(x, 0), wnp.argsort(x, 1)), (X,)),
    "constants": (lambda x: x + wnp.cumsum(wnp.arange(8, dtype=np.float32)) * 3, (X,)),
    "counted": (lambda n, x: lax.fori_loop(0, n, lambda i, y: y * 2 + i, x), (np.int32(5), X)),
}


def lines_of(executable: Executable) -> list[str]:
    return ["" if step.line is None else step.line.describe() for step in executable.program.all_steps()]


def outcomes(executable: Executable, arguments: Any) -> list[bytes]:
    args = [np.array(a) for a in weft.tree.leaves(arguments)]
    return [np.asarray(r).tobytes() for r in executable(args)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stored_programs_compute_the_same(name: str) -> None:
    function, arguments = PROGRAMS[name]
    jaxpr = traced(function, *arguments)
    result = compile_program(jaxpr)
    content = stored.to_bytes(result.program)
    assert content is not None
    expected = outcomes(Executable(result), arguments)
    again = Executable(from_steps(jaxpr, (), stored.from_bytes(content, jaxpr.name), result.target))
    assert outcomes(again, arguments) == expected
    again.optimise()
    assert outcomes(again, arguments) == expected
    assert stored.to_bytes(again.program) == content


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_of_a_stored_program_are_those_of_compilation(name: str, folder: pathlib.Path) -> None:
    function, arguments = PROGRAMS[name]
    jaxpr = traced(function, *arguments)
    first, second = Executable(compilation_of(jaxpr)), Executable(compilation_of(traced(function, *arguments)))
    assert "passes" in first.compilation.seconds and second.compilation.details is None
    for look in ("program", "kernels", "llvm", "fusions", "cost_analysis", "memory_analysis"):
        assert getattr(second.inside, look)() == getattr(first.inside, look)()
    assert lines_of(second) == lines_of(first)


def test_later_inspection_uses_the_original_settings(folder: pathlib.Path) -> None:
    jaxpr = traced(lambda x: wnp.log(x), X)
    Executable(compilation_of(jaxpr))
    second = Executable(compilation_of(jaxpr))
    with settings.debug_nans(True):
        assert "check" not in second.inside.program()


def test_programs_that_call_python_are_not_stored(folder: pathlib.Path) -> None:
    def called(x: Any) -> Any:
        return weft.pure_callback(np.sin, weft.ShapeDtypeStruct((5, 8), np.float32), x)

    compilation_of(traced(called, X))
    assert not list(folder.glob("*.p"))


def test_missing_code_is_recompiled(folder: pathlib.Path) -> None:
    # Nobody else has this program, so its kernels are in no other code.
    jaxpr = traced(lambda x: wnp.cos(x * 1.25) + wnp.flip(x, 0) ** 3, X[:3, :7])
    expected = outcomes(Executable(compilation_of(jaxpr)), X[:3, :7])
    kernels._compiled.clear()
    for path in [*folder.glob("*.o"), *folder.glob("*.k")]:
        path.unlink()
    again = compilation_of(jaxpr)
    assert again.details is None
    assert outcomes(Executable(again), X[:3, :7]) == expected
    assert again.details is not None


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_program_is_recompiled(folder: pathlib.Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    jaxpr = traced(looped, X, W)
    expected = outcomes(Executable(compilation_of(jaxpr)), (X, W))
    (path,) = folder.glob("*.p")
    content = bytearray(path.read_bytes())
    if seed % 2:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    else:
        del content[int(rng.integers(len(content))) :]
    path.write_bytes(bytes(content))
    again = compilation_of(jaxpr)
    assert again.details is not None
    assert outcomes(Executable(again), (X, W)) == expected


PROCESS = """
import sys
import numpy as np
import weft, weft.numpy as wnp
def f(x, w):
    for _ in range(3):
        x = wnp.tanh(x @ w)
    return (x ** 2).sum()
rng = np.random.default_rng(0)
value, slope = weft.jit(weft.value_and_grad(f))(*(wnp.asarray(rng.normal(size=(80, 80)), wnp.float32) for _ in "xw"))
print(np.asarray(slope).tobytes().hex()[:400], float(value))
parts = ("pipeline", "emit", "fuse", "program.build", "target.cpu.lower", "target.lower", "target.vectors",
         "target.lanes", "library.planning")
print([m for m in sys.modules if m.startswith(tuple("weft.compiler." + part for part in parts))])
"""


def test_a_second_process_does_not_load_the_compiler(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
    command = [sys.executable, "-c", PROCESS]
    first, second = (
        subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=True, timeout=120)
        for _ in range(2)
    )
    assert first.stdout.split("\n")[0] == second.stdout.split("\n")[0]
    assert "weft.compiler.pipeline" in first.stdout.split("\n")[1]
    assert second.stdout.split("\n")[1] == "[]"


def test_a_first_program_loads_what_it_needs() -> None:
    text = """
import sys
import weft, weft.numpy as wnp
weft.jit(lambda x: wnp.tanh(x) * wnp.exp(-x * x) + wnp.sin(x))(wnp.ones(1000)).block_until_ready()
others = ("emit.contractions", "emit.sorts", "emit.windows", "emit.reductions", "target.cpu.library", "partition")
print([m for m in sys.modules if m.startswith(tuple("weft.compiler." + part for part in others))])
print([name for name in ("fractions", "scipy", "scipy.linalg") if name in sys.modules])
"""
    environment = {**os.environ, "WEFT_COMPILATION_CACHE": "0"}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


# -------------------------------------------------------------------------------------------------------- fingerprints


def test_equal_programs_have_one_fingerprint() -> None:
    def one(x: Any) -> Any:
        return wnp.sin(x) + 1

    def other(value: Any) -> Any:
        found = wnp.sin(value)
        return found + 1

    assert fingerprint(traced(one, X)) == fingerprint(traced(other, X)) is not None


def test_each_difference_changes_the_fingerprint() -> None:
    functions = [
        lambda x: wnp.sin(x) + 1,
        lambda x: wnp.sin(x) + 2,
        lambda x: wnp.cos(x) + 1,
        lambda x: 1 - wnp.sin(x),
        lambda x: wnp.sin(x) - 1,
        lambda x: wnp.sin(x).sum(0),
        lambda x: wnp.sin(x).sum(1),
        lambda x: (wnp.sin(x), x),
        lambda x: (x, wnp.sin(x)),
        lambda x: lax.scan(lambda c, r: (c + r, r), x[0], x),
        lambda x: lax.scan(lambda c, r: (c - r, r), x[0], x),
        lambda x: lax.scan(lambda c, r: (c - r, r), x[0], x, reverse=True),
        lambda x: weft.jit(lambda y: y * 2)(x),
        lambda x: weft.jit(lambda y: y * 3)(x),
    ]
    found = [fingerprint(traced(f, X)) for f in functions]
    found += [fingerprint(traced(functions[0], X[:4])), fingerprint(traced(functions[0], X.astype(np.float16)))]
    assert None not in found and len(set(found)) == len(found)


def test_negative_zero_and_nan_are_distinguished() -> None:
    values = (0.0, -0.0, np.nan, np.inf, 1.0)
    found = {fingerprint(traced(lambda x, v=v: wnp.maximum(x, np.float32(v)), X)) for v in values}
    assert len(found) == len(values)


def test_fingerprints_ignore_derivative_rules_but_not_functions() -> None:
    @weft.custom_jvp
    def twice(x: Any) -> Any:
        return x * 2

    twice.defjvp(lambda primals, tangents: (twice(primals[0]), tangents[0] * 2))
    assert fingerprint(traced(twice, X)) is not None
    callback = traced(lambda x: weft.pure_callback(np.sin, weft.ShapeDtypeStruct((5, 8), np.float32), x), X)
    assert fingerprint(callback) is None


def test_settings_and_machines_are_part_of_the_key(folder: pathlib.Path) -> None:
    jaxpr = traced(lambda x: x + 1, X)
    compilation_of(jaxpr)
    compilation_of(jaxpr, (True,))
    with settings.debug_key_reuse(True):
        compilation_of(jaxpr)
    assert len(list(folder.glob("*.p"))) == 3
    assert cache.state_of_weft() != cache.state_of_compiler()
