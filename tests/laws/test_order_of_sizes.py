"""What a jitted function returns does not depend on the sizes it was called with before: 0, 1, 2 and n in any order."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.scipy import special, stats

SIZES = (0, 1, 2, 5)
ORDERS = list(itertools.permutations(SIZES))


def functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a module by name."""
    public = getattr(module, "__all__", dir(module))
    found = {name: getattr(module, name) for name in public if name[0] != "_"}
    return {
        f"{module.__name__}.{name}": f
        for name, f in found.items()
        if callable(f) and not isinstance(f, type) and getattr(f, "__module__", "").startswith("weft")
    }


FUNCTIONS = {
    name: f
    for module in (wnp, lax, nn, special, stats, wnp.linalg, wnp.fft)
    for name, f in functions(module).items()
    if not name.endswith((".save", ".savez", ".infeed", ".outfeed", ".load", ".fromfile"))
}


def forms(function: Callable[..., Any]) -> dict[str, Callable[[Any], Any]]:
    """Return ways to call a function on a vector of some size."""
    return {
        "f(x)": lambda x: function(x),
        "f(x, x)": lambda x: function(x, x),
        "f(x, x, x)": lambda x: function(x, x, x),
        "f(x, n)": lambda x: function(x, x.shape[0]),
        "f(n)": lambda x: function(x.shape[0]),
        "f(0, 1, n)": lambda x: function(0.0, 1.0, x.shape[0]) * x,
        "f(x by x)": lambda x: function(x[:, None] + x),
    }


def outcome(function: Callable[[Any], Any], size: int) -> Any:
    """Return dtypes, shapes and numbers of the results for a size, or None for an error."""
    try:
        leaves = weft.tree.leaves(function(np.linspace(0.5, 1.5, size, dtype=np.float32)))
        return [(str(leaf.dtype), leaf.shape, np.asarray(leaf)) for leaf in leaves]
    except weft.errors.InternalError:
        raise
    except Exception:
        return None


def same(a: Any, b: Any) -> bool:
    """Return whether two outcomes are equal, but for rounding."""
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(
        x[:2] == y[:2] and np.allclose(x[2], y[2], rtol=1e-4, atol=1e-5, equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


def check_orders(name: str, orders: Sequence[Sequence[int]]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for form, called in forms(FUNCTIONS[name]).items():
            fresh = {size: outcome(weft.jit(lambda x, called=called: called(x)), size) for size in SIZES}
            if all(found is None for found in fresh.values()):
                continue
            for order in orders:
                jitted = weft.jit(lambda x, called=called: called(x))
                for size in order:
                    found = outcome(jitted, size)
                    assert same(found, fresh[size]), f"{name} as {form} in the order {order} at {size}"


@pytest.mark.parametrize("name", ["weft.numpy.linspace", "weft.numpy.interp", "weft.numpy.argmax"])
def test_order_of_sizes(name: str) -> None:
    check_orders(name, [(5, 2, 1, 0), (0, 1, 5, 2)])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_order_of_sizes_of_every_function(name: str) -> None:
    check_orders(name, random.Random(name).sample(ORDERS, 4))
