"""Programs for GPUs mean what their jaxprs do: kernels as they are mapped to a grid, by their interpreter, which also
finds threads that touch what another one writes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
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
from weft.ir.jaxpr import constants_to_arguments


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


@pytest.mark.parametrize(("count", "shape", "axis"), [(140, (3,), 0), (40, (5, 2), -1), (9, (30, 10), 1)])
def test_small_operands_of_a_concatenation_share_launches(count: int, shape: tuple[int, ...], axis: int) -> None:
    """Each nest of loops is a launch, and a kernel takes a limited number of pointers."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(count)]
    for function in (wnp.stack, wnp.concatenate):
        along = axis if function is wnp.stack else 0
        jaxpr = constants_to_arguments(weft.make_jaxpr(lambda *x: function(x, axis=along) * 2)(*arrays))  # noqa: B023
        program = compile_program(jaxpr, [False] * count, hopper()).program
        launches = [step for step in program.all_steps() if isinstance(step, Launch)]
        assert all(len(step.slots) <= 64 for step in launches)
        assert len(launches) <= -(-count // 32) + 1  # perhaps one for what follows
        (result,) = interpret(program, arrays)
        expected = getattr(np, function.__name__)(arrays, axis=along) * 2
        np.testing.assert_array_equal(result.view(np.float32).reshape(expected.shape), expected)
