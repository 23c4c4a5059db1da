"""One row of a table is the text of an expression; it is evaluated with Weft and with JAX and the results are compared.

In a row `np`, `lax`, `nn`, `random`, `linalg`, `fft`, `scipy_linalg`, `tree_util` and `lib` are the modules of the
library under test, `onp` is NumPy itself, and the names of INPUTS are arguments. So a row is its own name, the same
lines run on both sides, and what is differentiated or batched is known from the text.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

# Nearly all the time goes into compiling for JAX, and what is compiled runs once: compile without much care, and keep
# the results for the other processes and the next run. Without any optimization products and sums would be rounded
# separately, and random numbers have other bits than a user of JAX sees.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(__file__).parents[2] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import jax.ad_checkpoint
import jax.flatten_util
import ml_dtypes
import numpy as onp
import pytest

import weft

LIBRARIES = {"weft": weft, "jax": jax}
MODULES = {
    "np": "numpy",
    "lax": "lax",
    "nn": "nn",
    "random": "random",
    "linalg": "numpy.linalg",
    "fft": "numpy.fft",
    "scipy_linalg": "scipy.linalg",
    "tree_util": "tree_util",
}


def namespace(library: str) -> dict[str, Any]:
    """Return the meaning of the names in a row for one library."""
    modules = {short: importlib.import_module(f"{library}.{long}") for short, long in MODULES.items()}
    return {**modules, "lib": LIBRARIES[library], "onp": onp}


NAMESPACES = {library: namespace(library) for library in LIBRARIES}


def some_inputs(seed: int) -> dict[str, onp.ndarray]:
    """Return the arguments that rows may name: small, without ties, and away from kinks of functions."""
    rng = onp.random.default_rng(seed)

    def floats(*shape: int) -> onp.ndarray:
        return rng.normal(size=shape).astype(onp.float32)

    square = floats(3, 3)
    distinct = rng.permutation(12).reshape(3, 4)
    with_nan = floats(3, 4)
    with_nan[0, 1] = with_nan[2, 3] = onp.nan
    return {
        "x": floats(3, 4),
        "y": floats(3, 4),
        "r": floats(4),
        "q": floats(3, 1),
        "s": floats(),
        "t": floats(2, 3, 4),
        "m": square,
        "spd": square @ square.T + 2 * onp.eye(3, dtype=onp.float32),
        "stack": floats(2, 3, 3),
        "tall": floats(4, 3),
        "col": floats(3),
        "p": rng.uniform(0.2, 2.5, (3, 4)).astype(onp.float32),
        "unit": rng.uniform(-0.9, 0.9, (3, 4)).astype(onp.float32),
        "nans": with_nan,
        "i": rng.integers(-9, 10, (3, 4)).astype(onp.int32),
        "k": rng.integers(1, 7, (3, 4)).astype(onp.int32),
        "j": rng.integers(0, 3, (4,)).astype(onp.int32),
        "d": distinct.astype(onp.int32),
        "u": rng.integers(0, 256, (3, 4)).astype(onp.uint8),
        "n": rng.integers(-128, 128, (3, 4)).astype(onp.int8),
        "w": rng.integers(0, 2**32, (3, 4)).astype(onp.uint32),
        "b": rng.integers(0, 2, (3, 4)).astype(onp.bool_),
        "h": floats(3, 4).astype(ml_dtypes.bfloat16),
        "g": floats(3, 4).astype(onp.float16),
        "c": (floats(3, 4) + 1j * floats(3, 4)).astype(onp.complex64),
        "cm": (floats(3, 3) + 1j * floats(3, 3)).astype(onp.complex64),
        "z": floats(0, 3),
        "o": floats(),
        "image": floats(2, 3, 6, 5),
        "kernel": floats(4, 3, 3, 2),
        "signal": floats(8),
    }


INPUTS = some_inputs(0)
OTHERS = some_inputs(1)


@dataclasses.dataclass(frozen=True)
class Row:
    """Text, the arguments it names, and what is checked besides its value."""

    text: str
    arguments: tuple[str, ...]
    gradient: bool
    staged: bool
    batched: bool
    rtol: float
    weak: bool

    def function(self, library: str) -> Callable[..., Any]:
        return eval(f"lambda {', '.join(self.arguments)}: ({self.text})", NAMESPACES[library])


def lines(text: str) -> list[str]:
    """Return the rows of a text, one a line."""
    return [line for line in text.splitlines() if line]


def calls(module: str, names: str, *arguments: str) -> list[str]:
    """Return a row for each of the names (separated by blanks) with each of the argument lists."""
    return [f"{module}.{name}({argument})" for name in names.split() for argument in arguments]


def rows(
    *texts: str,
    gradient: bool = False,
    staged: bool = True,
    batched: bool = True,
    rtol: float = 2e-5,
    weak: bool = True,
) -> list[Any]:
    """Return one test parameter for each text; a text may not occur twice in a table."""
    assert len(set(texts)) == len(texts), sorted({text for text in texts if texts.count(text) > 1})
    found = []
    for text in texts:
        names = _names(compile(text, text, "eval"))
        arguments = tuple(name for name in INPUTS if name in names)
        row = Row(text, arguments, gradient, staged and bool(arguments), batched and bool(arguments), rtol, weak)
        found.append(pytest.param(row, id=text))
    return found


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


# -- comparison


def assert_same(ours: Any, theirs: Any, rtol: float, weak: bool = True, path: str = "result") -> None:
    """Equal structure, shape, dtype, weak type and values, where a difference names its path."""
    if theirs is None or isinstance(theirs, (bool, int, float, complex, str, onp.dtype, type, slice)):
        assert ours == theirs, f"{path}: {ours!r}, JAX returns {theirs!r}"
    elif isinstance(theirs, Mapping):
        assert isinstance(ours, Mapping) and sorted(ours) == sorted(theirs), f"{path}: {ours!r}, JAX returns {theirs!r}"
        for key in theirs:
            assert_same(ours[key], theirs[key], rtol, weak, f"{path}[{key!r}]")
    elif isinstance(theirs, (tuple, list)):
        kind = list if isinstance(theirs, list) else tuple
        assert isinstance(ours, kind) and len(ours) == len(theirs), f"{path}: {ours!r}, JAX returns {theirs!r}"
        assert getattr(ours, "_fields", None) == getattr(theirs, "_fields", None), path
        for i, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(our, their, rtol, weak, f"{path}[{i}]")
    elif isinstance(theirs, (jax.Array, onp.ndarray, onp.generic)):
        _assert_same_array(ours, theirs, rtol, weak, path)
    else:
        assert type(ours).__name__ == type(theirs).__name__, f"{path}: {type(ours)}, JAX returns {type(theirs)}"


def _assert_same_array(ours: Any, theirs: Any, rtol: float, weak: bool, path: str) -> None:
    if isinstance(theirs, jax.Array):
        assert isinstance(ours, weft.Array), f"{path}: {type(ours)}, JAX returns an array"
    else:
        assert isinstance(ours, (onp.ndarray, onp.generic)), f"{path}: {type(ours)}, JAX returns a NumPy array"
    assert ours.shape == theirs.shape, f"{path}: shape {ours.shape}, JAX returns {theirs.shape}"
    if jax.dtypes.issubdtype(theirs.dtype, jax.dtypes.prng_key):
        assert str(ours.dtype) == str(theirs.dtype), f"{path}: dtype {ours.dtype}, JAX returns {theirs.dtype}"
        ours, theirs = weft.random.key_data(ours), jax.random.key_data(theirs)
    assert ours.dtype == theirs.dtype, f"{path}: dtype {ours.dtype}, JAX returns {theirs.dtype}"
    if weak and isinstance(theirs, jax.Array):
        assert ours.weak_type == theirs.weak_type, f"{path}: weak_type {ours.weak_type}, JAX returns {theirs.weak_type}"
    left, right = onp.asarray(ours), onp.asarray(theirs)
    kind = "f" if left.dtype == ml_dtypes.bfloat16 else left.dtype.kind
    if kind not in "fc":
        onp.testing.assert_array_equal(left, right, err_msg=path)
        return
    tolerance = {2: 4e-3 if left.dtype == onp.float16 else 2e-2, 1: 0.13}.get(left.dtype.itemsize, rtol)
    wide = onp.complex128 if kind == "c" else onp.float64
    left, right = left.astype(wide), right.astype(wide)
    finite = onp.abs(right[onp.isfinite(right)])
    scale = finite.max() if finite.size else 1.0
    onp.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * scale, err_msg=path)


def projection(library: str, row: Row, values: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """Return a scalar function of the row's results with fixed random weights, and which arguments are
    differentiable."""
    function, lib = row.function(library), LIBRARIES[library]

    def scalar(*args: Any) -> Any:
        total, rng = 0.0, onp.random.default_rng(7)
        for leaf in lib.tree_util.tree_leaves(function(*args)):
            weights = rng.normal(size=(2, *onp.shape(leaf))).astype(onp.float32)
            if lib.numpy.issubdtype(leaf.dtype, onp.complexfloating):
                total += lib.numpy.sum(leaf.real * weights[0]) + lib.numpy.sum(leaf.imag * weights[1])
            elif lib.numpy.issubdtype(leaf.dtype, onp.floating):
                total += lib.numpy.sum(leaf * weights[0].astype(leaf.dtype)).astype(onp.float32)
        return total

    inexact = lambda value: value.dtype == ml_dtypes.bfloat16 or value.dtype.kind in "fc"
    return scalar, tuple(i for i, value in enumerate(values) if inexact(value))


def check_batched(row: Row, ours: Callable[..., Any], theirs: Callable[..., Any], first: Any) -> None:
    """vmap over all arguments, and over the first alone, is JAX's function applied to each element."""
    values = tuple(INPUTS[name] for name in row.arguments)
    others = tuple(OTHERS[name] for name in row.arguments)
    for axes in {(0,) * len(values), (0,) + (None,) * (len(values) - 1)}:
        pairs = zip(values, others, axes, strict=True)
        second = tuple(value if axis is None else other for value, other, axis in pairs)
        pairs = zip(values, others, axes, strict=True)
        stacked = tuple(value if axis is None else onp.stack([value, other]) for value, other, axis in pairs)
        batched = weft.vmap(ours, axes)(*stacked)
        element = lambda i, tree=batched: weft.tree_util.tree_map(lambda leaf: leaf[i], tree)
        assert_same(element(0), first, row.rtol, row.weak, f"vmap over {axes} at 0")
        expected = theirs(*map(jax.numpy.asarray, second))
        assert_same(element(1), expected, row.rtol, row.weak, f"vmap over {axes} at 1")


def check(row: Row) -> None:
    """Values, then staging, batching and gradient as far as the row asks for them."""
    values = tuple(INPUTS[name] for name in row.arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = row.function("weft"), row.function("jax")
        if row.gradient:
            # One compilation for value and gradient; the second element of a batch then costs nothing.
            scalar, where = projection("jax", row, values)
            both = jax.jit(lambda *args: (row.function("jax")(*args), jax.grad(scalar, where)(*args)))
            theirs = lambda *args: both(*args)[0]
            expected, gradient = both(*values)
            scalar, where = projection("weft", row, values)
            assert_same(weft.grad(scalar, where)(*values), gradient, 10 * row.rtol, False, "grad")
            assert_same(weft.jit(weft.grad(scalar, where))(*values), gradient, 10 * row.rtol, False, "jit grad")
        else:
            expected = theirs(*map(jax.numpy.asarray, values))
        assert_same(ours(*map(weft.numpy.asarray, values)), expected, row.rtol, row.weak)
        if row.staged:
            assert_same(weft.jit(ours)(*values), expected, row.rtol, row.weak, "jit")
        if row.batched:
            check_batched(row, ours, theirs, expected)
