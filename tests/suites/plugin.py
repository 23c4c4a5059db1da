"""A plugin of pytest for a peer's tests: aliases the peer's name to Weft and appends outcomes to a file.

An expected exception that differs only by its words, its class or by not being raised is noted, and the test goes on:
`classify.py` reports these apart from differences of behaviour.
"""

from __future__ import annotations

import json
import os
import pathlib
import types
import unittest.case
from collections.abc import Iterator
from typing import Any

import pytest

from tests.suites import alias
from tests.suites.absence import AbsentName, NotInstalled, PrivateName, install_stand_ins
from tests.suites.libraries import LIBRARIES
from weft.keras.core import names

LIBRARY = LIBRARIES[os.environ["WEFT_SUITE"]]
SOURCE = pathlib.Path(os.environ["WEFT_SUITE_SOURCE"])
OUTCOMES = pathlib.Path(os.environ["WEFT_SUITE_OUTCOMES"])
ON_WEFT = os.environ["WEFT_SUITE_SIDE"] == "weft"
NOTES: list[list[str]] = []
"""Differences of expected exceptions in the test that runs now: what differs, what was expected, what came."""


def _note_instead_of_failing(
    self: Any, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None
) -> bool:
    """Leave `assertRaises` without a failure, and note what differs."""
    if kind is None:
        NOTES.append(["not raised", str(self.expected), getattr(self.expected_regex, "pattern", "")])
        self.exception = None
        return True
    if not issubclass(kind, Exception) or issubclass(kind, (AbsentName, PrivateName, NotInstalled)):
        return False
    assert error is not None
    self.exception = error.with_traceback(None)
    came = f"{kind.__name__}: {str(error)[:600]}"
    if not issubclass(kind, self.expected):
        NOTES.append(["class", str(self.expected), came])
    elif self.expected_regex is not None and not self.expected_regex.search(str(error)):
        NOTES.append(["words", self.expected_regex.pattern[:300], came])
    return True


if ON_WEFT:
    alias.install(LIBRARY, SOURCE)
    unittest.case._AssertRaisesContext.__exit__ = _note_instead_of_failing  # type: ignore[attr-defined]
if LIBRARY.name == "keras":
    install_stand_ins(str(LIBRARY.folder))


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("requires_trainable_backend", "multi_device"):
        config.addinivalue_line("markers", marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    NOTES.clear()
    if ON_WEFT and LIBRARY.name == "keras":
        # Tests of Keras's own stack of name scopes leave scopes open.
        names._scopes.set(())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when != "call" and report.outcome == "passed":
        return
    error = call.excinfo
    _write(
        {
            "id": item.nodeid,
            "when": report.when,
            "outcome": report.outcome,
            "error": "" if error is None else f"{error.type.__name__}: {str(error.value)[:3000].strip()}",
            "text": report.longreprtext[-6000:] if report.outcome == "failed" else "",
            "notes": list(NOTES),
        }
    )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        _write({"id": report.nodeid, "outcome": "not collected", "error": "".join(lines[-1:])[1:].strip()})


def _write(record: dict[str, object]) -> None:
    with OUTCOMES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
