"""The law of text: the jaxpr of a sample is well formed, and its full text parses to the same jaxpr."""

from __future__ import annotations

from typing import Any

from tests.laws.samples import Case, every_sample
from weft.ir.parser import equal, parse
from weft.ir.printer import to_text
from weft.ir.verifier import verify
from weft.trace.stage import stage


@every_sample()
def test_the_jaxpr_is_well_formed_and_parses_back(case: Case) -> None:
    original = stage(case.alone, case.types)[0]
    verify(original)
    assert [v.aval for v in original.outvars] == case.result_types
    table: list[Any] = []
    text = to_text(original, full=True, table=table)
    again = parse(text, table)
    assert equal(original, again), text
    assert to_text(again, full=True, table=table) == text
