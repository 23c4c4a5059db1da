"""Scores of attention and their cotangents, as programs and differentiation write them.

s = q kᵀ;  s = s scale;  s = s + bias;  s = where(mask, s, -inf);  p = softmax(s)
ds = p / sum (dp - sum(dp p)), masked and scaled again
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.compiler.target.cuda.library.composites import JaxprReader, is_literal
from weft.ir.jaxpr import Equation, Literal, Var

# Scores masked by at most this number have probability 0.
MASKED = -1e9


class DefinitionChain:
    """Walk from a value back to its definition; `members` collects the equations on the way."""

    def __init__(self, reader: JaxprReader) -> None:
        self.reader = reader
        self.members: dict[int, Equation] = {}

    def add(self, equation: Equation) -> Equation:
        self.members[id(equation)] = equation
        return equation

    def source(self, atom: Any) -> Any:
        """Return the value before conversions and reshapes that only change dimensions of size 1."""
        while True:
            for name in ("convert_element_type", "reshape"):
                found = self.reader.definition(atom, name)
                if found is not None and (name != "reshape" or same_but_ones(found)):
                    atom = self.add(found).invars[0]
                    break
            else:
                return atom

    def by(self, atom: Any, name: str) -> Equation | None:
        """Return the equation that computes a value, if it is this operation."""
        found = self.reader.definition(self.source(atom), name)
        return None if found is None else self.add(found)

    def with_operand(self, atom: Any, name: str, operand: Any) -> Any:
        """Return the other operand of a binary operation, if one is `operand`."""
        found = self.by(atom, name)
        if found is None:
            return None
        first, second = (self.source(a) for a in found.invars)
        wanted = self.source(operand)
        return second if first is wanted else first if second is wanted else None

    def row(self, atom: Any) -> Any:
        """Return the value that is broadcast along the last dimension."""
        found = self.by(atom, "broadcast_in_dim")
        if found is None:
            return None
        shape: Any = found.outvars[0].aval.shape  # type: ignore[attr-defined]
        along = [n for n in range(len(shape) - 1) if shape[n] != 1]
        placed = found.params["broadcast_dimensions"]
        wide = [n for n, size in zip(placed, found.invars[0].aval.shape, strict=True) if size != 1]  # type: ignore[attr-defined]
        return self.source(found.invars[0]) if wide == along else None

    def reduction_operand(self, atom: Any, name: str) -> Any:
        """Return the value that is reduced along its last dimension."""
        found = self.by(atom, name)
        if found is None or found.params["axes"] != (len(found.invars[0].aval.shape) - 1,):  # type: ignore[attr-defined]
            return None
        return self.source(found.invars[0])

    def split_scale(self, atom: Any) -> tuple[Any, float]:
        """Follow multiplications and divisions by literals; return the value and the total factor."""
        scale = 1.0
        while True:
            for name in ("mul", "div"):
                found = self.reader.definition(self.source(atom), name)
                if found is not None and type(found.invars[1]) is Literal:
                    value = float(found.invars[1].val)
                    scale = scale * value if name == "mul" else scale / value
                    atom = self.add(found).invars[0]
                    break
            else:
                return self.source(atom), scale


def same_but_ones(reshape: Equation) -> bool:
    """Return whether a reshape only adds or removes dimensions of size 1."""
    before, after = (a.aval.shape for a in (reshape.invars[0], reshape.outvars[0]))  # type: ignore[attr-defined]
    return [d for d in before if d != 1] == [d for d in after if d != 1]


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
    chain.add(division)
    exponentials = chain.source(division.invars[0])
    exp = chain.by(exponentials, "exp")
    total = chain.row(division.invars[1])
    if exp is None or total is None or chain.reduction_operand(total, "reduce_sum") is not exponentials:
        return None
    difference = chain.by(exp.invars[0], "sub")
    if difference is None:
        return None
    scores = chain.source(difference.invars[0])
    largest = chain.row(difference.invars[1])
    bounded = reader.definition(largest, "max")
    if bounded is not None and type(bounded.invars[1]) is Literal:
        chain.add(bounded)
        largest = chain.source(bounded.invars[0])
    if largest is None or chain.reduction_operand(largest, "reduce_max") is not scores:
        return None
    selections = _selections(chain, scores)
    fills = {float(s.invars[1].val) for s in selections}  # type: ignore[union-attr]
    if len(fills) > 1:
        return None
    if selections:
        scores = selections[-1].invars[2]
    found = _match_addition(chain, scores)
    if found is None:
        return None
    product, scale, addition, bias = found
    before = dict(chain.members)
    causal = len(selections) == 1 and _causal(chain, selections[0].invars[0])
    if not causal:
        chain.members = before
    fill = min(fills, default=0.0)
    whole = (division.outvars[0], exponentials, total, largest)
    return Scores(*whole, product, scale, addition, bias, tuple(selections), fill, causal, chain)


def _selections(chain: DefinitionChain, scores: Any) -> list[Equation]:
    """Return the equations that mask scores by a number of at most `MASKED`, the last one first."""
    found: list[Equation] = []
    while (selection := chain.reader.definition(chain.source(scores), "select_n")) is not None:
        condition, masked = selection.invars[:2]
        if type(condition) is not Var or dtypes.kind(condition.aval.dtype) != "b":  # type: ignore[attr-defined]
            break
        if type(masked) is not Literal or not float(masked.val) <= MASKED:
            break
        found.append(chain.add(selection))
        scores = selection.invars[2]
    return found


def _match_addition(chain: DefinitionChain, scores: Any) -> tuple[Equation, float, Equation | None, Any] | None:
    """Match scores as a scaled contraction plus an optional bias; return the contraction, its factor, the addition
    and the bias (None without one)."""
    addition = chain.reader.definition(chain.source(scores), "add")
    if addition is None:
        source, scale = chain.split_scale(scores)
        product = chain.by(source, "dot_general")
        return None if product is None else (product, scale, None, None)
    for multiplied, bias in (addition.invars, addition.invars[::-1]):
        before = dict(chain.members)
        source, scale = chain.split_scale(multiplied)
        product = chain.by(source, "dot_general")
        if product is not None and type(bias) is Var:
            chain.add(addition)
            return product, scale, addition, bias
        chain.members = before
    return None


def _causal(chain: DefinitionChain, condition: Any) -> bool:
    """Return whether a condition is query >= key, along the last two dimensions."""
    atom = chain.source(condition)
    broadcast = chain.reader.definition(atom, "broadcast_in_dim")
    if broadcast is not None:
        rank = len(broadcast.outvars[0].aval.shape)  # type: ignore[attr-defined]
        if broadcast.params["broadcast_dimensions"][-2:] != (rank - 2, rank - 1):
            return False
        atom = chain.source(chain.add(broadcast).invars[0])
    choice = chain.reader.definition(atom, "select_n")
    if choice is not None and is_literal(choice.invars[1], False) and is_literal(choice.invars[2], True):
        atom = chain.source(chain.add(choice).invars[0])
    compared = chain.by(atom, "ge")
    if compared is None:
        return False
    rank = len(compared.outvars[0].aval.shape)  # type: ignore[attr-defined]
    for operand, dimension in zip(compared.invars, (rank - 2, rank - 1), strict=True):
        counted = chain.by(operand, "iota")
        if counted is None or counted.params["dimension"] != dimension:
            return False
    return True


class Cotangents(NamedTuple):
    """Matched softmax cotangent: the contraction that computes the cotangent of probabilities, the equations that
    mask the cotangent of scores (the last one first), and that cotangent before them."""

    product: Equation
    selections: tuple[Equation, ...]
    scores: Any


def match_cotangents(chain: DefinitionChain, scores: Scores, atom: Any) -> Cotangents | None:
    """Match the cotangent of products of queries and keys: that of masked scores must be p / total (dp - sum(dp p)),
    as differentiating a quotient writes it."""
    atom, scale = chain.split_scale(atom)
    if not math.isclose(scale, scores.scale, rel_tol=1e-6):
        return None
    selections: list[Equation] = []
    for masked in reversed(scores.selections):
        selection = chain.by(atom, "select_n")
        if selection is None or not is_literal(selection.invars[1], 0.0):
            return None
        if chain.source(selection.invars[0]) is not scores.chain.source(masked.invars[0]):
            return None
        selections.append(selection)
        atom = selection.invars[2]
    of_scores = chain.source(atom)
    factor = chain.with_operand(atom, "mul", scores.exponentials)
    total = chain.by(factor, "add")
    if total is None:
        return None
    for first, second in (total.invars, total.invars[::-1]):
        found = _quotient(chain, scores, first)
        summed = chain.row(second)
        inner = None if summed is None else chain.reduction_operand(summed, "reduce_sum")
        product = None if inner is None else _quotient(chain, scores, inner)
        negated = None if product is None else chain.with_operand(product, "mul", scores.probabilities)
        source = None if negated is None else chain.by(negated, "neg")
        if found is not None and source is not None and chain.source(source.invars[0]) is found:
            contraction = chain.by(found, "dot_general")
            return None if contraction is None else Cotangents(contraction, tuple(selections), of_scores)
    return None


def _quotient(chain: DefinitionChain, scores: Scores, atom: Any) -> Any:
    """Return the dividend of a division by the total of exponentials."""
    found = chain.by(atom, "div")
    if found is None or type(found.invars[1]) is Literal or chain.row(found.invars[1]) is not scores.total:
        return None
    return chain.source(found.invars[0])
