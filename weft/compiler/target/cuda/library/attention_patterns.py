"""Patterns of attention scores, their softmax and its cotangent, as programs and differentiation write them.

s = q kᵀ;  s = s scale;  s = s + bias;  s = where(mask, s, -inf);  p = softmax(s)
ds = p / sum (dp - sum(dp p)), masked and scaled again

Patterns match values up to *views*: conversions, and reshapes that only change dimensions of size 1. They record the
equations that they match, and those of the views, as members of the match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.compiler.patterns import Apply, Bound, Definitions, OperandPattern, Pattern, either, literal, operands
from weft.compiler.target.cuda.library.composites import is_literal, is_operation
from weft.ir.jaxpr import Atom, Equation, Literal, Var
from weft.ir.primitive import Primitive, lookup

# Scores masked by at most this number have probability 0.
MASKED = -1e9

# ------------------------------------------------------------------------------------------------- patterns up to views


def same_but_ones(reshape: Equation) -> bool:
    """Return whether a reshape only adds or removes dimensions of size 1."""
    before, after = (a.aval.shape for a in (reshape.invars[0], reshape.outvars[0]))  # type: ignore[attr-defined]
    return [d for d in before if d != 1] == [d for d in after if d != 1]


def is_view(equation: Equation) -> bool:
    """Return whether an equation converts a value, or only changes its dimensions of size 1."""
    if equation.effects:
        return False
    if is_operation(equation, "reshape"):
        return same_but_ones(equation)
    return is_operation(equation, "convert_element_type")


MEMBER = "equation "


def record(equation: Equation, bound: Bound) -> None:
    """Record an equation as a member of a match."""
    bound[f"{MEMBER}{id(equation)}"] = equation


def find_source(atom: Any, definitions: Definitions, bound: Bound) -> Any:
    """Follow views back to the value that an operand shows, return that value, and record the views."""
    while (equation := definitions.get(atom)) is not None and is_view(equation):
        record(equation, bound)
        atom = equation.invars[0]
    return atom


class SourceOperand(Pattern):
    """The value that an operand shows through views, under a name, if it matches a pattern."""

    def __init__(self, name: str, pattern: Pattern | None = None) -> None:
        self.name, self.pattern = name, pattern

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        source = find_source(atom, definitions, bound)
        if bound.setdefault(self.name, source) is not source:
            return False
        return self.pattern is None or self.pattern.match(source, definitions, bound)


class LooseOperation(Apply):
    """A built-in operation without effects that fulfills the condition `where`, seen through views."""

    def __init__(
        self,
        head: str,
        operands: tuple[Pattern, ...] | None,
        name: str | None = None,
        commutes: bool = False,
        where: Callable[[Equation, Bound], bool] | None = None,
    ) -> None:
        super().__init__(head, operands, name, commutes=commutes)
        self.where = where

    def named(self, name: str) -> LooseOperation:
        return LooseOperation(str(self.head), self.operands, name, self.commutes, self.where)

    @property
    def in_any_order(self) -> LooseOperation:
        return LooseOperation(str(self.head), self.operands, self.name, True, self.where)

    def accepts(self, primitive: Primitive) -> bool:
        return primitive is lookup(str(self.head))

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        return super().match(find_source(atom, definitions, bound), definitions, bound)

    def match_equation(self, equation: Equation, definitions: Definitions, bound: Bound) -> bool:
        if equation.effects or not super().match_equation(equation, definitions, bound):
            return False
        record(equation, bound)
        return self.where is None or self.where(equation, bound)


class Scaled(Pattern):
    """A value after multiplications and divisions by literals, whose total factor is bound to `scale`."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        scale = 1.0
        while True:
            equation = definitions.get(find_source(atom, definitions, bound))
            name = next((n for n in ("mul", "div") if equation is not None and is_operation(equation, n)), None)
            if equation is None or name is None or equation.effects or type(equation.invars[1]) is not Literal:
                break
            value = float(equation.invars[1].val)
            scale = scale * value if name == "mul" else scale / value
            record(equation, bound)
            atom = equation.invars[0]
        bound["scale"] = scale
        return self.pattern.match(atom, definitions, bound)


class Number(Pattern):
    """A literal that equals a number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        return is_literal(atom, self.value)


class AnyVar(OperandPattern):
    """Any value that is no literal, under a name."""

    def match(self, atom: Atom, definitions: Definitions, bound: Bound) -> bool:
        return type(atom) is Var and super().match(atom, definitions, bound)


def step(name: str, *patterns: Pattern, where: Callable[[Equation, Bound], bool] | None = None) -> LooseOperation:
    """Return the pattern of an operation; without operands, on any."""
    return LooseOperation(name, patterns or None, where=where)


# ----------------------------------------------------------------------------------------------------- rows of scores


def row(pattern: Pattern) -> LooseOperation:
    """Return the pattern of a value that is broadcast along the last dimension."""
    return step("broadcast_in_dim", pattern, where=repeats_rows)


def repeats_rows(broadcast: Equation, bound: Bound) -> bool:
    """Return whether a broadcast only repeats along the last dimension."""
    shape: Any = broadcast.outvars[0].aval.shape  # type: ignore[attr-defined]
    along = [n for n in range(len(shape) - 1) if shape[n] != 1]
    placed = broadcast.params["broadcast_dimensions"]
    sizes: Any = broadcast.invars[0].aval.shape  # type: ignore[attr-defined]
    return [n for n, size in zip(placed, sizes, strict=True) if size != 1] == along


def reduce_last(name: str, pattern: Pattern) -> LooseOperation:
    """Return the pattern of a reduction along the last dimension."""
    return step(name, pattern, where=reduces_last)


def reduces_last(reduction: Equation, bound: Bound) -> bool:
    """Return whether a reduction is along the last dimension only."""
    return bool(reduction.params["axes"] == (len(reduction.invars[0].aval.shape) - 1,))  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------- softmax

scores, exponentials, probabilities = (
    SourceOperand("scores"),
    SourceOperand("exponentials"),
    SourceOperand("probabilities"),
)
(condition, rest) = operands("condition rest")

largest = SourceOperand("largest", reduce_last("reduce_max", scores))
total = SourceOperand("total", reduce_last("reduce_sum", exponentials))
SOFTMAX = step(
    "div",
    SourceOperand(
        "exponentials",
        step("exp", step("sub", scores, row(either(step("max", largest, literal("bound")), largest)))),
    ),
    row(total),
)


def hides(selection: Equation, bound: Bound) -> bool:
    """Return whether a selection puts a number of at most `MASKED` where a boolean mask does not hold."""
    mask, fill = selection.invars[0], selection.invars[1]
    is_mask = type(mask) is Var and dtypes.kind(mask.aval.dtype) == "b"  # type: ignore[attr-defined]
    return is_mask and type(fill) is Literal and float(fill.val) <= MASKED


MASK = step("select_n", condition, literal("fill"), rest, where=hides).named("selection")
PRODUCT = Scaled(step("dot_general").named("product"))
SCORES = either(step("add", PRODUCT, AnyVar("bias")).in_any_order.named("addition"), PRODUCT)


# --------------------------------------------------------------------------------------------------------- causal masks


def counts_positions(comparison: Equation, bound: Bound) -> bool:
    """Return whether a comparison is one of the positions along the last two dimensions."""
    rank = len(comparison.outvars[0].aval.shape)  # type: ignore[attr-defined]
    return [bound[name].params["dimension"] for name in ("queries", "keys")] == [rank - 2, rank - 1]


def keeps_last_two(broadcast: Equation, bound: Bound) -> bool:
    """Return whether the last two dimensions of a broadcast are those of its operand."""
    rank = len(broadcast.outvars[0].aval.shape)  # type: ignore[attr-defined]
    return bool(broadcast.params["broadcast_dimensions"][-2:] == (rank - 2, rank - 1))


compared = step("ge", step("iota").named("queries"), step("iota").named("keys"), where=counts_positions)
chosen = either(step("select_n", compared, Number(False), Number(True)), compared)
CAUSAL = either(step("broadcast_in_dim", chosen, where=keeps_last_two), chosen)

# ---------------------------------------------------------------------------------------------------------- cotangents


def quotient(pattern: Pattern) -> LooseOperation:
    """Return the pattern of a division by the total of exponentials."""
    return step("div", pattern, row(SourceOperand("total")))


UNMASK = step("select_n", SourceOperand("condition"), Number(0.0), rest).named("selection")
UNSCALE = Scaled(rest)
# p / total (dp - sum(dp p)), as differentiating a quotient writes it; `exponentials`, `total` and `probabilities` are
# bound before.
COTANGENT = step(
    "mul",
    exponentials,
    step(
        "add",
        quotient(SourceOperand("dp", step("dot_general").named("product"))),
        row(
            reduce_last(
                "reduce_sum", quotient(step("mul", probabilities, step("neg", SourceOperand("dp"))).in_any_order)
            )
        ),
    ).in_any_order,
).in_any_order
