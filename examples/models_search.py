"""Search by meaning: vectors of texts from an encoder, compared with that of a question.

Without a folder an encoder of bytes with random weights finds the text that shares most with the question;
`python examples/models_search.py FOLDER "question"` uses a sentence embedding model of Hugging Face's files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import models

TEXTS = (
    "a compiler translates programs to machine code",
    "the cat sleeps on the warm windowsill",
    "bread needs flour, water, salt and time",
    "gradients tell an optimizer where to go",
    "rivers carry sand from mountains to the sea",
)
BYTES = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def vectors(model: models.Model, texts: Sequence[str]) -> Any:
    """Return a vector for each text, of bytes if the model has no tokenizer."""
    if model.folder is not None:
        return model.embed(list(texts))
    rows = [text.lower().encode()[:128] for text in texts]
    ids, mask = np.zeros((len(rows), 128), np.int32), np.zeros((len(rows), 128), bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = list(row), True
    return model.embed(ids, mask)


def main(short: bool = False, folder: str | None = None, question: str = "Machine code of compiled programs") -> None:
    if folder is None:
        config = models.read_config(BYTES)
        model = models.Model(config, models.init(config, weft.random.key(0)))
    else:
        model = models.load(folder)
    scores = np.asarray(vectors(model, TEXTS) @ vectors(model, [question])[0])
    for i in np.argsort(-scores):
        print(f"{scores[i]:.3f}  {TEXTS[i]}")
    if folder is None:
        assert scores.argmax() == 0, "the nearest text is another one"
    print(f"final score {scores.max():.3f}")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--short"]
    main("--short" in sys.argv, *arguments[:2])
