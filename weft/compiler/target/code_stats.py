"""What it takes to get the code of a program."""

from __future__ import annotations

from dataclasses import field

from weft.base.dataclass import dataclass


class CodeIsGone(Exception):
    """There is no code on disk for a kernel of which only the name is known."""


@dataclass
class CodeStats:
    """What it took to get the code of a program: seconds by stage, and how many kernels were compiled, how many linked
    from disk, and how many were in the process already."""

    seconds: dict[str, float] = field(default_factory=dict)
    compiled: int = 0
    from_disk: int = 0
    reused: int = 0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def summary(self) -> str:
        """In a line."""
        sources = f"{self.compiled} compiled, {self.from_disk} from disk, {self.reused} in the process already"
        return "; ".join([sources, ", ".join(f"{name} {took * 1e3:.3f} ms" for name, took in self.seconds.items())])

    @property
    def label(self) -> str:
        """What code it is."""
        return "code"
