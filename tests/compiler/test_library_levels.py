"""Levels of x86-64 in libraries: samples at each level that this machine has, and the choice between levels."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.standalone import POINTER
from weft import export
from weft.compiler.target import native
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.standalone import dispatch
from weft.compiler.target.cpu.standalone.machines import LEVELS, find_machine
from weft.compiler.target.llvm import Module

TRIPLE, _, FLAGS = native.host()
pytestmark = pytest.mark.skipif(not TRIPLE.startswith("x86_64"), reason="levels are those of x86-64")
# The levels that this machine has.
HERE = [level for level, needed in LEVELS.items() if all(FLAGS.get(name) for name in needed if name != "sahf")]


def function(x: Any, w: Any) -> Any:
    return weft.nn.softmax(x @ w, -1), wnp.sin(x).sum(0), wnp.sort(x, 1), x.astype(wnp.float16)


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in ((9, 20), (20, 33))]


def call(code: Object, symbol: str, library: export.Library) -> list[np.ndarray]:
    """Call a function of an object with `arrays()`."""
    results = [np.zeros([int(n) for n in t.shape], t.dtype) for t in library.signature.results]
    operands = arrays()
    space = np.zeros(library.workspace_bytes + 1, np.uint8)
    tables = [(POINTER * 8)(*(a.ctypes.data for a in some)) for some in (operands, results)]
    run = link.load(code).function(symbol, ctypes.c_int32, *[POINTER] * 4)
    assert run(*tables, space.ctypes.data, None) == 0
    return results


@pytest.mark.parametrize("level", HERE)
def test_each_level_computes_the_function(level: str) -> None:
    library = export.library(function, *arrays(), name="f", target=level)
    (compiled,) = library.objects
    results = call(Object(compiled.code, compiled.symbols, ()), "f_run", library)
    for actual, expected in zip(results, weft.jit(function)(*arrays()), strict=True):
        np.testing.assert_allclose(actual.astype(np.float32), np.asarray(expected, np.float32), rtol=2e-5, atol=1e-6)


def test_one_library_has_the_code_of_each_level() -> None:
    several = export.library(function, *arrays(), name="f", target="x86-64")
    assert [each.name for each in several.objects] == ["f.o", *(f"f_{level.replace('-', '_')}.o" for level in LEVELS)]
    for level, compiled in zip(LEVELS, several.objects[1:], strict=True):
        if level in HERE:
            alone = export.library(function, *arrays(), name="f", target=level)
            own = call(Object(compiled.code, compiled.symbols, ()), dispatch.level_symbol("f_run", level), several)
            expected = call(Object(alone.objects[0].code, alone.objects[0].symbols, ()), "f_run", alone)
            assert [a.tobytes() for a in own] == [a.tobytes() for a in expected]


@pytest.mark.parametrize("levels", [list(LEVELS), ["x86-64-v2"], ["x86-64-v3", "x86-64-v4"]])
def test_the_best_level_of_the_processor_is_chosen(levels: list[str]) -> None:
    """Levels are functions that return their number, so this runs whatever the processor has."""
    module = Module(TRIPLE, vector_bits=128)
    dispatch.write_dispatch(module, ["f"], levels)
    names = [dispatch.level_symbol("f", level) for level in levels]
    parameters = "ptr %a, ptr %b, ptr %c, ptr %d"
    texts = [f"define hidden i32 @{name}({parameters}) {{\n  ret i32 {n + 7}\n}}" for n, name in enumerate(names)]
    text = "\n".join(line for line in module.text().splitlines() if not any(f"declare i32 @{n}" in line for n in names))
    code = link.make_object(text + "\n".join(texts), find_machine("x86-64-v2").targets[0][1], Tier.LIGHT)
    run = link.load(code).function("f", ctypes.c_int32, *[POINTER] * 4)
    best = [level in HERE for level in levels]
    for _ in range(2):  # the second call reads the stored level
        assert run(None, None, None, None) == (6 + sum(best) if best[0] else 5)
