"""Placement of results: the device that operands are committed to, or else the default one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import ArgumentError
from weft.base.source import user_line
from weft.ir.at_sizes import general_jaxpr
from weft.ir.jaxpr import Jaxpr, Var
from weft.runtime.array import ConcreteArray, PlacedArray, put
from weft.runtime.device import CPU, Placement, default_placement, get_placement
from weft.sharding.mesh import Mesh


def common_placement(
    operands: Sequence[Any], what: str, name: Callable[[int], str], used: Sequence[bool] | None = None
) -> Placement:
    """Return the placement of results of operands; raise if they are committed to different devices.

    `what` names the caller and `name` each operand, for the error. Only operands that are `used` count.
    """
    first: int | None = None
    for index, a in enumerate(operands):
        if type(a) is not PlacedArray or not a._placement.committed or (used is not None and not used[index]):
            continue
        if first is None:
            first = index
        elif a._placement is not operands[first]._placement:
            one, other = operands[first].device, a.device
            named = "" if one.platform == CPU.platform else repr(one.platform)
            raise ArgumentError(
                f"{what}: all arguments must be committed to the same device.",
                received=f"{name(first)}, {operands[first].aval.short()} on {one!r}, and {name(index)}, "
                f"{a.aval.short()} on {other!r}",
                fix=f"weft.device_put({name(index)}, {name(first)}.device)"
                if name(first).isidentifier() and name(index).isidentifier()
                else f"weft.device_put(x, weft.devices({named})[{one.id}])   for {name(index)}",
                at=user_line(),
            )
    return default_placement() if first is None else operands[first]._placement


def check_on_mesh(
    operands: Sequence[Any], mesh: Mesh, what: str, name: Callable[[int], str], used: Sequence[bool] | None = None
) -> None:
    """Raise if an operand of a program on a mesh is committed to a single device, unless the mesh has no other."""
    for index, a in enumerate(operands):
        if type(a) is PlacedArray and a._placement.committed and (used is None or used[index]):
            if mesh.device_tuple == (a.device,):
                continue
            raise ArgumentError(
                f"{what} runs on a mesh, but {name(index)} is committed to a single device.",
                received=f"{a.aval.short()} on {a.device!r}, and {mesh}",
                fix=f"weft.device_put({name(index)}, weft.NamedSharding(mesh, spec))",
                at=user_line(),
            )


def used_arguments(jaxpr: Jaxpr) -> tuple[bool, ...]:
    """Return a flag for each argument: whether the jaxpr uses it."""
    jaxpr = general_jaxpr(jaxpr)

    def find() -> tuple[bool, ...]:
        read: set[Any] = {v for v in jaxpr.outvars if isinstance(v, Var)}
        for equation in jaxpr.eqns:
            read.update(v for v in equation.invars if isinstance(v, Var))
        return tuple(v in read for v in jaxpr.invars)

    return jaxpr.memoize("used arguments", find)


def put_on_device(operands: Sequence[Any], placement: Placement) -> list[Any]:
    """Copy the arrays among operands that are on other devices to the device of a placement."""
    return [
        put(a, placement) if isinstance(a, ConcreteArray) and a._placement.device is not placement.device else a
        for a in operands
    ]


def uncommit(value: Any) -> Any:
    """Return an uncommitted array over the same memory; other values unchanged.

    A constant of a program does not determine where it runs.
    """
    if type(value) is not PlacedArray:
        return value
    if not value._placement.memory_backend.reads_host:  # its memory is that of its device, and of no other
        return put(value, get_placement(value._placement.device, False))
    return ConcreteArray(value._buffer, value.aval, value._memory, value._pointer)
