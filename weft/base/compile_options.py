"""Settings that compilation depends on, as one value.

`get_compile_options` reads the settings of the calling thread once, where a program is requested; the value is passed
down beside the `Target`. It is a key: equal settings give the same object.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.settings import config

logger = logging.getLogger("weft")


@dataclass(frozen=True, eq=False)
class CompileOptions:
    """Options of the compiler; the default is that of the settings.

    Args:
        verifies: check the form of each jaxpr, Program and kernel (`enable_checks`).
        checks_all: check values at run time (`checks="all"`).
        debug_nans, debug_infs: find the first NaN or infinity.
        overlap_bytes: limit on the results of collectives in flight while a device computes.
        tracing: values of all settings that tracing reads, for definitions that are traced while compiling; () leaves
            those of the thread.
    """

    verifies: bool = False
    checks_all: bool = False
    debug_nans: bool = False
    debug_infs: bool = False
    overlap_bytes: int = 1 << 26
    tracing: tuple[Any, ...] = ()

    @property
    def debugs(self) -> bool:
        """Whether the first NaN or infinity is searched for."""
        return self.debug_nans or self.debug_infs

    @property
    def tests_values(self) -> bool:
        """Whether results of operations are tested for NaN or infinity."""
        return self.debugs or self.checks_all

    def in_force(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which tracing reads these settings in this thread."""
        if not self.tracing or config.key() is self.tracing:
            return contextlib.nullcontext()
        return config.as_of(self.tracing)


DEFAULT = CompileOptions()

# Options by the identity of a key of settings, of which there is one object per value for the life of the process; and
# by their values, since several keys give equal options.
_by_key: dict[int, CompileOptions] = {}
_by_values: dict[tuple[Any, ...], CompileOptions] = {}


def get_compile_options() -> CompileOptions:
    """Return the options that the settings of this thread define; equal options are the same object."""
    key = config.call_key()
    found = _by_key.get(id(key))
    if found is None:
        values = (
            config.enable_checks,
            config.checks == "all",
            config.debug_nans,
            config.debug_infs,
            config.overlap_bytes,
            config.key(),
        )
        found = _by_key[id(key)] = _by_values.setdefault(values, CompileOptions(*values))
    return found


def log_compilation(text: str) -> None:
    """Log what the compiler decided, if `log_compiles` is on."""
    if config.log_compiles:
        logger.warning("%s", text)
