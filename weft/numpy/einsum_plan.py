"""Parsing of Einstein summations, and their plans of contractions, sums, diagonals and one transpose.

A plan depends only on the text, the shapes and the optimizer, so it is computed once and cached: tracing the
same summation again costs the equations and little else.
"""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from weft.base.errors import ArgumentError
from weft.base.lazy import lazy
from weft.indexing.expression import Expression
from weft.indexing.guards import decide

opt_einsum = lazy("opt_einsum")

_LETTERS = string.ascii_letters
# The value of a symbolic size in cost estimates if the sizes to decide for are not specified.
_TYPICAL_SIZE = 8


class Reduce(NamedTuple):
    """Work on one operand: diagonals over groups of axes, keeping the first of each; dropped and summed axes."""

    operand: int
    diagonals: tuple[tuple[int, ...], ...]
    squeezed: tuple[int, ...]
    summed: tuple[int, ...]


class Contract(NamedTuple):
    """Replace two operands by their contraction, which is appended to the list."""

    first: int
    second: int
    dimension_numbers: Any


class Permute(NamedTuple):
    """Reorder the axes of the only operand left."""

    permutation: tuple[int, ...]


Step = Reduce | Contract | Permute


# ------------------------------------------------------------------------------------------------------------ parsing


def as_text(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Convert the form with lists of axis numbers, `x, [0, 1], y, [1, 2], [0, 2]`, to text and operands."""
    pairs, rest = operands[: len(operands) // 2 * 2], operands[len(operands) // 2 * 2 :]
    try:
        axes = sorted({axis for listed in (*pairs[1::2], *rest) for axis in listed if axis is not Ellipsis})
    except TypeError:
        raise ArgumentError("einsum needs a string, or operands each followed by a list of axes.") from None
    if len(axes) > len(_LETTERS):
        raise ArgumentError(f"einsum takes at most {len(_LETTERS)} different axes, got {len(axes)}.")
    # Letters ascend with the axis numbers, so that an implicit result has its axes in the same order.
    letters: dict[Any, str] = {Ellipsis: "...", **dict(zip(axes, sorted(_LETTERS), strict=False))}

    def term(listed: Sequence[Any]) -> str:
        return "".join(letters[axis] for axis in listed)

    text = ",".join(term(listed) for listed in pairs[1::2])
    return (f"{text}->{term(rest[0])}" if rest else text), list(pairs[::2])


@lru_cache(maxsize=1024)
def parse(text: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Parse the labels of each operand and of the result, with dots replaced by unused letters."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(
            f"einsum got {len(terms)} terms for {len(ranks)} operands; it needs one for each.",
            received=repr(text),
            fix="one term for each operand, with commas between them",
        )
    dots = _labels_of_dots(text, terms, ranks)
    labels = [
        _operand_labels(text, i, term, rank, dots) for i, (term, rank) in enumerate(zip(terms, ranks, strict=True))
    ]
    if arrow:
        result = right.replace("...", dots)
    else:
        counts = Counter(c for term in terms for c in term if c != ".")
        result = (dots if "..." in left else "") + "".join(sorted(c for c, n in counts.items() if n == 1))
    for term in (*labels, result):
        if any(c in ".->," for c in term):
            raise ArgumentError(f"einsum got {text!r}; it takes labels, commas, `...` and `->`.")
    known = {c for term in labels for c in term}
    if len(set(result)) != len(result) or not set(result) <= known:
        wrong = [c for c in result if c not in known or result.count(c) > 1]
        raise ArgumentError(
            f"einsum: the result names {', '.join(map(repr, dict.fromkeys(wrong)))}, not once or not of an operand.",
            received=repr(text),
            fix="letters of the operands after ->, each at most once in the output",
        )
    return tuple(labels), result


def _labels_of_dots(text: str, terms: Sequence[str], ranks: Sequence[int]) -> str:
    """Return letters that the text does not use, one for each dimension of the longest `...`."""
    used = set(text)
    spare = [c for c in _LETTERS if c not in used]
    widest = max(
        (rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term),
        default=0,
    )
    if widest > len(spare):
        raise ArgumentError(f"einsum has no letters left for the dimensions of ... in {text!r}.")
    return "".join(spare[: max(widest, 0)])


def _operand_labels(text: str, operand: int, term: str, rank: int, dots: str) -> str:
    """Return one label for each dimension of an operand; its `...` is replaced by the last letters of `dots`."""
    named = len(term.replace("...", ""))
    if rank < named or (rank > named and "..." not in term):
        raise ArgumentError(
            f"Einstein sum subscript {term!r} does not contain the correct number of indices for operand {operand}.",
            received=f"{text!r}, and an operand of {rank} dimension{'s' * (rank != 1)}",
            fix=f"subscripts of {rank} letter{'s' * (rank != 1)} for it, or ... for dimensions without a letter",
        )
    return term.replace("...", dots[len(dots) - (rank - named) :] if rank > named else "")


# ----------------------------------------------------------------------------------------------------------- planning


def label_sizes(text: str, labels: Sequence[str], shapes: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the size of each label; a size of 1 broadcasts."""
    sizes: dict[str, Any] = {}
    for operand, (term, shape) in enumerate(zip(labels, shapes, strict=True)):
        for label, size in zip(term, shape, strict=True):
            previous = sizes.setdefault(label, size)
            if previous == 1:
                sizes[label] = size
            elif size != previous and size != 1:
                raise ArgumentError(
                    f"einsum: label {label!r} must have one size, got {size} in operand {operand} and {previous}.",
                    received=f"{text!r} and shapes {', '.join(map(str, shapes))}",
                    fix="other letters, or transpose an operand, so that a letter has one size",
                )
    return sizes


def find_path(text: str, shapes: Sequence[tuple[Any, ...]], optimize: Any) -> list[tuple[int, ...]]:
    """Find the order in which operands are contracted; the result of a contraction is appended to the list."""
    if len(shapes) <= 2 and not isinstance(optimize, (list, tuple)):
        return [tuple(range(len(shapes)))]
    if optimize is False:
        return [tuple(range(len(shapes)))]
    if isinstance(optimize, (list, tuple)):
        return [tuple(step) for step in optimize if not isinstance(step, str)]
    ranks = tuple(map(len, shapes))
    return list(decide(_best_path, (text, ranks, optimize), tuple(itertools.chain.from_iterable(shapes))))


def _best_path(fixed: tuple[str, tuple[int, ...], Any], sizes: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """Search the cheapest order of contractions of operands of these ranks; `sizes` are their concatenated shapes."""
    text, ranks, optimize = fixed
    left = iter(_TYPICAL_SIZE if isinstance(size, Expression) else size for size in sizes)
    shapes = [tuple(itertools.islice(left, rank)) for rank in ranks]
    path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize="optimal" if optimize is True else optimize)
    return tuple(tuple(step) for step in path)


@lru_cache(maxsize=2048)
def plan(text: str, shapes: tuple[tuple[Any, ...], ...], optimize: Any) -> tuple[Step, ...]:
    """Plan the steps that compute an Einstein summation of operands of these shapes."""
    labels, result = parse(text, tuple(len(shape) for shape in shapes))
    sizes = label_sizes(text, labels, shapes)
    steps: list[Step] = []
    terms = list(labels)
    for operand, (term, shape) in enumerate(zip(labels, shapes, strict=True)):
        # An axis of size 1 that broadcasts is dropped: nothing varies along it, so the product is the same.
        stretched = [i for i, label in enumerate(term) if shape[i] == 1 and sizes[label] != 1]
        first = {label: i for i, label in reversed(list(enumerate(term))) if i not in stretched}
        groups = [tuple(i for i, other in enumerate(term) if other == label and i not in stretched) for label in first]
        diagonals = tuple(sorted(group for group in groups if len(group) > 1))
        if stretched or diagonals:
            steps.append(Reduce(operand, diagonals, tuple(stretched), ()))
            terms[operand] = "".join(label for i, label in enumerate(term) if first.get(label) == i)
    for positions in find_path(f"{','.join(labels)}->{result}", shapes, optimize):
        order = sorted(positions)
        while len(order) > 1:
            first_operand, second_operand = order[0], order[1]
            _contract_pair(steps, terms, first_operand, second_operand, result)
            # The contraction is last in the list, and is the left operand of the rest of this step.
            order = [len(terms) - 1] + [p - 2 for p in order[2:]] if len(order) > 2 else []
            order.sort()
    while len(terms) > 1:
        _contract_pair(steps, terms, 0, 1, result)
    _sum_out(steps, terms, 0, set(result))
    if terms[0] != result:
        steps.append(Permute(tuple(terms[0].index(label) for label in result)))
    return tuple(steps)


def _sum_out(steps: list[Step], terms: list[str], operand: int, needed: set[str]) -> None:
    """Sum over the labels of one operand that no other operand or result needs."""
    axes = tuple(i for i, label in enumerate(terms[operand]) if label not in needed)
    if axes:
        steps.append(Reduce(operand, (), (), axes))
        terms[operand] = "".join(label for label in terms[operand] if label in needed)


def _contract_pair(steps: list[Step], terms: list[str], first: int, second: int, result: str) -> None:
    others = [term for i, term in enumerate(terms) if i not in (first, second)]
    needed = set(result).union(*others)
    _sum_out(steps, terms, first, needed | set(terms[second]))
    _sum_out(steps, terms, second, needed | set(terms[first]))
    left, right = terms[first], terms[second]
    shared = [label for label in left if label in right]
    batch = [label for label in shared if label in needed]
    if not others:  # batch dimensions in the order of the result save a transpose
        batch.sort(key=result.index)
    contracted = [label for label in shared if label not in needed]
    left_free = [label for label in left if label not in shared]
    right_free = [label for label in right if label not in shared]
    if not others and "".join(batch + right_free + left_free) == result != "".join(batch + left_free + right_free):
        first, second, left, right = second, first, right, left
        left_free, right_free = right_free, left_free
    dimension_numbers = (
        (tuple(map(left.index, contracted)), tuple(map(right.index, contracted))),
        (tuple(map(left.index, batch)), tuple(map(right.index, batch))),
    )
    steps.append(Contract(first, second, dimension_numbers))
    for position in sorted((first, second), reverse=True):
        del terms[position]
    terms.append("".join(batch + left_free + right_free))
