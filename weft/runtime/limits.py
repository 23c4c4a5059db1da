"""Peak performance of a device, for lower bounds on run time.

No kernel is faster than its operations at the peak, nor than its bytes at the bandwidth of the smallest memory that
holds its data. The larger of the two times is its limit.
"""

from __future__ import annotations

from weft.base.dataclass import dataclass


@dataclass(frozen=True)
class Limits:
    """Peak rates of a device, over all threads.

    `flops`: float32 operations a second (a fused multiply-add counts two). `bandwidths`: pairs of a data size and the
    bytes a second at which that much data is read and written, by ascending size. `call_flops`: the rate of libraries
    with units of their own (such as tensor cores), and of kernels that use these. `source`: origin of the figures.
    """

    threads: int
    flops: float
    bandwidths: tuple[tuple[int, float], ...]
    call_flops: float | None = None
    source: str = "as measured here"

    def bandwidth(self, size: float) -> float:
        """Return the bandwidth of the smallest memory that holds a working set of `size` bytes."""
        return next((rate for held, rate in self.bandwidths if size <= held), self.bandwidths[-1][1])

    @property
    def memory(self) -> float:
        """Bytes a second from main memory."""
        return self.bandwidths[-1][1]

    def seconds(self, flops: float, bytes_moved: float, held: float, by_units: bool = False) -> float:
        """Return the least time for `flops` operations and `bytes_moved` bytes over a working set of `held` bytes.

        `by_units`: a library, or a kernel that uses its units, computes it.
        """
        rate = self.call_flops if by_units and self.call_flops is not None else self.flops
        return max(flops / rate, bytes_moved / self.bandwidth(held))
