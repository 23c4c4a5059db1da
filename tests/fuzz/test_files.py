"""A sample of changed files of every kind (`python -m tests.fuzz.files` reads many, with limits of memory and time)."""

from __future__ import annotations

import pathlib

import pytest

from tests.fuzz import files


@pytest.mark.parametrize("name", files.available())
def test_changed_files_are_read_or_refused(name: str, tmp_path: pathlib.Path) -> None:
    reader = files.Reader(name, tmp_path)
    for seed in range(12):
        try:
            reader.check(seed)
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz.files {name} --seed {seed}: {type(error).__name__}") from error
