"""Programs for GPUs mean what their jaxprs do: kernels as they are mapped to a grid, by their interpreter, which also
finds threads that touch what another one writes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.host import interpret
from tests.cuda.test_ptx import SAME
from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.laws.test_compiled import merged
from weft.compiler.compile import compile_program
from weft.compiler.kernel.verifier import verify
from weft.compiler.program.ir import Launch
from weft.compiler.target.cuda.targets import hopper
from weft.ir.interpreter import storage_array


@pytest.mark.parametrize("cases", [cases for _, cases in SAME], ids=[name for name, _ in SAME])
def test_samples_have_their_values(cases: list[Case]) -> None:
    jaxpr = merged(cases)
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper()).program
    for step in program.all_steps():
        if isinstance(step, Launch):
            verify(step.full)
    results = iter(interpret(program, [np.array(storage_array(a)) for case in cases for a in case.arrays]))
    for case in cases:
        for i, (expected, aval) in enumerate(zip(case.results, case.result_types, strict=True)):
            actual = next(results).view(storage_array(expected).dtype).reshape(aval.shape)
            assert_close(actual, expected, case.tolerance, f"{case}, result {i}")
