"""Convolutions by cuDNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.cuda.library.calls import DTYPES, ConvolutionCall
from weft.compiler.target.cuda.library.convolutions import DATA, FORWARD, KINDS
from weft.runtime.cuda.libraries import cudnn
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.choices import choose_fastest
from weft.runtime.cuda.libraries.cudnn import Cudnn, CudnnError, Graph, Plan, Tensor
from weft.runtime.cuda.libraries.plans import load_plan, read_plan

# cudnnPointwiseMode_t
ADD, RELU = 0, 100
# Least multiplications of a convolution whose proposals are measured: it takes some microseconds, or many more by
# another algorithm.
LONG = 1 << 22
# Proposals that are measured: the best is often not among the first.
MOST_PLANS = 16
# Most bytes of temporary memory of a plan.
MOST_WORKSPACE = 1 << 30
# Attributes of an operation: factors of its result and of the previous content, descriptor, kernel, operand, result.
_OPERATIONS = {
    "forward": (cudnn.OPERATION_FORWARD, range(700, 706)),
    "data": (cudnn.OPERATION_DATA, range(706, 712)),
    "weights": (cudnn.OPERATION_WEIGHTS, range(712, 718)),
}


class ConvolutionGraph(Graph):
    """Graph of a call: `tensors` are the unique ids of its operands and its result.

    It may contain the convolution alone, or only the operations after it.
    """

    def __init__(
        self, lib: Cudnn, alignments: Sequence[int], call: ConvolutionCall, convolves: bool, follows: bool
    ) -> None:
        super().__init__(lib, alignments)
        self.convolves, self.follows = convolves, follows
        self.call, parts, kind = call, call.parts, KINDS[call.kind]
        dtype, result = DTYPES[call.dtype], DTYPES[call.result]
        # The operand, the kernel and the result of the forward convolution; one of them is the result here.
        written = {FORWARD: 2, DATA: 0}.get(kind, 1)
        # The ids of the operands of the call, then of its result.
        order = {FORWARD: (0, 1, 2), DATA: (2, 1, 0)}.get(kind, (0, 2, 1))
        tensors = [
            self.features_last(shape, result if n == written else dtype, virtual=n == 2 and convolves and follows)
            for n, shape in enumerate(parts.shapes)
        ]
        if convolves:
            self.convolve(kind, *tensors)
        used = [tensors[n] for n in order] if convolves else [tensors[2]]
        if follows:
            last = self.features_last(parts.shapes[2], result)
            bias = self.features_last((*(1 for _ in parts.shapes[2][1:]), parts.shapes[2][-1]), result)
            used = [*(used[:-1] if convolves else used), bias, last]
            self.follow(tensors[2], bias, last)
        self.tensors = [tensor.identity for tensor in used]

    def features_last(self, shape: Sequence[int], dtype: Any, virtual: bool = False) -> Tensor:
        """Create the tensor of an array with features last; in cuDNN's order of dimensions they come second."""
        strides = cudnn.dense(shape)
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return self.tensor([shape[n] for n in order], dtype, [strides[n] for n in order], virtual=virtual)

    def convolve(self, kind: str, operand: Tensor, kernel: Tensor, out: Tensor) -> None:
        """Add the convolution."""
        parts = self.call.parts
        description = self.lib.descriptor(
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
        self.add(
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

    def follow(self, value: Tensor, bias: Tensor, out: Tensor) -> None:
        """Add the operations after the convolution."""
        if not self.call.relu:
            self.pointwise(ADD, out, value, bias)
            return
        total = self.features_last(self.call.parts.shapes[2], dtypes.float32, virtual=True)
        self.pointwise(RELU, out, self.pointwise(ADD, total, value, bias), nans=cudnn.KEEP_NAN)

    @property
    def sizes(self) -> list[int]:
        """Return the bytes of its tensors, in their order."""
        call, shapes = self.call, self.call.parts.shapes
        width = max(DTYPES[call.dtype].itemsize, DTYPES[call.result].itemsize)
        order = {FORWARD: (0, 1, 2), DATA: (2, 1, 0)}.get(KINDS[call.kind], (0, 2, 1))
        sizes = [math.prod(shapes[n]) * width for n in (order if self.convolves else (2, 2))]
        if len(self.tensors) > len(sizes):
            sizes.insert(-1, shapes[2][-1] * width)
        return sizes


class Convolution:
    """Convolution, or the gradient of one, with a plan. Operations after it have their own plan if no engine fuses
    them."""

    def __init__(self, calls: LibraryCalls, integers: Sequence[int], alignments: Sequence[int]) -> None:
        call = ConvolutionCall.of(integers)
        self._lib: Cudnn = calls.library("cudnn", Cudnn)
        self._after: tuple[Plan, list[int]] | None = None
        follows = bool(call.has_bias)
        # The whole call; or the convolution alone, and the operations after it.
        graph = partial(ConvolutionGraph, self._lib, alignments, call)
        self._graph = whole = graph(True, follows)
        what = f"{call} {whole.alignment}"
        # An earlier process may have found that no engine fuses the operations after it.
        plan: Plan | None = None
        if not follows or read_plan(calls, self._lib, f"{what}, alone") is None:
            try:
                plan = load_plan(calls, self._lib, what, lambda: self._best(calls, whole))
            except CudnnError:
                if not follows:
                    raise
        if plan is None:
            alone, after = graph(True, False), graph(False, True)
            second = load_plan(calls, self._lib, f"{what}, after", lambda: self._plans(calls, after)[0])
            self._graph, self._after = alone, (second, after.tensors)
            plan = load_plan(calls, self._lib, f"{what}, alone", lambda: self._best(calls, alone))
        self._plan = plan
        self.workspace = max(plan.workspace, 0 if self._after is None else self._after[0].workspace)

    def _best(self, calls: LibraryCalls, graph: ConvolutionGraph) -> Plan:
        """Return the fastest plan of a graph with a convolution."""
        plans, call = self._plans(calls, graph), graph.call
        shapes = call.parts.shapes
        if len(plans) == 1 or math.prod(shapes[2]) * math.prod(shapes[1][1:]) < LONG:
            return plans[0]
        sizes = [*graph.sizes, max(p.workspace for p in plans)]
        candidates = [(f"{n} {p.engine}", _bind_plan(p, graph.tensors)) for n, p in enumerate(plans)]
        return plans[choose_fastest(calls, f"cuDNN {self._lib.version} {call}", candidates, sizes, MOST_PLANS)]

    @staticmethod
    def _plans(calls: LibraryCalls, graph: ConvolutionGraph) -> list[Plan]:
        call = graph.call
        refused = {cudnn.NOT_DETERMINISTIC}
        if DTYPES[call.dtype].itemsize == 4:
            # Floats of 16 bits overflow.
            refused |= {cudnn.DOWN_CONVERTS} if call.tf32 else {cudnn.TENSOR_CORES, cudnn.DOWN_CONVERTS}
        plans = [p for p in graph.plans(MOST_PLANS, frozenset(refused)) if p.workspace <= MOST_WORKSPACE]
        if call.relu and graph.follows:
            plans = _keeping_nan(calls, graph, plans)
        if not plans:
            raise CudnnError(
                "cuDNN must have a plan for a convolution with at most a gigabyte of temporary memory; it has none."
            )
        return plans

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the plans."""
        if self._after is None:
            self._plan.start(stream, self._graph.tensors, addresses, workspace)
            return
        first, second, bias, out = addresses
        self._plan.start(stream, self._graph.tensors, [first, second, out], workspace)
        plan, tensors = self._after
        plan.start(stream, tensors, [out, bias, out], workspace)


def _keeping_nan(calls: LibraryCalls, graph: ConvolutionGraph, plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans whose relu of NaN is NaN: that of some engines is 0, despite the request. They are run on
    NaN.
    """
    retained = []
    with ExitStack() as stack:
        sizes = [*graph.sizes, max((p.workspace for p in plans), default=0)]
        addresses = [stack.enter_context(calls.driver.scratch(size)) for size in sizes]
        done = min(sizes[0], 1 << 16)
        calls.driver.copy_in(addresses[0], np.full(done // 4, np.nan, np.float32))
        while done < sizes[0]:
            more = min(done, sizes[0] - done)
            calls.driver.copy(addresses[0] + done, addresses[0], more)
            done += more
        found = np.zeros(graph.call.parts.shapes[2][-1], np.float32)
        for plan in plans:
            found[:] = 0
            calls.driver.copy_in(addresses[-2], found)
            plan.start(calls.driver.handle, graph.tensors, addresses[:-1], addresses[-1])
            calls.driver.copy_out(found, addresses[-2])
            if np.isnan(found).all():
                retained.append(plan)
    return retained


def _bind_plan(plan: Plan, tensors: Sequence[int]) -> Callable[..., None]:
    """Return a function that starts a plan on addresses, the last of which is that of temporary memory."""
    return lambda stream, addresses: plan.start(stream, tensors, addresses[:-1], addresses[-1])
