"""Native code with guard pages around every buffer: correct code runs, wrong code is stopped."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.host import compile_program
from tests.compiler.index_programs import program as index_program
from tests.compiler.running import MACHINES, assert_same
from tests.laws.laws import assert_close
from tests.laws.samples import ALONE, Case
from tests.laws.test_compiled import merged, turned
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.runtime.cpu import guarded
from weft.runtime.cpu.guarded import Edge, Guarded, GuardedExecutable, Layout
from weft.runtime.execute import get_executable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pages are guarded by mprotect")
TOGETHER = 12  # samples that are compiled together


def check_samples(cases: Sequence[Case], machine: str, edge: Edge) -> None:
    """The law of the compiler for some samples, in the code that comes first and in better code."""
    executable = GuardedExecutable(compile_program(merged(cases), target=MACHINES[machine]()), edge)
    for _ in range(2):
        results = iter(guarded.call(executable, [a for case in cases for a in case.arrays]))
        for case in cases:
            for i, expected in enumerate(case.results):
                actual = next(results)
                if case.primitive.name == "eig" and i and expected.size:  # vectors are found up to a factor
                    actual, expected = turned(actual), turned(expected)
                assert_close(actual, expected, case.tolerance, f"{case}, result {i}")
        executable.optimise()


@pytest.mark.parametrize("edge", Edge)
def test_some_samples(edge: Edge) -> None:
    """One sample of most primitives; which one differs between the edges."""
    chosen = {case.primitive.name: case for case in (ALONE if edge is Edge.END else reversed(ALONE))}
    names = sorted(chosen)[edge is Edge.END :: 2]
    for first in range(0, len(names), TOGETHER):
        check_samples([chosen[name] for name in names[first : first + TOGETHER]], "host", edge)


def check_program(function: Callable[..., Any], arrays: Sequence[np.ndarray], edge: Edge) -> None:
    """The same bits as without guards."""
    jaxpr = weft.make_jaxpr(function)(*arrays)
    for actual, expected in zip(guarded.run(jaxpr, arrays, edge), get_executable(jaxpr)(list(arrays)), strict=True):
        assert_same(actual, np.asarray(expected))


CHOICE = """
define void @choose(ptr %v1, TYPE %v2) {
  %v3 = fcmp ogt TYPE %v2, 0.0
  %v4 = load TYPE, ptr %v1, align 4
  %v5 = select i1 %v3, TYPE %v4, TYPE %v2
  store TYPE %v5, ptr %v1, align 4
  ret void
}
"""


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_choice_of_scalars_reads_one_element(dtype: str, machine: str, tier: Tier) -> None:
    """LLVM without optimization read a whole vector where a load comes before the choice that uses it."""
    size, kind, c_type = (4, "float", ctypes.c_float) if dtype == "float32" else (8, "double", ctypes.c_double)
    memory = Guarded(Layout.of([size], Edge.END))
    memory.put(0, np.array([7.0], dtype))
    library = link.compile_and_load(CHOICE.replace("TYPE", kind), MACHINES[machine](), tier)
    library.function("choose", None, ctypes.c_void_p, c_type)(memory.address + memory.layout.offsets[0], 1.0)
    first = memory.layout.offsets[0]
    assert memory.array[first : first + size].view(dtype)[0] == 7.0


@pytest.mark.parametrize("edge", Edge)
def test_data_movement(edge: Edge) -> None:
    for i in range(12):
        check_program(*index_program(i), edge)
    check_program(*index_program(3, large=True), edge)


@pytest.mark.slow
@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_much_data_movement(first: int, edge: Edge) -> None:
    for i in range(first, first + 100):
        check_program(*index_program(i), edge)
        if i % 10 == 0:
            check_program(*index_program(i, large=True), edge)


@pytest.mark.parametrize("edge", Edge)
def test_matmuls_and_rows_of_many_shapes(edge: Edge) -> None:
    """Sizes at which vectors, tiles, panels and blocks are not whole, and loops with temporaries and constants."""
    table = np.arange(41, dtype=np.float32)

    def function(a: Any, b: Any) -> Any:
        product = a @ b
        total, rows = weft.lax.scan(lambda s, row: (s + row, row * s), product[0], product)
        return weft.nn.softmax(product, -1), product.sum(0), a.T * 2, total, weft.numpy.sort(rows, 0), product + table

    for rows, depth in ((1, 17), (7, 70), (65, 40)):
        arrays = [np.ones(shape, np.float32) for shape in ((rows, depth), (depth, 41))]
        check_program(function, arrays, edge)


def test_donated_arguments() -> None:
    jaxpr = weft.make_jaxpr(lambda x: x.at[2].set(7.0) + 1)(np.zeros(5, np.float32))
    args = np.zeros(5, np.float32)
    (result,) = guarded.run(jaxpr, [args], donated=(True,))
    np.testing.assert_array_equal(result, [1, 1, 8, 1, 1])
    np.testing.assert_array_equal(args, np.zeros(5))


# -- code that is wrong -----------------------------------------------------------------------------------------------

# Each case is a process that compiles a function of 1000 numbers, moves what its kernels read or write by some
# elements, and runs it; how it ended is printed.
ALONE_OF_WRONG_CODE = {
    "read 1 end": -signal.SIGSEGV,
    "read -1 begin": -signal.SIGSEGV,
    "write 1 end": -signal.SIGSEGV,
    "read 0 end": 0,
}
WRONG = """
import dataclasses, os, sys
import numpy as np
import weft
from tests.compiler.host import compile_program
from weft.compiler.kernel.ir import Index, Load, Loop, Store
from weft.compiler.program.ir import Launch
from weft.runtime.cpu.guarded import Edge, GuardedExecutable, call

def moved(statement, kind, by):
    if isinstance(statement, Loop):
        return dataclasses.replace(statement, body=tuple(moved(s, kind, by) for s in statement.body))
    if isinstance(statement, kind) and statement.index.terms:
        return dataclasses.replace(statement, index=statement.index + Index(by))
    return statement

def run(what, by, edge):
    x = np.ones(1000, np.float32)
    compilation = compile_program(weft.make_jaxpr(lambda x: x * 2 + 1)(x))
    kind = {"read": Load, "write": Store}[what]
    for step in compilation.program.all_steps():
        if isinstance(step, Launch):
            body = tuple(moved(s, kind, int(by)) for s in step.full.body)
            step.kernel = dataclasses.replace(step.full, body=body)
    call(GuardedExecutable(compilation, Edge(edge)), [x])

for case in sys.argv[1:]:
    child = os.fork()
    if not child:
        run(*case.split())
        os._exit(0)
    print(case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=": ", flush=True)
"""


def test_wrong_code_is_stopped() -> None:
    root = str(pathlib.Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "WEFT_COMPILATION_CACHE": "0"}
    command = [sys.executable, "-c", WRONG, *ALONE_OF_WRONG_CODE]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    wanted = [f"{case}: {int(code)}" for case, code in ALONE_OF_WRONG_CODE.items()]
    assert ended.stdout.splitlines() == wanted, ended.stderr
