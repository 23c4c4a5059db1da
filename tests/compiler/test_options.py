"""The compiler is a function of a jaxpr, a target and options: it reads no settings of the thread."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import weft
from tests.compiler.host import host
from weft.base.compile_options import DEFAULT, get_compile_options
from weft.base.settings import overrides
from weft.compiler import pipeline

pytestmark = pytest.mark.tiny

COMPILER = pathlib.Path(weft.__file__).parent / "compiler"
# Files that may read settings, and why.
READERS = {
    "cache.py": "where code is stored on disk does not change the code",
    "passes/decompose.py": "definitions are traced, and tracing reads settings: they are part of the key of the result",
    "rewrite.py": "the key of results for sub-jaxprs, which passes that trace definitions depend on",
    "target/stablehlo/module.py": "whether the text is read back, a check that does not change it",
    "target/threads.py": "threads that compile use the same folder for code as the one that starts them",
    "target/cpu/pool.py": "the number of threads that run programs, which no code depends on",
}


def test_only_these_files_read_settings() -> None:
    found = {
        str(path.relative_to(COMPILER))
        for path in COMPILER.rglob("*.py")
        if re.search(r"^\s*from weft\.base\.(settings|state) import .*\bconfig\b", path.read_text(), re.M)
    }
    assert found == set(READERS)


def test_equal_settings_have_the_same_options() -> None:
    before = get_compile_options()
    with overrides(debug_nans=True):
        assert get_compile_options().debug_nans and get_compile_options() is not before
    with overrides(profiling=True, log_compiles=True):  # calls differ, programs do not
        assert get_compile_options() is before
    assert get_compile_options() is before


def test_options_decide_and_not_the_settings() -> None:
    jaxpr = weft.make_jaxpr(lambda x: x / x)(np.ones(3, np.float32))
    with overrides(debug_nans=True):
        options = get_compile_options()
        plain = str(pipeline.run(jaxpr, host(), pipeline.ALL_PASSES[:4], DEFAULT))
    assert "trap" not in plain
    assert "trap" in str(pipeline.run(jaxpr, host(), pipeline.ALL_PASSES[:4], options))


def test_options_put_their_settings_in_force() -> None:
    with overrides(enable_x64=True):
        options = get_compile_options()
    with options.in_force():
        assert weft.config.enable_x64
    assert not weft.config.enable_x64
