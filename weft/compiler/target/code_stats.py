"""Statistics of getting a program's code: compiled, loaded from disk or reused."""

from __future__ import annotations

from dataclasses import field

from weft.base.dataclass import dataclass


class CodeIsGone(Exception):
    """Raised if a kernel is known by its name only and the disk cache no longer has its code."""


@dataclass
class CodeStats:
    """Cost of getting a program's code: seconds by stage, and how many kernels were compiled, linked from disk, or
    already in the process."""

    seconds: dict[str, float] = field(default_factory=dict)
    compiled: int = 0
    from_disk: int = 0
    reused: int = 0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def summary(self) -> str:
        """One line of text with all counts and times."""
        sources = f"{self.compiled} compiled, {self.from_disk} from disk, {self.reused} in the process already"
        return "; ".join([sources, ", ".join(f"{name} {took * 1e3:.3f} ms" for name, took in self.seconds.items())])

    @property
    def label(self) -> str:
        """Name of this stage in reports."""
        return "code"
