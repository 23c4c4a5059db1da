"""Private names of JAX that libraries use, with equivalent objects of Weft; `manifest.txt` locates each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np

from weft.api.callbacks import effects_barrier
from weft.api.devices import devices, process_count, process_index
from weft.base.dtypes import DTYPES
from weft.base.settings import num_cpu_devices
from weft.base.source import is_internal, mark_internal
from weft.base.tracebacks import boundary as api_boundary
from weft.base.tree import flatten_one_level, prefix_errors
from weft.base.tree_nodes import KINDS
from weft.compat.missing import fail
from weft.ir.context import EVALUATION, context
from weft.numpy.scalar_types import ScalarType as _ScalarMeta
from weft.primitives.random.bits import KeyDtype as KeyTy

__all__ = ["KeyTy", "_ScalarMeta", "api_boundary", "flatten_one_level", "prefix_errors"]

# ------------------------------------------------------------------------------------------------- traceback_util

_exclude_paths: list[str] = []


def register_exclusion(path: str) -> None:
    """Leave a library's file out of what errors name as the user's line."""
    _exclude_paths.append(path)
    mark_internal(path)


def include_frame(frame: FrameType) -> bool:
    """Return whether a traceback shows a frame."""
    return not is_internal(frame.f_code.co_filename)


# ------------------------------------------------------------------------------------------------------- tree_util


class _Registry(Mapping[type, Any]):
    """Registry of the types that are nodes of trees."""

    def __getitem__(self, kind: type) -> Any:
        return KINDS[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


_registry = _Registry()

# ------------------------------------------------------------------------------------------------------------ core


def trace_state_clean() -> bool:
    """Return whether no function is being traced."""
    return context.trace is EVALUATION


# ---------------------------------------------------------------------------------------------------------- dtypes

DType = np.dtype


class ExtendedDType:
    """Base class of dtypes that libraries define. They may be defined; arrays of them cannot be made, since Weft does
    not know their rules."""


def supports_inf(dtype: Any) -> bool:
    """Return whether a float type has infinities."""
    return bool(np.isinf(np.asarray(np.inf).astype(DTYPES[np.dtype(dtype).name])))


# ------------------------------------------------------------------------------------------------------- execution


class TypedNdArray:
    """JAX's class of constants that carry a weak type; Weft has none, so nothing is an instance."""


def wait_for_tokens() -> None:
    """Wait until the effects of what was started are done."""
    effects_barrier()


class _GlobalState:
    """Value of `distributed.global_state`: the index of this process, without a client of JAX's service."""

    client = None
    service = None
    coordinator_address = None

    @property
    def process_id(self) -> int:
        """Index of this process."""
        return process_index()

    @property
    def num_processes(self) -> int:
        """Number of processes."""
        return process_count()


global_state = _GlobalState()


class _Backend:
    """Result of `xla_bridge.get_backend`: a platform and its devices."""

    def __init__(self, platform: str) -> None:
        self.platform = platform

    def devices(self) -> list[Any]:
        """Return the devices of the platform."""
        return devices(self.platform)

    local_devices = devices

    def device_count(self) -> int:
        """Return the number of devices."""
        return len(self.devices())

    local_device_count = device_count


def get_backend(platform: str | None = None) -> _Backend:
    """Return the backend of a platform, or of the first device."""
    return _Backend(platform or devices()[0].platform)


class _Backends(Mapping[str, _Backend]):
    """Backends by platform; empty until devices are first used, since their count may still change."""

    def _names(self) -> dict[str, None]:
        return dict.fromkeys(device.platform for device in devices()) if num_cpu_devices.is_fixed else {}

    def __getitem__(self, platform: str) -> _Backend:
        if platform not in self._names():
            raise KeyError(platform)
        return _Backend(platform)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


_backends = _Backends()


def backend_compile_and_load(*args: Any, **kwargs: Any) -> Any:
    """Raise: JAX calls XLA by this function, and Weft never does."""
    fail("jax._src.compiler.backend_compile_and_load", "Weft compiles programs itself")
