"""Processes that die, are stuck, or do something else than the others: all are told who and where, and all end."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.errors.test_error_pages import read_page
from tests.processes.launching import SCRIPTS, Finished, launched, needs_mpi
from weft import errors

pytestmark = needs_mpi


def failed(what: str, folder: pathlib.Path, **settings: str) -> tuple[Finished, list[str]]:
    """How two processes of scripts/failures.py end, and what each of them has caught."""
    done = launched(2, SCRIPTS / "failures.py", what, str(folder), devices=2, **settings)
    assert done.code != 0, done.out
    files = [folder / f"{rank}.txt" for rank in range(2)]
    return done, [file.read_text() if file.exists() else "" for file in files]


def seconds(text: str, word: str) -> float:
    found = re.search(rf"{word} at ([0-9.]+)", text)
    assert found, text
    return float(found[1])


def test_a_dead_process_is_named_at_once(tmp_path: pathlib.Path) -> None:
    _, (first, dead) = failed("dies", tmp_path)
    assert "ProcessFailureError" in first
    assert re.search(r"Process 1 \(host .*, pid \d+\) has died; .* at failures.py:\d+", first), first
    assert seconds(first, "raised") - seconds(dead, "dies") < 2


def test_a_process_that_ends_is_named_with_its_error(tmp_path: pathlib.Path) -> None:
    done, (first, _) = failed("raises", tmp_path)
    assert "has ended (ValueError: no more data) while others wait for it in psum at failures.py" in first, first
    assert "ValueError: no more data" in done.errors


def test_a_stuck_process_is_reported_with_its_stack(tmp_path: pathlib.Path) -> None:
    done, _ = failed("stuck", tmp_path, WEFT_STUCK_AFTER="1", WEFT_ABORT_AFTER="3")
    assert re.search(r"Process 1 \(host .*, pid \d+\) is not in psum at failures.py:\d+.*, for \d+ s", done.errors)
    assert "in is_lost_in_thought" in done.errors
    assert "aborting all processes" in done.errors


@pytest.mark.parametrize(
    ("what", "differs"),
    [
        ("shapes", r"process 0: argument 0 is f32\[1,3\] on each device.*process 1: argument 0 is f32\[1,5\]"),
        ("programs", r"process 0: b:f32\[1,3\] = psum.*failures.py:\d+.*process 1: b:f32\[1,3\] = mul a 2.0"),
        ("settings", r"process 0: setting enable_x64 is True.*process 1: setting enable_x64 is False"),
        ("order", r"process 0 does summed at failures.py:\d+.*process 1 does doubled at failures.py:\d+"),
        ("every_call", r"process 0: call summed at failures.py:\d+.*process 1: call doubled"),
        ("kinds", r"process 0 does summed at .*process 1 does sync_global_devices\('end'\) at"),
    ],
    ids=lambda text: text if text.isidentifier() else "",
)
def test_processes_that_do_different_things_are_named(what: str, differs: str, tmp_path: pathlib.Path) -> None:
    _, told = failed(what, tmp_path)
    for text in told:
        assert "ProgramMismatchError" in text
        assert re.search(differs, text), text


@pytest.mark.parametrize("error", [errors.ProgramMismatchError, errors.ProcessFailureError])
def test_pages_of_errors(error: type[errors.WeftError], tmp_path: pathlib.Path) -> None:
    page = read_page(error)
    for name, code in (("wrong", page.wrong), ("right", page.right)):
        script = tmp_path / f"{name}.py"
        script.write_text(code)
        done = launched(2, script)
        assert (done.code == 0) == (name == "right"), done.errors
        assert (error.__name__ in done.errors) == (name == "wrong"), done.errors
