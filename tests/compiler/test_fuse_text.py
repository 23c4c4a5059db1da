"""Programs before and after fusion as texts, with the reasons: `tests/text/fuse/*.txt`.

A file holds the program before, a line of dashes, and what `explain` says of it; `--update-text` rewrites what is below
the line. Programs with parameters that the short text cannot hold come from functions; their files are written whole.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.compiler.fuse_programs import program
from tests.compiler.host import fuse, run_passes, verify_fusion_pass
from weft.compiler.fuse.report import explain
from weft.compiler.target.cpu.targets import host
from weft.ir.jaxpr import Jaxpr
from weft.ir.parser import parse
from weft.ir.printer import to_text

pytestmark = pytest.mark.tiny

FOLDER = pathlib.Path(__file__).parents[1] / "text" / "fuse"
LINE = "\n" + "-" * 80 + "\n"
FROM_FUNCTIONS = {
    "gather": "gather",
    "scatter": "gather gradient",
    "convolution": "convolution",
    "update_in_scan": "written in scan",
    "table_in_scan": "table in scan",
}
NAMES = sorted({f.stem for f in FOLDER.glob("*.txt")} | set(FROM_FUNCTIONS))


def before(name: str) -> tuple[str, Jaxpr]:
    """The jaxpr of a file, and its text."""
    if name in FROM_FUNCTIONS:
        result = run_passes(program(FROM_FUNCTIONS[name])[0])
        return to_text(result), result
    text = (FOLDER / f"{name}.txt").read_text().split(LINE)[0]
    return text, parse(text)


@pytest.mark.parametrize("name", NAMES)
def test_fused_text(name: str, request: pytest.FixtureRequest) -> None:
    text, jaxpr = before(name)
    verify_fusion_pass(jaxpr, fuse(jaxpr))
    written = text + LINE + explain(jaxpr, host()) + "\n"
    file = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-text"):
        file.write_text(written)
    assert written == file.read_text(), f"the text differs from {file.name}; --update-text rewrites it"
