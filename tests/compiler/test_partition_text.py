"""Partitioning as text: programs in tests/text/partition, each with a mesh and how its arguments are split, and the
program of one device.

A case is a title after `#`, a program, a line `--> x=4: x . | . y` and the program of one device: arguments are
separated by `|`, with an axis, or a dot, for each dimension. After another `:` are results, where they are said.
Handles are those of `TABLE`.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.compiler.host import partition
from weft.base.settings import enable_checks
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.rules import Dims
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.merge_equal import merge_equal
from weft.compiler.passes.simplify import simplify
from weft.ir.parser import parse
from weft.ir.printer import to_text
from weft.ir.verifier import verify
from weft.primitives.contraction.convolution_shapes import ConvDimensionNumbers

pytestmark = pytest.mark.tiny

NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
OF_KERNEL = ConvDimensionNumbers((3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1))
TABLE = (NHWC, OF_KERNEL)
FILES = sorted((pathlib.Path(__file__).parents[1] / "text" / "partition").glob("*.txt"))


class TextCase(NamedTuple):
    """A program, how it is split, and the program of one device."""

    title: str
    before: str
    split: str
    after: str

    def applied(self) -> str:
        mesh, arguments, *results = self.split.split(":")
        sizes = {name: int(size) for name, size in (item.split("=") for item in mesh.split())}
        jaxpr = prepare(verify(parse(self.before, TABLE)))
        outs = dims_of(results[0]) if results else [None] * len(jaxpr.outvars)
        with enable_checks(True):
            local = partition(jaxpr, sizes, dims_of(arguments), outs)
        sent = [f"{c.kind} {c.axis} {c.bytes:g} B: {c.reason}" for c in local.communication]
        return "\n".join([to_text(drop_dead(merge_equal(simplify(local.jaxpr)))), *sent])

    def text(self, after: str) -> str:
        return f"# {self.title}\n{self.before}\n--> {self.split}\n{after}\n"


def dims_of(text: str) -> list[Dims]:
    """The axes of each dimension: `x . | xy | -` is split over x, and whole; over x and y; a number."""
    groups = text.split("|")
    return [tuple(() if word == "." else tuple(word) for word in group.split() if word != "-") for group in groups]


def cases(file: pathlib.Path) -> Iterator[TextCase]:
    for part in re.split(r"^(?=# )", file.read_text(), flags=re.M):
        if part.strip():
            title, _, body = part.removeprefix("# ").partition("\n")
            before, split, after = re.split(r"^--> (.+)$", body.strip(), maxsplit=1, flags=re.M)
            yield TextCase(title, before.strip(), split, after.strip())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_text_of_one_device(file: pathlib.Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-text"):
        file.write_text("\n".join(case.text(case.applied()) for case in cases(file)))
    for case in cases(file):
        assert case.applied() == case.after, f"{case.title} ({file.name}); --update-text rewrites it"
