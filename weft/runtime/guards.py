"""Guards: settings that raise, or log, where something runs or a value moves that the user did not expect.

`no_execution` and `thread_guard` are about running, `transfer_guard_*` about values that go between host and devices.
All of them are settings that calls depend on, so that nothing is looked at while they are off.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.errors import JaxRuntimeError
from weft.base.settings import config, thread_guard
from weft.base.source import user_line
from weft.ir.types import type_of
from weft.runtime.held import HeldArray
from weft.sharding.device import Device

logger = logging.getLogger("weft")
_FIXES = {
    "host_to_device": "weft.device_put(x), which says that it is meant; or weft.transfer_guard('allow')",
    "device_to_device": "weft.device_put(x, device), which says that it is meant; or weft.transfer_guard('allow')",
    "device_to_host": "weft.device_get(x), which says that it is meant; or weft.transfer_guard('allow')",
}


class _Explicit(threading.local):
    """Whether the user asked for the transfers that happen now."""

    now = False


_explicit = _Explicit()


@contextlib.contextmanager
def explicit_transfers() -> Iterator[None]:
    """A block whose transfers the user asked for, by `device_put` or `device_get`."""
    before, _explicit.now = _explicit.now, True
    try:
        yield
    finally:
        _explicit.now = before


def are_on() -> bool:
    """Whether calls are looked at."""
    return (
        config.no_execution
        or config.thread_guard
        or config.transfer_guard_host_to_device != "allow"
        or config.transfer_guard_device_to_device != "allow"
    )


def transferred(direction: str, what: str) -> None:
    """Tell the guard of a direction that a value moves."""
    level = getattr(config, f"transfer_guard_{direction}")
    if level == "allow" or (_explicit.now and not level.endswith("_explicit")):
        return
    at = user_line()
    if level.startswith("log"):
        logger.warning("%s", f"{direction.replace('_', '-')} transfer of {what}" + (f" at {at}" if at else ""))
        return
    raise JaxRuntimeError(
        f"Disallowed {direction.replace('_', '-')} transfer: the setting transfer_guard_{direction} is {level!r}.",
        received=what,
        fix=_FIXES[direction],
        at=at,
    )


def check_call(name: str, operands: Sequence[Any], device: Device, with_scalars: bool) -> None:
    """What guards say of a call on operands that runs on a device. `with_scalars` says that a Python or NumPy number
    counts as a value that is transferred; in an eager operation it is a part of the operation."""
    if config.no_execution:
        raise JaxRuntimeError(
            f"{name} would run, but the setting no_execution is on.",
            fix="weft.eval_shape or jit(f).lower(...) to look at types only",
            at=user_line(),
        )
    if config.thread_guard and thread_guard.owner != threading.get_ident():
        raise JaxRuntimeError(
            f"{name} would run in another thread than the one that may: the setting thread_guard is on.",
            received=f"thread {threading.current_thread().name!r}",
            fix="run it in the thread that entered weft.thread_guard(True)",
            at=user_line(),
        )
    for operand in operands:
        if isinstance(operand, HeldArray):
            there = getattr(operand, "device", None)
            if isinstance(there, Device) and there != device:
                transferred("device_to_device", f"{operand.aval.short()} from {there!r} to {device!r} for {name}")
        elif with_scalars or np.ndim(operand):
            transferred("host_to_device", f"{type_of(operand).short()}, an operand of {name}")
