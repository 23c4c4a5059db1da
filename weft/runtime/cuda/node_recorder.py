"""Capture of loops and branches as conditional nodes of a program's graph (`graph_plan.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.compiler.program.ir import Branch, Loop, Slot, Step, While
from weft.runtime.cuda.graph_plan import Counted

if TYPE_CHECKING:
    from weft.runtime.cuda.executable import Run


class NodeRecorder:
    """Capture of the conditional nodes of a run. `looked` is the address of a word: their last check for interrupts."""

    def __init__(self, run: Run, looked: int) -> None:
        self._run = run
        self._interrupts = (looked, run.driver.interrupts.address)
        # Steps that the kernels of nodes execute: slices have the addresses of their copies.
        self._done: set[Step] = set()

    def records(self, step: Step) -> bool:
        """Capture a step if it is a node, or nothing if the kernel of a node executes it; return False for other
        steps.
        """
        if step in self._done:
            return True
        node = self._run.prepared.nodes.get(step)
        if node is None:
            return False
        match step:
            case While():
                self._while(step, node.code.symbol)
            case Branch():
                self._branch(step, node.code.symbol)
            case Loop():
                assert isinstance(node, Counted)
                self._loop_with_count(step, node)
        return True

    def _launch(self, symbol: str, parameters: Sequence[int]) -> None:
        self._run.work.launch(self._run.prepared.entry(symbol), parameters)

    def _node(self, handle: int, kind: str, bodies: Sequence[Callable[[], None]]) -> None:
        """Capture a node with bodies, whose steps are captured in another stream."""
        run, outer = self._run, self._run.work

        def inside(body: Callable[[], None], stream: Any) -> None:
            run.work = stream
            try:
                body()
            finally:
                run.work = outer

        outer.conditional(handle, kind, [partial(inside, body) for body in bodies])

    def _while(self, step: While, symbol: str) -> None:
        run, handle = self._run, self._run.work.condition()

        def decide() -> None:
            run.steps(step.condition)
            self._launch(symbol, [run.address(step.predicate), handle, *self._interrupts])

        def body() -> None:
            run.steps(step.body)
            decide()

        decide()
        self._node(handle, "while", [body])

    def _branch(self, step: Branch, symbol: str) -> None:
        run, handle = self._run, self._run.work.condition()
        self._launch(symbol, [run.address(step.index), handle])
        self._node(handle, "switch", [partial(run.steps, branch) for branch in step.branches])

    def _loop_with_count(self, step: Loop, node: Counted) -> None:
        run, handle = self._run, self._run.work.condition()
        memory = run.temporaries + run.prepared.node_offset
        state, count = memory + node.state, step.count
        parameters = [state, run.address(count) if isinstance(count, Slot) else count, handle, *self._interrupts]
        for each, copied, offset in zip(node.slices, node.code.slices, node.copies, strict=True):
            elements = each.target.size // copied.width
            parameters += [run.address(each.base), memory + offset, each.stride, elements]
        parameters += [run.address(each.target) for each in node.counts]
        for each, offset in zip(node.slices, node.copies, strict=True):
            assert each.target.register is not None
            run.registers[each.target.register.index] = memory + offset
        self._done |= {*node.slices, *node.counts}

        def iterations(length: int) -> None:
            for _ in range(length):
                run.steps(step.body)
                self._launch(node.code.symbol, parameters)

        run.work.fill(state, 8)
        self._launch(node.code.symbol, parameters)
        if isinstance(count, int):
            iterations(count % node.together)
        self._node(handle, "while", [partial(iterations, node.together)])
