"""Eight devices in 1, 2 and 4 processes: the same bits."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from tests.processes.launching import SCRIPTS, launched, needs_mpi, results_of_bits

pytestmark = needs_mpi


@pytest.mark.parametrize("transport", ["messages", "shared_memory"])
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_bits_in_several_processes(
    count: int, transport: str, of_one: dict[str, np.ndarray], tmp_path: pathlib.Path
) -> None:
    several = results_of_bits(count, tmp_path, transport)
    assert several.keys() == of_one.keys() and len(of_one) > 50
    for name, value in of_one.items():
        np.testing.assert_array_equal(several[name], value, err_msg=name)


def test_the_same_bits_on_any_number_of_devices(tmp_path: pathlib.Path) -> None:
    found = []
    for processes, devices in ((1, 1), (2, 1), (2, 4)):
        file = tmp_path / f"{processes}_{devices}.npz"
        done = launched(processes, SCRIPTS / "reproducible.py", str(file), devices=devices)
        assert done.code == 0, done.errors
        with np.load(file) as stored:
            found.append([stored[name].tobytes() for name in stored])
    assert len(found[0]) == 15 and found[0] == found[1] == found[2]
