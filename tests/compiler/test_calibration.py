"""The calibration script covers every cost constant, and its tables are the ones that targets read."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from weft.compiler.target import reference_costs
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.cuda import costs as cuda_costs
from weft.compiler.target.cuda.targets import hopper
from weft.compiler.target.target import Target

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "calibrate.py"
TARGETS = {"cpu": (reference_costs, host()), "cuda": (cuda_costs, hopper())}


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("calibration.tables")


@pytest.fixture
def catalogue(tables: Any) -> Any:
    return importlib.import_module("calibration.catalogue")


def load(path: pathlib.Path) -> ModuleType:
    """Run a table as a module of its own."""
    spec = importlib.util.spec_from_file_location("table", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_constant_is_measured_or_says_why_not(catalogue: Any) -> None:
    assert list(catalogue.CATALOGUE) == catalogue.names()
    for name, constant in catalogue.CATALOGUE.items():
        assert (constant.measure is None) == constant.note.startswith("Not measured: "), name
        assert constant.note.endswith("."), name
    records = {f.name for f in fields(Target) if hasattr(getattr(host(), f.name), "__dataclass_fields__")}
    assert records == set(catalogue.RECORDS)


@pytest.mark.parametrize("name", TARGETS)
def test_tables_are_what_the_script_writes_and_what_targets_have(
    name: str, tables: Any, tmp_path: pathlib.Path
) -> None:
    table, (module, target) = tables.TABLES[name], TARGETS[name]
    text = table.path.read_text(encoding="utf-8")
    values = tables.read_provenance(text)
    assert tables.write_table(table, values) == text
    again = tmp_path / "again.py"
    again.write_text(text, encoding="utf-8")
    for record in table.records:
        assert getattr(load(again), record.upper()) == getattr(module, record.upper()) == getattr(target, record)
    for name, (literal, provenance) in values.items():
        record, _, field = name.partition(".")
        assert eval(literal) == getattr(getattr(target, record), field)
        assert provenance.startswith("2026-") or provenance[:4].isdigit(), name


@pytest.mark.parametrize(
    "value, literal",
    [
        (1.5, "1.5"),
        (4, "4"),
        (20_000.0, "20_000.0"),
        (1 << 20, "1 << 20"),
        (1536 << 10, "1536 << 10"),
        ((1, 2), "(1, 2)"),
    ],
)
def test_literals(value: Any, literal: str, tables: Any) -> None:
    assert tables.write_literal(value) == literal and eval(literal) == value


def run(*options: str) -> str:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "WEFT_COMPILATION_CACHE": "0"}
    done = subprocess.run([sys.executable, SCRIPT, *options], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quick_run_measures_and_writes_a_table(tables: Any, tmp_path: pathlib.Path) -> None:
    written = tmp_path / "written.py"
    printed = run("--quick", "--write", str(written))
    assert all(name in printed for name in ("matmul.gather_lane", "kernel.access", "fusion.row_bytes"))
    found = load(written)
    assert found.MATMUL.heights == reference_costs.MATMUL.heights and found.KERNEL.access > 0
    # Only measured constants have a new date.
    before = tables.read_provenance(tables.TABLES["cpu"].path.read_text(encoding="utf-8"))
    after = tables.read_provenance(written.read_text(encoding="utf-8"))
    assert after["fusion.values"] == before["fusion.values"]
    assert after["kernel.access"][1] != before["kernel.access"][1]


def test_what_needs_a_gpu_is_said() -> None:
    assert "Not measured by this script" in run("--target", "cuda", "--only", "kernel.launch")
