"""Build the steps of traps: a branch on the flag around a call of Python, which raises the error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.source import Location
from weft.compiler.program.block import JaxprValues
from weft.compiler.program.ir import Branch, Call, FrameRegister
from weft.ir.jaxpr import Equation
from weft.primitives.control.check import make_error

if TYPE_CHECKING:
    from weft.compiler.program.build import ProgramBuilder


class EnclosingLoop(NamedTuple):
    """A loop whose body is being built, and its counter."""

    name: str
    counter: FrameRegister
    line: Location | None

    def describe(self) -> str:
        """Return the loop's name and line, such as `scan at train.py:41`."""
        return self.name if self.line is None else f"{self.name} at {self.line.file_and_line()}"


@contextmanager
def enclosing_loop(
    builder: ProgramBuilder, name: str, counter: FrameRegister | None, equation: Equation
) -> Iterator[None]:
    """Context in which built steps belong to a loop. `counter` is None if no step needs the index of its iteration."""
    if counter is None:
        yield
        return
    builder.enclosing_loops.append(EnclosingLoop(name, counter, equation.source))
    yield
    builder.enclosing_loops.pop()


def build_trap(builder: ProgramBuilder, block: JaxprValues, equation: Equation) -> None:
    """Build the steps of a trap: a branch that does nothing if the flag is 0, else calls a function that raises the
    error.
    """
    flag, *operands = (builder.atom(block, a) for a in equation.invars)
    params, loops = equation.params, tuple(builder.enclosing_loops)

    def call(*arrays: np.ndarray, out: Sequence[np.ndarray], iterations: Sequence[int]) -> None:
        named = [(loop.describe(), iteration) for loop, iteration in zip(loops, iterations, strict=True)]
        error = make_error(*arrays, iterations=named, **params)
        if error is not None:
            raise error

    types: list[tuple[Any, ...]] = [(a.aval.shape, dtypes.storage(a.aval.dtype)) for a in equation.invars]  # type: ignore[attr-defined]
    fail = Call(
        "host",
        (flag, *operands),
        (),
        host=call,
        types=tuple(types),
        counters=tuple(loop.counter for loop in loops),
        label="check",
    )
    fail.line = equation.source
    builder.steps.append(Branch(flag, np.dtype(types[0][1]), FrameRegister("choice"), [[], [fail]], label="check"))
