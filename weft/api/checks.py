"""Check derivatives against finite differences: `check_grads`, `check_jvp`, `check_vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.api.differentiate import jvp
from weft.api.flat import get_name
from weft.api.vjp import vjp
from weft.base import dtypes, tree
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.ir.types import get_aval

# By dtype: the step that balances rounding against curvature, and the error that remains.
STEP = {"float64": 1e-5, "float32": 1e-2, "float16": 1e-1, "bfloat16": 3e-1}
TOLERANCE = {"float64": 1e-5, "float32": 5e-3, "float16": 1e-1, "bfloat16": 3e-1}
SMALLER_FLOATS = 0.5

Function = Callable[..., Any]
# A number, or one per dtype; dtypes that are absent take the default.
Tolerance = float | Mapping[Any, float] | None


def _tolerance(tolerance: Tolerance, values: Any) -> float:
    """Find the tolerance for a comparison that involves `values`, that of the least precise type among them."""
    if tolerance is not None and not isinstance(tolerance, Mapping):
        return tolerance
    by_name = {dtypes.name(_real(np.dtype(d))): limit for d, limit in (tolerance or {}).items()}
    found = (by_name.get(name, TOLERANCE.get(name, SMALLER_FLOATS)) for name in real_types(values))
    return max(found, default=0.0)


def _real(dtype: Any) -> Any:
    return dtypes.to_real_dtype(dtype) if dtypes.kind(dtype) == "c" else dtype


@dataclass(frozen=True)
class Limits:
    """Tolerances and step; None takes the default of the least precise type that is involved."""

    atol: Tolerance
    rtol: Tolerance
    eps: float | None

    def tolerances(self, values: Any) -> tuple[float, float]:
        """Return the absolute and the relative tolerance for a comparison that involves `values`."""
        return _tolerance(self.atol, values), _tolerance(self.rtol, values)

    def step(self, values: Any) -> float:
        """Return the step of the finite differences."""
        usual = max((STEP.get(name, SMALLER_FLOATS) for name in real_types(values)), default=1.0)
        return usual if self.eps is None else self.eps


def check_grads(
    f: Function,
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of `f` at `args` up to `order`, in forward and reverse mode, against finite differences.

    Raises an AssertionError that says which derivative differs and by how much. Directions are random, but the same in
    every run. `eps` is the step of the differences; it and the tolerances default by dtype. A tolerance may be
    a dict with a number for each dtype.
    """
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        raise ArgumentError(f"check_grads takes the modes 'fwd' and 'rev', got {sorted(unknown)}.")
    if order < 1:
        raise ArgumentError(f"check_grads checks derivatives of order 1 and up, got order={order}.")
    point, limits, rng = tuple(args), Limits(atol, rtol, eps), np.random.default_rng(0)

    def check(function: Function, left: int, path: str) -> None:
        if "fwd" in modes:
            name = f"forward mode of {path}"
            compare_jvp(function, functools.partial(jvp, function), point, rng, limits, name)
            if left > 1:
                direction = random_tree(rng, point)
                check(lambda *p: jvp(function, p, direction)[1], left - 1, name)
        if "rev" in modes:
            name = f"reverse mode of {path}"
            compare_vjp(function, functools.partial(vjp, function), point, rng, limits, name)
            if left > 1:
                weights = random_tree(rng, function(*point))
                check(lambda *p: inexact_leaves(vjp(function, *p)[1](weights)), left - 1, name)

    check(f, order, get_name(f))


def check_jvp(
    f: Function,
    f_jvp: Function,
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_jvp(primals, tangents)`, which returns results and tangents, against `f` and its finite differences."""
    compare_jvp(f, f_jvp, tuple(args), np.random.default_rng(0), Limits(atol, rtol, eps), err_msg or "jvp")


def check_vjp(
    f: Function,
    f_vjp: Function,
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_vjp(*args)`, which returns results and a pullback, against `f` and its finite differences."""
    compare_vjp(f, f_vjp, tuple(args), np.random.default_rng(0), Limits(atol, rtol, eps), err_msg or "vjp")


def compare_jvp(f: Function, f_jvp: Function, args: Any, rng: np.random.Generator, limits: Limits, name: str) -> None:
    """Raise unless tangents along a random direction equal finite differences."""
    direction = random_tree(rng, args)
    results, tangents = f_jvp(args, direction)
    compare_results(f(*args), results, limits, name)
    derivatives = derivatives_along(f, args, direction, limits)
    atol, rtol = limits.tolerances((args, results))
    found = [(path, t) for path, t in tree.leaves_with_path(tangents) if is_inexact(t)]
    for (path, tangent), derivative in zip(found, derivatives, strict=True):
        what = f"{name}: the tangent of result{tree.keystr(path)} against finite differences"
        np.testing.assert_allclose(widen(tangent), derivative, rtol, atol, err_msg=what)


def compare_vjp(f: Function, f_vjp: Function, args: Any, rng: np.random.Generator, limits: Limits, name: str) -> None:
    """Raise unless cotangents, paired with a random direction, equal finite differences."""
    results, pull = f_vjp(*args)
    compare_results(f(*args), results, limits, name)
    weights, direction = random_tree(rng, results), random_tree(rng, args)
    derivatives = derivatives_along(f, args, direction, limits)
    expected, scale = pair(inexact_leaves(weights), derivatives)
    moving = [is_inexact(d) for d in tree.leaves(direction)]
    pulled = [c for c, m in zip(tree.leaves(pull(weights)), moving, strict=True) if m]
    actual, _ = pair(pulled, inexact_leaves(direction))
    atol, rtol = limits.tolerances((args, results))
    if not abs(actual - expected) <= atol + rtol * scale:
        raise AssertionError(
            f"{name}: cotangents paired with a direction give {actual:.8g}, finite differences give {expected:.8g}; "
            f"they may differ by {atol + rtol * scale:.2g}."
        )


def compare_results(expected: Any, actual: Any, limits: Limits, name: str) -> None:
    """Raise unless the result that a derivative returns beside tangents is that of the function."""
    atol, rtol = limits.tolerances(actual)
    for one, other in zip(inexact_leaves(actual), inexact_leaves(expected), strict=True):
        np.testing.assert_allclose(widen(one), widen(other), rtol, atol, err_msg=f"{name}: the result itself")


# -- numbers -----------------------------------------------------------------------------------------------------------


def is_inexact(x: Any) -> bool:
    return dtypes.kind(get_aval(x).dtype) in "fc"  # type: ignore[attr-defined]


def inexact_leaves(values: Any) -> list[Any]:
    """Return the leaves that have derivatives."""
    return [v for v in tree.leaves(values) if is_inexact(v)]


def real_types(values: Any) -> set[str]:
    """Return the names of the float types in a tree of values; for complex types, those of their parts."""
    found = [get_aval(v).dtype for v in inexact_leaves(values)]  # type: ignore[attr-defined]
    return {dtypes.name(_real(d)) for d in found}


def random_tree(rng: np.random.Generator, values: Any) -> Any:
    """Return random tangents (or cotangents) for a tree of values; float0 zeros for integers."""

    def leaf(x: Any) -> Any:
        aval: Any = get_aval(x)
        if not is_inexact(x):
            return np.zeros(aval.shape, dtypes.float0)
        tangent = rng.standard_normal(aval.shape)
        if dtypes.kind(aval.dtype) == "c":
            tangent = tangent + 1j * rng.standard_normal(aval.shape)
        return np.asarray(tangent, aval.dtype)

    return tree.map(leaf, values)


def derivatives_along(f: Function, args: Any, direction: Any, limits: Limits) -> list[np.ndarray]:
    """Return the derivatives of the float and complex results of `f` along a direction, by central differences."""
    step = limits.step(args)

    def at(distance: float) -> list[Any]:
        def shift(x: Any, t: Any) -> Any:
            shifted = widen(x) + distance * widen(t) if is_inexact(x) else x
            return shifted.astype(get_aval(x).dtype) if is_inexact(x) else x  # type: ignore[attr-defined]

        return inexact_leaves(f(*tree.map(shift, args, direction)))

    return [(widen(a) - widen(b)) / (2 * step) for a, b in zip(at(step), at(-step), strict=True)]


def widen(x: Any) -> np.ndarray:
    """Return an array in float64 or complex128."""
    array = np.asarray(x)
    return array.astype(np.complex128 if dtypes.kind(array.dtype) == "c" else np.float64)


def pair(cotangents: Sequence[Any], tangents: Sequence[Any]) -> tuple[float, float]:
    """Return the real part of the sum of products of cotangents and tangents, and the sum of their magnitudes."""
    products = [widen(c) * widen(t) for c, t in zip(cotangents, tangents, strict=True)]
    return float(sum(np.sum(p.real) for p in products)), float(sum(np.sum(np.abs(p)) for p in products))
