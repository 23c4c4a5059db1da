"""Functions named in docs/from_call_to_machine_code.md are called, in that order."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from_call_to_machine_code.md"
NAMED = re.findall(r"`([\w.]+)` \((weft/[\w/]+\.py)\)", PAGE.read_text(encoding="utf-8"))
# Functions of weft in the order of their first call, by file and qualified name.
PROGRAM = """
    import json, sys, threading
    import numpy as np
    import weft
    import weft.numpy as wnp

    calls = {}

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and "/weft/" in code.co_filename:
            calls.setdefault(("weft/" + code.co_filename.rpartition("/weft/")[2], code.co_qualname), len(calls))

    def f(x):
        return (wnp.tanh(x) ** 2).sum()

    g, x = weft.jit(weft.grad(f)), np.ones(64, np.float32)
    threading.setprofile(note)  # kernels may be compiled in threads
    sys.setprofile(note)
    for _ in range(3):
        g(x)
    sys.setprofile(None)
    print(json.dumps([list(key) for key in calls]))
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Return the calls of a process that finds nothing on disk."""
    folder = str(tmp_path_factory.mktemp("cache"))
    environment = dict(os.environ, PYTHONPATH=str(ROOT), WEFT_COMPILATION_CACHE_DIR=folder)
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(file, name) for file, name in json.loads(done.stdout)]


def test_there_are_names() -> None:
    assert len(NAMED) > 30


def test_every_function_is_called(calls: list[tuple[str, str]]) -> None:
    missing = [f"{name} ({file})" for name, file in NAMED if (file, name) not in calls]
    assert not missing, "not called any more: rename them on the page, or tell what is called instead"


def test_they_are_named_in_the_order_of_their_calls(calls: list[tuple[str, str]]) -> None:
    found = [calls.index((file, name)) for name, file in NAMED]
    for before, after, at, then in zip(NAMED, NAMED[1:], found, found[1:], strict=False):
        assert at < then, f"{after[0]} is called before {before[0]}"
