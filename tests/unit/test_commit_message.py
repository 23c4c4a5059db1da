"""Hook that checks subjects of commits, `tools/commit_message.py`."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "commit_message.py"


def check(message: str, tmp_path: pathlib.Path) -> tuple[int, str]:
    """Run the hook on a message and return its exit status and what it prints."""
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "fuse: merge sibling reductions over the same space",
        "runtime/cuda: feed the queue from one thread\n\nTwo threads waited for each other.\n# Please enter ...",
        'Revert "fuse: merge sibling reductions over the same space"',
        "Merge branch 'main' into topic",
    ],
)
def test_accepts(message: str, tmp_path: pathlib.Path) -> None:
    assert check(message, tmp_path) == (0, "")


@pytest.mark.parametrize(
    "message, fault",
    [
        ("", "name a scope"),
        ("Words", "name a scope"),
        ("numpy: the sign of zero", 'imperative after its scope, got "the"'),
        ("numpy: what is shared is named", 'imperative after its scope, got "what"'),
        ("numpy: added the sign of zero", '("add", not "added" or "adding"), got "added"'),
        ("numpy: adding the sign of zero", 'got "adding"'),
        ("numpy: add the sign of zero.", "full stop"),
        ("numpy: add " + "x" * 80, "at most 72 characters, got 91"),
        ("numpy: add a function\nwith a body", "second line must be empty"),
    ],
)
def test_refuses(message: str, fault: str, tmp_path: pathlib.Path) -> None:
    status, text = check(message, tmp_path)
    assert status == 1 and fault in text
