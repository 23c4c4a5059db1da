"""Measuring: which schedule of a large contraction is the fastest on this machine.

Schedules of one contraction run alternately on random numbers, each compiled as it would be in the program. The default
one stays unless another is clearly quicker, so that noise does not choose. Who is measured is decided by how much there
is to win, until the time for it is over. What was found is pinned (`compiler/schedules`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.settings import config
from weft.compiler import cache, schedules
from weft.compiler.compilation import Compilation, Details
from weft.compiler.fuse.cost import equation_cost
from weft.compiler.fuse.fusion import is_fusion
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.cost import estimate
from weft.compiler.program.emissions import emission_of
from weft.compiler.schedules import FIRST, KINDS, LIBRARY, Schedules, has_library_alternative
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.primitives.contraction.contract import dot_general
from weft.runtime.cpu.executable import Executable

# Nanoseconds of one run on one thread, by our count, below which the first call is worth more than later ones.
LEAST = 8e6
# Flops in a nanosecond that every machine has on one thread: what has too few of them is not even counted.
FLOPS = 16
# Who is not quicker by so much is not quicker.
CLEARLY = 0.93
ROUNDS = 5
# Schedules slower than the best by so much after a round have lost.
HOPELESS = 1.5
MOST_SCHEDULES = 5


@dataclass
class Contest:
    """A contraction with more than one schedule: the program of it alone, and the names of its schedules, the default
    one first."""

    key: str
    program: Jaxpr
    names: list[str]
    nanoseconds: float


def tune(fused: Jaxpr, target: Target) -> None:
    """Measure the large contractions of a fused program, as long as there is time."""
    if cache.folder() is None:
        return  # what is found would be lost with the process
    deadline = time.perf_counter() + config.autotune_milliseconds * 1e-3
    found: dict[str, Contest] = {}
    for equation in _contractions(fused):
        contest = _contest(equation, target)
        if contest is not None:
            found.setdefault(contest.key, contest)
    for contest in sorted(found.values(), key=lambda c: -c.nanoseconds):
        if time.perf_counter() >= deadline:
            return
        schedules.pin(contest.key, _winner(contest, target, deadline))


def _contractions(jaxpr: Jaxpr) -> Iterator[Equation]:
    for equation in jaxpr.eqns:
        if is_fusion(equation):
            if equation.params["kind"] in KINDS:
                yield equation
        elif equation.primitive is dot_general:
            yield equation
        else:
            for inner in subjaxprs(equation.params):
                yield from _contractions(inner)


def _contest(equation: Equation, target: Target) -> Contest | None:
    """What there is to choose for a contraction, if it is large enough and nobody has chosen yet."""
    if equation_cost(equation).flops < FLOPS * LEAST:
        return None
    if equation.primitive is dot_general:
        program, hero, kind, default = schedules.alone(equation), 0, "contraction", LIBRARY
        if not has_library_alternative(program, target):
            return None
    else:
        program, hero, kind, default = (*(equation.params[name] for name in ("jaxpr", "hero", "kind")), FIRST)
    key = schedules.key_of(program, hero, target)
    if key is None or schedules.pinned(key) is not None:
        return None
    emission = emission_of(kind, program, hero, target, MOST_SCHEDULES - 1)
    names = [str(n) for n in range(min(emission.schedules, MOST_SCHEDULES))]
    if has_library_alternative(program, target):
        names.append(LIBRARY)
    names.sort(key=lambda name: name != default)
    alone = schedules.alone(equation)
    nanoseconds = estimate(_built(alone, target, key, FIRST), target.kernel)
    if len(names) < 2 or nanoseconds < LEAST:
        return None
    return Contest(key, alone, names, nanoseconds)


def _built(program: Jaxpr, target: Target, key: str, name: str) -> Any:
    return build(program, (), target, Schedules(target, {key: name}))


def _winner(contest: Contest, target: Target, deadline: float) -> str:
    """The schedule that took least, in the shortest of its runs."""
    default, *others = contest.names
    arrays = _arguments(contest.program)
    best: dict[str, float] = {}
    racing: dict[str, Executable] = {}
    for name in contest.names:
        if racing and time.perf_counter() >= deadline:
            break
        racing[name] = _executable(contest, target, name)
    for iteration in range(ROUNDS):
        for name, executable in list(racing.items()):
            begin = time.perf_counter()
            executable(arrays)
            taken = time.perf_counter() - begin
            if iteration:  # the first one fetches code and memory
                best[name] = min(best.get(name, taken), taken)
        if best and time.perf_counter() >= deadline:
            break
        quickest = min(best.values(), default=0.0)
        for name in others:
            if name in racing and best.get(name, 0.0) > HOPELESS * quickest > 0.0:
                del racing[name]
    found = min(best, key=lambda name: best[name], default=default)
    return found if found == default or best[found] < CLEARLY * best.get(default, np.inf) else default


def _executable(contest: Contest, target: Target, name: str) -> Executable:
    program = assign(_built(contest.program, target, contest.key, name))
    executable = Executable(Compilation(contest.program, (), program, target, Details(contest.program, [])))
    executable.optimise()
    return executable


def _arguments(program: Jaxpr) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for v in program.invars:
        aval: Any = v.aval
        dtype = dtypes.storage(aval.dtype)
        values = rng.normal(size=aval.shape) if dtypes.kind(aval.dtype) in "fc" else np.zeros(aval.shape)
        arrays.append(np.asarray(values).astype(dtype))
    return arrays
