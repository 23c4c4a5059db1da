"""Comparison of the results of another compiler with `eval` and the error bounds of primitives."""

from __future__ import annotations

import numpy as np

from tests.fuzz.checks import first_difference
from tests.fuzz.generator import Program
from tests.fuzz.reference import Expected
from weft.base import dtypes

# What results that move within budgets may be off, as a multiple of how far they move.
FACTOR = 64.0


def is_derived(program: Program) -> bool:
    """Whether derivatives are part of a program."""
    return any(f"lib.{name}" in program.text for name in ("grad", "value_and_grad", "jvp", "vjp", "jacrev"))


def comparable(theirs: np.ndarray, runs: list[np.ndarray], differentiated: bool) -> tuple[np.ndarray, list[np.ndarray]]:
    """Results without what is not compared with XLA: signs of zeros (XLA makes a sum of one number a reshape) and,
    under differentiation, what is not finite (rules differ in what zero times an infinite derivative is)."""
    if dtypes.kind(theirs.dtype) not in "fc" or theirs.shape != runs[0].shape or theirs.dtype != runs[0].dtype:
        return theirs, runs
    arrays = [a + np.zeros((), a.dtype) for a in (theirs, *runs)]
    if differentiated:
        with np.errstate(all="ignore"):
            finite = np.logical_and.reduce([np.isfinite(a.astype(np.complex128)) for a in arrays])
        arrays = [np.where(finite, a, np.zeros((), a.dtype)) for a in arrays]
    return arrays[0], arrays[1:]


def different(theirs: list[np.ndarray], expected: Expected, differentiated: bool) -> str | None:
    pairs = [comparable(ours, [run[n] for run in expected.runs], differentiated) for n, ours in enumerate(theirs)]
    runs = [[runs[n] for _, runs in pairs] for n in range(len(expected.runs))]
    return first_difference([ours for ours, _ in pairs], Expected(runs, expected.exact), FACTOR)
