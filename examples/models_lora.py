"""Fine-tuning of a language model: all parameters on one text, then adapters of low rank on another.

Without a folder a small model of bytes with random weights is trained; `python examples/models_lora.py FOLDER` adapts a
model of Hugging Face's files and saves it with the adapters merged in.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import models, optim

FIRST = "the quick brown fox jumps over the lazy dog. " * 6
SECOND = "a lazy dog sleeps while the brown fox is quick. " * 6
BYTES = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def train(model: models.Model, put: Any, values: Any, texts: list[list[int]], steps: int, rate: float) -> Any:
    """Train `values`, which `put` turns into parameters, on packed texts; return them."""
    ids, pieces = (wnp.asarray(x) for x in models.pack_texts(texts, 64))
    optimizer = optim.adamw(rate)

    @weft.jit
    def step(values: Any, state: Any) -> tuple[Any, Any, Any]:
        def loss(values: Any) -> Any:
            return models.next_token_loss(model, put(values), ids, pieces=pieces, remat=True)

        value, gradient = weft.value_and_grad(loss)(values)
        change, state = optimizer.update(gradient, state, values)
        return optim.apply_updates(values, change), state, value

    state = optimizer.init(values)
    for number in range(steps):
        values, state, value = step(values, state)
        if number % 20 == 0 or number == steps - 1:
            print(f"step {number:3}  loss {float(value):.3f}")
    return values


def main(short: bool = False, folder: str | None = None) -> None:
    steps = 30 if short else 120
    if folder is None:
        config = models.read_config(BYTES)
        model = models.Model(config, models.init(config, weft.random.key(0)))
        encode = lambda text: list(text.encode())
        print("all parameters")
        model = model.replace(train(model, lambda p: p, model.params, [encode(FIRST)], steps, 1e-2))
    else:
        model = models.load(folder)
        encode = model.tokenizer.encode
    print("adapters")
    _, adapters = models.add_lora(model.params, weft.random.key(1), rank=8, targets=r"\.(query|value|up|down)$")
    share = models.count_parameters(adapters) / models.count_parameters(model.params)
    print(f"{models.count_parameters(adapters)} parameters, {100 * share:.1f} % of the model's")
    put = lambda a: models.set_lora(model.params, a)
    before = models.next_token_loss(model, model.params, wnp.asarray([encode(SECOND)[:64]]))
    adapters = train(model, put, adapters, [encode(SECOND)], steps, 1e-2)
    merged = model.replace(models.merge_lora(put(adapters)))
    after = models.next_token_loss(merged, merged.params, wnp.asarray([encode(SECOND)[:64]]))
    if folder is None:
        text = bytes(np.asarray(merged.generate(encode("a lazy dog"), 24, stop_tokens=())).tolist())
        print(text.decode(errors="replace"))
        assert float(after) < float(before) - 0.5, "the adapters learned nothing"
    else:
        merged.save(folder.rstrip("/") + "-adapted")
    print(f"final loss {float(after):.3f}, {float(before):.3f} before")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--short"]
    main("--short" in sys.argv, arguments[0] if arguments else None)
