"""Examples in docstrings say what they print."""

from __future__ import annotations

import doctest
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODULES = [
    path.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for path in sorted((ROOT / "weft").rglob("*.py"))
    if any(mark in path.read_text(encoding="utf-8") for mark in (">>> ", "@document("))
]


def test_there_are_examples() -> None:
    assert MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert not failed
