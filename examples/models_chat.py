"""A conversation with a language model, streamed token by token, with a sampler and a constraint.

Without a folder a small model of bytes with random weights babbles; `python examples/models_chat.py FOLDER "question"`
asks a model of Hugging Face's files. `python -m weft.models chat FOLDER` is the same as a program.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import weft
from weft import models

BYTES = {
    "model_type": "qwen3",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}


def is_letter(ids: np.ndarray) -> np.ndarray:
    """Allow lower-case letters and spaces only."""
    return np.isin(np.arange(256), [32, *range(97, 123)])


def main(short: bool = False, folder: str | None = None, question: str = "What is a compiler?") -> None:
    if folder is None:
        config = models.read_config(BYTES)
        model = models.Model(config, models.init(config, weft.random.key(0), scale=0.3))
        prompt, decode, allowed = list(question.lower().encode()), lambda ids: bytes(ids).decode(), is_letter
    else:
        model = models.load(folder)
        prompt = model.tokenizer.chat([{"role": "user", "content": question}])
        decode, allowed = model.tokenizer.decode, None
    sampler = models.Sampler(temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1)
    found: list[int] = []
    start = time.perf_counter()
    for tokens in model.stream(prompt, 20 if short else 60, sampler=sampler, key=weft.random.key(0), allowed=allowed):
        found.append(int(tokens[0]))
        print(decode(found[-1:]), end="", flush=True)
    seconds = time.perf_counter() - start
    if folder is None:
        assert all(byte == 32 or 97 <= byte < 123 for byte in found), "the constraint does not hold"
    print(f"\nfinal {len(found)} tokens, {len(found) / seconds:.1f} a second")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--short"]
    main("--short" in sys.argv, *arguments[:2])
