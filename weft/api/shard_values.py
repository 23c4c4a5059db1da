"""Values inside of an eager `shard_map`: what `print`, `if` and `float` see of a value on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.settings import Scope, config, states
from weft.ir.context import EVALUATION, context
from weft.ir.interpreter import replay
from weft.ir.types import ArrayType, get_aval
from weft.ir.varying import apply_casts, casts_to, manual_state
from weft.primitives.movement.shape import broadcast_in_dim
from weft.sharding.mesh import Mesh
from weft.trace.stage import Observer, StagedTracer, StagingTrace
from weft.trace.tracer import Tracer, type_text

Run = Callable[[Callable[..., Any]], Any]


def is_eager(leaves: Sequence[Any]) -> bool:
    """Return whether a call outside of all traces has only arguments with values."""
    return context.trace is EVALUATION and not any(isinstance(leaf, Tracer) for leaf in leaves)


class DeviceValues(Observer):
    """The values that a body computes on the devices of a mesh, while it is traced for a call with these arguments.

    A value is computed when Python asks for it: the operations recorded so far that it depends on run as a `shard_map`
    of their own, so a body that asks for nothing is traced once and runs once. A value that depends on an operation
    with effects (`io_callback`) has none here, because the effects would happen twice.
    """

    def __init__(self, mesh: Mesh, manual: frozenset[Any], checked: bool, run: Run):
        """`run(body)` calls `shard_map` of a body with the arguments of the call; its result is split along a new
        first dimension over all manual axes."""
        self.mesh, self.manual, self.checked, self.run = mesh, manual, checked, run
        self.outside = (context.axes, context.manual, context.device_axes, config.mesh)
        self.trace: StagingTrace | None = None
        self.arguments: Sequence[StagedTracer] = ()

    def begin(self, trace: StagingTrace, arguments: Sequence[StagedTracer]) -> None:
        self.trace, self.arguments = trace, arguments

    def compute(self, tracer: StagedTracer) -> np.ndarray | None:
        """Compute a value; return those of all devices along a new first dimension, or None if it has none here."""
        aval = tracer.aval
        if not isinstance(aval, ArrayType) or aval.manual.unreduced or not isinstance(aval.dtype, np.dtype):
            return None
        assert self.trace is not None
        jaxpr, _ = self.trace.slice(self.arguments, tracer)
        if jaxpr.effects:
            return None
        axes = tuple(a for a in self.mesh.axis_names if a in self.manual)

        def body(*parts: Any) -> Any:
            (value,) = replay(jaxpr, *parts)
            shape = value.aval.shape
            dimensions = tuple(range(1, len(shape) + 1))
            value = broadcast_in_dim(value, shape=(1, *shape), broadcast_dimensions=dimensions)
            return apply_casts(value, casts_to(manual_state(get_aval(value)), frozenset(axes), frozenset()))

        inside = context.axes, context.manual, context.device_axes, context.trace
        context.axes, context.manual, context.device_axes, mesh = self.outside
        context.trace = EVALUATION
        try:
            with Scope(states["mesh"], mesh):
                return np.asarray(self.run(body))
        finally:
            context.axes, context.manual, context.device_axes, context.trace = inside

    def value(self, tracer: StagedTracer) -> Any:
        if getattr(tracer.aval, "vma", None):  # differs between devices
            return None
        values = self.compute(tracer)
        if values is None:
            return None
        # Without check_vma the type does not say whether devices share the value.
        shared = self.checked or np.array_equal(values, np.broadcast_to(values[:1], values.shape))
        return values[0] if shared else None

    def text(self, tracer: StagedTracer) -> str:
        values = self.compute(tracer)
        if values is None:
            return f"JitTracer({type_text(tracer.aval)})"
        names = [a for a in self.mesh.axis_names if a in self.manual]
        sizes = tuple(self.mesh.shape[a] for a in names)
        order = names + [a for a in self.mesh.axis_names if a not in self.manual]
        devices = self.mesh.devices.transpose([self.mesh.axis_names.index(a) for a in order]).reshape(*sizes, -1)
        shown = zip(np.ndindex(sizes), values, strict=True)
        title = ", ".join(map(str, names))
        return "\n".join(f"On {devices[at][0]} at mesh coordinates ({title}) = {at}:\n{value}\n" for at, value in shown)
