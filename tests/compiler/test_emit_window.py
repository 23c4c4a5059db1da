"""Window reductions and selections: their kernels compute what `eval` computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import check, close, fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import compiled
from weft import lax
from weft.base import dtypes
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.windows import window_loops
from weft.compiler.target.cpu.targets import host
from weft.primitives.elementwise.compare import ge, le
from weft.primitives.reduction.window import (
    WINDOW_PARAMETERS,
    reduce_window_max,
    reduce_window_min,
    reduce_window_sum,
    select_and_gather_add,
    select_and_scatter,
    select_and_scatter_add,
)

PRIMITIVES = (
    reduce_window_sum,
    reduce_window_max,
    reduce_window_min,
    select_and_gather_add,
    select_and_scatter_add,
    select_and_scatter,
)


def windows(size: Any, stride: Any = None, padding: Any = None, base: Any = None, spread: Any = None) -> dict[str, Any]:
    ones = (1,) * len(size)
    values = (size, stride or ones, padding or ((0, 0),) * len(size), base or ones, spread or ones)
    return dict(zip(WINDOW_PARAMETERS, values, strict=True))


SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "channels last": ((2, 6, 7, 18), windows((1, 2, 2, 1), (1, 2, 2, 1))),
    "channels last, padded": ((2, 5, 7, 5), windows((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (0, 1), (0, 0)))),
    "channels first": ((2, 3, 6, 21), windows((1, 1, 2, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (0, 0), (1, 1)))),
    "one dimension": ((50,), windows((4,), padding=((3, 3),))),
    "everywhere": ((3, 4, 5), windows((2, 3, 2), padding=((1, 1), (1, 0), (0, 2)))),
    "spread windows": ((9, 20), windows((2, 3), (1, 2), ((1, 0), (2, 2)), spread=(3, 2))),
    "spread operand": ((5, 7), windows((2, 3), padding=((1, 1), (2, 0)), base=(2, 3))),
    "spread operand, strides": ((5, 7), windows((3, 2), (2, 3), ((1, 1), (2, 0)), base=(3, 2))),
    "spread both": ((5, 7), windows((3, 2), (2, 1), ((4, 1), (2, 5)), base=(4, 2), spread=(2, 3))),
    "spread far": ((3, 4), windows((7, 9), (2, 1), ((5, 3), (2, 8)), base=(6, 5), spread=(4, 1))),
    "cropped": ((6, 9), windows((2, 2), padding=((-2, -1), (1, -3)))),
    "large": ((40, 3), windows((37, 1), padding=((36, 0), (0, 0)))),
    "large both": ((11, 12), windows((7, 8), (2, 3), ((3, 3), (4, 4)))),
    "whole": ((2, 5, 6, 9), windows((1, 5, 6, 1))),
    "whole, one in each direction": ((2, 9, 8, 5), windows((1, 9, 8, 1), padding=((0, 0), (1, 0), (0, 1), (0, 0)))),
    "much padding": ((3, 2), windows((13, 9), (2, 1), ((12, 11), (9, 8)), base=(1, 2), spread=(1, 2))),
    "much padding, phases": ((2, 2), windows((11, 12), (2, 3), ((12, 11), (9, 8)), base=(5, 4))),
    "only padding": ((3, 4), windows((1, 2), padding=((2, 2), (0, 5)))),
    "sizes of one": ((1, 4, 1, 5), windows((1, 2, 1, 2), padding=((0, 0), (1, 0), (0, 0), (0, 0)))),
    "no window fits": ((2, 3), windows((1, 5))),
    "no elements, padded": ((0, 3), windows((2, 2), padding=((2, 1), (0, 0)))),
    "rank 0": ((), windows(())),
}


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Whole numbers, with ties, whose sums are exact."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("primitive", PRIMITIVES[:3], ids=lambda c: c.name)
def test_reductions(name: str, primitive: Any) -> None:
    shape, params = SHAPES[name]
    assert check(lambda x: primitive(x, **params), numbers(shape)) == ["window"]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("relation", [ge, le], ids=lambda c: c.name)
def test_selections(name: str, relation: Any) -> None:
    shape, params = SHAPES[name]
    x, y = numbers(shape), numbers(shape, seed=1)
    options: dict[str, Any] = {"machines": ("host",)} if relation is ge else {"machines": ("avx2",), "interpret": False}
    gathered = check(lambda a, b: select_and_gather_add(a, b, select_prim=relation, **params), x, y, **options)
    source = numbers(np.shape(reduce_window_sum.eval(x, **params)), seed=2)
    added = check(lambda a, b: select_and_scatter_add(a, b, select_prim=relation, **params), source, y, **options)
    assert gathered == added == ["window"]


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda c: c.name)
def test_samples_of_the_primitives(primitive: Any) -> None:
    for sample in primitive.samples():
        kinds = check(
            lambda *xs, p=sample.params: primitive(*xs, **p), *sample.args, compare=close(1e-6), machines=("host",)
        )
        assert kinds == ["window"]


def test_looped_and_unrolled_phases_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("spread operand", "spread operand, strides", "spread both", "channels last, padded", "everywhere"):
        shape, params = SHAPES[name]
        x = numbers(shape)
        source = numbers(np.shape(reduce_window_sum.eval(x, **params)), seed=2)
        for phases, taps in ((0, 0), (0, 64), (64, 0)):
            monkeypatch.setattr(window_loops, "PHASES", phases)
            monkeypatch.setattr(window_loops, "TAPS", taps)
            monkeypatch.setattr(window_loops, "LAST_TAPS", 0)
            check(lambda a, p=params: reduce_window_sum(a, **p), x, machines=("host",))
            check(
                lambda a, b, p=params: select_and_scatter_add(a, b, select_prim=ge, **p), source, x, machines=("host",)
            )


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "uint8",
        "int4",
        "int32",
        "uint32",
        "float16",
        "bfloat16",
        "float8_e5m2",
        "float8_e4m3fn",
        "float64",
        "bool",
    ],
)
def test_dtypes(dtype: str) -> None:
    params = windows((2, 3), (1, 2), ((1, 0), (1, 1)))
    x = numbers((5, 40)) if dtypes.kind(dtypes.as_dtype(dtype)) != "b" else numbers((5, 40)) > 0
    x = np.asarray(np.abs(x) if dtype[0] == "u" else x).astype(dtypes.as_dtype(dtype))
    with weft.enable_x64(True):
        for primitive in PRIMITIVES[:3] if dtype != "bool" else PRIMITIVES[1:3]:
            assert check(lambda a, primitive=primitive: primitive(a, **params), x, interpret=False) == ["window"]
        check(lambda a: select_and_gather_add(a, a, select_prim=ge, **params), x, interpret=False)
        if dtype != "bool":
            source = x[:, :20].copy()
            check(lambda a, b: select_and_scatter_add(a, b, select_prim=ge, **params), source, x, interpret=False)


def test_dimensions_are_reduced_one_by_one_if_that_is_cheaper() -> None:
    x = numbers((2, 15, 17, 20))
    params = windows((1, 9, 11, 1), (1, 1, 2, 1), ((0, 0), (4, 4), (5, 5), (0, 0)))
    ((fusion, _),) = fusions_with_operands(lambda a: reduce_window_max(a, **params), x)
    assert len(emit("window", fusion.params["jaxpr"], fusion.params["hero"], AVX512).launches) == 2
    for primitive in PRIMITIVES[:3]:
        check(lambda a, primitive=primitive: wnp.abs(primitive(a, **params)), x, interpret=False)
    check(lambda a: reduce_window_min(a, **windows((8, 9), padding=((7, 0), (8, 0)), base=(1, 2))), numbers((8, 9)))
    half = (numbers((20, 30)) / 8).astype(np.float16)
    check(lambda a: reduce_window_sum(a, **windows((9, 9), padding=((4, 4), (4, 4)))), half, interpret=False)


def test_gaps_have_the_identity_element() -> None:
    for dtype in ("float8_e4m3fn", "float16", "int8", "float32"):
        x = numbers((30,)).astype(dtypes.as_dtype(dtype))
        for primitive in PRIMITIVES[:3]:
            check(lambda a, primitive=primitive: primitive(a, **windows((1,), base=(3,))), x, interpret=False)


def test_complex_sums() -> None:
    x = (numbers((5, 19)) + 1j * numbers((5, 19), seed=1)).astype(np.complex64)
    check(lambda a: reduce_window_sum(a, **windows((2, 3), padding=((1, 1), (0, 2)), base=(1, 2))), x)


def test_nan_infinity_and_zeros() -> None:
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], np.float32), (6, 40))
    params = windows((2, 2), padding=((0, 1), (1, 0)))
    for primitive in PRIMITIVES[:3]:
        with np.errstate(invalid="ignore"):
            check(lambda a, primitive=primitive: primitive(a, **params), x)
    for relation in (ge, le):
        check(lambda a, b, r=relation: select_and_gather_add(a, b, select_prim=r, **params), numbers(x.shape), x)
        check(lambda a, b, r=relation: select_and_scatter_add(a, b, select_prim=r, **params), numbers(x.shape), x)
    zeros = np.full((3, 20), -0.0, np.float32)
    for own in (windows((2, 2)), windows((36, 1), padding=((36, 0), (0, 0))), windows((2, 1), base=(2, 1))):

        def signs(got: np.ndarray, want: np.ndarray) -> None:
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))

        check(lambda a, own=own: reduce_window_sum(a, **own), zeros, compare=signs)


EPILOGUES: dict[str, Callable[..., Any]] = {
    "average": lambda x, b: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4.0,
    "bias and relu": lambda x, b: wnp.maximum(
        lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") + b, 0.0
    ),
    "gradient of the largest": lambda x, b: (
        weft.grad(lambda v: wnp.sum(lax.reduce_window(v, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") * 2.0))(
            x
        )
        * 3.0
    ),
    "gradient of the average": lambda x, b: weft.grad(
        lambda v: wnp.sum(wnp.sin(lax.reduce_window(v, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")))
    )(x),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_pointwise_work_after_windows(name: str) -> None:
    x, b = np.random.default_rng(0).normal(size=(2, 5, 6, 5)).astype(np.float32), numbers((5,))
    assert "window" in check(EPILOGUES[name], x, b, compare=close(1e-5))


def test_windows_may_be_split_in_any_way() -> None:
    x, params = numbers((7, 9, 8, 20)), windows((2, 3, 3, 1), (1, 2, 2, 1), ((1, 1), (1, 1), (0, 1), (0, 0)))
    source = numbers(reduce_window_sum.eval(x, **params).shape, seed=1)
    ((fusion, operands),) = fusions_with_operands(
        lambda a, b: select_and_scatter_add(a, b, select_prim=ge, **params), source, x
    )
    jaxpr = fusion.params["jaxpr"]
    emission = emit("window", jaxpr, fusion.params["hero"], AVX512)
    assert [launch.kernel.parallel is not None for launch in emission.launches] == [True, True]
    (whole,), (parts,) = (
        launched(emission, operands, jaxpr, lambda kernel, arrays, n=n: compiled(kernel, arrays, host(), parts=n))
        for n in (1, 3)
    )
    np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("name", ["channels last, padded", "everywhere", "spread both", "large", "sizes of one"])
def test_machines_without_vectors(name: str) -> None:
    shape, params = SHAPES[name]
    x = numbers(shape)
    source = numbers(reduce_window_sum.eval(x, **params).shape, seed=1)
    options: dict[str, Any] = {"machines": ("scalar",), "interpret": False}
    check(lambda a: reduce_window_max(a, **params), x, **options)
    check(lambda a, b: select_and_scatter_add(a, b, select_prim=ge, **params), source, x, **options)


def test_a_long_dimension() -> None:
    x, y = numbers((20_000,)), numbers((20_003,), seed=1)
    params = windows((4,), padding=((3, 3),))
    check(lambda a: reduce_window_max(a, **params), x, interpret=False)
    check(lambda a, b: select_and_scatter_add(a, b, select_prim=ge, **params), y, x, interpret=False)


def test_large_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(3, 31, 30, 64)).astype(np.float32)
    params = windows((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (0, 1), (1, 1), (0, 0)))
    for primitive in PRIMITIVES[:3]:
        check(lambda a, primitive=primitive: primitive(a, **params), x, interpret=False, compare=close(1e-6))
    source = np.asarray(reduce_window_max.eval(x, **params))
    check(
        lambda a, b: select_and_scatter_add(a, b, select_prim=ge, **params),
        source,
        x,
        interpret=False,
        compare=close(1e-6),
    )
