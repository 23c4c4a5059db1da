"""Schedules of contractions: the fastest one measured on this machine, or the one that the cost model prefers.

A schedule is an index into those that the emitter has for a fusion, which all compute the same bits; or "library", for
a matmul that a library computes with its own bits. A measured schedule (`runtime/cpu/tuning.py`) is pinned on disk
beside the code, and never changes after: a contraction that was first compiled without being measured is pinned as it
was compiled if another choice would change its bits. Work that continues on another machine, or after the folder was
lost, can bring its pins along (`pins`, `pin_here`).
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


def make_key(jaxpr: Jaxpr, hero: int | None, target: Target) -> str | None:
    """Make the key under which the schedule of a fusion is pinned, or None if it has no fingerprint."""
    meaning = fingerprint(jaxpr)
    if meaning is None:
        return None
    return cache.schedule_key(f"{meaning} {hero}", target)


def get_pin(key: str) -> str | None:
    """Return the pinned schedule, or None."""
    found = _pins.get(key)
    if found is None:
        found = cache.load_schedule(key)
        if found is not None:
            _pins[key] = found
    return found


def pin(key: str, schedule: str) -> str:
    """Pin a schedule unless another process was first, and return the pinned one."""
    if get_pin(key) is None:
        cache.store_schedule(key, schedule)
        _pins[key] = cache.load_schedule(key) or schedule
    return _pins[key]


def pins() -> dict[str, str]:
    """Return the pinned schedules that this process has read, by key."""
    return dict(_pins)


def pin_here(schedules: Mapping[str, str]) -> None:
    """Use schedules that were pinned elsewhere for programs that this process compiles from now on. They have priority
    over those on disk, which stay."""
    _pins.update(schedules)


class Schedules:
    """Schedules chosen for one Program, by key in `chosen`; those in `preset` have priority over pinned ones."""

    def __init__(self, target: Target, preset: Mapping[str, str] | None = None) -> None:
        self.target = target
        self.preset = preset or {}
        self.chosen: dict[str, str] = {}

    def choose(self, jaxpr: Jaxpr, hero: int | None, default: str, changes_bits: bool) -> str:
        """Choose the schedule of a fusion; `changes_bits` says that some schedules have other bits than the default."""
        key = make_key(jaxpr, hero, self.target)
        if key is None:
            return default
        chosen = self.preset.get(key) or get_pin(key)
        if chosen is None:
            chosen = pin(key, default) if changes_bits else default
        self.chosen[key] = chosen
        return chosen


def alone(equation: Equation) -> Jaxpr:
    """Make a jaxpr of one equation, equal to that of its fusion if nothing is fused with it."""
    variables: dict[Any, Var] = {}
    for atom in equation.invars:
        if type(atom) is not Literal:
            variables.setdefault(atom, Var(atom.aval))
    results = [Var(v.aval) for v in equation.outvars]
    operands = [a if type(a) is Literal else variables[a] for a in equation.invars]
    renamed = equation.replace(invars=tuple(operands), outvars=tuple(results))
    return Jaxpr((), list(variables.values()), results, [renamed])


def has_library_alternative(jaxpr: Jaxpr, target: Target) -> bool:
    """Return whether a jaxpr is a single matmul that both Weft's kernels and a library can compute."""
    (first, *others) = jaxpr.eqns
    return first.primitive is dot_general and not others and suits_library(first, target)
