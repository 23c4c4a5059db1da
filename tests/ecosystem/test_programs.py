"""Programs written with libraries for JAX, run unmodified on Weft: their numbers are those of JAX."""

from __future__ import annotations

import ast
import pathlib

import numpy as np
import pytest

from tests.ecosystem.references import read_references, run_program
from tests.ecosystem.run import PROGRAMS

REFERENCES = read_references()
USUAL = {"rtol": 2e-4, "atol": 2e-4}


def tolerance(program: str) -> dict[str, float]:
    """Return the tolerance of a program's numbers, as the program says under TOLERANCE. It is read, not imported."""
    path = pathlib.Path(__file__).parent / "programs" / f"{program}.py"
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="TOLERANCE")], value=value):
                return ast.literal_eval(value)
    return USUAL


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_are_those_of_jax(program: str) -> None:
    expected = REFERENCES[program]
    numbers = run_program(program, on_weft=True)
    assert numbers.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(numbers[name], values, **tolerance(program), err_msg=name)
