"""Training step of GPT-2 small (8 x 1024 tokens, bfloat16, AdamW) written in linen and optim, on a GPU.

    python benchmarks/gpt2_step.py [--library weft|jax] [--layers 12] [--width 768] [--batch 8] [--device gpu]

The same code runs on JAX with Flax and Optax. It prints the milliseconds of a step, the best of five rounds, and the
seconds of the first call.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

VOCABULARY, HEAD = 50304, 64


def libraries(name: str) -> tuple[Any, Any, Any, Any]:
    """Return the library, its NumPy, its modules and its optimizers."""
    if name == "weft":
        import weft
        import weft.numpy
        from weft import linen, optim

        return weft, weft.numpy, linen, optim
    import flax.linen
    import jax
    import jax.numpy
    import optax

    return jax, jax.numpy, flax.linen, optax


def gpt2(library: Any, numpy: Any, nn: Any, layers: int, width: int, length: int) -> Any:
    """Make the model: tokens to logits."""
    short = numpy.bfloat16

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Attention and a perceptron, each added to its input."""

        @nn.compact
        def __call__(self, x: Any) -> Any:
            h = nn.Dense(3 * width, dtype=short)(nn.LayerNorm(dtype=short)(x))
            q, k, v = (a.reshape(*a.shape[:2], -1, HEAD) for a in numpy.split(h, 3, -1))
            mixed = library.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
            x = x + nn.Dense(width, dtype=short)(mixed)
            h = nn.gelu(nn.Dense(4 * width, dtype=short)(nn.LayerNorm(dtype=short)(x)))
            return x + nn.Dense(width, dtype=short)(h)

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        """Embeddings, blocks, and the embedding again."""

        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            embedding = nn.Embed(VOCABULARY, width, dtype=short)
            positions = nn.Embed(length, width, dtype=short)(numpy.arange(tokens.shape[1]))
            x = embedding(tokens) + positions
            for _ in range(layers):
                x = Block()(x)
            return embedding.attend(nn.LayerNorm(dtype=short)(x))

    return Model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="weft", choices=("weft", "jax"))
    for name, value in (("layers", 12), ("width", 768), ("batch", 8), ("length", 1024), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="gpu")
    options = parser.parse_args()
    library, numpy, nn, optim = libraries(options.library)
    model = gpt2(library, numpy, nn, options.layers, options.width, options.length)
    transformation = optim.adamw(3e-4)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (options.batch, options.length + 1)).astype(np.int32)

    def loss(parameters: Any, tokens: Any) -> Any:
        logits = model.apply(parameters, tokens[:, :-1]).astype(numpy.float32)
        return optim.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(parameters: Any, state: Any, tokens: Any) -> Any:
        value, gradients = library.value_and_grad(loss)(parameters, tokens)
        updates, state = transformation.update(gradients, state, parameters)
        return optim.apply_updates(parameters, updates), state, value

    parameters = library.jit(model.init)(library.random.key(0), tokens[:1, :-1])
    state = transformation.init(parameters)
    device = library.devices(options.device)[0]
    parameters, state, tokens = library.device_put((parameters, state, tokens), device)
    run = library.jit(step, donate_argnums=(0, 1))
    start = time.perf_counter()
    parameters, state, value = run(parameters, state, tokens)
    print(f"{options.library}: first call {time.perf_counter() - start:.2f} s, loss {float(value):.4f}", flush=True)
    for _ in range(3):
        parameters, state, value = run(parameters, state, tokens)
    float(value)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(options.steps):
            parameters, state, value = run(parameters, state, tokens)
        last = float(value)
        best = min(best, (time.perf_counter() - start) / options.steps)
    print(f"{options.library}: {1e3 * best:.2f} ms a step, loss {last:.4f}", flush=True)


if __name__ == "__main__":
    main()
