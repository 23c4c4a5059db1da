"""The printer: the short text, and what the full text adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax
from weft.api.custom import custom_jvp, custom_vjp
from weft.api.inspect import make_jaxpr
from weft.api.remat import checkpoint
from weft.indexing.dimension import symbol
from weft.ir.jaxpr import Jaxpr
from weft.ir.parser import equal, parse
from weft.ir.printer import equation_text, to_text, variable_names
from weft.ir.types import ShapeDtypeStruct
from weft.ir.verifier import verify

pytestmark = pytest.mark.tiny

VECTOR = np.ones(8, np.float32)
SCALAR = np.float32(2)


def total(x: Any) -> Any:
    return lax.reduce_sum(x, (0,))


@custom_jvp
def halved(x: Any) -> Any:
    return lax.mul(x, 0.5)


@halved.defjvp
def halved_jvp(primals: Any, tangents: Any) -> Any:
    return halved(*primals), lax.mul(tangents[0], 0.5)


@custom_vjp
def doubled(x: Any) -> Any:
    return lax.mul(x, 2.0)


def doubled_forward(x: Any) -> Any:
    return doubled(x), None


def doubled_backward(_: Any, ct: Any) -> Any:
    return (lax.mul(ct, 2.0),)


doubled.defvjp(doubled_forward, doubled_backward)


def inner(x: Any) -> Any:
    return lax.mul(lax.sin(x), 2.0)


def calls(x: Any) -> Any:
    return weft.jit(inner)(lax.add(weft.jit(inner)(x), x))


def branches(x: Any) -> Any:
    first = lax.cond(lax.gt(total(x), 0.0), lambda a: lax.mul(a, 2.0), lambda a: lax.sub(a, 1.0), x)
    return lax.switch(np.int32(1), [lax.sin, lambda a: lax.cos(lax.sin(lax.cos(lax.sin(a)))), lax.exp], first)


def loops(x: Any) -> Any:
    grown = lax.while_loop(lambda s: lax.lt(s[0], 3), lambda s: (lax.add(s[0], 1), lax.mul(s[1], 2.0)), (0, x))[1]
    last, ys = lax.scan(lambda c, a: (lax.add(c, a), lax.mul(c, a)), np.float32(0), grown, reverse=True)
    return last, ys


def rules(x: Any) -> Any:
    return lax.add(lax.add(halved(x), doubled(x)), checkpoint(lax.sin)(x))


def unused(x: Any) -> Any:
    lax.sin(x)
    _, order = lax.sort((x, lax.cos(x)))
    return order


def constants(x: Any) -> Any:
    return lax.mul(lax.add(x, np.arange(8, dtype=np.float32)), np.float32(3))


def literals(x: Any) -> Any:
    result = [lax.add(x, value) for value in (0.1, -2.5, np.inf, -np.inf, np.nan, 1e-30, 16777216.0)]
    numbers = lax.convert_element_type(x, np.complex64)
    halves = lax.convert_element_type(x, ml_dtypes.bfloat16)
    flags = lax.bitwise_or(lax.gt(x, 0.0), np.bool_(True))
    return result, lax.mul(numbers, np.complex64(1 - 2j)), lax.mul(halves, ml_dtypes.bfloat16(0.1)), flags


def objects(x: Any) -> Any:
    """Parameters of many kinds, some of them objects without a text of their own."""
    index = np.array([[0], [3]], np.int32)
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    taken = lax.gather(x, index, numbers, slice_sizes=(1,), mode="clip")
    window = lax.reduce_window(x, np.float32(0), lax.add, (3,), (1,), "SAME")
    return taken, window, lax.dot_general(x, x, (((0,), (0,)), ((), ())), preferred_element_type=np.float32)


def many_names(x: Any) -> Any:
    for _ in range(30):
        x = lax.sin(x)
    return x


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arithmetic": (lambda first, second: total(lax.add(first, lax.mul(lax.sin(second), 3.0))), (VECTOR, VECTOR)),
    "branches": (branches, (VECTOR,)),
    "calls": (calls, (VECTOR,)),
    "constants": (constants, (VECTOR,)),
    "gradient": (weft.grad(lambda x: total(lax.mul(lax.sin(x), x))), (VECTOR,)),
    "gradient_of_while": (
        weft.grad(lambda x: lax.while_loop(lambda v: lax.lt(v, 9.0), lambda v: lax.mul(lax.sin(v), v), x)),
        (SCALAR,),
    ),
    "identity": (lambda x: x, (VECTOR,)),
    "literals": (literals, (VECTOR,)),
    "loops": (loops, (VECTOR,)),
    "many_names": (many_names, (SCALAR,)),
    "no_arguments": (lambda: 1.0, ()),
    "objects": (objects, (VECTOR,)),
    "one_line": (lambda x: lax.cos(lax.sin(x)), (SCALAR,)),
    "rules": (rules, (SCALAR,)),
    "symbolic": (lambda x: lax.mul(lax.sin(x), 2.0), (ShapeDtypeStruct((symbol("b", 2), 3), np.float32),)),
    "unused": (unused, (VECTOR,)),
    "weak": (lambda x, y: lax.mul(lax.sin(x), y), (1.0, SCALAR)),
}


def program(name: str) -> Jaxpr:
    function, args = PROGRAMS[name]
    return make_jaxpr(function)(*args)


every_program = pytest.mark.parametrize("name", PROGRAMS)


@every_program
def test_short_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"short/{name}.txt", str(program(name)))


@every_program
def test_full_text(name: str, golden: Callable[[str, str], None]) -> None:
    table: list[Any] = []
    text = to_text(program(name), full=True, table=table)
    described = [f"@{i} {type(item).__name__}" for i, item in enumerate(table)]
    golden(f"full/{name}.txt", "\n".join([text, *described]))


@every_program
def test_full_text_is_parsed_back(name: str) -> None:
    original = verify(program(name))
    table: list[Any] = []
    text = to_text(original, full=True, table=table)
    assert equal(parse(text, table), original)
    # Layout carries no meaning: the same program on narrow lines.
    assert equal(parse(to_text(original, full=True, table=table, width=20), table), original)


def test_the_promised_text() -> None:
    assert str(program("arithmetic")) == (
        "{ lambda ; a:f32[8] b:f32[8]. let\n"
        "    c:f32[8] = sin b\n"
        "    d:f32[8] = mul c 3.0:f32[]\n"
        "    e:f32[8] = add a d\n"
        "    f:f32[] = reduce_sum[axes=(0,)] e\n"
        "  in (f,) }"
    )


def test_source_lines_are_comments() -> None:
    original = program("calls")
    table: list[Any] = []
    text = to_text(original, full=True, table=table, source=True)
    assert "# test_printer.py:" in text and "return lax.mul(lax.sin(x), 2.0)" in text
    assert equal(parse(text, table), original)


def test_names_of_variables() -> None:
    names = variable_names()
    first = [next(names) for _ in range(26 + 26 * 26)]
    assert first[:3] == ["a", "b", "c"] and first[25:28] == ["z", "aa", "ab"]
    assert "in" not in first and "io" in first
    assert len(set(first)) == len(first)


def test_text_of_one_equation() -> None:
    equations = program("arithmetic").eqns
    assert equation_text(equations[-1]) == "b:f32[] = reduce_sum[axes=(0,)] a"
    assert equation_text(equations[1]) == "b:f32[8] = mul a 3.0:f32[]"
