"""Platforms: Weft runs, or says on import what is missing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from weft.base import platforms


def run(text: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("system", ["win32", "cygwin", "emscripten", "freebsd14"])
def test_other_systems_are_refused_on_import(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(ImportError, match=f"needs Linux or macOS, and this is {system}") as caught:
        platforms.check()
    assert ("WSL" in str(caught.value)) == (system in ("win32", "cygwin"))


def test_other_pythons_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, value, words in (
        (sys, "maxsize", (1 << 31) - 1, "64-bit Python"),
        (sys, "byteorder", "big", "little endian"),
        (sys.implementation, "name", "pypy", "needs CPython, and this is pypy"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            assert words in (platforms.missing() or "")
    assert platforms.missing() is None


def test_the_error_has_no_traceback_of_weft() -> None:
    done = run("import sys; sys.platform = 'win32'; import weft")
    assert done.returncode == 1
    assert (
        done.stderr.strip().splitlines()[-1].startswith("ImportError: Weft does not run here: it needs Linux or macOS")
    )


# What Linux has and macOS has not, taken away before Weft is imported.
ELSEWHERE = """
    import mmap, os, sys
    import numpy as np

    for module, name in ((mmap, "MADV_HUGEPAGE"), (os, "sched_getaffinity")):
        if hasattr(module, name):
            delattr(module, name)
    from weft.compiler.target.cpu import pool
    pool.waiting = lambda triple: pool.Waiting.CONDITION
    import weft, weft.numpy as wnp
    from weft import lax

    weft.config.update("num_threads", 2)
    x = np.ones((700, 700), np.float32)
    large = weft.jit(lambda x: wnp.tanh(x @ x) + wnp.sort(x, axis=0))
    loop = weft.jit(lambda x: lax.fori_loop(0, 100, lambda i, c: wnp.sin(c) + 1, x))
    for _ in range(4):
        np.testing.assert_allclose(large(x), np.tanh(x @ x) + x, rtol=1e-6)
        assert float(loop(wnp.ones(3))[0]) > 0
    assert wnp.zeros(1 << 21).sum() == 0
    print("done")
"""


def test_it_runs_without_linux_only_features() -> None:
    done = run(ELSEWHERE)
    assert (done.stdout, done.stderr) == ("done\n", "")
