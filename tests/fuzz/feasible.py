"""Pairs of primitives that can occur, computed from their type rules.

A primitive accepts a dtype if its type rule takes one of its samples with that dtype put in the place of an operand's
(everywhere where the operand's own dtype is), and returns the dtypes of the results. B can follow A if there is a
dtype that A returns and B accepts. Ranks never forbid a pair: vmap adds dimensions to every operand and result, so the
sets of ranks are closed upwards and two of them always meet. Primitives that carry a body, and calls of Python, accept
and give whatever arrays there are. Left out are those that cannot occur (`table.NEVER`), calls that inlining opens, and
the primitives of tapes, whose operands derivative rules choose and no program does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from tests.fuzz.numbers import WIDE
from tests.fuzz.table import NEVER
from tests.laws.samples import concrete, registered
from weft.base import dtypes
from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType, TapeType, array_type, get_aval
from weft.primitives.control.callback import Callback

NUMBERS = tuple(dict.fromkeys(np.dtype(d) for d in WIDE))
KEY = get_aval(weft.random.key(0)).dtype  # type: ignore[attr-defined]
TAPES = frozenset({"tape_new", "tape_write", "tape_read", "tape_length", "tape_add", "tape_select", "tape_broadcast",
                   "tape_sum", "repeat"})  # fmt: skip


def countable() -> list[Primitive]:
    """Return the primitives whose neighbours are counted."""
    opened = {primitive.name for primitive in registered() if primitive.opens is not None}
    return [p for p in registered() if p.name not in NEVER and p.name not in opened and p.name not in TAPES]


def name_of(aval: Any) -> str:
    if isinstance(aval, TapeType):
        return "tape"
    kind = dtypes.kind(aval.dtype)
    return "key" if kind == "k" else dtypes.name(aval.dtype)


def variants(primitive: Primitive) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Operand types and parameters of all samples, with every dtype in the place of every operand's and parameter's."""
    for sample in primitive.samples():
        if sample.environment:  # it communicates, which random programs do not
            continue
        types = [get_aval(concrete(a)) for a in sample.args]
        yield types, sample.params
        present = {t.dtype for t in types if isinstance(t, ArrayType) and dtypes.kind(t.dtype) != "k"}
        for new in (*NUMBERS, KEY):
            for old in present:
                swapped = [
                    array_type(t.shape, new) if isinstance(t, ArrayType) and t.dtype == old else t for t in types
                ]
                yield swapped, sample.params
            named = {k: new for k, v in sample.params.items() if isinstance(v, np.dtype)}
            if named and new != KEY:
                yield types, {**sample.params, **named}


@functools.cache
def accepted_and_returned(primitive: Primitive) -> tuple[frozenset[str], frozenset[str]]:
    """Return the dtypes of operands that a primitive accepts, and those of its results."""
    numbers = frozenset(map(dtypes.name, NUMBERS))
    if isinstance(primitive, Callback):
        return numbers, frozenset() if primitive.name == "debug_callback" else numbers
    if primitive.higher_order:
        return numbers | {"key"}, numbers | {"key"}
    if any(isinstance(v, Jaxpr) for sample in primitive.samples() for v in sample.params.values()):
        return numbers, numbers
    accepted: set[str] = set()
    returned: set[str] = set()
    seen: set[Any] = set()
    for types, params in variants(primitive):
        key = (tuple(types), tuple(str(v) for v in params.values()))
        if key in seen:
            continue
        seen.add(key)
        try:
            results = primitive.type(*types, **params)
        except Exception:  # the rule refuses these types
            continue
        accepted.update(map(name_of, types))
        returned.update(map(name_of, results if primitive.multiple_results else (results,)))
    return frozenset(accepted), frozenset(returned)


@functools.cache
def possible_pairs() -> frozenset[tuple[str, str]]:
    """Return pairs of producer and consumer, of all primitives that can be neighbours."""
    with weft.enable_x64(True):
        primitives = {p.name: accepted_and_returned(p) for p in countable()}
    return frozenset(
        (a, b)
        for a, (_, returned) in primitives.items()
        for b, (accepted, _) in primitives.items()
        if returned & accepted
    )


@functools.cache
def possible_triples(stages: tuple[str, ...]) -> frozenset[tuple[str, str, str]]:
    """Primitive, dtype of its first result, transformation. What has no derivative rule is there too: a program may
    have it where no tangent comes."""
    with weft.enable_x64(True):
        primitives = {p.name: accepted_and_returned(p) for p in countable()}
    return frozenset(
        (a, dtype, stage) for a, (_, returned) in primitives.items() for dtype in returned for stage in stages
    )
