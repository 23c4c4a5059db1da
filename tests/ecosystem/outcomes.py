"""Plugin of pytest that appends the outcome of each test to a file, so that a run that is cut short is not lost.

WEFT_OUTCOMES names the file; WEFT_OUTCOMES_PART=3 runs every third test only, chosen by name, for a quick look, and
WEFT_OUTCOMES_OFFSET=1 or 2 the two other thirds.
"""

from __future__ import annotations

import json
import os
import zlib

import pytest

PATH = "WEFT_OUTCOMES"
PART = "WEFT_OUTCOMES_PART"
OFFSET = "WEFT_OUTCOMES_OFFSET"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, offset = int(os.environ.get(PART, "1")), int(os.environ.get(OFFSET, "0"))
    chosen = [zlib.crc32(item.nodeid.encode()) % part == offset for item in items]
    if not all(chosen):
        config.hook.pytest_deselected(items=[item for item, wanted in zip(items, chosen, strict=True) if not wanted])
        items[:] = [item for item, wanted in zip(items, chosen, strict=True) if wanted]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write({"id": report.nodeid, "outcome": "not collected", "text": str(report.longrepr)[-2000:]})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        seconds = round(report.duration, 3)
        text = "" if report.outcome != "failed" else str(report.longrepr)[-3000:]
        _write({"id": report.nodeid, "outcome": report.outcome, "seconds": seconds, "text": text})


def _write(record: dict[str, object]) -> None:
    with open(os.environ[PATH], "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
