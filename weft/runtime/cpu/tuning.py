"""Measurement of the fastest schedule of large contractions on this machine.

Schedules of one contraction run alternately on random numbers, each compiled as it would be in the program. The default
stays unless another one is clearly faster, so that noise does not choose. Contractions are measured in the order of
what there is to gain, until the time is over. The results are pinned (`compiler/schedules`).
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
from weft.compiler.program.emissions import get_emission
from weft.compiler.schedules import FIRST, KINDS, LIBRARY, Schedules, has_library_alternative
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.primitives.contraction.contract import dot_general
from weft.runtime.cpu.executable import Executable

# Estimated nanoseconds of one run on one thread below which tuning does not pay: it would delay the first call.
LEAST = 8e6
# Flops a nanosecond that one thread of every machine reaches, for a quick lower bound before the estimate.
FLOPS = 16
# A schedule replaces the default only if its time is below this fraction of the default's.
CLEARLY = 0.93
ROUNDS = 5
# Schedules that are slower than the best by this factor after a round are eliminated.
HOPELESS = 1.5
MOST_SCHEDULES = 5


@dataclass
class Contest:
    """A contraction with several schedules: its program, and the names of the schedules, the default first."""

    key: str
    program: Jaxpr
    names: list[str]
    nanoseconds: float


def tune(fused: Jaxpr, target: Target) -> None:
    """Measure the large contractions of a fused program while there is time, and pin the fastest schedules."""
    if cache.folder() is None:
        return  # the results would be lost with the process
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
    """Return the schedules to compare for a contraction; None if it is small or already has a pinned schedule."""
    if equation_cost(equation).flops < FLOPS * LEAST:
        return None
    if equation.primitive is dot_general:
        program, hero, kind, default = schedules.alone(equation), 0, "contraction", LIBRARY
        if not has_library_alternative(program, target):
            return None
    else:
        program, hero, kind, default = (*(equation.params[name] for name in ("jaxpr", "hero", "kind")), FIRST)
    key = schedules.make_key(program, hero, target)
    if key is None or schedules.get_pin(key) is not None:
        return None
    emission = get_emission(kind, program, hero, target, MOST_SCHEDULES - 1)
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
    """Return the name of the schedule with the shortest run."""
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
            if iteration:  # the first one warms up code and memory
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
    executable = Executable(Compilation(contest.program, (), program, target, details=Details(contest.program, [])))
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
