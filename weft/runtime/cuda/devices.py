"""The NVIDIA GPUs of all processes, as the driver enumerates them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.base.lazy import lazy
from weft.runtime.processes import world
from weft.runtime.processes.gpus import Gpu, assign_gpus
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.runtime.cuda import driver
else:
    driver = lazy("weft.runtime.cuda.driver")


class CudaPlatform:
    """The GPUs of all processes. The driver is loaded, and counts them, when they are first used."""

    def __init__(self) -> None:
        self._found: tuple[Device, ...] | None = None
        self._first_id = 0
        # The driver's indices of the visible GPUs that this process uses, if they were specified.
        self._chosen: tuple[int, ...] | None = None

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs. With several processes the first call is collective: they exchange what they see."""
        found = self._found
        if found is None:
            with world.current().lock:
                if self._found is None:
                    self._found = self._enumerate()
                found = self._found
        return found

    def _enumerate(self) -> tuple[Device, ...]:
        seen = [Gpu(driver.get_name(i), driver.get_uuid(i)) for i in range(driver.count())]
        owned = assign_gpus(seen, self._chosen)
        pairs = [(process, gpu, index) for process, gpus in enumerate(owned) for index, gpu in gpus.items()]
        return tuple(Device(i, "gpu", p, gpu.name, index) for i, (p, gpu, index) in enumerate(pairs, self._first_id))

    def are_enumerated(self) -> bool:
        """Return whether the GPUs have been enumerated."""
        return self._found is not None

    def join(self, counts: Sequence[int], rank: int, chosen: tuple[int, ...] | None) -> None:
        """Have the GPUs enumerated again at the next use, with all processes, under new ids."""
        self._first_id = max((d.id + 1 for d in self._found or ()), default=self._first_id)
        self._found, self._chosen = None, chosen

    def absence(self) -> str:
        """Return a sentence for users that says why there are no GPUs."""
        return (
            "There is no GPU here: NVIDIA's driver (libcuda) is not installed, or finds none (see nvidia-smi). "
            "weft.devices() has the CPU devices."
        )
