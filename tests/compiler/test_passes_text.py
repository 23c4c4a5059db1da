"""Passes as text: programs in tests/text/passes, each with the pass that is applied and what comes out.

A case is a title after `#`, a program, a line `--> pass` and the program after it; `--> pipeline` applies all steps.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.compiler.host import run_passes
from tests.compiler.passes_bits import PASSES
from weft.compiler.passes.defer import defer
from weft.compiler.passes.orient import orient
from weft.compiler.passes.vector_matmuls import sum_vector_matmuls
from weft.compiler.target.cuda.targets import hopper
from weft.ir.jaxpr import Jaxpr
from weft.ir.parser import parse
from weft.ir.printer import to_text
from weft.ir.verifier import verify

pytestmark = pytest.mark.tiny

FOLDER = pathlib.Path(__file__).parents[1] / "text" / "passes"
FUNCTIONS: dict[str, Callable[[Jaxpr], Jaxpr]] = {
    **PASSES,
    "defer": defer,
    "orient": orient,
    "sum_vector_matmuls": lambda jaxpr: sum_vector_matmuls(jaxpr, hopper()),
    "pipeline": run_passes,
}


class TextCase(NamedTuple):
    """One program before and after a pass."""

    title: str
    before: str
    function: str
    after: str

    def applied(self) -> str:
        program = verify(FUNCTIONS[self.function](verify(parse(self.before))))
        return to_text(program)

    def text(self, after: str) -> str:
        return f"# {self.title}\n{self.before}\n--> {self.function}\n{after}\n"


def cases(file: pathlib.Path) -> Iterator[TextCase]:
    for part in re.split(r"^(?=# )", file.read_text(), flags=re.M):
        if part.strip():
            title, _, body = part.removeprefix("# ").partition("\n")
            before, function, after = re.split(r"^--> (\w+)$", body.strip(), maxsplit=1, flags=re.M)
            yield TextCase(title, before.strip(), function, after.strip())


FILES = sorted(FOLDER.glob("*.txt"))


def test_every_pass_has_texts() -> None:
    used = {case.function for file in FILES for case in cases(file)}
    assert used == set(FUNCTIONS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_text_after_the_pass(file: pathlib.Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-text"):
        file.write_text("\n".join(case.text(case.applied()) for case in cases(file)))
    for case in cases(file):
        assert case.applied() == case.after, f"{case.title} ({file.name}); --update-text rewrites it"
