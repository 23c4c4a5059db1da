"""Slices, repetitions and constraints of symbolic sizes: an export at sizes is the function at these sizes."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import export

pytestmark = pytest.mark.tiny

SIZES = ((5, 6), (1, 1), (2, 3), (7, 2), (3, 9))
# Of the last axis, whose size is c; that of the first is b.
SLICES = [
    "-2:",
    ":-2",
    "::-2",
    ":b",
    "2::-1",
    "::2",
    "1::2",
    ":3",
    "3:",
    "-3:-1",
    "-1:-5:-2",
    "4:1:-1",
    "b:",
    ":-b:-1",
    "-5::2",
    "1:4:3",
    "::-1",
    ":2:-1",
    "2:2",
    "3:1",
    ":c",
    "b:c",
    ":b + 1",
    "-1:0:-1",
    "5::-3",
]


def spec(constraints: tuple[str, ...] = ()) -> Any:
    return weft.ShapeDtypeStruct(export.symbolic_shape("b, c", constraints=constraints), "float32")


def check(function: Any, sizes: Any = SIZES, constraints: tuple[str, ...] = ()) -> None:
    """Compare an export and its gradient with the function, for each of the sizes."""
    exported = export.export(weft.jit(function))(spec(constraints))
    for shape in sizes:
        x = onp.random.default_rng(0).normal(size=shape).astype("float32")
        onp.testing.assert_allclose(exported.call(x), function(x), 1e-6, err_msg=str(shape))
        total = lambda f, x=x: weft.grad(lambda x: (f(x) ** 2).sum())(x)
        onp.testing.assert_allclose(total(exported.call), total(function), 1e-6, err_msg=str(shape))


@pytest.mark.parametrize("text", SLICES)
def test_slices(text: str) -> None:
    scope = {"np": np}
    check(lambda x: eval(f"np.asarray(x)[:, {text}]", scope, {"x": x, "b": x.shape[0], "c": x.shape[1]}), SIZES[:4])


def test_repetitions_and_arrays_of_numpy() -> None:
    check(lambda x: np.repeat(x, x.shape[0], axis=0))
    check(lambda x: x.sum() * (onp.arange(4) + x.shape[0]) - (x.shape[1] - onp.arange(4.0)))
    check(lambda x: np.where(onp.arange(4) < x.shape[1], x.sum(), x.shape[0] // onp.array([1, 2, 3, 4])))


@pytest.mark.parametrize(
    ("constraints", "shape"),
    [
        (("b == c",), "(c, c)"),
        (("b == 2*c",), "(2*c, c)"),
        (("b == c + 2", "b <= 9"), "(c + 2, c)"),
        (("mod(b, 8) == 0", "b >= 16"), "(8*b_8, c)"),
        (("b == 5",), "(5, c)"),
    ],
)
def test_equations(constraints: tuple[str, ...], shape: str) -> None:
    assert str(export.symbolic_shape("b, c", constraints=constraints)) == shape


def test_multiples_can_be_split() -> None:
    check(lambda x: np.asarray(x).reshape(4, -1).sum(1), ((4, 3), (8, 1)), ("mod(b, 4) == 0",))
    exported = export.export(weft.jit(lambda x: x))(spec(("mod(b, 4) == 0",)))
    with pytest.raises(ValueError, match="Division had remainder 2"):
        exported.call(onp.ones((6, 2), "float32"))


def test_equations_that_define_no_size_raise() -> None:
    with pytest.raises(ValueError, match="must bound one symbol"):
        export.symbolic_shape("b, c", constraints=("b*c == 6",))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * np.linspace(0.0, 1.0, x.shape[0]),
        lambda x: x * np.logspace(0.0, 1.0, x.shape[0]),
        lambda x: np.interp(np.linspace(0, 1, x.shape[0]), np.linspace(0, 1, x.shape[0]), x),
        lambda x: x[1:] * np.ones(1),
        lambda x: np.diff(x) * x[:1],
        lambda x: x[-2:] + np.ones(2),
        lambda x: x[::-2] * np.ones(1),
    ],
)
def test_small_sizes_after_others(function: Any) -> None:
    jitted = weft.jit(lambda x: function(x))
    for size in (5, 6, 2, 3, 4):
        x = np.arange(1.0, size + 1)
        onp.testing.assert_allclose(jitted(x), function(x), 1e-6)
