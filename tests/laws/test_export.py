"""The law of export: the jaxpr of a sample, written to a file, is read back as the same jaxpr; so all parameters that
are objects are among those that a file may have."""

from __future__ import annotations

from tests.laws.samples import Case, every_sample
from weft.base import tree
from weft.export.file import Content, read, write
from weft.ir.parser import equal
from weft.trace.stage import stage


@every_sample()
def test_a_file_has_the_same_jaxpr(case: Case) -> None:
    original = stage(case.alone, case.types)[0]
    sides = [tuple(types) for types in (original.in_avals, original.out_avals)]
    structures = [tree.structure((types, {})) for types in sides]
    names = tuple(f"x{i}" for i in range(len(sides[0])))
    settings = {"enable_x64": True, "default_matmul_precision": None}
    content = Content("f", original, structures[0], sides[0], structures[1], sides[1], names, ("cpu",), settings, None)
    data = write(content)
    again = read(data)
    assert equal(original, again.jaxpr) and again.in_avals == sides[0] and again.out_avals == sides[1]
    assert write(again) == data
