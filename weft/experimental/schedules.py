"""Schedules of programs: the choices that, beside their text, determine the bits that they compute.

A large matmul is computed by kernels of Weft or by a library, whichever was quicker when it was first compiled on this
machine; that is pinned in the folder of the cache. What has to continue with the same bits when the folder is another
one takes its pins along.
"""

from collections.abc import Mapping as _Mapping

from weft.base.publish import publish as _publish
from weft.compiler import schedules as _schedules


def get_pins() -> dict[str, str]:
    """Return the pinned schedules of all programs that this process has compiled or loaded so far.

    Returns:
        A dict of JSON, for `set_pins`.

    >>> from weft.experimental import schedules
    >>> schedules.set_pins(schedules.get_pins())
    """
    return _schedules.pins()


def set_pins(pins: _Mapping[str, str]) -> None:
    """Use the schedules that `get_pins` returned for all programs that this process compiles from now on, in place of
    those pinned in the folder of the cache, which stays unchanged. They are only valid for the same installation of
    Weft.

    Args:
        pins: what `get_pins` returned.
    """
    _schedules.pin_here(pins)


_publish(__name__)
