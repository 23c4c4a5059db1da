"""Attention by cuDNN, recognised in programs.

    s = q kᵀ;  s = s scale;  s = where(query >= key, s, -inf);  p = softmax(s);  o = p v

with the transposes of o that follow, and its cotangents as differentiation writes them. Scale and mask may be missing,
shapes may have dimensions of size 1, operands may be the same array or parts of one, and cotangents may be parts of
one; the cotangent of o may be any array, o and the operands among them. Where others read what cuDNN never stores
(scores, probabilities) nothing is recognised. Everything between q, k, v and o is float32, whatever the program says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.compiler.rewrite import new_equation
from weft.compiler.target.cuda.library.attention_layouts import (
    Operand,
    Operands,
    Result,
    axes_of,
    packed,
    result_of,
    wide_axes,
)
from weft.compiler.target.cuda.library.attention_scores import (
    Chain,
    Scores,
    cotangent_of_probabilities,
    same_but_ones,
    scores_of,
)
from weft.compiler.target.cuda.library.calls import AttentionCall, dtype_index
from weft.compiler.target.cuda.library.composites import Composite, Group, Reader, is_operation
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Var
from weft.ir.primitive import lookup

ROUTINE = "cudnn_attention"
TYPES = (dtypes.bfloat16, dtypes.float16)
# Vectors are multiples of this, and no longer; positions are multiples of that.
WIDTH_MULTIPLE, MOST_WIDTH, POSITION_MULTIPLE = 8, 128, 64


@dataclass(frozen=True)
class LibraryAttention(Composite):
    """Attention, or its cotangents, with sizes and strides. `scratch` is the memory that it needs besides."""

    call: AttentionCall
    scratch: tuple[int, ...] = ()

    def plan(self, equation: Equation) -> LibraryCall:
        return LibraryCall(routine=ROUTINE, parameters=self.call.integers, scratch=self.scratch)

    def __str__(self) -> str:
        return "attention, backward" if self.call.backward else "attention"


# -------------------------------------------------------------------------------------------------------------- search


class Backward(NamedTuple):
    """The cotangents of attention: the contraction of the cotangent of o with v, those of q, k and v, as far as the
    program has them, and all equations from scores on."""

    contraction: Equation
    cotangent: Operand
    results: tuple[Result | None, Result | None, Result | None]
    equations: list[Equation]
    cuts: tuple[Equation, ...]


class Forward(NamedTuple):
    """Attention in a program: q, k and v, the contraction with v and its result. `computed` are equations that the
    program does not have, since it needs cotangents only."""

    operands: tuple[Operand, Operand, Operand]
    out: Result
    contraction: Equation
    weighted: list[Equation]  # conversions of probabilities
    cuts: tuple[Equation, ...]
    computed: list[Equation]


def find_attention(reader: Reader, target: Target) -> list[Group]:
    """All attention of a jaxpr, and its cotangents."""
    if "cudnn" not in target.libraries.present:
        return []
    groups: list[Group] = []
    operands = Operands(reader)
    for equation in reader.jaxpr.eqns:
        scores = scores_of(reader, equation) if is_operation(equation, "div") else None
        if scores is not None:
            groups += _Search(reader, operands, scores).groups()
    return groups


class _Search:
    """What is computed of some scores."""

    def __init__(self, reader: Reader, operands: Operands, scores: Scores) -> None:
        self.reader, self.operands, self.scores = reader, operands, scores
        self.queries, self.keys = (operands.operand(scores.product, side, "free") for side in (0, 1))
        self.weighted, self.conversions = _weighted(reader, scores)

    def groups(self) -> list[Group]:
        """The calls for attention: one, or two. None if somebody reads what they do not compute."""
        if self.queries is None or self.keys is None or self.queries.dtype not in TYPES:
            return []
        backward = self.backward(self.queries, self.keys)
        forward = self.forward(self.queries, self.keys, backward)
        if forward is None or not _fits(*forward.operands, forward.out):
            return []
        if backward is not None and not _fits_backward(forward, backward):
            backward = None
        results = [forward.out, *(r for r in (backward.results if backward else ()) if r is not None)]
        before = [*self.scores.chain.members.values(), *forward.weighted]
        computed = [*before, forward.contraction, *forward.out.equations]
        written = [e for r in results for e in (r.contraction, *r.equations)]
        inside = [*computed, *(backward.equations if backward else ()), *written]
        for equation in inside:
            for v in equation.outvars:
                is_mask = dtypes.kind(v.aval.dtype) in "bi"
                is_result = any(v is r.value for r in results)
                if not is_result and not is_mask and self.reader.needed_outside(v, inside):
                    return []
        logarithms, stats = _logarithms(self.scores)
        own = [e for e in computed if all(e is not other for other in forward.computed)]
        equations = (*self.in_order([*forward.cuts, *own]), *forward.computed, *logarithms)
        first = _group(forward, stats, equations, self.scores)
        if backward is None:
            return [first]
        after = [e for r in results[1:] for e in (r.contraction, *r.equations)]
        again = self.in_order([*forward.cuts, *backward.cuts, *before, *backward.equations, *after])
        return [first, _backward_group(forward, backward, stats, tuple(again), self.scores)]

    def in_order(self, equations: Iterable[Equation]) -> list[Equation]:
        """Equations of the program as it has them, each once."""
        return sorted({id(e): e for e in equations}.values(), key=self.reader.position)

    # -- forward ---------------------------------------------------------------------------------------------------

    def forward(self, q: Operand, k: Operand, backward: Backward | None) -> Forward | None:
        """Attention with these scores."""
        cuts = tuple(e for side in (0, 1) for e in self.operands.equations(self.scores.product, side, "free"))
        for contraction in self.reader.readers.get(self.weighted, ()):
            if not is_operation(contraction, "dot_general") or contraction.invars[0] is not self.weighted:
                continue
            axes = axes_of(contraction, 0)
            last = len(self.weighted.aval.shape) - 1  # type: ignore[attr-defined]
            v = self.operands.operand(contraction, 1, "contracted")
            if v is None or axes.contracted != (last,) or axes.batch != tuple(sorted(axes.batch)):
                continue
            out = result_of(self.reader, contraction, q.dtype, 0)
            if out is not None:
                cuts += self.operands.equations(contraction, 1, "contracted")
                return Forward((q, k, v), out, contraction, self.conversions, cuts, [])
        return None if backward is None else self.computed_forward(q, k, backward, cuts)

    def computed_forward(
        self, q: Operand, k: Operand, backward: Backward, cuts: tuple[Equation, ...]
    ) -> Forward | None:
        """Attention that only its cotangents need."""
        product = backward.contraction
        v = self.operands.operand(product, 1, "free")
        if v is None:
            return None
        value, axes = product.invars[1], axes_of(product, 1)
        weighted: Any = self.weighted
        computed: list[Equation] = []
        if weighted.aval.dtype != v.dtype:
            params: dict[str, Any] = {"new_dtype": v.dtype, "weak_type": False}
            computed.append(new_equation(lookup("convert_element_type"), [weighted], params, product))
            weighted = computed[-1].outvars[0]
        *batch, _, key = wide_axes(weighted, range(len(weighted.aval.shape)))
        of_value = wide_axes(value, axes.batch)
        if len(batch) != len(of_value):
            return None
        dimensions = (((key,), tuple(wide_axes(value, axes.free))), (tuple(batch), tuple(of_value)))
        params = {**product.params, "dimension_numbers": dimensions, "preferred_element_type": v.dtype}
        computed.append(new_equation(lookup("dot_general"), [weighted, value], params, product))
        contraction = computed[-1]
        out = result_of(self.reader, contraction, q.dtype, 0)
        if out is None:
            return None
        cuts += self.operands.equations(product, 1, "free")
        return Forward((q, k, v), out, contraction, self.conversions, cuts, computed)

    # -- backward --------------------------------------------------------------------------------------------------

    def backward(self, q: Operand, k: Operand) -> Backward | None:
        """The cotangents of q, k and v, as far as the program has them."""
        for contraction, side in self.contracted(k, "keys") + self.contracted(q, "queries"):
            chain = Chain(self.reader)
            of_scores = chain.source(contraction.invars[1 - side])
            product = cotangent_of_probabilities(chain, self.scores, of_scores)
            cotangent = None if product is None else self.operands.operand(product, 0, "free")
            if product is None or cotangent is None:
                continue
            wanted = (
                (k, "keys", of_scores),
                (q, "queries", of_scores),
                (cotangent, "queries", self.scores.probabilities),
            )
            found = [self.contraction(chain, *each) for each in wanted]
            # The width is a free axis of the array, the positions are free axes of scores.
            results = [f and result_of(self.reader, f[0], q.dtype, 1 - f[1]) for f in found]
            if any(f and not r for f, r in zip(found, results, strict=True)):
                continue
            if all(results):
                results = list(packed(self.reader, [r for r in results if r]))
            cuts = [e for f in found if f for e in self.operands.equations(*f, "contracted")]
            cuts += self.operands.equations(product, 0, "free")
            dq, dk, dv = (r or None for r in results)
            return Backward(product, cotangent, (dq, dk, dv), list(chain.members.values()), tuple(cuts))
        return None

    def contracted(self, array: Operand, along: str) -> list[tuple[Equation, int]]:
        """The contractions of an array, along its positions, with scores along theirs; and which side it is on."""
        return [
            (e, side)
            for e in self.operands.contractions
            for side in (0, 1)
            if self.operands.operand(e, side, "contracted") == array and _along(e, 1 - side) == along
        ]

    def contraction(self, chain: Chain, array: Operand, along: str, scores: Any) -> tuple[Equation, int] | None:
        """The contraction of an array with these scores, and which side it is on."""
        for equation, side in self.contracted(array, along):
            before = dict(chain.members)
            if chain.source(equation.invars[1 - side]) is scores:
                return equation, side
            chain.members = before
        return None


def _along(contraction: Equation, side: int) -> str:
    """Along what a contraction sums scores, the operand on one side: their last dimension, or the last but one."""
    atom = contraction.invars[side]
    wide = wide_axes(atom, range(len(atom.aval.shape)))  # type: ignore[attr-defined]
    summed = wide_axes(atom, axes_of(contraction, side).contracted)
    return "keys" if summed == wide[-1:] else "queries" if summed == wide[-2:-1] else ""


def _weighted(reader: Reader, scores: Scores) -> tuple[Var, list[Equation]]:
    """The probabilities as the contraction with v reads them, and the conversions before."""
    value = scores.probabilities
    equations: list[Equation] = []
    while True:
        found = [
            e
            for e in reader.readers.get(value, ())
            if is_operation(e, "convert_element_type") or (is_operation(e, "reshape") and same_but_ones(e))
        ]
        if len(found) != 1:
            return value, equations
        equations += found
        value = found[0].outvars[0]


def _fits(q: Operand, k: Operand, v: Operand, out: Result) -> bool:
    """Whether these are sizes of attention, and cuDNN has kernels for them."""
    layouts = (q.layout, k.layout, v.layout, out.layout)
    same = len({(layout.batch, layout.width) for layout in layouts}) == 1 and q.dtype == k.dtype == v.dtype
    positions = q.layout.positions == out.layout.positions and k.layout.positions == v.layout.positions
    multiples = not any(a.layout.positions % POSITION_MULTIPLE for a in (q, k))
    width = q.layout.width
    return same and positions and multiples and not width % WIDTH_MULTIPLE and width <= MOST_WIDTH


def _fits_backward(forward: Forward, backward: Backward) -> bool:
    """Whether cotangents have the sizes of what they are the cotangents of."""
    wanted = [a.layout[:3] for a in (*forward.operands, forward.out)]
    found = [None if b is None else b.layout[:3] for b in (*backward.results, backward.cotangent)]
    same = all(b is None or a == b for a, b in zip(wanted, found, strict=True))
    return bool(same and backward.cotangent.dtype == forward.operands[0].dtype)


# -------------------------------------------------------------------------------------------------------------- groups


def _logarithms(scores: Scores) -> tuple[list[Equation], Var]:
    """Equations for the logarithms of sums of exponentials, in float32."""
    like = scores.product
    added: list[Equation] = []

    def wide(atom: Any) -> Any:
        if atom.aval.dtype == dtypes.float32:
            return atom
        params = {"new_dtype": dtypes.float32, "weak_type": False}
        added.append(new_equation(lookup("convert_element_type"), [atom], params, like))
        return added[-1].outvars[0]

    total, largest = scores.total, scores.largest
    if largest.aval.shape != total.aval.shape:
        params = {"new_sizes": total.aval.shape, "dimensions": None}
        added.append(new_equation(lookup("reshape"), [largest], params, like))
        largest = added[-1].outvars[0]
    added.append(new_equation(lookup("log"), [wide(total)], {"accuracy": None}, like))
    logarithm = added[-1].outvars[0]
    added.append(new_equation(lookup("add"), [wide(largest), logarithm], {}, like))
    return added, added[-1].outvars[0]


def _group(forward: Forward, stats: Var, equations: tuple[Equation, ...], scores: Scores) -> Group:
    """The call for attention."""
    inputs = tuple(dict.fromkeys(a.array for a in forward.operands))
    results = (forward.out.value, stats)
    slots = [(inputs.index(a.array), a.first) for a in forward.operands]
    slots += [(len(inputs), 0), (len(inputs) + 1, 0)]
    layouts = [a.layout.strides for a in (*forward.operands, forward.out)]
    return Group(equations, inputs, results, scores.product, LibraryAttention(_call(forward, scores, slots, layouts)))


def _backward_group(
    forward: Forward, backward: Backward, stats: Var, equations: tuple[Equation, ...], scores: Scores
) -> Group:
    """The call for its cotangents. Those that nobody needs are written to memory that nobody reads."""
    q, k, v = forward.operands
    out, cotangent = forward.out, backward.cotangent
    arrays = [(a.array, a.first) for a in forward.operands]
    arrays += [(out.value, 0), (stats, 0), (cotangent.array, cotangent.first)]
    inputs = tuple(dict.fromkeys(array for array, _ in arrays))
    results = tuple(dict.fromkeys(r.value for r in backward.results if r is not None))
    slots = [(inputs.index(array), first) for array, first in arrays]
    layouts = [a.layout.strides for a in (q, k, v, out, cotangent)]
    scratch = [math.prod(q.layout.batch) * q.layout.positions * np.dtype(np.float32).itemsize]
    unused = len(inputs) + len(results) + 1
    for operand, result in zip((q, k, v), backward.results, strict=True):
        if result is not None:
            slots.append((len(inputs) + results.index(result.value), result.first))
            layouts.append(result.layout.strides)
        else:
            slots.append((unused, 0))
            unused += 1
            layouts.append(_dense(operand))
            size = math.prod(operand.layout.batch) * operand.layout.positions * operand.layout.width
            scratch.append(size * operand.dtype.itemsize)
    slots.append((len(inputs) + len(results), 0))
    call = _call(forward, scores, slots, layouts, backward=True)
    return Group(equations, inputs, results, scores.product, LibraryAttention(call, tuple(scratch)))


def _dense(operand: Operand) -> tuple[int, int, int]:
    """The strides of an array of its own."""
    _, positions, width, _ = operand.layout
    heads = (1, 1, *operand.layout.batch)[-1]
    return heads * positions * width, positions * width, width


def _call(
    forward: Forward,
    scores: Scores,
    slots: Sequence[tuple[int, int]],
    layouts: Sequence[Sequence[int]],
    backward: bool = False,
) -> AttentionCall:
    q, k, _ = forward.operands
    batch = (1, 1, *q.layout.batch)[-2:]
    return AttentionCall(
        backward=backward,
        batch=batch[0],
        heads=batch[1],
        queries=q.layout.positions,
        keys=k.layout.positions,
        width=q.layout.width,
        dtype=dtype_index(q.dtype),
        causal=scores.chosen is not None,
        scale_bits=int(np.float32(scores.scale).view(np.int32)),
        parts=tuple(n for several in (*slots, *layouts) for n in several),
    )
