"""Golden files: the output of a test is compared with a file."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

EXPECTED = pathlib.Path(__file__).parent / "expected"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `expected/<name>`; `--update-text` writes it instead."""

    def compare(name: str, text: str) -> None:
        file = EXPECTED / name
        # Where in a test something was asked for changes with every line that is written above it.
        text = re.sub(r"(test_\w+\.py):\d+", r"\1", text.rstrip("\n") + "\n")
        if request.config.getoption("--update-text"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return
        assert file.exists(), f"{file.name} does not exist; run with --update-text and read what it wrote"
        assert text == file.read_text(), f"the text differs from {file.name}; --update-text rewrites it"

    return compare
