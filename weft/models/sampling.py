"""Choice of the next token from logits: greedy, or random with the usual cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax, nn, random
from weft.errors import ArgumentError


@dataclass(frozen=True)
class Sampler:
    """Rules that choose a token. They apply in the order of the arguments; without a temperature the best token wins.

    Args:
        repetition_penalty: divides positive logits of tokens that occurred, and multiplies negative ones.
        temperature: divides the logits; None or 0 for the token with the largest one.
        top_k: how many of the largest logits are kept; 0 for all.
        top_p: the probability that the kept tokens reach together; 1 for all.
        min_p: the least probability of a kept token, as a share of the largest; 0 for all.
    """

    repetition_penalty: float = 1.0
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        rules = (
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
            ("temperature", self.temperature is None or self.temperature >= 0, "None, 0 or above"),
            ("top_k", self.top_k >= 0, "0 or above"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p < 1, "from 0 to below 1"),
        )
        for name, holds, range_ in rules:
            if not holds:
                raise ArgumentError(f"{name} of a Sampler must be {range_}.", received=repr(getattr(self, name)))

    @property
    def is_random(self) -> bool:
        """Whether tokens are drawn."""
        return bool(self.temperature)

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers of the rules, as arguments of a compiled program."""
        return {
            "repetition_penalty": wnp.float32(self.repetition_penalty),
            "temperature": wnp.float32(self.temperature or 1.0),
            "top_k": wnp.int32(self.top_k),
            "top_p": wnp.float32(self.top_p),
            "min_p": wnp.float32(self.min_p),
        }

    @property
    def switches(self) -> tuple[bool, bool, bool, bool, bool]:
        """Rules that are in use: the penalty, drawing, and the three cuts."""
        draws = self.is_random
        return (
            self.repetition_penalty != 1.0,
            draws,
            draws and self.top_k > 0,
            draws and self.top_p < 1.0,
            draws and self.min_p > 0.0,
        )


def adjust(logits: Any, seen: Any, numbers: dict[str, Any], switches: tuple[bool, ...]) -> Any:
    """Apply the rules to logits (batch, vocabulary); tokens that are cut get minus infinity.

    Args:
        logits: the logits of the next token.
        seen: booleans (batch, vocabulary), true for tokens that occurred.
        numbers, switches: those of a `Sampler`.
    """
    penalizes, draws, cuts_rank, cuts_sum, cuts_share = switches
    if penalizes:
        penalty = numbers["repetition_penalty"]
        logits = wnp.where(seen, wnp.where(logits > 0, logits / penalty, logits * penalty), logits)
    if not draws:
        return logits
    logits = logits / numbers["temperature"]
    if cuts_rank or cuts_sum:
        ordered = -wnp.sort(-logits, axis=-1)
    if cuts_rank:
        last = wnp.minimum(numbers["top_k"], logits.shape[-1]) - 1
        least = lax.dynamic_slice_in_dim(ordered, last, 1, axis=-1)
        logits = wnp.where(logits < least, -wnp.inf, logits)
        ordered = wnp.where(ordered < least, -wnp.inf, ordered)
    if cuts_sum:
        shares = nn.softmax(ordered)
        before = wnp.cumsum(shares, -1) - shares
        # The first token whose predecessors reach the sum is the first to go.
        least = wnp.where(before < numbers["top_p"], ordered, wnp.inf).min(-1, keepdims=True)
        logits = wnp.where(logits < least, -wnp.inf, logits)
    if cuts_share:
        shares = nn.softmax(logits)
        logits = wnp.where(shares < numbers["min_p"] * shares.max(-1, keepdims=True), -wnp.inf, logits)
    return logits


def choose(
    logits: Any, seen: Any, allowed: Any, key: Any, numbers: dict[str, Any], switches: tuple[bool, ...]
) -> tuple[Any, Any]:
    """Return the next tokens and the tokens that have occurred then.

    A row whose logits are not finite gets the token -1.

    Args:
        logits: the logits (batch, vocabulary).
        seen: booleans (batch, vocabulary), or None.
        allowed: booleans (batch, vocabulary), or None if every token is allowed.
        key: a random key for this token.
        numbers, switches: those of a `Sampler`.
    """
    is_finite = wnp.isfinite(wnp.sum(logits, -1))
    if allowed is not None:
        logits = wnp.where(allowed, logits, -wnp.inf)
    logits = adjust(logits, seen, numbers, switches)
    drawn = random.categorical(key, logits) if switches[1] else wnp.argmax(logits, -1)
    tokens = wnp.where(is_finite, drawn.astype(wnp.int32), -1)
    if seen is not None:
        seen = seen | (wnp.arange(logits.shape[-1]) == tokens[:, None])
    return tokens, seen


choose_program = weft.jit(choose, static_argnames="switches", inline=False)
