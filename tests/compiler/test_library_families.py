"""Libraries for a family of sizes: each combination has the bits of jit, and other sizes are refused."""

from __future__ import annotations

import itertools
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.running import assert_same
from weft import export, lax

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
BOUNDS = {"b": 9, "c": 5}
WEIGHTS = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
FILTER = np.linspace(-1, 1, 54, dtype=np.float32).reshape(3, 3, 2, 3)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), wnp.zeros(5), x)


def convolved(x: Any) -> Any:
    return lax.conv_general_dilated(x, FILTER, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# Functions with the shapes of their arguments; integers where a shape ends in `:i`.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "gather": (lambda x, i: x[i % x.shape[0]], ("b, 5", "c:i")),
    "scan": (scanned, ("b, 5",)),
    "several": (lambda x: (wnp.cumsum(x, 0), ((x - x.mean(0)) ** 2).mean(), x.shape[0] * x), ("b, 5",)),
    "softmax": (lambda x: weft.nn.softmax(x @ WEIGHTS), ("b, 5",)),
    "reversed": (weft.grad(lambda x: scanned(x)[1].sum()), ("b, 5",)),
    "branch": (lambda x: lax.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), ("b, 5",)),
    "while": (lambda x: lax.while_loop(lambda c: wnp.abs(c).max() > 0.1, lambda c: c * 0.5, x), ("b, 5",)),
    "sort": (lambda x: (wnp.sort(x, 0), wnp.argsort(x, 0)), ("b, 5",)),
    "matmul": (lambda x, y: (x @ y).sum(1), ("b, c", "c, 4")),
    "attention": (lambda q, k: weft.nn.softmax(q @ k.T) @ k, ("b, 8", "c, 8")),
    "convolution": (convolved, ("b, 4, 4, 2",)),
    "twice": (lambda x: x.reshape(2, -1).sum(0), ("2*b, 5",)),
}
QUICK = ("gather", "scan")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FUNCTIONS])
def test_all_sizes(name: str, tmp_path: pathlib.Path) -> None:
    function, texts = FUNCTIONS[name]
    used = [s for s in BOUNDS if any(s in text.partition(":")[0] for text in texts)]
    scope = export.SymbolicScope([f"{s} <= {BOUNDS[s]}" for s in used])
    specs, shapes = [], []
    for text in texts:
        shape, _, integers = text.partition(":")
        shapes.append(shape)
        specs.append(
            weft.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), "int32" if integers else "float32")
        )
    library = export.library(function, *specs, name="f")
    assert {(s.name, s.low, s.high) for s in library.signature.sizes} == {(s, 1, BOUNDS[s]) for s in used}
    loaded = export.load(next(path for path in library.save(tmp_path) if path.suffix == ".so"))
    rng = np.random.default_rng(0)
    names = [size.name for size in library.signature.sizes]
    for values in itertools.product(*(range(s.low, s.high + 1) for s in library.signature.sizes)):
        sizes = dict(zip(names, values, strict=True))
        concrete = [tuple(eval(part, {}, sizes) for part in shape.split(",")) for shape in shapes]
        args = [(rng.normal(size=s) * 9).astype(spec.dtype) for s, spec in zip(concrete, specs, strict=True)]
        results, expected = (weft.tree.leaves(t) for t in (loaded(*args), weft.jit(function)(*args)))
        for actual, wanted in zip(results, expected, strict=True):
            assert_same(np.asarray(actual), np.asarray(wanted), f"{name} at {sizes}")
    beyond = [np.zeros((2 * BOUNDS["b"] + 2, *shape[1:]), np.float32) for shape in concrete[:1]]
    with pytest.raises(weft.errors.ArgumentError):
        loaded(*beyond, *args[1:])
