"""Modules of StableHLO as text: short programs of every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.laws.samples import CASES, Case
from tests.laws.test_compiled import merged
from weft import lax
from weft.base.errors import InternalError
from weft.compiler.target.stablehlo import emit
from weft.compiler.target.stablehlo.parser import parse

F32 = np.float32
MATRIX, VECTOR = np.ones((3, 4), F32), np.ones(4, F32)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "dense": (lambda x, w, b: wnp.tanh(x @ w.T + b), (MATRIX, np.ones((2, 4), F32), np.ones(2, F32))),
    "softmax": (lambda x: weft.nn.softmax(x, axis=-1), (MATRIX,)),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * 2), x[0], x), (MATRIX,)),
    "while": (lambda x: lax.while_loop(lambda c: wnp.sum(c) < 9, lambda c: c * 2, x), (VECTOR,)),
    "branches": (lambda i, x: lax.switch(i, (wnp.sin, wnp.cos), x), (np.int32(1), VECTOR)),
    "index": (lambda x, i: x.at[i].add(1.0)[i], (VECTOR, np.array([2, 9], np.int32))),
    "slices": (
        lambda x, i: lax.dynamic_slice(lax.dynamic_slice(x, (i, 0), (2, 4)), (0, i), (2, 3)),
        (MATRIX, np.int32(1)),
    ),
    "keys": (lambda seed: weft.random.bits(weft.random.key(seed), (2,)), (np.int32(7),)),
    "sort": (lambda x: lax.top_k(x, 2), (VECTOR,)),
    "pool": (weft.grad(lambda x: wnp.sum(lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID"))), (VECTOR,)),
    "short": (lambda x: wnp.sum(x.astype(wnp.bfloat16) / 3), (VECTOR,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    function, args = PROGRAMS[name]
    module = weft.jit(function).lower(*args).as_text("stablehlo")
    parse(module)
    golden(f"stablehlo/{name}.mlir", module.replace("jit__lambda_", f"jit_{name}"))


def read_back(cases: list[Case]) -> None:
    for case in cases:
        functions = parse(emit(merged([case]), axes=dict(case.environment)))
        (public,) = (f for f in functions.values() if f.is_public)
        assert len(public.result_types) == len(case.result_types), str(case)
        assert len(public.body.arguments) == len(case.types), str(case)


# What StableHLO cannot say, with the reasons in `docs/design/stablehlo.md`.
WITHOUT = frozenset({"eig", "schur"})
WRITTEN = [case for case in CASES if case.primitive.name not in WITHOUT]


def test_samples_are_read_back() -> None:
    read_back(WRITTEN[::12])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_all_samples_are_read_back(part: int) -> None:
    read_back(WRITTEN[part::12])


PLAIN = weft.jit(lambda x: lax.while_loop(lambda c: wnp.sum(c) < 9, lambda c: wnp.sin(c), x)).lower(VECTOR)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"stablehlo.sine"(%', '"stablehlo.sine"(%9', "must take"),
        ("stablehlo.constant", "stablehlo.add", "must have one type"),
        ("tensor<i1>", "tensor<4xi1>", "must"),
        ("return %", "return %arg", "must"),
        ("}\n}\n", "}\n", "must"),
    ],
)
def test_mistakes_in_text_are_found(before: str, after: str, reason: str) -> None:
    module = PLAIN.as_text("stablehlo")
    assert before in module
    with pytest.raises(InternalError, match=reason):
        parse(module.replace(before, after))
