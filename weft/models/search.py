"""Searches for text: beams of the most probable continuations, and speculation with a draft model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn, random
from weft.errors import ArgumentError
from weft.models.generation import Decoding
from weft.models.model import Model
from weft.models.sampling import Sampler, adjust


def _rank(logits: Any, scores: Any, count: int) -> tuple[Any, Any]:
    """Return the best sums of log-probabilities of all beams (batch, count), and where in (beams, vocabulary)."""
    batch, beams = scores.shape
    total = scores[..., None] + nn.log_softmax(logits.reshape(batch, beams, -1))
    best, places = lax.top_k(total.reshape(batch, -1), count)
    return best, places


_rank_program = weft.jit(_rank, static_argnames="count")


def beam_search(
    model: Model,
    prompts: Any = None,
    max_new_tokens: int = 128,
    *,
    beams: int = 4,
    length_penalty: float = 1.0,
    stop_tokens: int | Sequence[int] | None = None,
    source: Any = None,
    mask: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the most probable text by a search that continues the best beams of each sequence.

    Args:
        model: a model with a decoder.
        prompts: integers (batch, tokens), or a list of rows of different lengths.
        max_new_tokens: the most tokens to generate.
        beams: the number of beams of each sequence.
        length_penalty: the power of the length that sums of log-probabilities are divided by.
        stop_tokens: the tokens that end a sequence; by default those of the model.
        source, mask: the input of the encoder, for a model with one.

    Returns:
        The prompts and the new tokens (batch, tokens), filled with the first stop token, and the score of each.
    """
    if beams < 1:
        raise ArgumentError("beams must be at least 1.", received=str(beams))
    ends = model.stop_tokens(stop_tokens)
    pad = ends[0] if ends else 0
    decoding = model.start(prompts, max_new_tokens, pad, source, mask)
    batch, vocabulary = len(decoding.ids), decoding.logits.shape[-1]
    decoding.reorder(wnp.repeat(wnp.arange(batch, dtype=wnp.int32), beams))
    decoding.logits = wnp.repeat(decoding.logits, beams, 0)
    texts = np.zeros((batch, beams, 0), np.int32)
    scores = np.full((batch, beams), -1e9, np.float32)
    scores[:, 0] = 0  # all beams begin alike, and only one of them counts
    finished: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(batch)]
    for length in range(1, max_new_tokens + 1):
        ranked, places = (np.asarray(x) for x in _rank_program(decoding.logits, scores, 2 * beams))
        parents, tokens = places // vocabulary, (places % vocabulary).astype(np.int32)
        chosen = np.zeros((batch, beams), np.int32)
        for i in range(batch):
            going: list[int] = []
            for rank in range(2 * beams):
                text = np.append(texts[i, parents[i, rank]], tokens[i, rank])
                if tokens[i, rank] in ends:
                    if rank < beams:
                        finished[i].append((float(ranked[i, rank]) / length**length_penalty, text))
                elif len(going) < beams:
                    going.append(rank)
            chosen[i] = going
            finished[i] = sorted(finished[i], key=lambda found: -found[0])[:beams]
        rows = np.arange(batch)[:, None]
        parent, token, scores = parents[rows, chosen], tokens[rows, chosen], ranked[rows, chosen]
        texts = np.concatenate([texts[rows, parent], token[..., None]], -1)
        if length == max_new_tokens or _has_best_beams(finished, scores, beams, length, length_penalty):
            break
        decoding.reorder(wnp.asarray((rows * beams + parent).reshape(-1)))
        decoding.advance(wnp.asarray(token.reshape(-1)))
    out = np.full((batch, texts.shape[-1]), pad, np.int32)
    best = np.zeros(batch, np.float32)
    for i in range(batch):
        running = [(float(s) / texts.shape[-1] ** length_penalty, t) for s, t in zip(scores[i], texts[i], strict=True)]
        candidates = finished[i] if len(finished[i]) >= beams else finished[i] + running
        best[i], text = max(candidates, key=lambda found: found[0])
        out[i, : len(text)] = text
    return np.concatenate([decoding.ids, out], 1), best


def _has_best_beams(finished: Any, scores: np.ndarray, beams: int, length: int, penalty: float) -> bool:
    """Return whether no running beam can still be better than the finished ones."""
    return all(
        len(found) >= beams and found[-1][0] >= own.max() / length**penalty
        for found, own in zip(finished, scores, strict=True)
    )


# ---------------------------------------------------------------------------------------------------------- speculation


def _shares(logits: Any, numbers: dict[str, Any], switches: tuple[bool, ...]) -> Any:
    """Return the probabilities with which a sampler chooses each token: one token for a greedy one."""
    logits = adjust(logits, None, numbers, switches)
    return nn.softmax(logits) if switches[1] else nn.one_hot(wnp.argmax(logits, -1), logits.shape[-1])


_shares_program = weft.jit(_shares, static_argnames="switches")


def speculate(
    model: Model,
    draft: Model,
    prompts: Any,
    max_new_tokens: int = 128,
    *,
    ahead: int = 4,
    sampler: Sampler | None = None,
    key: Any = None,
    stop_tokens: int | Sequence[int] | None = None,
) -> Iterator[np.ndarray]:
    """Yield tokens of a model, several at once: a small model drafts them, the large one verifies all in one pass.

    The tokens have the distribution of the large model; without a temperature they are its greedy ones.

    Args:
        model: the large model.
        draft: a small model with the same vocabulary.
        prompts: integers (tokens): one prompt.
        max_new_tokens: the most tokens to generate.
        ahead: the number of tokens that the draft is ahead.
        sampler: how tokens are chosen, without a repetition penalty; by default the best one.
        key: the random key of a sampler with a temperature.
        stop_tokens: the tokens that end the text; by default those of the model.

    Yields:
        Integers (tokens), at least one.
    """
    sampler = sampler or Sampler()
    if model.config.vocabulary != draft.config.vocabulary:
        what = f"A draft must have the vocabulary of the model, {model.config.vocabulary} tokens."
        raise ArgumentError(what, received=str(draft.config.vocabulary))
    if sampler.is_random and key is None:
        raise ArgumentError("A sampler with a temperature needs a key.", fix="key=weft.random.key(0)")
    if sampler.switches[0] or ahead < 1:
        raise ArgumentError("Speculation needs ahead of at least 1 and no repetition penalty.", received=str(ahead))
    if np.ndim(prompts) != 1:
        raise ArgumentError(
            "Speculation needs one prompt, integers of shape (tokens,).", received=f"{np.ndim(prompts)} axes"
        )
    ends = model.stop_tokens(stop_tokens)
    large, small = (m.start(prompts, max_new_tokens, 0, slack=ahead + 1) for m in (model, draft))
    numbers = np.random.default_rng(np.asarray(random.key_data(random.key(0) if key is None else key)).tolist())
    return _speculate(large, small, max_new_tokens, ahead, sampler, numbers, ends)


def _draw(shares: np.ndarray, numbers: np.random.Generator, sampler: Sampler) -> int:
    shares = shares.astype(np.float64)
    return int(numbers.choice(len(shares), p=shares / shares.sum())) if sampler.is_random else int(shares.argmax())


def _speculate(
    large: Decoding,
    small: Decoding,
    new: int,
    ahead: int,
    sampler: Sampler,
    numbers: np.random.Generator,
    ends: Sequence[int],
) -> Iterator[np.ndarray]:
    """Yield accepted tokens. Both caches lack the last token that was yielded."""

    def find_shares(logits: Any) -> np.ndarray:
        return np.asarray(_shares_program(logits, sampler.numbers, switches=sampler.switches))

    last = _draw(find_shares(large.logits)[0], numbers, sampler)
    yield np.array([last], np.int32)
    count, pending = 1, [last]  # tokens that the cache of the draft lacks
    while count < new and last not in ends:
        guesses: list[int] = []
        expected = []
        for token in pending:
            small.advance(wnp.array([token], wnp.int32))
        for i in range(min(ahead, new - count)):
            shares = find_shares(small.logits)[0]
            expected.append(shares)
            guesses.append(_draw(shares, numbers, sampler))
            if i + 1 < min(ahead, new - count):
                small.advance(wnp.array([guesses[-1]], wnp.int32))
        found = find_shares(large.verify(wnp.array([[last, *guesses]], wnp.int32))[0])
        accepted = 0
        while accepted < len(guesses):
            guess = guesses[accepted]
            if numbers.random() * expected[accepted][guess] >= found[accepted][guess]:
                break
            accepted += 1
        if accepted < len(guesses):
            # What remains of the large model's distribution where the draft's has been taken away.
            rest = np.maximum(found[accepted] - expected[accepted], 0)
            following = _draw(rest if rest.sum() > 0 else found[accepted], numbers, sampler)
        else:
            following = _draw(found[accepted], numbers, sampler)
        large.take_back(len(guesses) - accepted)
        # The draft ran all guesses but the last.
        known = len(guesses) - 1
        small.take_back(max(0, known - accepted))
        pending = [*guesses[known:accepted], following]
        tokens = [*guesses[:accepted], following][: new - count]
        for place, token in enumerate(tokens):
            if token in ends:
                tokens = tokens[: place + 1]
                break
        count, last = count + len(tokens), tokens[-1]
        yield np.array(tokens, np.int32)
