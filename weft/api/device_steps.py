"""Run a program for many devices step by step in Python: one device after the other, from collective to collective.

Each device computes by the meaning of operations, in a thread of its own; only one of them runs at a time, in the order
of the mesh, so that every run is the same.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.api.flat import check_callable, get_name, wraps
from weft.api.jit import jit
from weft.base import tree
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError, JaxRuntimeError
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import context
from weft.ir.interpreter import run, storage_array
from weft.ir.jaxpr import Equation
from weft.ir.kinds import ManualCast
from weft.runtime import spmd
from weft.runtime.sharded import ShardedArray, on_device
from weft.sharding.device import Device
from weft.sharding.mesh import Mesh


@dataclass(frozen=True)
class DeviceStop:
    """Device that reached a collective: its index and position along each axis of the mesh, the collective and its
    axes, the line that needs it, the operands of this device, and the number of earlier stops."""

    device: Device
    index: int
    position: dict[Any, int]
    kind: str
    axes: tuple[Any, ...]
    line: str
    operands: list[np.ndarray]
    step: int

    def __str__(self) -> str:
        where = ", ".join(f"{axis}={i}" for axis, i in self.position.items())
        what = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.operands)
        return f"device {self.index} ({where}) step {self.step}: {self.kind} over {self.axes} of {what}   {self.line}"


def devices(
    f: Callable[..., Any], hook: Callable[[DeviceStop], None] | None = None, *, breakpoint: int | None = None
) -> Callable[..., Any]:
    """Run a function of arrays on a mesh device by device. `hook` is called with a `DeviceStop` each time that a device
    reaches a collective, in the order of the mesh; without it the stop is printed. `breakpoint` is the index of a
    device whose collectives enter the debugger, with the `DeviceStop` as `stop`.

    The results are those of `f`, computed by the meaning of each operation: the last bits may differ.
    """
    check_callable(f, "debug.devices")

    def show(stop: DeviceStop) -> None:
        if hook is not None:
            hook(stop)
        if breakpoint == stop.index:
            enter_debugger(stop)
        elif hook is None and breakpoint is None:
            print(stop)

    @boundary
    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        traced = jit(f).trace(*args, **kwargs)
        operands = [*traced._constants, *tree.leaves((args, kwargs))]
        mesh = traced._staged.find_mesh(operands)
        if mesh is None:
            raise ArgumentError(
                f"debug.devices of {get_name(f)} needs arguments, or constraints, on a mesh of several devices.",
                fix="weft.device_put(x, weft.NamedSharding(mesh, P('x')))   before the call",
                at=user_line(),
            )
        if mesh.is_multi_process:
            raise ArgumentError(
                "debug.devices needs a mesh whose devices all belong to this process.",
                received=str(mesh),
                at=user_line(),
            )
        compiled = traced._staged.compile_for_mesh(operands, mesh)
        results = Steps(compiled, mesh, show).run(operands)
        return tree.unflatten(traced.out_tree, results)

    return function


def enter_debugger(stop: DeviceStop) -> None:
    """Enter the debugger with the stop as local variable."""
    builtins.breakpoint()


@dataclass
class Runner:
    """Device with its thread and the state that it waits in."""

    index: int
    position: dict[Any, int]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    equation: Equation | None = None
    operands: list[Any] = field(default_factory=list)
    answer: list[Any] = field(default_factory=list)
    results: list[Any] | None = None
    error: BaseException | None = None
    steps: int = 0


class Steps:
    """Program that runs on one device after the other."""

    def __init__(self, compiled: Any, mesh: Mesh, show: Callable[[DeviceStop], None]) -> None:
        self.compiled, self.mesh, self.show = compiled, mesh, show
        positions = list(np.ndindex(*mesh.axis_sizes))
        self.runners = [
            Runner(i, dict(zip(mesh.axis_names, map(int, own), strict=True))) for i, own in enumerate(positions)
        ]
        self.back = threading.Semaphore(0)
        self.stopped = False

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Run the program; return the results as arrays on the mesh."""
        parts = [spmd.get_shards(a, s) for a, s in zip(args, self.compiled.in_shardings, strict=True)]
        threads = []
        for runner in self.runners:
            local = [storage_array(own[runner.index]) for own in parts]
            local = [x.reshape(v.aval.shape) for x, v in zip(local, self.compiled.jaxpr.invars, strict=True)]
            threads.append(threading.Thread(target=self._device, args=(runner, local), daemon=True))
            threads[-1].start()
        try:
            waiting = list(self.runners)
            while waiting:
                for runner in waiting:
                    self._resume(runner)
                waiting = self._communicate()
        finally:
            self.stopped = True
            for runner in self.runners:
                runner.go.release()
            for thread in threads:
                thread.join()
        return self._assemble_results()

    def _resume(self, runner: Runner) -> None:
        """Run a device to its next collective, or to its end."""
        runner.go.release()
        self.back.acquire()
        if runner.error is not None:
            raise runner.error
        if runner.equation is not None:
            primitive, params = runner.equation.primitive, runner.equation.params
            line = "" if runner.equation.source is None else runner.equation.source.describe()
            device, own = self.mesh.device_tuple[runner.index], [np.asarray(x) for x in runner.operands]
            axes = primitive.named_axes(params)
            self.show(DeviceStop(device, runner.index, runner.position, primitive.name, axes, line, own, runner.steps))
            runner.steps += 1

    def _communicate(self) -> list[Runner]:
        """Execute the collectives whose groups are complete; return the devices that can continue."""
        ready: list[Runner] = []
        for runner in self.runners:
            if runner.equation is None or runner in ready:
                continue
            group = self._group(runner)
            if any(member.equation is not runner.equation for member in group):
                continue
            primitive, params = runner.equation.primitive, runner.equation.params
            operands = [list(column) for column in zip(*(member.operands for member in group), strict=True)]
            results = primitive.group_results(operands, **params)  # type: ignore[attr-defined]
            for i, member in enumerate(group):
                member.answer = [storage_array(own[i]) for own in results]
                ready.append(member)
        for runner in ready:
            runner.equation = None
        stuck = [r for r in self.runners if r.equation is not None]
        if stuck and not ready:
            lines = [f"device {r.index}: {r.equation.primitive.name} at {r.equation.source}" for r in stuck[:4]]  # type: ignore[union-attr]
            raise JaxRuntimeError(
                "All devices must reach the same collectives, and these wait at different ones.\n" + "\n".join(lines)
            )
        return sorted(ready, key=lambda r: r.index)

    def _group(self, runner: Runner) -> list[Runner]:
        """Return the devices of a collective's group, in the order of its axes."""
        assert runner.equation is not None
        axes = runner.equation.primitive.named_axes(runner.equation.params)
        others = [a for a in self.mesh.axis_names if a not in axes]
        group = [r for r in self.runners if all(r.position[a] == runner.position[a] for a in others)]
        return sorted(group, key=lambda r: [r.position[a] for a in axes])

    def _device(self, runner: Runner, local: Sequence[Any]) -> None:
        """Run the local jaxpr on one device, in the device's thread."""

        def meet(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
            primitive = equation.primitive
            if isinstance(primitive, ManualCast):
                return operands
            if not operands:  # the index along an axis
                (axis,) = primitive.named_axes(equation.params)
                return [np.int32(runner.position[axis])]
            runner.equation, runner.operands = equation, list(operands)
            self.back.release()
            runner.go.acquire()
            if self.stopped:
                raise SystemExit
            return runner.answer

        runner.go.acquire()
        if self.stopped:
            return
        context.meet = meet
        try:
            runner.results = run(self.compiled.jaxpr, local)
        except BaseException as error:  # raised again in the calling thread
            runner.error = error
        if not self.stopped:
            self.back.release()

    def _assemble_results(self) -> list[Any]:
        """Assemble the results of all devices to sharded arrays."""
        found = []
        for k, (aval, sharding) in enumerate(zip(self.compiled.out_types, self.compiled.out_shardings, strict=True)):
            shape = sharding.shard_shape(aval.shape)
            values = [np.asarray(r.results[k]).reshape(shape) for r in self.runners]  # type: ignore[index]
            parts = [on_device(v, aval, d) for v, d in zip(values, self.mesh.device_tuple, strict=True)]
            found.append(ShardedArray(aval, sharding, parts))
        return found
