"""Calls of Python functions for operations without a library routine: they evaluate the primitive on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.target.library_call import HOST, LibraryCall
from weft.ir.interpreter import run_equation
from weft.ir.jaxpr import Equation
from weft.primitives.control.custom import custom_lin


def plan_evaluation(equation: Equation) -> LibraryCall:
    """Plan a host call that evaluates the equation on NumPy arrays; its errors name the line of the equation."""

    def host(*operands: Any, out: Sequence[np.ndarray]) -> None:
        with np.errstate(all="ignore"):
            for target, result in zip(out, run_equation(equation, operands), strict=True):
                target[...] = result

    return LibraryCall(routine=HOST, host=host)


def refuse(equation: Equation) -> None:
    """Raise the user's error of an operation that has no value. It is raised before anything runs: whether a program is
    wrong does not depend on how often a loop runs or which branch is taken."""
    if equation.primitive is custom_lin:
        run_equation(equation, ())
