"""The verifier: what it accepts, and its errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import weft
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base.errors import JaxprTypeError
from weft.ir.jaxpr import Jaxpr, Literal, Var
from weft.ir.parser import parse
from weft.ir.types import array_type
from weft.ir.verifier import check_jaxpr, verify

pytestmark = pytest.mark.tiny

F32 = array_type((3,), np.dtype(np.float32))

# Texts that can be read, but are not programs.
ILL_TYPED = {
    "wrong result type": "{ lambda ; a:f32[3]. let b:f32[4] = sin a in (b,) }",
    "wrong result dtype": "{ lambda ; a:f32[3]. let b:f32[3] = lt a 0.0:f32[] in (b,) }",
    "operands that do not fit": "{ lambda ; a:f32[3] b:f32[4]. let c:f32[3] = add a b in (c,) }",
    "too many results": "{ lambda ; a:f32[3]. let b:f32[3] c:f32[3] = sin a in (b,) }",
    "inside a sub-jaxpr": (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = jit[name=f jaxpr={ lambda ; c:f32[3]. let d:f32[3] = lt c 0.0:f32[] in (d,) }] a\n"
        "  in (b,) }"
    ),
}


def test_ill_typed_jaxprs_are_rejected(golden: Callable[[str, str], None]) -> None:
    parts = []
    for name, text in ILL_TYPED.items():
        with pytest.raises(JaxprTypeError) as caught:
            verify(parse(text))
        parts.append(f"# {name}\n{text}\n---\n{caught.value}\n")
    golden("ill_typed_programs.txt", "\n".join(parts))


@pytest.mark.parametrize("call", ["reduce_sum[axes=(0,)] a a", "reduce_sum[dims=(0,)] a", "reduce_sum[axes=(0,)]"])
def test_errors_of_type_rules(call: str) -> None:
    with pytest.raises(JaxprTypeError, match="The type rule of reduce_sum refuses the operands"):
        verify(parse(f"{{ lambda ; a:f32[3]. let b:f32[] = {call} in (b,) }}"))


def simple() -> Jaxpr:
    return make_jaxpr(lambda x: lax.sin(lax.mul(x, 2.0)))(np.ones(3, np.float32))


def test_well_formed_jaxprs_are_returned() -> None:
    program = simple()
    assert verify(program) is program and check_jaxpr(program) is program


def test_use_before_definition() -> None:
    program = simple()
    with pytest.raises(JaxprTypeError, match="Operand 0 of sin is used before it is defined") as caught:
        verify(program.replace(eqns=program.eqns[::-1]))
    assert "test_verifier.py" in str(caught.value) and "lax.sin(lax.mul(x, 2.0))" in str(caught.value)


def test_undefined_result() -> None:
    with pytest.raises(JaxprTypeError, match="Result 0 of the program is used before it is defined"):
        verify(simple().replace(outvars=[Var(F32)]))


def test_second_definition() -> None:
    program = simple()
    with pytest.raises(JaxprTypeError, match="defined again, as a result of mul"):
        verify(program.replace(eqns=(program.eqns[0], *program.eqns)))
    with pytest.raises(JaxprTypeError, match="defined again, as an argument"):
        verify(program.replace(invars=program.invars * 2))


def test_constants_fit_their_variables() -> None:
    var = Var(F32)
    with pytest.raises(JaxprTypeError, match=r"Constant 0 must have the type of its variable, f32\[3\]; got f32\[4\]"):
        verify(Jaxpr([var], [], [var], [], [np.ones(4, np.float32)]))
    with pytest.raises(JaxprTypeError, match="variable for each constant; got 1 for 0"):
        verify(Jaxpr([var], [], [var], [], []))


def test_literals_fit_their_types() -> None:
    scalar = array_type((), np.dtype(np.float32))
    with pytest.raises(JaxprTypeError, match="literals must be scalars"):
        verify(Jaxpr([], [], [Literal(np.ones(3, np.float32), F32)], []))
    with pytest.raises(JaxprTypeError, match="holds float64"):
        verify(Jaxpr([], [], [Literal(np.ones((), np.float64), scalar)], []))


def test_effects_are_those_of_the_primitive() -> None:
    program = simple()
    first = program.eqns[0].replace(effects=frozenset({"writes"}))
    with pytest.raises(JaxprTypeError, match=r"mul must have effects \[\]; the equation has \['writes'\]"):
        verify(program.replace(eqns=(first, program.eqns[1])))


def test_weak_types_may_differ() -> None:
    program = simple()
    weak = Var(array_type((3,), np.dtype(np.float32), True))
    last = program.eqns[-1].replace(outvars=[weak])
    verify(program.replace(eqns=(program.eqns[0], last), outvars=[weak]))


def test_transformed_jaxprs_are_well_formed() -> None:
    def loss(x: weft.Array) -> weft.Array:
        grown = lax.while_loop(lambda v: lax.lt(lax.reduce_sum(v, (0,)), 9.0), lambda v: lax.mul(v, 1.5), x)
        return lax.reduce_sum(lax.sin(grown), (0,))

    one, two = np.ones(3, np.float32), np.ones((2, 3), np.float32)
    verify(make_jaxpr(weft.grad(loss))(one))
    verify(make_jaxpr(weft.vmap(weft.grad(loss)))(two))
    verify(make_jaxpr(weft.grad(lambda x: loss(weft.jit(lax.exp)(x))))(one))
