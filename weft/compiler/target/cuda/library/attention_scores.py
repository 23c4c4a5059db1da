"""Scores of attention and their cotangents, matched by the patterns of `attention_patterns.py`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.compiler.patterns import Bound, Pattern
from weft.compiler.target.cuda.library.attention_patterns import (
    CAUSAL,
    COTANGENT,
    MASK,
    MEMBER,
    SCORES,
    SOFTMAX,
    UNMASK,
    UNSCALE,
    find_source,
)
from weft.compiler.target.cuda.library.composites import JaxprReader
from weft.ir.jaxpr import Equation, Var


class DefinitionChain:
    """Equations of matches, collected in `members` on the way from a value back to its definition."""

    def __init__(self, reader: JaxprReader) -> None:
        self.reader = reader
        self.members: dict[int, Equation] = {}

    def source(self, atom: Any) -> Any:
        """Return the value before conversions and reshapes that only change dimensions of size 1."""
        bound: Bound = {}
        source = find_source(atom, self.reader.definitions, bound)
        self.add_members(bound)
        return source

    def match(self, pattern: Pattern, atom: Any, **known: Any) -> Bound | None:
        """Match a value with a pattern in which some names are known; return the names, or None."""
        bound: Bound = dict(known)
        if not pattern.match(atom, self.reader.definitions, bound):
            return None
        self.add_members(bound)
        return bound

    def add_members(self, bound: Bound) -> None:
        """Collect the equations of a match."""
        self.members.update((id(e), e) for name, e in bound.items() if name.startswith(MEMBER))


class Scores(NamedTuple):
    """Matched softmax: probabilities and the equations before them. `addition` adds `bias` to the scores; then
    `selections`, the last one first, put `fill` where their conditions do not hold. `causal`: there is one
    selection, whose condition is query >= key."""

    probabilities: Var
    exponentials: Any
    total: Any
    largest: Any
    product: Equation
    scale: float
    addition: Equation | None
    bias: Any
    selections: tuple[Equation, ...]
    fill: float
    causal: bool
    chain: DefinitionChain

    @property
    def is_plain(self) -> bool:
        """Whether there is no bias and no mask other than the causal one."""
        return self.addition is None and (self.causal or not self.selections)


def match_scores(reader: JaxprReader, division: Equation) -> Scores | None:
    """Match the softmax that ends in a division."""
    chain = DefinitionChain(reader)
    (probabilities,) = division.outvars
    softmax = chain.match(SOFTMAX, probabilities)
    if softmax is None:
        return None
    selections: list[Equation] = []
    fills: set[float] = set()
    scores = softmax["scores"]
    while (masked := chain.match(MASK, scores)) is not None:
        selections.append(masked["selection"])
        fills.add(float(masked["fill"].val))
        scores = masked["rest"]
    if len(fills) > 1:
        return None
    found = chain.match(SCORES, scores)
    if found is None:
        return None
    return Scores(
        probabilities,
        softmax["exponentials"],
        softmax["total"],
        softmax["largest"],
        found["product"],
        found["scale"],
        found.get("addition"),
        found.get("bias"),
        tuple(selections),
        min(fills, default=0.0),
        len(selections) == 1 and chain.match(CAUSAL, selections[0].invars[0]) is not None,
        chain,
    )


class Cotangents(NamedTuple):
    """Matched softmax cotangent: the contraction that computes the cotangent of probabilities, the equations that
    mask the cotangent of scores (the last one first), and that cotangent before them."""

    product: Equation
    selections: tuple[Equation, ...]
    scores: Any


def match_cotangents(chain: DefinitionChain, scores: Scores, atom: Any) -> Cotangents | None:
    """Match the cotangent of products of queries and keys: that of masked scores must be p / total (dp - sum(dp p)),
    as differentiating a quotient writes it."""
    scaled = chain.match(UNSCALE, atom)
    if scaled is None or not math.isclose(scaled["scale"], scores.scale, rel_tol=1e-6):
        return None
    rest = scaled["rest"]
    selections: list[Equation] = []
    for masked in reversed(scores.selections):
        found = chain.match(UNMASK, rest)
        if found is None or found["condition"] is not scores.chain.source(masked.invars[0]):
            return None
        selections.append(found["selection"])
        rest = found["rest"]
    known = {name: getattr(scores, name) for name in ("exponentials", "total", "probabilities")}
    found = chain.match(COTANGENT, rest, **known)
    return None if found is None else Cotangents(found["product"], tuple(selections), chain.source(rest))
