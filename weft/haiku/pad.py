"""Padding of convolutions: the numbers of zeros before and after, as functions of the kernel size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft.errors import ArgumentError, suggest as _suggest

PadFn: TypeAlias = Callable[[int], tuple[int, int]]


def valid(effective_kernel_size: int) -> tuple[int, int]:
    """Return no padding, for whole windows only."""
    del effective_kernel_size
    return 0, 0


def same(effective_kernel_size: int) -> tuple[int, int]:
    """Return the padding with which stride 1 gives as many outputs as inputs."""
    return (effective_kernel_size - 1) // 2, effective_kernel_size // 2


def full(effective_kernel_size: int) -> tuple[int, int]:
    """Return the padding for all windows that overlap the input."""
    return effective_kernel_size - 1, effective_kernel_size - 1


def causal(effective_kernel_size: int) -> tuple[int, int]:
    """Return padding before the input only, so that outputs do not depend on later inputs."""
    return effective_kernel_size - 1, 0


def reverse_causal(effective_kernel_size: int) -> tuple[int, int]:
    """Return padding after the input only, so that outputs do not depend on earlier inputs."""
    return 0, effective_kernel_size - 1


def is_padfn(padding: Any) -> bool:
    """Return whether padding is a function, or a sequence of functions."""
    if isinstance(padding, (list, tuple)) and padding:
        padding = padding[0]
    return callable(padding)


def _sequence(value: Any, n: int, what: str) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise ArgumentError(f"{what} needs one value or {n}, got {value!r}.")
        return tuple(value)
    return (value,) * n


def create_from_padfn(
    padding: PadFn | Sequence[PadFn], kernel: int | Sequence[int], rate: int | Sequence[int], n: int
) -> Sequence[tuple[int, int]]:
    """Return pairs (before, after) for `n` dimensions, from functions of the dilated kernel size."""
    functions = _sequence(padding, n, "padding")
    sizes, rates = _sequence(kernel, n, "kernel"), _sequence(rate, n, "rate")
    return tuple(function((size - 1) * step + 1) for function, size, step in zip(functions, sizes, rates, strict=True))


def create_from_tuple(padding: tuple[int, int] | Sequence[tuple[int, int]], n: int) -> Sequence[tuple[int, int]]:
    """Return pairs (before, after) for `n` dimensions, from one pair or one per dimension."""
    pairs: Any = padding
    if len(pairs) == 2 and all(isinstance(one, int) for one in pairs):
        pairs = (tuple(pairs),) * n
    if len(pairs) == 1:
        pairs = tuple(pairs) * n
    out = tuple(tuple(pair) for pair in pairs)
    if len(out) != n or any(len(pair) != 2 for pair in out):
        raise ArgumentError(f"padding needs one pair (before, after), or {n} of them; got {padding!r}.")
    return out


def create(
    padding: PadFn | Sequence[PadFn], kernel: int | Sequence[int], rate: int | Sequence[int], n: int
) -> Sequence[tuple[int, int]]:
    """Return pairs (before, after) for `n` dimensions, from functions; the older name of `create_from_padfn`."""
    return create_from_padfn(padding, kernel, rate, n)


_suggest(__name__)
