"""Speech recognition by Whisper's architecture, trained to write down which tones it hears.

`python examples/models_speech.py FOLDER speech.wav` transcribes 16 kHz speech with a model of Hugging Face's files.
"""

from __future__ import annotations

import sys
import wave
from typing import Any

import numpy as np

import weft
from weft import models, optim

START, END, FIRST = 0, 1, 2
TONES = (300, 500, 800, 1300)
EARS = {
    "model_type": "whisper",
    "vocab_size": FIRST + len(TONES),
    "num_mel_bins": 40,
    "d_model": 32,
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "max_source_positions": 20,
    "max_target_positions": 8,
    "decoder_start_token_id": START,
    "eos_token_id": END,
}


def melodies(count: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return spectrograms (count, 40, 40) of two tones each, and the tokens to write."""
    numbers = np.random.default_rng(seed)
    tones = numbers.integers(0, len(TONES), (count, 2))
    time = np.arange(3200) / 16000
    sound = np.concatenate([np.sin(2 * np.pi * np.array(TONES)[tones[:, i], None] * time) for i in range(2)], 1)
    sound += 0.1 * numbers.normal(size=sound.shape)
    tokens = np.concatenate([np.full((count, 1), START), tones + FIRST, np.full((count, 1), END)], 1)
    return models.log_mel(0.5 * sound, 40, seconds=0.4), tokens.astype(np.int32)


def transcribe(folder: str, path: str) -> None:
    """Print what is said in a file."""
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
    model = models.load(folder)
    features = models.log_mel(samples, model.config.towers["encoder"].bins)
    print(model.tokenizer.decode(model.generate(None, 200, source=features)[0].tolist()))


def main(short: bool = False) -> None:
    config = models.read_config(EARS)
    model = models.Model(config, models.init(config, weft.random.key(0), scale=0.1))
    optimizer = optim.adam(5e-3)

    @weft.jit
    def step(params: Any, state: Any, features: Any, tokens: Any) -> tuple[Any, Any, Any]:
        def loss(params: Any) -> Any:
            logits = model.apply(params, features, tokens[:, :-1])
            return optim.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, gradient = weft.value_and_grad(loss)(params)
        change, state = optimizer.update(gradient, state)
        return optim.apply_updates(params, change), state, value

    params, state = model.params, optimizer.init(model.params)
    for number in range(60 if short else 200):
        features, tokens = melodies(32, number)
        params, state, value = step(params, state, features, tokens)
        if number % 20 == 0:
            print(f"step {number:3}  loss {float(value):.3f}")
    features, tokens = melodies(100, 1000)
    found = model.replace(params).generate(None, 2, source=features)
    share = float((found[:, 1:] == tokens[:, 1:3]).mean())
    assert share > 0.6, share
    print(f"final accuracy {share:.3f}")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--short"]
    if arguments:
        transcribe(*arguments[:2])
    else:
        main("--short" in sys.argv)
