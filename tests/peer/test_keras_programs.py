"""Few random Keras programs beside Keras 3; `python -m tests.peer.keras_programs` runs many."""

from __future__ import annotations

import pytest

from tests.peer.keras_programs import check

# NumPy tells Keras how `__array__` should be written.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("seed", range(5))
def test_a_random_program(seed: int) -> None:
    assert check(seed) == []
