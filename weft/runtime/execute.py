"""Calls of staged programs: compiled when they are first called, then run natively."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.settings import config
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import Params, Primitive
from weft.ir.types import Type
from weft.ops.call import jit
from weft.ops.cond import cond
from weft.ops.repeat import repeat
from weft.ops.scan import scan
from weft.ops.while_loop import while_

if TYPE_CHECKING:
    from weft.runtime.executable import Executable

# What is compiled when it is called outside of any program: calls of `jit`, and loops, which would crawl otherwise.
COMPILED: frozenset[Any] = frozenset({jit, scan, while_, repeat, cond})
_lock = threading.RLock()


def executable_of(jaxpr: Jaxpr, donated: tuple[bool, ...] = ()) -> Executable:
    """The program as machine code, compiled once."""
    key = ("executable", donated, config.enable_checks)
    with _lock:
        return jaxpr.cached(key, lambda: make(jaxpr, donated))


def make(jaxpr: Jaxpr, donated: tuple[bool, ...]) -> Executable:
    # The compiler is loaded when the first program is compiled.
    from weft.compiler.compile import compile_program
    from weft.runtime.executable import Executable

    return Executable(compile_program(jaxpr, donated))


def call(primitive: Primitive, arrays: Sequence[Any], types: Sequence[Type], params: Params) -> list[Any]:
    """The results of a call or a loop on NumPy arrays, as concrete arrays (and tapes). Donated ones must be nobody
    else's."""
    jaxpr = params["jaxpr"] if primitive is jit else loop_program(primitive, types, params)
    return executable_of(jaxpr, params.get("donated", ()))(arrays)


def loop_program(primitive: Primitive, types: Sequence[Type], params: Params) -> Jaxpr:
    """A program of one equation; equal loops share it."""
    invars = [Var(t) for t in types]
    made = primitive.type(*types, **params)
    outvars = [Var(t) for t in made]
    equation = Equation(invars, outvars, primitive, params, primitive.effects(types, params))
    return Jaxpr((), invars, outvars, [equation], (), primitive.name)
