"""Copying arrays between devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.primitive import Params, Sample, primitive
from weft.ir.zeros import Zero
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.shape import ramp
from weft.sharding.device import Device


@primitive
class device_put(Elementwise):
    """Operand on a device. `source` is the device that it comes from, where that is known: its cotangent goes back
    there. In compiled code it is the operand itself: that runs on one device."""

    kinds = "biufck"
    linear = (0,)
    identity = True
    weight = 0
    introduces = ()
    keeps_nan = "all"

    def destination(self, params: Params) -> Device | None:
        result: Device | None = params["device"]
        return result

    def eval(self, x: Any, *, device: Device | None, source: Device | None) -> Any:
        return x

    def emit(self, builder: Any, x: Any, **params: Any) -> Any:
        return x

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, device: Any, source: Any) -> Any:
        tangent = tangents[0]
        if type(tangent) is Zero:
            return Zero.of(out.aval)
        origin = getattr(x, "device", None)  # traced values have none
        return device_put(tangent, device=device, source=origin if isinstance(origin, Device) else source)

    def transpose(self, cotangent: Any, x: Any, *, device: Any, source: Any) -> Sequence[Any]:
        return [cotangent if source is None else device_put(cotangent, device=source, source=device)]

    def samples(self) -> Any:
        yield Sample(ramp(3), device=None, source=None)
