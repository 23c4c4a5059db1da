"""Tables of cost constants as Python files: reading the provenance of each value, and writing a table."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.catalogue import CATALOGUE, RECORDS

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "weft" / "compiler" / "target"


class Table(NamedTuple):
    """File with the constants of a target: its docstring's first line, the records that it defines, and why this script
    cannot measure them, if so."""

    path: pathlib.Path
    title: str
    records: tuple[str, ...]
    unmeasured: str = ""


_GPU = "Not measured by this script, which has no kernels for GPUs: benchmarks/gpu.py times whole programs."

TABLES = {
    "cpu": Table(FOLDER / "reference_costs.py", "Cost constants of CPUs.", ("fusion", "matmul", "kernel")),
    "cuda": Table(FOLDER / "cuda" / "costs.py", "Cost constants of NVIDIA GPUs.", ("fusion", "kernel"), _GPU),
}

_VALUE = re.compile(r"^    (\w+)=(.+),  # (.+)$")
_RECORD = re.compile(r"^([A-Z]+) = \w+\($")


def read_provenance(text: str) -> dict[str, tuple[str, str]]:
    """Return the literal and the provenance (date and machine) of each constant of a table, by name."""
    found, record = {}, ""
    for line in text.splitlines():
        if match := _RECORD.match(line):
            record = match[1].lower()
        elif match := _VALUE.match(line):
            found[f"{record}.{match[1]}"] = match[2], match[3]
    return found


def write_literal(value: Any) -> str:
    """Write a value as a literal; whole powers of two from 1 KB on as a shift."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1024:
        for shift in (20, 10):
            if value % (1 << shift) == 0:
                return f"{value >> shift} << {shift}"
    return f"{value:_}" if isinstance(value, (int, float)) and not isinstance(value, bool) else repr(value)


def write_table(table: Table, values: Mapping[str, tuple[str, str]]) -> str:
    """Write a table from the literal and the provenance of each constant, with notes from the catalogue."""
    kinds = [RECORDS[record].__name__ for record in table.records]
    lines = [
        f'"""{table.title}',
        "",
        "Written by tools/calibrate.py. The comment above a value says how the script measures it, the one beside it",
        "when and on which machine the value was set. docs/design/costs.md explains the methods; values that are older",
        "than the script (2026-11-19) were tuned by hand with benchmarks/matmul_grid.py and `make bench`.",
        *(["", table.unmeasured] if table.unmeasured else []),
        '"""',
        "",
        f"from weft.compiler.target.costs import {', '.join(sorted(kinds))}",
    ]
    for record, kind in zip(table.records, kinds, strict=True):
        lines += ["", f"{record.upper()} = {kind}("]
        for name in RECORDS[record].__dataclass_fields__:
            literal, provenance = values[f"{record}.{name}"]
            if not table.unmeasured:
                lines.append(f"    # {CATALOGUE[f'{record}.{name}'].note}")
            lines.append(f"    {name}={literal},  # {provenance}")
        lines.append(")")
    return "\n".join(lines) + "\n"
