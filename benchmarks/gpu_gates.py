"""Goals for a GPU of Hopper's (H100, H200) in each line of `gpu.py`, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MICRO, MILLI = 1e-6, 1e-3


@dataclass(frozen=True)
class Gate:
    """Goal of a line: at most `at_most` seconds, a rate of at least `at_least` (GB/s or TFLOP/s, as the line has it),
    or less than the times of these libraries."""

    at_most: float | None = None
    at_least: float | None = None
    ahead_of: tuple[str, ...] = ()

    def text(self, unit: str) -> str:
        """Format the goal for a table."""
        if self.at_most is not None:
            return f"at most {duration(self.at_most)}"
        if self.at_least is not None:
            return f"at least {self.at_least:.0f} {unit}"
        return f"ahead of {' and '.join(self.ahead_of)}"

    def is_met(self, own: float, rate: float | None, others: Mapping[str, float]) -> bool | None:
        """Return whether a time, with its rate and the times of other libraries, meets the goal; None if a library of
        the goal was not measured."""
        if self.at_most is not None:
            return own <= self.at_most
        if self.at_least is not None:
            return rate is not None and rate >= self.at_least
        if any(library not in others for library in self.ahead_of):
            return None
        return all(own <= others[library] for library in self.ahead_of)


def duration(seconds: float) -> str:
    """Format a time with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _at_most(seconds: float) -> Gate:
    return Gate(at_most=seconds)


def _at_least(rate: float) -> Gate:
    return Gate(at_least=rate)


AHEAD_OF_JAX = Gate(ahead_of=("jax",))
AHEAD_OF_BOTH = Gate(ahead_of=("jax", "torch"))
GATES: dict[str, Gate] = {
    "dispatch of a tiny program": _at_most(10 * MICRO),
    "dispatch of 40 arrays": _at_most(40 * MICRO),
    "x + x outside of programs": _at_most(12 * MICRO),
    **{
        name: _at_least(4000)
        for name in ("x + 1, 64M", "gelu, 64M", "sum, 64M", "softmax, 8192 x 8192", "layer norm, 8192 x 8192")
    },
    **{
        name: _at_least(3900)
        for name in (
            "column sums, 8192 x 8192",
            "transpose + 1, 8192 x 8192",
            "tanh(x) * exp(-x * x) + sin(x), 64M",
        )
    },
    "matmul, 8192 cubed bf16, a burst": _at_least(770),
    "matmul, gelu(x @ b + c), 4096 cubed bf16, a burst": _at_most(190 * MICRO),
    "attention, 8 x 1024 x 12 x 64 bf16": _at_most(50 * MICRO),
    "attention, its gradients alone": _at_most(180 * MICRO),
    "while loop, one of 10,000 iterations of 1024": _at_most(1 * MICRO),
    "scan, one of 1000 steps of an RNN of 64 x 256": _at_most(2 * MICRO),
    **{
        name: AHEAD_OF_JAX
        for name in (
            "argmax, 64M",
            "cumulative sum, 64M",
            "sort, 16M",
            "gather of 1M rows of 64 from 50,000",
            "gather of 16M elements from 64M",
            "random normal, 64M",
            "random uniform, 64M",
            "random bits, 64M",
            "while loop, one of 1000 iterations of a matmul of 512 cubed",
        )
    },
    "all-convolutional network, 128 x float32: a step": _at_most(1.8 * MILLI),
    "all-convolutional network, 128 x bfloat16: a step": _at_most(1.05 * MILLI),
    "all-convolutional network, 1024 x float32: a step": AHEAD_OF_BOTH,
    "all-convolutional network, 1024 x bfloat16: a step": AHEAD_OF_BOTH,
    "GPT-2 small: a step": _at_most(16.5 * MILLI),
    "GPT-2 small: first call": _at_most(3.0),
    "GPT-2 small: first call of a second process": _at_most(3.0),
}
# What is measured besides: long runs of what has a gate as a burst, and what a difference is computed from.
ALSO = (
    "matmul, 8192 cubed bf16",
    "matmul, gelu(x @ b + c), 4096 cubed bf16",
    "attention with gradients",
)


def needed(name: str) -> bool:
    """Return whether a line is measured by default."""
    return name in GATES or name in ALSO
