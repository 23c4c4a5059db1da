"""The parser: printing a parsed text returns the text, and errors show what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import weft.primitives.random.bits
from weft.base.errors import JaxprSyntaxError
from weft.indexing.dimension import symbol
from weft.ir.interpreter import run
from weft.ir.parser import equal, parse
from weft.ir.printer import to_text
from weft.ir.verifier import verify

pytestmark = pytest.mark.tiny

assert weft.primitives.random.bits.FRY.name == "key<fry>"  # importing the module makes the type of keys known

TEXTS = [
    "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }",
    "{ lambda ; a:f32[] b:f32[]. let c:f32[] = add a b; d:f32[] = neg c in (d, c) }",
    "{ lambda ; a:f32[]. let b:f32[] = mul a -2.5:f32[] in (b, 1e-30:f32[]) }",
    "{ lambda ; . let  in (1:i32[],) }",
    "{ lambda ; . let  in () }",
    "{ lambda ; a:key<fry>[2]. let  in (a,) }",
    "{ lambda ; a:bf16[4]. let b:bf16[4] = mul a 0.10009765625:bf16[] in (b,) }",
    "{ lambda ; a:c64[2]. let b:c64[2] = mul a (1-2j):c64[] in (b,) }",
    "{ lambda ; a:bool[2]. let b:bool[2] = or a True:bool[] in (b,) }",
    "{ lambda ; a:f32[2]. let b:f32[2] = max a -inf:f32[]; _:f32[2] = sin b in (b,) }",
    """{ lambda ; a:f32[4]. let
    b:f32[2] = slice[limit_indices=(2,) start_indices=(0,)] a
  in (b,) }""",
    """{ lambda ; a:f32[3]. let
    b:f32[3] = jit[
      name=inner
      jaxpr={ lambda ; c:f32[3]. let
          d:f32[3] = sin c
          e:f32[3] = mul d 2.0:f32[]
        in (e,) }
    ] a
  in (b,) }""",
    """{ lambda ; a:i32[] b:f32[3]. let
    c:f32[3] = cond[
      branches=(
        { lambda ; d:f32[3]. let e:f32[3] = sub d 1.0:f32[] in (e,) }
        { lambda ; f:f32[3]. let g:f32[3] = mul f 2.0:f32[] in (g,) }
      )
    ] a b
  in (c,) }""",
]


@pytest.mark.parametrize("index", range(len(TEXTS)))
def test_text_in_is_text_out(index: int) -> None:
    text = TEXTS[index]
    jaxpr = verify(parse(text))
    assert to_text(jaxpr) == text


def test_a_parsed_jaxpr_runs() -> None:
    jaxpr = parse("{ lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[]; c:f32[] = reduce_sum[axes=(0,)] b in (c, b) }")
    total, doubled = run(jaxpr, [np.arange(3, dtype=np.float32)])
    assert total == 6 and doubled.tolist() == [0, 2, 4]


def test_space_and_comments_carry_no_meaning() -> None:
    one = parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }")
    other = parse("{lambda;x:f32[3].let # a comment } in\n  y:f32[3]\n=sin x in(y)}")
    assert equal(one, other)


def test_constants_come_from_the_table() -> None:
    values = np.arange(3, dtype=np.float32)
    short = parse("{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add a b in (c,) }", [values])
    full = parse("{ lambda a:f32[3]=@1; b:f32[3]. let c:f32[3] = add a b in (c,) }", [None, values])
    assert equal(short, full) and full.consts[0] is values


def test_symbols_come_from_the_table_or_are_at_least_one() -> None:
    size = symbol("b", 4)
    declared = parse("{ lambda[b=@0] ; a:f32[b,2*b]. let  in (a,) }", [size])
    assert declared.invars[0].aval.shape == (size, 2 * size)  # type: ignore[attr-defined]
    plain = parse("{ lambda ; a:f32[b]. let  in (a,) }")
    assert plain.invars[0].aval.shape == (symbol("b"),)  # type: ignore[attr-defined]


DIFFERENT = [
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a b in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub b a in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a a in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = add a b in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a b in (a,) }",
    "{ lambda ; a:f32[3]* b:f32[3]. let c:f32[3] = sub a b in (c,) }",
    "{ lambda ; a:f32[4] b:f32[4]. let c:f32[4] = sub a b in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a 1.0:f32[] in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a 2.0:f32[] in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a 2.0:f32[]* in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a -0.0:f32[] in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sub a 0.0:f32[] in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = rev[dimensions=(0,)] a in (c,) }",
    "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = rev[dimensions=()] a in (c,) }",
]


def test_equal_distinguishes_jaxprs() -> None:
    programs = [parse(text) for text in DIFFERENT]
    for i, one in enumerate(programs):
        assert equal(one, parse(DIFFERENT[i]))
        for j, other in enumerate(programs):
            assert equal(one, other) == (i == j), (DIFFERENT[i], DIFFERENT[j])


MISTAKES = {
    "empty": "",
    "no_operand_name": "{ lambda ; a:f32[3]. let b:f32[3] = sin x in (b,) }",
    "unknown_primitive": "{ lambda ; a:f32[3]. let b:f32[3] = sinus a in (b,) }",
    "bad_type": "{ lambda ; a:f33[3]. let  in (a,) }",
    "no_type": "{ lambda ; a. let  in (a,) }",
    "no_let": "{ lambda ; a:f32[3]. b:f32[3] = sin a in (b,) }",
    "never_closed": "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n  in (b,)",
    "more_after_the_end": "{ lambda ; a:f32[3]. let  in (a,) } }",
    "defined_twice": "{ lambda ; a:f32[3]. let\n    a:f32[3] = sin a\n  in (a,) }",
    "argument_twice": "{ lambda ; a:f32[3] a:f32[3]. let  in (a,) }",
    "bad_parameter": "{ lambda ; a:f32[3]. let\n    b:f32[3] = rev[dimensions=] a\n  in (b,) }",
    "parameter_twice": "{ lambda ; a:f32[3]. let b:f32[3] = rev[dimensions=() dimensions=()] a in (b,) }",
    "missing_handle": "{ lambda a:f32[3]=@2; . let  in (a,) }",
    "missing_constant": "{ lambda a:f32[3]; . let  in (a,) }",
    "opaque_parameter": "{ lambda ; a:f32[3]. let b:f32[3] = gather[mode=GatherScatterMode.CLIP] a a in (b,) }",
    "literal_without_type": "{ lambda ; a:f32[3]. let b:f32[3] = add a 2.0 in (b,) }",
    "literal_of_an_array": "{ lambda ; a:f32[3]. let b:f32[3] = add a 2.0:f32[3] in (b,) }",
}


def test_errors_show_the_position(golden: Callable[[str, str], None]) -> None:
    parts = []
    for name, text in MISTAKES.items():
        with pytest.raises(JaxprSyntaxError) as caught:
            parse(text)
        parts.append(f"# {name}\n{text}\n---\n{caught.value}\n")
    golden("mistakes_in_text.txt", "\n".join(parts))
