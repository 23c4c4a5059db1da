"""Which schedule a contraction gets: the one that was quickest on this machine, or the one that the cost model prefers.

A schedule is an index into those that the emitter has for a fusion, all of which compute the same bits; or "library",
for a matmul that a library computes, whose bits are its own. What was measured once (`runtime/cpu/tuning.py`) is pinned
on disk beside the code, and never changes after: a contraction that was not measured when it was first compiled is
pinned as it was compiled if another choice would change its bits. What continues on another machine, or after the
folder was lost, brings its pins along (`pins`, `pin_here`).
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


def key_of(jaxpr: Jaxpr, hero: int | None, target: Target) -> str | None:
    """The name under which the schedule of a fusion is pinned, or None if it cannot be pinned."""
    meaning = fingerprint(jaxpr)
    if meaning is None:
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
    """Pin a schedule, unless another process was first; returns the pinned one."""
    if pinned(key) is None:
        cache.store_schedule(key, schedule)
        _pins[key] = cache.load_schedule(key) or schedule
    return _pins[key]


def pins() -> dict[str, str]:
    """The schedules that are pinned and that this process has asked for, by key."""
    return dict(_pins)


def pin_here(schedules: Mapping[str, str]) -> None:
    """Have programs that are compiled from now on, in this process, get schedules that were pinned elsewhere; they come
    before those on disk, which stay what they are."""
    _pins.update(schedules)


class Schedules:
    """The choices for one Program; `chosen` has them by key. `preset` ones come before what is pinned."""

    def __init__(self, target: Target, preset: Mapping[str, str] | None = None) -> None:
        self.target = target
        self.preset = preset or {}
        self.chosen: dict[str, str] = {}

    def choose(self, jaxpr: Jaxpr, hero: int | None, default: str, changes_bits: bool) -> str:
        """The schedule of a fusion. `changes_bits`: there are schedules whose bits are not those of the default."""
        key = key_of(jaxpr, hero, self.target)
        if key is None:
            return default
        chosen = self.preset.get(key) or pinned(key)
        if chosen is None:
            chosen = pin(key, default) if changes_bits else default
        self.chosen[key] = chosen
        return chosen


def alone(equation: Equation) -> Jaxpr:
    """An equation as a jaxpr of its own, which is what the fusion of it alone would be."""
    variables: dict[Any, Var] = {}
    for atom in equation.invars:
        if type(atom) is not Literal:
            variables.setdefault(atom, Var(atom.aval))
    results = [Var(v.aval) for v in equation.outvars]
    operands = [a if type(a) is Literal else variables[a] for a in equation.invars]
    renamed = equation.replace(invars=tuple(operands), outvars=tuple(results))
    return Jaxpr((), list(variables.values()), results, [renamed])


def has_library_alternative(jaxpr: Jaxpr, target: Target) -> bool:
    """Whether a jaxpr is one matmul, which our kernels and a library can compute."""
    (first, *others) = jaxpr.eqns
    return first.primitive is dot_general and not others and suits_library(first, target)
