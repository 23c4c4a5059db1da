"""Recurrent network with `lax.scan`: a gated recurrent unit that computes the parity of a sequence of bits.

It is trained on sequences of 16 bits and tested on sequences of 400.
"""

from __future__ import annotations

import sys
import time

import picture

import weft
import weft.numpy as wnp
from weft import lax, nn, optim, random

UNITS, LENGTH, BATCH = 16, 16, 64


def init(key: weft.Array) -> dict:
    """Draw weights of a gated recurrent unit with one input, and of the output."""
    keys = random.split(key, 3)
    scale = nn.initializers.glorot_normal()
    return {
        "gates": scale(keys[0], (UNITS + 1, 2 * UNITS)),
        "gate_bias": wnp.zeros(2 * UNITS),
        "candidate": scale(keys[1], (UNITS + 1, UNITS)),
        # Without a bias a zero state that reads a zero bit stays zero.
        "candidate_bias": 0.1 * wnp.ones(UNITS),
        "output": scale(keys[2], (UNITS, 1)),
    }


def unit(params: dict, state: weft.Array, bit: weft.Array) -> tuple[weft.Array, weft.Array]:
    """Take one step: `reset` gates the state that the candidate reads, `keep` the part of the state that is
    retained."""
    seen = wnp.concatenate([state, bit[:, None]], axis=-1)
    reset, keep = wnp.split(nn.sigmoid(seen @ params["gates"] + params["gate_bias"]), 2, axis=-1)
    recalled = wnp.concatenate([reset * state, bit[:, None]], axis=-1)
    candidate = wnp.tanh(recalled @ params["candidate"] + params["candidate_bias"])
    state = keep * state + (1 - keep) * candidate
    return state, (state @ params["output"])[:, 0]


def logits(params: dict, bits: weft.Array) -> weft.Array:
    """Return the output after each bit; `bits` is (length, batch), since scan iterates over the first axis."""
    start = wnp.zeros((bits.shape[1], UNITS))
    return lax.scan(lambda state, bit: unit(params, state, bit), start, bits)[1]


def parity(bits: weft.Array) -> weft.Array:
    return wnp.cumsum(bits, axis=0) % 2


def loss(params: dict, bits: weft.Array) -> weft.Array:
    return wnp.mean(optim.sigmoid_binary_cross_entropy(logits(params, bits), parity(bits)))


def accuracy(params: dict, bits: weft.Array) -> weft.Array:
    return wnp.mean((logits(params, bits) > 0) == (parity(bits) > 0.5))


def main(short: bool = False) -> picture.Panel:
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2))

    @weft.jit
    def step(params: dict, state: optim.OptState, key: weft.Array) -> tuple:
        # Some sequences have few ones and some many, so that long runs of the same bit occur.
        for_share, for_bits = random.split(key)
        share = random.uniform(for_share, (1, BATCH))
        bits = random.bernoulli(for_bits, share, (LENGTH, BATCH)).astype(wnp.float32)
        value, gradients = weft.value_and_grad(loss)(params, bits)
        updates, state = optimizer.update(gradients, state)
        return value, optim.apply_updates(params, updates), state

    key = random.key(0)
    params = init(key)
    state = optimizer.init(params)
    losses, start = [], time.perf_counter()
    steps = 500 if short else 1500
    for i in range(steps):
        value, params, state = step(params, state, random.fold_in(key, i))
        losses.append(value)
        if i % (steps // 10) == 0:
            print(f"step {i:4d}  loss {float(value):.4f}")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s")

    bits = random.bernoulli(random.key(1), 0.5, (400, 32)).astype(wnp.float32)
    right = float(weft.jit(accuracy)(params, bits))
    print(f"final accuracy {right:.1%} on sequences 25 times longer than those of the training")
    assert right > (0.9 if short else 0.99)
    panel = picture.Panel("Gated recurrent unit: loss", across="step", up="cross-entropy", log=True)
    return panel.line(range(steps), wnp.stack(losses))


if __name__ == "__main__":
    picture.save("rnn", main(short="--short" in sys.argv))
