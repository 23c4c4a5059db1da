"""Arrays over device memory of other libraries, by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import overrides
from weft.ir.types import array_type
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.shape import transpose
from weft.runtime.array import ConcreteArray, array_at, put
from weft.runtime.device import get_placement, local_devices
from weft.runtime.dlpack import CPU_DEVICE, from_capsule
from weft.runtime.memory_backend import memory_backends


def find_platform_name(external: Any) -> str | None:
    """Return the platform in whose memory another library's array is; None for the host and for unknown memory."""
    kind = int(external.__dlpack_device__()[0])
    if kind == CPU_DEVICE[0]:
        return None
    return next((name for name in memory_backends.names() if memory_backends.get(name).dlpack_type == kind), None)


def from_host(external: Any) -> np.ndarray | None:
    """Return another library's array as a NumPy array over its memory, or None if it is in the memory of a device."""
    try:
        return None if find_platform_name(external) is not None else from_capsule(external)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # libraries raise different errors
        raise ArgumentTypeError(
            "This array cannot be exchanged by DLPack: its dtype, layout or device is not supported.",
            received=str(error),
            fix="convert it in its own library to a dense array on the CPU, of a dtype that "
            "weft.dlpack.is_supported_dtype knows; in PyTorch x.detach().resolve_conj().to_dense().cpu()",
        ) from error


def from_device(external: Any, copy: bool | None = None) -> ConcreteArray:
    """Return an array over device memory of another library's array, committed to that device.

    It is copied if `copy` is True, or if necessary: for axes in another order, 64-bit types while these are off, or an
    address with insufficient alignment.
    """
    platform = find_platform_name(external)
    assert platform is not None
    index = int(external.__dlpack_device__()[1])
    backend = memory_backends.get(platform)
    device = next((d for d in local_devices(platform) if backend.dlpack_device(d)[1] == index), None)
    if device is None:
        raise ArgumentError(
            f"The array must be on a {platform.upper()} of this process.",
            received=f"an array on {platform.upper()} {index}",
            fix="weft.distributed.initialize(local_device_ids=[...]) with this GPU, or copy it to the host first",
        )
    placement = get_placement(device, True)
    value = from_capsule(external, backend.get_stream(device))
    axes = sorted(range(value.ndim), key=lambda axis: (-value.strides[axis], axis))
    stored = value if value.flags.c_contiguous else value.transpose(axes)
    if not stored.flags.c_contiguous:
        raise ArgumentTypeError(
            "This array must be contiguous; it is a view with gaps between its elements.",
            received=f"shape {value.shape}, strides {tuple(s // value.itemsize for s in value.strides)}",
            fix="make it contiguous first: x.contiguous() in PyTorch, cupy.ascontiguousarray(x) in CuPy",
        )
    wanted = dtypes.canonicalize_dtype(value.dtype)
    buffer, memory, pointer = backend.borrow(stored, device)
    shared = stored is value and wanted == value.dtype and pointer == value.__array_interface__["data"][0]
    if copy is False and not shared:
        raise ArgumentError(
            "This array cannot be imported without a copy; got copy=False.",
            received=f"{value.dtype} of shape {value.shape}, strides {value.strides}, at {pointer % 256} modulo 256",
            fix="leave out copy",
        )
    array = array_at(placement, buffer, array_type(stored.shape, value.dtype), memory, pointer)
    with overrides(enable_x64=True):
        if stored is not value:
            array = transpose(array, permutation=tuple(int(i) for i in np.argsort(axes)))
        if wanted != value.dtype:
            array = convert_element_type(array, new_dtype=wanted, weak_type=False)
    return put(array, placement, may_alias=False) if copy and shared else array
