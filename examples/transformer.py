"""Character-level transformer in linen, trained on Weft's own documentation.

The layers are one module under `nn.scan`: their parameters are stacked along a leading axis, and only one layer is
traced and compiled. The loss is compared with that of unigram and bigram models.
"""

from __future__ import annotations

import pathlib
import sys
import time

import numpy as np
import picture

import weft
import weft.numpy as wnp
from weft import lax, linen as nn, optim, random

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 3, 64, 4, 64, 16


def read() -> tuple[np.ndarray, np.ndarray, str]:
    """Return the documents as integers, split into training and test text (one piece in ten), and the alphabet."""
    pages = sorted((pathlib.Path(__file__).parents[1] / "docs").glob("*/*.md"))
    text = "".join(page.read_text() for page in pages)
    alphabet = "".join(sorted(set(text)))
    codes = np.searchsorted(list(alphabet), list(text)).astype(np.int32)
    pieces = codes[: len(codes) // 1000 * 1000].reshape(-1, 1000)
    testing = np.arange(len(pieces)) % 10 == 9
    return pieces[~testing].ravel(), pieces[testing].ravel(), alphabet


class Block(nn.Module):
    """Causal self-attention and an MLP, each with a residual connection."""

    @nn.compact
    def __call__(self, x: weft.Array, mask: weft.Array) -> tuple[weft.Array, None]:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(y, y, mask=mask)
        y = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(y)), None


class Transformer(nn.Module):
    letters: int

    @nn.compact
    def __call__(self, codes: weft.Array) -> weft.Array:
        position = self.param("position", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        x = nn.Embed(self.letters, WIDTH)(codes) + position[: codes.shape[-1]]
        layers = nn.scan(
            Block, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=nn.broadcast, length=LAYERS
        )
        x, _ = layers()(x, nn.make_causal_mask(codes))
        return nn.Dense(self.letters)(nn.LayerNorm()(x))


def counting(codes: np.ndarray, test: np.ndarray, letters: int) -> tuple[float, float]:
    """Return the losses of a unigram and a bigram model."""
    single = np.bincount(codes, minlength=letters) + 0.1
    pairs = np.full((letters, letters), 0.1)
    np.add.at(pairs, (codes[:-1], codes[1:]), 1)
    one = -np.log(single / single.sum())[test].mean()
    two = -np.log(pairs / pairs.sum(1, keepdims=True))[test[:-1], test[1:]].mean()
    return float(one), float(two)


def main(short: bool = False, steps: int | None = None) -> picture.Panel:
    codes, test, alphabet = read()
    model = Transformer(len(alphabet))
    params = model.init(random.key(0), wnp.zeros((1, LENGTH), wnp.int32))["params"]
    print(f"{sum(leaf.size for leaf in weft.tree.leaves(params))} parameters, {len(codes)} characters of training text")
    steps = steps or (50 if short else 1000)
    schedule = optim.warmup_cosine_decay_schedule(0.0, 4e-3, steps // 10, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(schedule, weight_decay=0.01))

    def loss(params: dict, rows: weft.Array) -> weft.Array:
        logits = model.apply({"params": params}, rows[:, :-1])
        return wnp.mean(optim.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]))

    @weft.jit
    def step(params: dict, state: optim.OptState, rows: weft.Array) -> tuple:
        value, gradients = weft.value_and_grad(loss)(params, rows)
        updates, state = optimizer.update(gradients, state, params)
        return value, optim.apply_updates(params, updates), state

    @weft.jit
    def write(params: dict, start: weft.Array, keys: weft.Array) -> weft.Array:
        """Generate text one character at a time, each sampled given the last LENGTH."""

        def one(window: weft.Array, key: weft.Array) -> tuple[weft.Array, weft.Array]:
            logits = model.apply({"params": params}, window[None])[0, -1]
            letter = random.categorical(key, logits / 0.7)
            return wnp.concatenate([window[1:], letter[None].astype(window.dtype)]), letter

        return lax.scan(one, start, keys)[1]

    rng = np.random.default_rng(0)
    state = optimizer.init(params)
    losses, start = [], time.perf_counter()
    for i in range(steps):
        rows = codes[rng.integers(len(codes) - LENGTH, size=(BATCH, 1)) + np.arange(LENGTH + 1)]
        value, params, state = step(params, state, rows)
        losses.append(value)
        if i % (steps // 10) == 0:
            print(f"step {i:4d}  loss {float(value):.3f}")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")

    rows = test[: len(test) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    final = float(weft.jit(loss)(params, rows))
    one, two = counting(codes, test, len(alphabet))
    print(f"final loss {final:.3f} on unseen text; unigram model {one:.3f}, bigram model {two:.3f}")
    assert final < (two if steps >= 1000 else one)
    text = write(params, test[:LENGTH], random.split(random.key(1), 80 if short else 400))
    panel = picture.Panel("Transformer: loss on batches", across="step", up="nats per character")
    panel.line(range(steps), wnp.stack(losses), width=1).level(final, picture.RED, "on unseen text")
    panel.level(one, picture.GREY, "unigram model").level(two, picture.GREEN, "bigram model")
    print("it writes:", "".join(alphabet[int(letter)] for letter in np.asarray(text)))
    return panel


if __name__ == "__main__":
    picture.save("transformer", main(short="--short" in sys.argv))
