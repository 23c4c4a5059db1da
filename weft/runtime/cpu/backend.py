"""The backend of CPUs: programs run in the calling thread and in the threads of one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.settings import config
from weft.compiler.compilation import Flat
from weft.compiler.load import compilation_of
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr
from weft.runtime.cpu.executable import Executable
from weft.sharding.device import Device


class CpuBackend:
    """All CPU devices of a process are of the machine that it runs on, and share their code."""

    platform = "cpu"

    def __init__(self) -> None:
        self._target = host()

    def target(self, device: Device) -> Target:
        """The machine that programs for a device are compiled for."""
        return self._target

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Executable] | None = None,
        flat: str = "no",
    ) -> Executable:
        """The program, whose constants are arguments, as an executable."""
        tuner = _tune if config.autotune_milliseconds else None
        target = self.target(device)
        return Executable(compilation_of(jaxpr, donated, target, again is not None, tuner, Flat(flat)), again)


def _tune(fused: Jaxpr, target: Target) -> None:
    """Measure the contractions of a program that is about to be compiled."""
    # What measures is loaded with the first program that is compiled, not with those that are read from disk.
    from weft.runtime.cpu.tuning import tune

    tune(fused, target)
