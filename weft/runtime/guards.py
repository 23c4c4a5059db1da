"""Guards: settings that raise, or log, on unexpected executions and transfers.

`no_execution` and `thread_guard` restrict execution, `transfer_guard_*` transfers between host and devices. All of them
are part of the key of a call, so that calls check nothing while they are off.
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
from weft.ir.types import get_aval
from weft.runtime.held import HeldArray
from weft.sharding.device import Device

logger = logging.getLogger("weft")
_FIXES = {
    "host_to_device": "weft.device_put(x), which says that it is meant; or weft.transfer_guard('allow')",
    "device_to_device": "weft.device_put(x, device), which says that it is meant; or weft.transfer_guard('allow')",
    "device_to_host": "weft.device_get(x), which says that it is meant; or weft.transfer_guard('allow')",
}


class _Explicit(threading.local):
    """Flag for transfers that the user requested explicitly."""

    now = False


_explicit = _Explicit()


@contextlib.contextmanager
def explicit_transfers() -> Iterator[None]:
    """Mark the transfers in a block as explicit: the user requested them by `device_put` or `device_get`."""
    before, _explicit.now = _explicit.now, True
    try:
        yield
    finally:
        _explicit.now = before


def are_on() -> bool:
    """Return whether any guard checks calls."""
    return (
        config.no_execution
        or config.thread_guard
        or config.transfer_guard_host_to_device != "allow"
        or config.transfer_guard_device_to_device != "allow"
    )


def check_transfer(direction: str, what: str) -> None:
    """Report a transfer to the guard of its direction, which may raise or log."""
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
    """Check a call on operands that runs on a device against the guards.

    `with_scalars` says that Python and NumPy numbers count as transferred; in an eager operation they are part of it.
    """
    if config.no_execution:
        raise JaxRuntimeError(
            f"{name} would run, but the setting no_execution is on.",
            fix="weft.eval_shape or jit(f).lower(...) to look at types only",
            at=user_line(),
        )
    if config.thread_guard and thread_guard.owner != threading.get_ident():
        raise JaxRuntimeError(
            f"{name} must run in the thread that entered thread_guard, and not in another one.",
            received=f"thread {threading.current_thread().name!r}",
            fix="run it in the thread that entered weft.thread_guard(True)",
            at=user_line(),
        )
    for operand in operands:
        if isinstance(operand, HeldArray):
            there = getattr(operand, "device", None)
            if isinstance(there, Device) and there != device:
                check_transfer("device_to_device", f"{operand.aval.short()} from {there!r} to {device!r} for {name}")
        elif with_scalars or np.ndim(operand):
            check_transfer("host_to_device", f"{get_aval(operand).short()}, an operand of {name}")
