"""Which schedule a product gets: the one that was found quickest on this machine, or the one a count of cycles prefers.

A schedule is a number, among those that the emitter has for a fusion, all of which give the same bits; or "library",
for a product that a library computes, whose bits are its own. What was measured once (`runtime/cpu/tuning.py`) is
pinned on disk beside the code, and never changes after: a product that was not measured when it was first compiled
is pinned as it was compiled if another choice would change its bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compiler import cache
from weft.compiler.fingerprint import fingerprint
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var
from weft.primitives.contraction.contract import dot_general, suits_library

LIBRARY = "library"
FIRST = "0"
# Kinds of fusions whose emitters have several schedules.
KINDS = frozenset({"contraction", "convolution"})
_pins: dict[str, str] = {}


def key_of(program: Jaxpr, hero: int | None, target: Target) -> str | None:
    """The name under which the schedule of a fusion is pinned, or None if there is no place for it."""
    meaning = fingerprint(program)
    if meaning is None or cache.folder() is None:
        return None
    return cache.schedule_key(f"{meaning} {hero}", target)


def pinned(key: str) -> str | None:
    """The schedule that was pinned, if one was."""
    found = _pins.get(key)
    if found is None:
        found = cache.load_schedule(key)
        if found is not None:
            _pins[key] = found
    return found


def pin(key: str, schedule: str) -> str:
    """Pin a schedule, unless another process was first; gives the one that holds."""
    if pinned(key) is None:
        cache.store_schedule(key, schedule)
        _pins[key] = cache.load_schedule(key) or schedule
    return _pins[key]


class Schedules:
    """The choices for one program; `made` has those that it got, by key. `given` ones come before what is pinned."""

    def __init__(self, target: Target, given: Mapping[str, str] | None = None) -> None:
        self.target = target
        self.given = given or {}
        self.made: dict[str, str] = {}

    def choose(self, program: Jaxpr, hero: int | None, default: str, changes_bits: bool) -> str:
        """The schedule of a fusion. `changes_bits`: there are schedules that give others than the default."""
        key = key_of(program, hero, self.target)
        if key is None:
            return default
        chosen = self.given.get(key) or pinned(key)
        if chosen is None:
            chosen = pin(key, default) if changes_bits else default
        self.made[key] = chosen
        return chosen


def alone(equation: Equation) -> Jaxpr:
    """An equation as a program of its own, which is what the fusion of it alone would be."""
    variables: dict[Any, Var] = {}
    for atom in equation.invars:
        if type(atom) is not Literal:
            variables.setdefault(atom, Var(atom.aval))
    results = [Var(v.aval) for v in equation.outvars]
    operands = [a if type(a) is Literal else variables[a] for a in equation.invars]
    made = equation.replace(invars=tuple(operands), outvars=tuple(results))
    return Jaxpr((), list(variables.values()), results, [made])


def has_either(program: Jaxpr, target: Target) -> bool:
    """Whether a program is one product, which our kernels and a library can compute."""
    (first, *others) = program.eqns
    return first.primitive is dot_general and not others and suits_library(first, target)
