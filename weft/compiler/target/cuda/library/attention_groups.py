"""Calls of cuDNN for matched attention and its cotangents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.rewrite import new_equation
from weft.compiler.target.cuda.library.attention_layouts import AttentionOperand, AttentionResult
from weft.compiler.target.cuda.library.attention_scores import Cotangents, Scores
from weft.compiler.target.cuda.library.calls import AttentionCall, dtype_index
from weft.compiler.target.cuda.library.composites import EquationGroup, LibraryComposite
from weft.compiler.target.library_call import LibraryCall
from weft.ir.jaxpr import Equation, Var
from weft.ir.primitive import lookup

ROUTINE = "cudnn_attention"


@dataclass(frozen=True)
class LibraryAttention(LibraryComposite):
    """Attention or its cotangents, with sizes and strides. `scratch` lists temporary buffers in bytes."""

    call: AttentionCall
    scratch: tuple[int, ...] = ()
    slow: ClassVar[bool] = True

    def plan(self, equation: Equation) -> LibraryCall:
        return LibraryCall(routine=ROUTINE, parameters=self.call.integers, scratch=self.scratch)

    def __str__(self) -> str:
        return "attention, backward" if self.call.backward else "attention"


class Backward(NamedTuple):
    """Matched cotangents: those of scores and probabilities, the cotangent of o, those of q, k and v as far as the
    program has them, and all equations from scores on."""

    cotangents: Cotangents
    cotangent: AttentionOperand
    results: tuple[AttentionResult | None, AttentionResult | None, AttentionResult | None]
    equations: list[Equation]
    cuts: tuple[Equation, ...]


class Forward(NamedTuple):
    """Matched forward pass: q, k and v, the contraction with v and its result. `computed` are new equations, if the
    program has cotangents only."""

    operands: tuple[AttentionOperand, AttentionOperand, AttentionOperand]
    out: AttentionResult
    contraction: Equation
    weighted: list[Equation]  # conversions of probabilities
    cuts: tuple[Equation, ...]
    computed: list[Equation]


class AttentionMatch(NamedTuple):
    """Attention that cuDNN computes, with its cotangents if the program has them."""

    scores: Scores
    forward: Forward
    backward: Backward | None
    # Cotangent of scores, if other equations read it.
    of_scores: Var | None
    # Bias [batch, heads, queries, keys] added to scores; the first two sizes may be 1.
    bias: Var | None = None


def create_log_sums(scores: Scores) -> tuple[list[Equation], Var]:
    """Create the equations of the logarithms of sums of exponentials (log-sum-exp), in float32."""
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


def forward_group(match: AttentionMatch, stats: Var, equations: tuple[Equation, ...]) -> EquationGroup:
    """Return the group of the forward call."""
    forward = match.forward
    arrays = [(a.array, a.first) for a in forward.operands]
    biases = [] if match.bias is None else [(match.bias, 0)]
    inputs = tuple(dict.fromkeys(array for array, _ in [*arrays, *biases]))
    results = (forward.out.value, stats)
    slots = [(inputs.index(array), first) for array, first in arrays]
    slots += [(len(inputs), 0), (len(inputs) + 1, 0)]
    slots += [(inputs.index(array), 0) for array, _ in biases]
    layouts = [a.layout.strides for a in (*forward.operands, forward.out)]
    return EquationGroup(
        equations, inputs, results, match.scores.product, LibraryAttention(_call(match, slots, layouts))
    )


def backward_group(match: AttentionMatch, stats: Var, equations: tuple[Equation, ...]) -> EquationGroup:
    """Return the group of the backward call. Unused cotangents are written to scratch memory."""
    forward, backward = match.forward, match.backward
    assert backward is not None
    q, k, v = forward.operands
    out, cotangent = forward.out, backward.cotangent
    arrays = [(a.array, a.first) for a in forward.operands]
    arrays += [(out.value, 0), (stats, 0), (cotangent.array, cotangent.first)]
    biases = [] if match.bias is None else [(match.bias, 0)]
    inputs = tuple(dict.fromkeys(array for array, _ in [*arrays, *biases]))
    of_scores = [] if match.of_scores is None else [match.of_scores]
    results = tuple(dict.fromkeys([*(r.value for r in backward.results if r is not None), *of_scores]))
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
    slots += [(inputs.index(array), 0) for array, _ in biases]
    slots += [(len(inputs) + results.index(value), 0) for value in of_scores]
    call = _call(match, slots, layouts, backward=True)
    return EquationGroup(equations, inputs, results, match.scores.product, LibraryAttention(call, tuple(scratch)))


def _dense(operand: AttentionOperand) -> tuple[int, int, int]:
    """Return the strides of a dense array of the operand's shape."""
    _, positions, width, _ = operand.layout
    heads = (1, 1, *operand.layout.batch)[-1]
    return heads * positions * width, positions * width, width


def _call(
    match: AttentionMatch, slots: Sequence[tuple[int, int]], layouts: Sequence[Sequence[int]], backward: bool = False
) -> AttentionCall:
    q, k, _ = match.forward.operands
    batch = (1, 1, *q.layout.batch)[-2:]
    bias: Any = None if match.bias is None else match.bias.aval
    return AttentionCall(
        backward=backward,
        batch=batch[0],
        heads=batch[1],
        queries=q.layout.positions,
        keys=k.layout.positions,
        width=q.layout.width,
        dtype=dtype_index(q.dtype),
        causal=match.scores.causal,
        scale_bits=int(np.float32(match.scores.scale).view(np.int32)),
        bias_batch=0 if bias is None else bias.shape[0],
        bias_heads=0 if bias is None else bias.shape[1],
        bias_dtype=0 if bias is None else dtype_index(bias.dtype),
        of_scores=backward and match.of_scores is not None,
        parts=tuple(n for several in (*slots, *layouts) for n in several),
    )
