"""Generation of text: a program that reads the prompt, and one that is run for each token on a cache it updates.

Prompts of a batch are padded on the left, so that one number of slots serves all sequences. The cache is donated: each
step writes one row of it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import random
from weft.errors import ArgumentError, NonFiniteValueError
from weft.models.config import Config
from weft.models.forward import empty_cache, extend
from weft.models.sampling import Sampler, choose_program

LEAST_CAPACITY = 64
# Tokens of a prompt that run at once.
MOST_TOKENS = 512


class Programs:
    """Compiled programs of a decoder: prompt, one token, and several tokens of a draft.

    Args:
        config: the description of the model.
    """

    def __init__(self, config: Config) -> None:
        self.config = config

        def prompt(params: Any, cache: Any, ids: Any) -> Any:
            return extend(config, params, cache, ids, True, False)

        def step(params: Any, cache: Any, ids: Any) -> Any:
            return extend(config, params, cache, ids, False, False)

        def verify(params: Any, cache: Any, ids: Any) -> Any:
            return extend(config, params, cache, ids, False, True)

        self.prompt = weft.jit(prompt, donate_argnames="cache")
        self.step = weft.jit(step, donate_argnames="cache")
        self.verify = weft.jit(verify, donate_argnames="cache")


def pad_prompts(prompts: Any, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Pad prompts on the left.

    Args:
        prompts: integers (tokens) or (batch, tokens), or a list of sequences of different lengths.
        pad: the token to fill with.

    Returns:
        Integers (batch, tokens), and the first slot of each sequence.
    """
    if isinstance(prompts, (list, tuple)) and prompts and np.ndim(prompts[0]):
        rows = [np.asarray(row, np.int32).reshape(-1) for row in prompts]
    else:
        array = np.asarray(prompts)
        if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
            raise ArgumentError(
                "A prompt must be integers of shape (tokens,) or (batch, tokens), or a list of such rows.",
                received=f"{array.dtype} of shape {array.shape}",
            )
        rows = list(np.atleast_2d(array).astype(np.int32))
    longest = max((len(row) for row in rows), default=0)
    if not rows or not all(len(row) for row in rows):
        raise ArgumentError("A prompt must have at least one token.", received=f"{len(rows)} rows, one of them empty")
    ids = np.full((len(rows), longest), pad, np.int32)
    for i, row in enumerate(rows):
        ids[i, longest - len(row) :] = row
    return ids, np.array([longest - len(row) for row in rows], np.int32)


def check_tokens(ids: np.ndarray, config: Config) -> None:
    """Raise an error if tokens are outside of the vocabulary of a model."""
    size = config.vocabulary
    if ids.size and (ids.min() < 0 or ids.max() >= size):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise ArgumentError(
            f"Tokens must be from 0 to {size - 1}, the vocabulary of the model.",
            received=str(wrong),
            fix="the tokenizer that belongs to the model",
        )


def check_context(tokens: int, new: int, config: Config) -> None:
    """Raise an error if a prompt and the tokens to generate do not fit into the context of a model."""
    if new < 1:
        raise ArgumentError("max_new_tokens must be at least 1.", received=str(new))
    if config.context is not None and tokens + new > config.context:
        raise ArgumentError(
            f"A prompt and max_new_tokens must fit into the context of the model, {config.context} tokens.",
            received=f"{tokens} + {new}",
            fix=f"max_new_tokens={config.context - tokens}" if tokens < config.context else "a shorter prompt",
        )


def choose_capacity(tokens: int, context: int | None) -> int:
    """Round a number of slots up, so that few programs serve all lengths."""
    size = LEAST_CAPACITY
    while size < tokens:
        size *= 2
    return size if context is None else max(tokens, min(size, context))


class Decoding:
    """State of a generation: the cache, the tokens that occurred, and the logits of the next token.

    Args:
        programs: the programs of the model.
        params: its parameters.
        ids: the padded prompts.
        starts: the first slot of each.
        new: the most tokens to generate.
        slack: the most tokens that are taken back.
        cross: parts of the cache that depend on the states of an encoder.
    """

    def __init__(
        self,
        programs: Programs,
        params: Any,
        ids: np.ndarray,
        starts: np.ndarray,
        new: int,
        slack: int = 0,
        cross: Mapping[str, Any] | None = None,
    ) -> None:
        config = programs.config
        self.programs, self.params, self.ids, self.starts = programs, params, ids, starts
        capacity = choose_capacity(ids.shape[1] + new + slack, None)
        cache = empty_cache(config.tower, ids.shape[0], capacity, find_dtype(params), slack)
        cache["starts"] = wnp.asarray(starts)
        # The logits of attention grow with the square of the tokens: long prompts run in parts of one length.
        first = (ids.shape[1] - 1) % MOST_TOKENS + 1
        logits, self.cache = programs.prompt(params, cache | dict(cross or {}), wnp.asarray(ids[:, :first]))
        for at in range(first, ids.shape[1], MOST_TOKENS):
            logits, self.cache = programs.step(params, self.cache, wnp.asarray(ids[:, at : at + MOST_TOKENS]))
        self.logits = logits[:, -1]

    def advance(self, tokens: Any) -> Any:
        """Run one token of each sequence, and return the logits of the next one."""
        logits, self.cache = self.programs.step(self.params, self.cache, tokens[:, None])
        self.logits = logits[:, -1]
        return self.logits

    def verify(self, tokens: Any) -> Any:
        """Run several tokens of each sequence, and return the logits after each."""
        logits, self.cache = self.programs.verify(self.params, self.cache, tokens)
        return logits

    def take_back(self, count: int) -> None:
        """Forget the last tokens."""
        self.cache = self.cache | {"length": self.cache["length"] - np.int32(count)}

    def reorder(self, rows: Any) -> None:
        """Replace the sequences by a selection of them."""
        self.cache = _reorder(self.cache, rows)


def _take_rows(cache: dict[str, Any], rows: Any) -> dict[str, Any]:
    taken = dict(cache)
    for name in ("memories", "cross"):
        if name in cache:
            taken[name] = weft.tree.map(lambda x: wnp.take(x, rows, axis=1), cache[name])
    for name in ("starts", "cross_valid"):
        if cache.get(name) is not None:
            taken[name] = wnp.take(cache[name], rows, axis=0)
    return taken


_reorder = weft.jit(_take_rows, donate_argnums=0)


def find_dtype(params: Any) -> Any:
    """Return the dtype in which a model computes: that of its first table or matrix."""
    return next(leaf.dtype for leaf in weft.tree.leaves(params) if wnp.issubdtype(leaf.dtype, wnp.floating))


def count_occurrences(ids: np.ndarray, starts: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return which tokens occur in each prompt, as booleans (batch, vocabulary)."""
    seen = np.zeros((len(ids), vocabulary), bool)
    for row, start, own in zip(ids, starts, seen, strict=True):
        own[row[start:]] = True
    return seen


Allowed = Callable[[np.ndarray], Any]


def stream_tokens(
    decoding: Decoding,
    new: int,
    sampler: Sampler,
    key: Any,
    ends: Sequence[int],
    allowed: Allowed | None = None,
) -> Iterator[np.ndarray]:
    """Yield the next token of each sequence until all have ended.

    Args:
        decoding: the state after the prompts.
        new: the most tokens.
        sampler: the rules of choice.
        key: a random key.
        ends: the tokens that end a sequence; the first of them fills what follows.
        allowed: a function from the tokens so far (batch, tokens) to booleans (batch, vocabulary).
    """
    ids, vocabulary = decoding.ids, decoding.logits.shape[-1]
    seen = wnp.asarray(count_occurrences(ids, decoding.starts, vocabulary)) if sampler.switches[0] else None
    numbers, switches = sampler.numbers, sampler.switches
    done = np.zeros(len(ids), bool)
    for i in range(new):
        may = None if allowed is None else check_constraint(allowed(ids), len(ids), vocabulary)
        own = random.fold_in(key, i) if sampler.is_random else key
        tokens, seen = choose_program(decoding.logits, seen, may, own, numbers, switches=switches)
        is_last = i + 1 == new
        if not is_last:
            decoding.advance(wnp.maximum(tokens, 0))  # starts before the tokens are read
        found = np.asarray(tokens)
        if (found < 0).any():
            raise NonFiniteValueError(
                "The logits of a model must be finite.",
                received=f"nan or infinite ones for token {ids.shape[1]} of sequence {int(np.argmax(found < 0))}",
                fix="weights that are finite, and dtype=weft.numpy.float32 if they were cast to float16",
            )
        found = np.where(done, ends[0] if ends else 0, found).astype(np.int32)
        done |= np.isin(found, ends)
        ids = np.concatenate([ids, found[:, None]], 1)
        yield found
        if done.all():
            return


def check_constraint(mask: Any, batch: int, vocabulary: int) -> Any:
    """Check the result of a function that constrains tokens."""
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.shape not in ((vocabulary,), (batch, vocabulary)):
        raise ArgumentError(
            f"allowed(ids) must return booleans of shape {(vocabulary,)} or {(batch, vocabulary)}.",
            received=f"{mask.dtype} of shape {mask.shape}",
        )
    mask = np.broadcast_to(mask, (batch, vocabulary))
    if not mask.any(1).all():
        raise ArgumentError("allowed(ids) must allow at least one token of each sequence.", received="no true element")
    return wnp.asarray(mask)
