"""Attention by cuDNN: one graph forward, and one for all cotangents.

    forward   s = scale q kᵀ + bias, masked;  m = max s;  p = exp(s - m);  sum = sum p;  o = (p / sum) v;
              stats = m + log sum
    backward  p = exp(s - stats);  dv = pᵀ do;  ds = scale p (do vᵀ - sum(do o));  dk = dsᵀ q;  dq = ds k

Engines recognise these graphs as a whole, so the order of operations and the types between them are theirs. dq is
written by one matmul of stored ds, so that nothing depends on the order in which blocks end.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_float
from typing import Any

from weft.base import dtypes
from weft.compiler.target.cuda.library.calls import DTYPES, AttentionCall
from weft.runtime.cuda.libraries import cudnn
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cudnn import Cudnn, Graph, Tensor
from weft.runtime.cuda.libraries.plans import load_plan

# cudnnPointwiseMode_t and cudnnReduceTensorOp_t
ADD, MULTIPLY, DIVIDE, SUBTRACT, EXP, LOG, IDENTITY, GREATER_EQUAL, INDEX, SELECT = (
    0, 1, 6, 9, 13, 15, 21, 303, 501, 601,
)  # fmt: skip
SUM, MAX = 0, 3
MOST_PLANS = 4
FLOAT, INT, BOOL = dtypes.float32, dtypes.int32, dtypes.as_dtype("bool")


class AttentionGraph(Graph):
    """Graph on scores, [batch, heads, queries, keys]."""

    def __init__(self, lib: Cudnn, alignments: Sequence[int], call: AttentionCall) -> None:
        super().__init__(lib, alignments)
        self.call, self.dtype = call, DTYPES[call.dtype]
        self.scores_shape = (call.batch, call.heads, call.queries, call.keys)
        self.scalars: dict[Tensor, Any] = {}

    def scalar(self, value: float) -> Tensor:
        """Create a scalar that is passed with the addresses."""
        found = self.tensor((1, 1, 1, 1), FLOAT, by_value=True)
        self.scalars[found] = c_float(value)
        return found

    def heads(self, positions: int, layout: tuple[int, int, int], transposed: bool = False) -> Tensor:
        """Create the tensor of an array of vectors, as it is or transposed."""
        call, (batch, head, position) = self.call, layout
        shape, strides = (call.batch, call.heads, positions, call.width), (batch, head, position, 1)
        if transposed:
            shape, strides = (*shape[:2], shape[3], shape[2]), (*strides[:2], strides[3], strides[2])
        return self.tensor(shape, self.dtype, strides)

    def scores(self, dtype: Any = FLOAT) -> Tensor:
        """Create a virtual tensor of scores."""
        return self.tensor(self.scores_shape, dtype, virtual=True)

    def rows(self, virtual: bool = True) -> Tensor:
        """Create a tensor with one number for each query."""
        return self.tensor((*self.scores_shape[:3], 1), FLOAT, virtual=virtual)

    def matmul(self, lhs: Tensor, rhs: Tensor, out: Tensor) -> Tensor:
        """Add a batched matmul with sums in float32."""
        kind = self.lib.descriptor(cudnn.MATMUL, {1500: (cudnn.DATA_TYPE, cudnn.DATA_TYPES["float32"])})
        operands = {1520: lhs.descriptor, 1521: rhs.descriptor, 1522: out.descriptor, 1523: kind}
        self.add(cudnn.OPERATION_MATMUL, {name: (cudnn.DESCRIPTOR, d) for name, d in operands.items()})
        return out

    def reduction(self, mode: int, out: Tensor, x: Tensor) -> Tensor:
        """Add a reduction to the shape of the result."""
        attributes = {1600: (cudnn.REDUCTION_MODE, mode), 1601: (cudnn.DATA_TYPE, cudnn.DATA_TYPES["float32"])}
        kind = self.lib.descriptor(cudnn.REDUCTION, attributes)
        operands = {1610: x.descriptor, 1611: out.descriptor, 1612: kind}
        self.add(cudnn.OPERATION_REDUCTION, {name: (cudnn.DESCRIPTOR, d) for name, d in operands.items()})
        return out

    def transpose(self, x: Tensor, strides: tuple[int, ...]) -> Tensor:
        """Return a matrix transposed by its strides, in the dtype of the operands."""
        shape = (*x.shape[:2], x.shape[3], x.shape[2])
        out = self.tensor(shape, self.dtype, strides, virtual=True)
        operands = {2200: x.descriptor, 2201: out.descriptor}
        self.add(cudnn.OPERATION_RESHAPE, {name: (cudnn.DESCRIPTOR, d) for name, d in operands.items()})
        return out

    def add_bias(self, scores: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Add the bias to scores, if there is one; return the scores and the tensors of the bias."""
        if self.call.bias_shape is None:
            return scores, []
        bias = self.tensor(self.call.bias_shape, DTYPES[self.call.bias_dtype])
        return self.pointwise(ADD, self.scores(), scores, bias), [bias]

    def apply_mask(self, scores: Tensor) -> Tensor:
        """Apply the causal mask: minus infinity for keys after the query."""
        if not self.call.causal:
            return scores
        row = self.pointwise(INDEX, self.scores(INT), scores, axis=2, computed=INT)
        column = self.pointwise(INDEX, self.scores(INT), scores, axis=3, computed=INT)
        mask = self.pointwise(GREATER_EQUAL, self.scores(BOOL), row, column, computed=BOOL)
        return self.pointwise(SELECT, self.scores(), scores, self.scalar(-math.inf), mask)


class Attention:
    """Attention, or its cotangents, with a plan. Plans for both are made concurrently, so each opens the library."""

    most_alignment, measures = cudnn.MOST_ALIGNMENT, False

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        call = AttentionCall.of(integers)
        size = DTYPES[call.dtype].itemsize
        self._sources = [(operand, first * size) for operand, first in call.sources]
        starts = [first for _, first in self._sources if first]
        lib = calls.library("cudnn", Cudnn, "backward" if call.backward else "")
        self._graph = graph = AttentionGraph(lib, [*alignments, *starts], call)
        tensors = backward(graph) if call.backward else forward(graph)
        self._tensors = [t.identity for t in (*tensors, *graph.scalars)]
        refused = frozenset({cudnn.NOT_DETERMINISTIC})
        what = f"{call} {graph.alignment}"
        self._plan = load_plan(calls, graph.lib, what, lambda: graph.plans(MOST_PLANS, refused, first=True)[0])
        self._scalars = [ctypes.addressof(value) for value in graph.scalars.values()]
        self.workspace = self._plan.workspace

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the plan."""
        arrays = [addresses[operand] + first for operand, first in self._sources]
        self._plan.start(stream, self._tensors, [*arrays, *self._scalars], workspace)


def forward(graph: AttentionGraph) -> list[Tensor]:
    """Add the operations of attention; return the tensors with addresses, in the order of the call."""
    call = graph.call
    layouts = call.layouts
    q = graph.heads(call.queries, layouts[0])
    k = graph.heads(call.keys, layouts[1], transposed=True)
    v = graph.heads(call.keys, layouts[2])
    o = graph.heads(call.queries, layouts[3])
    s = graph.matmul(q, k, graph.scores())
    s, bias = graph.add_bias(graph.pointwise(MULTIPLY, graph.scores(), s, graph.scalar(call.scale)))
    s = graph.apply_mask(s)
    largest = graph.reduction(MAX, graph.rows(), s)
    p = graph.pointwise(EXP, graph.scores(), graph.pointwise(SUBTRACT, graph.scores(), s, largest))
    total = graph.reduction(SUM, graph.rows(), p)
    logarithm = graph.pointwise(LOG, graph.rows(), total)
    stats = graph.pointwise(ADD, graph.rows(virtual=False), largest, logarithm)
    p = graph.pointwise(DIVIDE, graph.scores(graph.dtype), p, total)
    graph.matmul(p, v, o)
    return [q, k, v, o, stats, *bias]


def backward(graph: AttentionGraph) -> list[Tensor]:
    """Add the operations of the cotangents; return the tensors with addresses, in the order of the call."""
    call = graph.call
    layouts = call.layouts
    q = graph.heads(call.queries, layouts[0])
    k = graph.heads(call.keys, layouts[1], transposed=True)
    v = graph.heads(call.keys, layouts[2], transposed=True)
    o, do = graph.heads(call.queries, layouts[3]), graph.heads(call.queries, layouts[4])
    dq, dk, dv = (
        graph.heads(positions, layout)
        for positions, layout in zip((call.queries, call.keys, call.keys), layouts[5:], strict=True)
    )
    stats, scale = graph.rows(virtual=False), graph.scalar(call.scale)
    products = graph.tensor((*graph.scores_shape[:3], call.width), FLOAT, virtual=True)
    products = graph.pointwise(MULTIPLY, products, do, o)
    sums = graph.reduction(SUM, graph.rows(), products)
    sums = graph.pointwise(MULTIPLY, graph.rows(virtual=False), sums, graph.scalar(1.0))
    s = graph.pointwise(MULTIPLY, graph.scores(), graph.matmul(q, k, graph.scores()), scale)
    s, bias = graph.add_bias(s)
    s = graph.apply_mask(graph.pointwise(SUBTRACT, graph.scores(), s, stats))
    p = graph.pointwise(EXP, graph.scores(), s)
    across = cudnn.dense(graph.scores_shape)
    across = (*across[:2], 1, call.keys)
    graph.matmul(graph.transpose(p, across), do, dv)
    dp = graph.matmul(do, v, graph.scores())
    ds = graph.pointwise(SUBTRACT, graph.scores(), dp, sums)
    ds = graph.pointwise(MULTIPLY, graph.scores(), ds, p)
    of_scores = []
    if call.of_scores:
        # In another dtype, or summed over a batch, no engine computes it, or not correctly.
        of_scores = [graph.tensor(graph.scores_shape, graph.dtype)]
        graph.reduction(SUM, of_scores[0], ds)
    ds = graph.pointwise(MULTIPLY, graph.scores(), ds, scale)
    graph.matmul(graph.transpose(ds, across), q, dk)
    batch, head, position = layouts[1]
    graph.matmul(ds, graph.transpose(k, (batch, head, position, 1)), dq)
    return [q, k, v, o, stats, do, dq, dk, dv, sums, *bias, *of_scores]
