"""Every fault of the table can be applied, and the result is valid Python."""

from __future__ import annotations

import ast
import pathlib
from collections import Counter

import pytest

from tests.faults.subset import SUBSET, stages
from tests.faults.table import KINDS, SILENT, DoesNotApply, Fault, faults

ROOT = pathlib.Path(__file__).parents[2]
FAULTS = faults()


def test_there_are_many_and_most_are_silent() -> None:
    assert len(FAULTS) >= 115
    names = Counter(fault.name for fault in FAULTS)
    assert not [name for name, count in names.items() if count > 1]
    assert {fault.kind for fault in FAULTS} <= {*KINDS}
    assert sum(fault.kind in SILENT for fault in FAULTS) >= 70


def test_all_of_the_compiler_has_some() -> None:
    parts = ("passes", "partition", "fuse", "emit", "kernel", "program", "target")
    folders = {f"compiler/{part}" for part in parts} | {"runtime", "api", "primitives", "transforms"}
    assert folders <= {f.area for f in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_can_be_applied(fault: Fault) -> None:
    before = (ROOT / fault.file).read_text()
    after = fault.applied(before)
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))


def test_missing_lines_are_detected() -> None:
    fault = Fault("some", "numbers", "weft/some.py", "", "    return 1\n", "    return 2\n")
    assert fault.applied("def f():\n    return 1\n") == "def f():\n    return 2\n"
    for text in ("def f():\n    return 3\n", "def f():\n    return 1\n\n\ndef g():\n    return 1\n"):
        with pytest.raises(DoesNotApply, match="stand"):
            fault.applied(text)


def test_every_fault_is_tested_with_the_whole_subset() -> None:
    whole = {f"tests/{name.partition('::')[0]}" for name, _ in SUBSET}
    assert all((ROOT / path).exists() for path in whole)
    for fault in FAULTS:
        near, others = stages(fault.file, "")
        assert {*near} | {*others} == whole and not {*near} & {*others}
