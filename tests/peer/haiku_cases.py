"""One row is the text of a function that uses modules; it runs with `weft.haiku` and with Haiku.

In a row `hk` is the library under test, `np`, `nn`, `lax` and `random` its dependencies, and the names of INPUTS are
arguments. The same key initializes the same parameters, so that both sides can be compared from `init` on.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as onp
import pytest

from tests.peer.compare import LIBRARIES, jax  # first of all: it says how JAX compiles

import weft  # isort: skip
import weft.haiku  # isort: skip

haiku = pytest.importorskip("haiku")

HAIKU = {"weft": weft.haiku, "jax": haiku}


def namespace(library: str) -> dict[str, Any]:
    """Return the meaning of the names in a row for one library."""
    modules = {short: importlib.import_module(f"{library}.{long}") for short, long in
               {"np": "numpy", "nn": "nn", "lax": "lax", "random": "random"}.items()}  # fmt: skip
    return {"hk": HAIKU[library], "lib": LIBRARIES[library], "onp": onp, **modules}


NAMESPACES = {library: namespace(library) for library in LIBRARIES}


def some_inputs() -> dict[str, onp.ndarray]:
    rng = onp.random.default_rng(0)

    def floats(*shape: int) -> onp.ndarray:
        return rng.normal(size=shape).astype(onp.float32)

    return {
        "x": floats(4, 6),
        "v": floats(6),
        "seq": floats(5, 3, 4),
        "line": floats(2, 9, 4),
        "image": floats(2, 8, 8, 4),
        "first": floats(2, 4, 8, 8),
        "cube": floats(2, 5, 5, 5, 2),
        "big": floats(2, 32, 32, 3),
        "ids": rng.integers(0, 7, (2, 5)).astype(onp.int32),
        "resets": onp.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], onp.bool_),
    }


INPUTS = some_inputs()


def arguments(text: str) -> list[str]:
    names = compile(text, text, "eval").co_names + tuple(
        name for code in compile(text, text, "eval").co_consts if hasattr(code, "co_names") for name in _names(code)
    )
    return [name for name in INPUTS if name in names]


def _names(code: Any) -> list[str]:
    inner = [name for one in code.co_consts if hasattr(one, "co_names") for name in _names(one)]
    return [*code.co_names, *inner]


def function(text: str, library: str) -> Any:
    return eval(f"lambda {', '.join(arguments(text))}: ({text})", dict(NAMESPACES[library]))


def transformed(text: str, library: str) -> Any:
    return HAIKU[library].transform_with_state(function(text, library))


def values(text: str) -> list[onp.ndarray]:
    return [INPUTS[name] for name in arguments(text)]


def as_numpy(tree: Any) -> Any:
    """Return a tree of either library as plain containers of NumPy arrays; keys as their data."""

    def convert(leaf: Any) -> Any:
        if "key<" in str(getattr(leaf, "dtype", "")):
            leaf = weft.random.key_data(leaf) if isinstance(leaf, weft.Array) else jax.random.key_data(leaf)
        return onp.asarray(leaf)

    if isinstance(tree, dict):
        return {key: as_numpy(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [as_numpy(value) for value in tree]
    return None if tree is None else convert(tree)


def assert_same(ours: Any, theirs: Any, rtol: float = 2e-5, atol: float = 2e-5, where: str = "") -> None:
    """Two trees of `as_numpy` are alike: structure, shapes, dtypes, and values within rounding."""
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert sorted(ours) == sorted(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, rtol, atol, f"{where}[{i}]")
    elif ours is not None:
        assert ours.shape == theirs.shape, where
        assert ours.dtype == theirs.dtype, where
        kind = onp.float32 if ours.dtype.kind == "V" or ours.dtype.itemsize == 2 else ours.dtype
        scale = float(onp.max(onp.abs(theirs.astype(kind)), initial=0)) if theirs.dtype.kind == "f" else 0.0
        onp.testing.assert_allclose(ours.astype(kind), theirs.astype(kind), rtol, atol * max(1.0, scale), err_msg=where)
