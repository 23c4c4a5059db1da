"""Convolutions by cuDNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.target.cuda.library.calls import DTYPES, ConvolutionCall
from weft.compiler.target.cuda.library.convolutions import DATA, FORWARD, KINDS
from weft.runtime.cuda.libraries import cudnn
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.choices import MOST_MEASURED, chosen
from weft.runtime.cuda.libraries.cudnn import Cudnn, Graph, Plan, Tensor

# A convolution of so many multiplications takes some ten microseconds: the proposals for it are measured.
LONG = 1 << 30
# What is needed besides operands and results: a plan that takes more is not used.
MOST_WORKSPACE = 1 << 30
# The attributes of an operation: factors of its result and of what was there, description, kernel, operand, result.
_OPERATIONS = {
    "forward": (cudnn.OPERATION_FORWARD, range(700, 706)),
    "data": (cudnn.OPERATION_DATA, range(706, 712)),
    "weights": (cudnn.OPERATION_WEIGHTS, range(712, 718)),
}


class Convolution:
    """A convolution, or the gradient of one, with a plan."""

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        call = ConvolutionCall.of(integers)
        lib: Cudnn = calls.library("cudnn", Cudnn)
        graph, kind = Graph(lib, alignments), KINDS[call.kind]
        parts = call.parts
        dtype, result = DTYPES[call.dtype], DTYPES[call.result]
        # The operand, the kernel and the result of the forward convolution; one of them is the result here.
        written = {FORWARD: 2, DATA: 0}.get(kind, 1)
        tensors = [
            self._tensor(graph, shape, result if n == written else dtype) for n, shape in enumerate(parts.shapes)
        ]
        operand, kernel, out = tensors
        description = lib.descriptor(
            cudnn.CONVOLUTION,
            {
                100: (cudnn.DATA_TYPE, cudnn.DATA_TYPES["float32"]),
                101: (cudnn.CONVOLUTION_MODE, cudnn.CROSS_CORRELATION),
                106: (cudnn.INT64, len(parts.strides)),
                102: (cudnn.INT64, list(parts.dilations)),
                103: (cudnn.INT64, list(parts.strides)),
                104: (cudnn.INT64, list(parts.high)),
                105: (cudnn.INT64, list(parts.low)),
            },
        )
        operation, (alpha, beta, described, *names) = _OPERATIONS[kind]
        graph.add(
            operation,
            {
                alpha: (cudnn.FLOAT, 1.0),
                beta: (cudnn.FLOAT, 0.0),
                described: (cudnn.DESCRIPTOR, description),
                names[0]: (cudnn.DESCRIPTOR, kernel.descriptor),
                names[1]: (cudnn.DESCRIPTOR, operand.descriptor),
                names[2]: (cudnn.DESCRIPTOR, out.descriptor),
            },
        )
        refused = {cudnn.NOT_DETERMINISTIC}
        if dtype.itemsize == 4 and not call.tf32:
            refused |= {cudnn.TENSOR_CORES, cudnn.DOWN_CONVERTS}
        plans = [p for p in graph.plans(MOST_MEASURED, frozenset(refused)) if p.workspace <= MOST_WORKSPACE]
        # Those of the operands of the call, then that of its result.
        order = {FORWARD: (0, 1, 2), DATA: (2, 1, 0)}.get(kind, (0, 2, 1))
        self._tensors = [tensors[n].identity for n in order]
        work = math.prod(parts.shapes[2]) * math.prod(parts.shapes[1][1:])
        self._plan = plans[0]
        if len(plans) > 1 and work >= LONG:
            sizes = [math.prod(parts.shapes[n]) * (result if n == written else dtype).itemsize for n in order]
            sizes.append(max(p.workspace for p in plans))
            candidates = [(f"{n} {p.engine}", self._started(p)) for n, p in enumerate(plans)]
            self._plan = plans[chosen(calls, f"cuDNN {lib.version} {call}", candidates, sizes)]
        self.workspace = self._plan.workspace

    @staticmethod
    def _tensor(graph: Graph, shape: Sequence[int], dtype: Any) -> Tensor:
        """An array with features last, as cuDNN lists dimensions: features come second."""
        strides = cudnn.dense(shape)
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return graph.tensor([shape[n] for n in order], dtype, [strides[n] for n in order])

    def _started(self, plan: Plan) -> Callable[..., None]:
        return lambda stream, addresses: plan.start(stream, self._tensors, addresses[:-1], addresses[-1])

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start it."""
        self._plan.start(stream, self._tensors, addresses, workspace)
