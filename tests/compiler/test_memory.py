"""No kernel touches memory that is not its own, reads what nobody wrote, or shares what threads write.

The interpreters of programs and kernels check every access (`tests/compiler/memory.py`): over the samples of all
primitives, over chains of data movement, and over random programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.host import interpret
from tests.compiler.index_programs import program as index_program
from tests.compiler.memory import checked
from tests.compiler.running import MACHINES
from tests.fuzz.checks import case_of
from tests.fuzz.generator import NO_RULE, generate
from tests.laws.samples import ALONE, Case
from tests.laws.test_compiled import merged
from weft.base.errors import InternalError
from weft.compiler.program.assign import assign
from weft.compiler.program.ir import Copy, Kind, Program, Slot

# Groups of samples: those of one primitive are in different ones.
GROUPS = 24


def check_samples(cases: Sequence[Case], machine: str) -> None:
    for case in cases:
        try:
            checked(merged([case]), case.arrays, MACHINES[machine]())
        except InternalError as error:
            raise AssertionError(f"{case}: {error}") from error


@pytest.mark.parametrize("group", range(GROUPS))
def test_samples(group: int) -> None:
    check_samples(ALONE[group::GROUPS], "host")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["avx2", "scalar"])
@pytest.mark.parametrize("group", range(GROUPS))
def test_samples_on_other_machines(group: int, machine: str) -> None:
    check_samples(ALONE[group::GROUPS], machine)


def check_function(function: Callable[..., Any], arrays: Sequence[Any]) -> None:
    checked(weft.make_jaxpr(function)(*arrays), arrays)


def test_data_movement() -> None:
    for i in range(24):
        check_function(*index_program(i))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_much_data_movement(first: int) -> None:
    for i in range(first, first + 100):
        check_function(*index_program(i))
        if i % 10 == 0:
            check_function(*index_program(i, large=True))


def check_random(seed: int) -> None:
    # A program that asks for a derivative that there is not says so when it is traced, or when it runs.
    with suppress(*NO_RULE):
        case = case_of(replace(generate(seed), checks=False))
        with weft.enable_x64(case.wide):
            checked(case.jaxpr, case.arrays, most=20_000)


def test_random_programs() -> None:
    for seed in range(12):
        check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 50):
        check_random(seed)


def test_matmuls_and_rows_of_many_shapes() -> None:
    """Sizes at which vectors, tiles, panels and blocks are not whole."""

    def function(a: Any, b: Any) -> Any:
        product = a @ b
        return product, weft.nn.softmax(product, -1), product.sum(0), a.T * 2

    for rows, depth, columns in ((1, 17, 33), (7, 70, 19), (33, 5, 129), (65, 40, 1)):
        check_function(function, [np.ones((rows, depth), np.float32), np.ones((depth, columns), np.float32)])


# -- programs that are wrong ------------------------------------------------------------------------------------------


def test_reads_of_unwritten_memory_are_detected() -> None:
    argument, result = Slot(Kind.ARGUMENT, 4, 0), Slot(Kind.RESULT, 8, 0)
    aside = Slot(Kind.TEMPORARY, 8)
    steps = [Copy(aside, argument, 4), Copy(result, aside, 8)]
    program = assign(Program("half", steps, [argument], [result], [None], []))  # type: ignore[arg-type]
    with pytest.raises(InternalError, match=r"Byte 4 of result0\[8\] was never written, and the program ends"):
        interpret(program, [np.zeros(1, np.float32)])
