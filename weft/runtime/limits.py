"""What a device can do at best.

No kernel is faster than its operations at the peak, nor than its bytes at the bandwidth of the memory that its data
fits into. The larger of the two times is its limit.
"""

from __future__ import annotations

from weft.base.dataclass import dataclass


@dataclass(frozen=True)
class Limits:
    """Flops a second (float32, a fused multiply-add counts two) of all threads, and for each amount of data the
    bytes a second at which it is read and written. `call_flops` are those of libraries, where they have units of
    their own, and of kernels that use these; `source` says where the figures are from."""

    threads: int
    flops: float
    bandwidths: tuple[tuple[int, float], ...]
    call_flops: float | None = None
    source: str = "as measured here"

    def bandwidth(self, size: float) -> float:
        """Bytes a second for so much data: that of the smallest memory which holds it."""
        return next((rate for held, rate in self.bandwidths if size <= held), self.bandwidths[-1][1])

    @property
    def memory(self) -> float:
        """Bytes a second from main memory."""
        return self.bandwidths[-1][1]

    def seconds(self, flops: float, bytes_moved: float, held: float, by_units: bool = False) -> float:
        """The least time for so many flops and bytes copied, over so many bytes of data, of a kernel; or of a library,
        or a kernel, with units of their own."""
        rate = self.call_flops if by_units and self.call_flops is not None else self.flops
        return max(flops / rate, bytes_moved / self.bandwidth(held))
