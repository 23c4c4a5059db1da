"""Fixtures of the compiler's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft


@pytest.fixture
def sixty_four_bits() -> Iterator[None]:
    """64-bit types are not narrowed; for files whose samples have them: `pytestmark`."""
    with weft.enable_x64(True):
        yield
