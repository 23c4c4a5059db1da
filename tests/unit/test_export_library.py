"""Libraries: functions compiled for C, saved, linked and called without the compiler."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export, lax
from weft.errors import ArgumentError, FailedCheckError, FileFormatError, NotSupportedError
from weft.experimental import checkify

Spec = weft.ShapeDtypeStruct
ROOT = pathlib.Path(__file__).parents[2]
CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
POINTER = ctypes.c_void_p


def f32(*shape: Any) -> Spec:
    return Spec(shape, np.float32)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def linked(folder: pathlib.Path, built: export.Library) -> pathlib.Path:
    """Save a library and return the shared one."""
    return next(path for path in built.save(folder) if path.suffix == ".so")


def assert_same(actual: Any, expected: Any) -> None:
    actual, expected = (weft.tree.leaves(t) for t in (actual, expected))
    for a, b in zip(actual, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


# ------------------------------------------------------------------------------------------------------------ programs


def with_loops(x: Any) -> Any:
    total, rows = lax.scan(lambda c, row: (c + row, c * row), wnp.zeros(5), x)
    count = lax.while_loop(lambda s: s.sum() < 100, lambda s: s + wnp.abs(total) + 1, wnp.ones(5))
    return lax.cond(total[0] > 0, lambda: rows.T, lambda: -rows.T), count


def with_keys(seed: Any) -> Any:
    keys = weft.random.split(weft.random.key(seed))
    return weft.random.normal(keys[0], (7,)), keys


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "contraction": (lambda x, w: wnp.tanh(x @ w), (normal(7, 11), normal(11, 9))),
    "large contraction": (lambda x: x @ x.T, (normal(400, 400),)),
    "loops": (with_loops, (normal(6, 5),)),
    "reversed": (weft.grad(lambda x: with_loops(x)[0].sum()), (normal(6, 5),)),
    "tree": (lambda p, *, y: {"a": p["w"] + y, "b": (p["w"].sum(), y)}, ({"w": normal(3)},)),
    "bfloat16": (lambda x: (x.astype(wnp.bfloat16) * 2, x.astype(wnp.float16)), (normal(37),)),
    "scalars": (lambda x, i: x[i] * 2, (normal(5), np.int32(3))),
    "empty": (lambda x: (x, x.sum()), (normal(0, 3),)),
    "passed on": (lambda x: (x, x.T, 3.0), (normal(2, 3),)),
    "complex": (lambda x: wnp.exp(1j * x), (normal(9),)),
}


@needs_cc
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_library_computes_the_bits_of_jit(name: str, tmp_path: pathlib.Path) -> None:
    function, args = PROGRAMS[name]
    kwargs = {"y": np.float32(2)} if name == "tree" else {}
    traced = weft.jit(function).trace(*args, **kwargs)
    built = export.library(export.export(weft.jit(function))(*args, **kwargs), name="f")
    assert traced.out_tree is not None
    loaded = export.load(linked(tmp_path, built))
    expected = weft.jit(function)(*args, **kwargs)
    if name == "large contraction":  # jit may call BLAS
        np.testing.assert_allclose(loaded(*args), expected, rtol=1e-4, atol=1e-4)
    else:
        assert_same(loaded(*args, **kwargs), expected)


@needs_cc
def test_random_keys(tmp_path: pathlib.Path) -> None:
    built = export.library(with_keys, Spec((), np.uint32), name="f")
    values, keys = export.load(linked(tmp_path, built))(np.uint32(7))
    expected = weft.jit(with_keys)(np.uint32(7))
    assert_same((values, keys), (expected[0], weft.random.key_data(expected[1])))


@needs_cc
def test_several_functions_share_a_library(tmp_path: pathlib.Path) -> None:
    w = normal(300, 3)
    functions = {"forward": (lambda x: x @ w, f32(4, 300)), "total": (lambda x: x.sum(), f32(4, 300))}
    built = export.library(functions, name="both")
    assert [s.name for s in built.signatures] == ["forward", "total"]
    loaded, x = export.load(linked(tmp_path, built)), normal(4, 300)
    assert_same((loaded.forward(x), loaded.total(x)), (weft.jit(lambda x: x @ w)(x), x.sum()))
    assert loaded.properties["target"] == "host" and not hasattr(loaded, "other")


@needs_cc
def test_donated_arguments_share_memory_with_results(tmp_path: pathlib.Path) -> None:
    step = weft.jit(lambda p, x: (weft.tree.map(lambda a: a - 0.1 * x, p), x * 2), donate_argnums=0)
    p, x = {"a": normal(5), "b": normal(2, 5)}, normal(5)
    built = export.library(step, p, x, name="step")
    assert [t.alias for t in built.signature.results] == [0, 1, None]
    assert "float *p_a, float *p_b, const float *x, float *result_2, void *workspace" in built.header
    assert_same(export.load(linked(tmp_path, built))(p, x), step(weft.tree.map(wnp.array, p), x))


SWAPS: dict[str, Callable[..., Any]] = {
    "swapped": lambda p, q: (q, p),
    "one needs the other": lambda p, q: (p + q.sum(), q * p.sum()),
    "the same": lambda p, q: (p, p),
    "crossed": lambda p, q: (q + 1, p * 2),
    "one result": lambda p, q: (p.T @ q.reshape(3, 1), q),
}


@needs_cc
@pytest.mark.parametrize("name", SWAPS)
def test_results_have_the_memory_of_donated_arguments_of_their_types(name: str, tmp_path: pathlib.Path) -> None:
    """Whatever order the program computes them in."""
    function, p, q = SWAPS[name], normal(3), normal(3) + 1
    built = export.library(weft.jit(function, donate_argnums=(0, 1)), p, q, name="f")
    aliases = [t.alias for t in built.signature.results]
    assert aliases == ([None, 0] if name == "one result" else [0, 1])
    assert_same(export.load(linked(tmp_path, built))(p, q), weft.jit(function)(p, q))


@needs_cc
@pytest.mark.parametrize("place", ["inline", "separate"])
def test_constants(place: str, tmp_path: pathlib.Path) -> None:
    w, small = normal(30, 40), normal(40)
    built = export.library(lambda x: x @ w + small, f32(2, 30), name="f", constants=place)
    separate = place == "separate"
    assert [t.constant for t in built.signature.arguments] == [False] + [True] * separate
    file, x = linked(tmp_path, built), normal(2, 30)
    assert (tmp_path / "f.safetensors").exists() == separate
    assert_same(export.load(file)(x), weft.jit(lambda x: x @ w + small)(x))
    if separate:
        (tmp_path / "f.safetensors").rename(tmp_path / "other")
        assert_same(export.load(file, constants=tmp_path / "other")(x), weft.jit(lambda x: x @ w + small)(x))


@needs_cc
def test_functions_share_separate_constants(tmp_path: pathlib.Path) -> None:
    """Equal constants are stored once, and different ones have different names, also from those of arguments."""
    w, v = normal(30, 40), normal(40, 30)
    functions = {
        "first": (lambda constant_0: constant_0 @ w, f32(2, 30)),
        "second": (lambda x: (x @ w @ v, x @ w), f32(2, 30)),
    }
    built = export.library(functions, name="both", constants="separate")
    assert len(built.constants) == 2 and "constant_0_2" in built.header
    x = normal(2, 30)
    for loaded in (export.load(linked(tmp_path, built)), export.load(built.write(tmp_path / "m.so")[0])):
        for name, (function, _) in functions.items():
            assert_same(getattr(loaded, name)(x), weft.jit(function)(x))


@needs_cc
def test_structures_without_json(tmp_path: pathlib.Path) -> None:
    """Keys of dicts that no file can have: results are one tuple."""
    tree = {(1, 2): np.float32(3), (0, 1): normal(2)}
    built = export.library(lambda t: weft.tree.map(lambda a: a * 2, t), tree, name="f")
    results = export.load(linked(tmp_path, built))(tree)
    assert_same(results, [leaf * 2 for leaf in weft.tree.leaves(tree)])


@needs_cc
def test_factorizations_and_transforms_need_no_other_library(tmp_path: pathlib.Path) -> None:
    def function(a: Any, b: Any) -> Any:
        s = a @ a.T + wnp.eye(20)
        solved = wnp.linalg.solve(s, b), wnp.linalg.lstsq(a, b)[0], wnp.linalg.cholesky(s)
        return solved, wnp.linalg.svd(a)[1], wnp.linalg.eigh(s)[0], wnp.fft.rfft(a), wnp.fft.fft2(b)

    a, b = normal(20, 20), normal(20, 3)
    loaded = export.load(linked(tmp_path, export.library(function, a, b, name="f")))
    results, expected = (weft.tree.leaves(t) for t in (loaded(a, b), weft.jit(function)(a, b)))
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-3, atol=2e-3)


# --------------------------------------------------------------------------------------------------------------- sizes


@needs_cc
def test_one_library_serves_a_family_of_sizes(tmp_path: pathlib.Path) -> None:
    w = normal(3, 19)

    def function(x: Any, y: Any) -> Any:
        return weft.nn.softmax(x @ w, -1), wnp.concatenate([x, y]), wnp.cumsum(x.sum(1)), x.shape[0] * 2.0

    scope = export.SymbolicScope(("b <= 18", "c <= 2", "c <= b"))
    specs = [Spec(export.symbolic_shape(f"{name}, 3", scope=scope), np.float32) for name in "bc"]
    built = export.library(function, *specs, name="f")
    assert [(s.name, s.low, s.high) for s in built.signature.sizes] == [("b", 1, 18), ("c", 1, 2)]
    loaded = export.load(linked(tmp_path, built))
    for b in (1, 2, 3, 7, 8, 16, 18):
        x, y = normal(b, 3), normal(min(b, 2), 3)
        assert_same(loaded(x, y), weft.jit(function)(x, y))
    for b, c in ((19, 1), (1, 2), (8, 3)):
        with pytest.raises(ArgumentError):
            loaded(normal(b, 3), normal(c, 3))


def test_sizes_need_bounds() -> None:
    with pytest.raises(ArgumentError, match="upper bound"):
        export.library(lambda x: x, Spec(export.symbolic_shape("b, 3"), np.float32))
    with pytest.raises(ArgumentError, match="combinations"):
        export.library(lambda x: x, Spec(export.symbolic_shape("b", constraints=["b <= 5000"]), np.float32))


# ------------------------------------------------------------------------------------------------------------ statuses


class Raw:
    """A loaded function, called with addresses."""

    def __init__(self, file: pathlib.Path, name: str = "f") -> None:
        library = ctypes.CDLL(str(file))
        self.run, self.text = library[f"{name}_run"], library[f"{name}_message"]
        self.run.argtypes, self.text.restype = [POINTER] * 4, ctypes.c_char_p

    def status(self, arguments: Any, results: Any, workspace: Any = None, sizes: Any = None) -> int:
        tables = [None if t is None else (POINTER * (len(t) + 1))(*t) for t in (arguments, results)]
        numbers = None if sizes is None else (ctypes.c_int64 * len(sizes))(*sizes)
        return int(self.run(*tables, workspace, numbers))


@needs_cc
def test_malformed_calls_return_a_status(tmp_path: pathlib.Path) -> None:
    spec = Spec(export.symbolic_shape("b, 3", constraints=["b <= 5"]), np.float32)
    built = export.library(lambda x: wnp.sort(wnp.tanh(x).T @ x, 0) @ x.T, spec, name="f")
    raw, x, y = Raw(linked(tmp_path, built)), np.ones(17, np.float32), np.zeros(17, np.float32)
    space = np.zeros(built.workspace_bytes, np.uint8)
    a, r, w = x.ctypes.data, y.ctypes.data, space.ctypes.data
    assert built.workspace_bytes and raw.status([a], [r], w, [5]) == 0
    for call in (
        ([a], [r], w, None),
        ([a], [r], None, [5]),
        ([a], [None], w, [5]),
        ([None], [r], w, [5]),
        (None, [r], w, [5]),
    ):
        assert raw.status(*call) == 1
    assert raw.status([a + 1], [r], w, [5]) == 2 and raw.status([a], [r + 2], w, [5]) == 2
    for size in (0, 6, -1, 1 << 40, -(1 << 63)):
        assert raw.status([a], [r], w, [size]) == 3
    assert b"bounds" in raw.text(3) and raw.text(99) == raw.text(-1) == raw.text(1 << 30)


@needs_cc
def test_a_donated_result_has_one_address(tmp_path: pathlib.Path) -> None:
    built = export.library(weft.jit(lambda x: x + 1, donate_argnums=0), f32(3), name="f")
    raw, x = Raw(linked(tmp_path, built)), np.zeros(4, np.float32)
    a = x.ctypes.data
    assert [raw.status([a], [r]) for r in (a, None, a + 4)] == [0, 0, 4] and x[:3].tolist() == [2, 2, 2]


@needs_cc
def test_checks_have_a_status_and_a_message_with_the_line(tmp_path: pathlib.Path) -> None:
    def function(x: Any, i: Any) -> Any:
        checkify.check(x.sum() > 0, "the sum must be positive")
        return lax.fori_loop(0, 3, lambda n, c: c + x[i + n], np.float32(0))

    with weft.checks("all"):
        built = export.library(function, f32(5), Spec((), np.int32), name="f")
    assert built.signature.checks and all("test_export_library.py" in text for text in built.signature.checks)
    loaded, x = export.load(linked(tmp_path, built)), np.ones(5, np.float32)
    assert loaded(x, np.int32(2)) == 3
    with pytest.raises(FailedCheckError, match="out of bounds for axis 0 of an array of shape"):
        loaded(x, np.int32(3))
    with pytest.raises(FailedCheckError, match="the sum must be positive"):
        loaded(-x, np.int32(2))


@needs_cc
def test_distinct_workspaces_make_calls_safe_in_threads(tmp_path: pathlib.Path) -> None:
    def function(x: Any) -> Any:
        return wnp.sort(x @ x, 0) @ x

    loaded = export.load(linked(tmp_path, export.library(function, f32(60, 60), name="f")))
    inputs = [normal(60, 60) * n for n in range(1, 9)]
    expected = [loaded(x) for x in inputs]
    wrong: list[int] = []

    def run(n: int) -> None:
        for _ in range(20):
            if np.asarray(loaded(inputs[n])).tobytes() != expected[n].tobytes():
                wrong.append(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_cc
def test_threads_share_large_kernels(tmp_path: pathlib.Path) -> None:
    """The bits do not depend on the number of threads, which can be changed and stopped."""

    def function(x: Any) -> Any:
        return wnp.tanh(x @ x.T).sum(0), wnp.sort(x, 1)

    x = normal(700, 300)
    one, several = (linked(tmp_path / str(t), export.library(function, x, name="f", threads=t)) for t in (False, True))
    loaded, expected = export.load(several), export.load(one)(x)
    pool = ctypes.CDLL(str(several))
    for workers in (None, 0, 3, 1):
        if workers is not None:
            pool.f_pool_start(workers)
        assert_same(loaded(x), expected)
    while not pool.f_pool_stop():
        pass
    assert_same(loaded(x), expected)
    assert pool.f_pool_stop() == 1 and "f_pool_start" in (tmp_path / "True" / "f.h").read_text()


# -------------------------------------------------------------------------------------------------------------- errors


def test_operations_without_kernels_are_errors_with_their_line() -> None:
    with pytest.raises(NotSupportedError, match=r"eig[\s\S]*test_export_library.py"):
        export.library(lambda x: wnp.linalg.eigvals(x), f32(4, 4))
    with pytest.raises(NotSupportedError, match=r"fft[\s\S]*test_export_library.py"):
        export.library(lambda x: wnp.fft.fft(x).real, f32(1021))
    with pytest.raises(NotSupportedError, match=r"test_export_library\.py"):
        export.library(lambda x: weft.pure_callback(np.sin, x, x), f32(3))
    with pytest.raises(NotSupportedError, match="unknown length"):
        export.library(weft.grad(lambda x: lax.while_loop(lambda y: y < 100, lambda y: y * y + x, x)), f32())


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: export.library(wnp.sin, f32(3), target="z80"), "z80"),
        (lambda: export.library(wnp.sin, f32(3), name="my lib"), "identifier"),
        (lambda: export.library({"a b": (wnp.sin, f32(3))}), "identifier"),
        (lambda: export.library({"a": (wnp.sin, f32(3))}, f32(3)), "dict"),
        (lambda: export.library(wnp.sin, f32(3), constants="elsewhere"), "place"),
        (lambda: export.library(export.export(weft.jit(wnp.sin))(f32(3)), f32(3)), "types already"),
        (lambda: export.library(3, f32(3)), "functions"),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        call()


@needs_cc
def test_loaded_functions_check_their_arguments(tmp_path: pathlib.Path) -> None:
    loaded = export.load(linked(tmp_path, export.library(lambda x, y: x + y, f32(3), f32(3), name="f")))
    for args in ((normal(3),), (normal(3), normal(4)), (normal(3), np.zeros(3)), (normal(3), [normal(3)])):
        with pytest.raises(ArgumentError):
            loaded(*args)


def test_other_files_are_not_libraries(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.so").write_bytes(b"no library")
    with pytest.raises(FileFormatError):
        export.load(tmp_path / "a.so")


# ---------------------------------------------------------------------------------------------------------- other tools


@needs_cc
def test_loading_does_not_import_the_compiler(tmp_path: pathlib.Path) -> None:
    file = linked(tmp_path, export.library(lambda x: wnp.tanh(x), f32(3), name="f"))
    code = (
        f"import sys, numpy as np; from weft import export; f = export.load({str(file)!r}); y = f(np.zeros(3, 'f4'));"
        "assert y.tolist() == [0, 0, 0]; assert not any(m.startswith('llvmlite') for m in sys.modules);"
        "assert not {'weft.compiler.compile', 'weft.compiler.target.cpu'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_cc
def test_objects_need_no_symbols_and_have_no_variables(tmp_path: pathlib.Path) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    file = linked(tmp_path, export.library(with_loops, f32(6, 5), name="f"))
    lines = subprocess.run([nm, tmp_path / "f.o"], capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = {line.split()[-1]: line.split()[-2] for line in lines}
    assert {kind for kind in kinds.values() if kind in "UbBC"} == set()
    assert [name for name, kind in kinds.items() if kind in "TWD"] == [
        "f_message",
        "f_run",
        "f_signature",
        "weft_library",
    ]
    assert not subprocess.run([nm, "-u", file], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@needs_cc
def test_commands_of_the_documentation_run(tmp_path: pathlib.Path) -> None:
    """The five commands of "Where programs can go", and its example in Python."""
    text = (ROOT / "docs" / "where_programs_can_go.md").read_text(encoding="utf-8")
    commands, example = text.split("```")[1], text.split("```python")[1].split("```")[0]
    assert commands.count("\n") == 6
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    outputs = []
    for command in commands.strip().splitlines():
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        outputs.append(done.stdout.strip())
    assert outputs[3] == "0 0.099668" and outputs[4] == "(2, 4)"
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, env=environment, check=True)
    assert (
        "int32_t step(float *params_w, const float *x, const float *y, float *result_1, void *workspace)"
        in (tmp_path / "out" / "step.h").read_text()
    )


C_PROGRAM = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  float *x = malloc(12 * sizeof(float)), *w = malloc(6 * sizeof(float)), *y = malloc(8 * sizeof(float));
  for (int i = 0; i < 12; i++) x[i] = (float)i;
  for (int i = 0; i < 6; i++) w[i] = (float)(i - 2);
  void *workspace = malloc(MODEL_WORKSPACE_BYTES + 1);
  int32_t status = forward(x, w, y, workspace);
  if (status) { puts(forward_message(status)); return 1; }
  for (int i = 0; i < 8; i++) printf("%a ", (double)y[i]);
  if (step(w, x, workspace)) return 2;
  for (int i = 0; i < 6; i++) printf("%a ", (double)w[i]);
  const weft_signature *s = &forward_signature;
  printf("%s %d %d", s->arguments[1].name, s->argument_count, forward(NULL, w, y, workspace));
  if (strcmp(forward_message(1), "A pointer is null.")) return 3;
  free(x); free(w); free(y); free(workspace);
  return 0;
}
"""
CPP_PROGRAM = """
#include "model.hpp"
#include <array>
#include <cstdio>

int main() {
  std::array<float, 12> x{}; std::array<float, 6> w{}; std::array<float, 8> y{};
  for (int i = 0; i < 12; i++) x[i] = float(i);
  for (int i = 0; i < 6; i++) w[i] = float(i - 2);
  std::array<std::byte, MODEL_WORKSPACE_BYTES + 1> workspace{};
  if (weft::forward(x, w, y, workspace)) return 1;
  for (float v : y) std::printf("%a ", double(v));
  return weft::forward(std::span(x).first(11), w, y, workspace) == WEFT_WRONG_SIZE ? 0 : 2;
}
"""


def c_library() -> tuple[export.Library, str, str]:
    """Return a library, and what the programs print."""

    def forward(x: Any, w: Any) -> Any:
        return wnp.tanh(x @ w / 10)

    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * weft.grad(lambda w: forward(x, w).sum())(w)

    x, w = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(-2, 4, dtype=np.float32).reshape(3, 2)
    functions = {"forward": (forward, x, w), "step": (weft.jit(step, donate_argnums=0), w, x)}
    y, updated = weft.jit(forward)(x, w), weft.jit(step)(w, x)
    texts = ["".join(f"{float(v).hex()} " for v in np.asarray(a).ravel()) for a in (y, updated)]
    return export.library(functions, name="model"), texts[0], texts[1]


def numbers(text: str) -> list[float]:
    return [float.fromhex(word) for word in text.split() if "0x" in word]


@needs_cc
@pytest.mark.parametrize("archive", [False, True], ids=["objects", "archive"])
def test_c_programs(archive: bool, tmp_path: pathlib.Path) -> None:
    built, forward, step = c_library()
    built.save(tmp_path)
    (tmp_path / "main.c").write_text(C_PROGRAM)
    assert CC is not None
    command = [CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "main.c", "-o", "main"]
    options = ["-L.", "-l:libmodel.a"] if archive else ["model.o", "-fsanitize=address,undefined"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    if not archive and "cannot find" in done.stderr:
        pytest.skip("the C compiler has no sanitizers")
    assert not done.returncode, done.stderr
    out = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert numbers(out) == numbers(forward + step) and out.endswith("w 2 1")


@pytest.mark.slow
@needs_cc
def test_cplusplus_programs(tmp_path: pathlib.Path) -> None:
    built, forward, _ = c_library()
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    built.save(tmp_path)
    (tmp_path / "main.cpp").write_text(CPP_PROGRAM)
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "main.cpp", "model.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    out = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert numbers(out) == numbers(forward)
