"""From one sequence to another: numbers in words to digits, "three hundred and seven" to "307".

An encoder reads the words, right to left; a decoder writes one digit after the other, and attends to the words.
Training shows it the right digits so far; afterwards it goes on with its own. A fifth of the numbers is left for the
test.
"""

from __future__ import annotations

import sys

import numpy as np

from weft import keras
from weft.keras import layers

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
ONES = (*ONES.split(), "eighteen", "nineteen")
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
WORDS = {word: i for i, word in enumerate(("", *ONES, *TENS, "hundred", "and"))}  # 0 is no word
START, LENGTH, DIGITS, UNITS = 10, 6, 3, 48


def spelled(value: int) -> list[str]:
    if value >= 100:
        rest = ["and", *spelled(value % 100)] if value % 100 else []
        return [ONES[value // 100], "hundred", *rest]
    if value >= 20:
        return [TENS[value // 10 - 2], *([ONES[value % 10]] if value % 10 else [])]
    return [ONES[value]]


def encoded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode words (count, LENGTH) with zeros behind them, and digits (count, DIGITS) with zeros before them."""
    words = np.zeros((len(values), LENGTH), np.int32)
    for row, value in zip(words, values, strict=True):
        text = [WORDS[word] for word in spelled(int(value))]
        row[: len(text)] = text
    digits = values[:, None] // 10 ** np.arange(DIGITS)[::-1] % 10
    return words, digits.astype(np.int32)


def translator() -> keras.Model:
    words, before = keras.Input((LENGTH,), dtype="int32"), keras.Input((DIGITS,), dtype="int32")
    heard = layers.Embedding(len(WORDS), UNITS, mask_zero=True)(words)
    memory = layers.Bidirectional(layers.GRU(UNITS // 2, return_sequences=True))(heard)
    state = layers.Dense(UNITS, activation="tanh")(layers.GlobalAveragePooling1D()(memory))
    written = layers.GRU(UNITS, return_sequences=True)(layers.Embedding(11, UNITS)(before), initial_state=state)
    looked_up = layers.Attention()([written, memory])
    hidden = layers.Dense(UNITS, activation="relu")(layers.Concatenate()([written, looked_up]))
    return keras.Model([words, before], layers.Dense(10)(hidden))


def shifted(digits: np.ndarray) -> np.ndarray:
    """Shift the digits right: the input of the decoder when it writes each digit."""
    return np.concatenate([np.full((len(digits), 1), START, np.int32), digits[:, :-1]], axis=1)


def translate(model: keras.Model, words: np.ndarray) -> np.ndarray:
    """Predict digits one after the other, each the most likely one."""
    digits = np.zeros((len(words), DIGITS), np.int32)
    for i in range(DIGITS):
        digits[:, i] = model.predict([words, shifted(digits)], verbose=0)[:, i].argmax(-1)
    return digits


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(8)
    order = np.random.default_rng(0).permutation(1000)
    words, digits = encoded(order[:800])
    test_words, test_digits = encoded(order[800:])
    model = translator()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    model.fit([words, shifted(digits)], digits, 64, epochs=30 if short else 80, verbose=0)

    found = translate(model, test_words)
    for value, guess in list(zip(order[800:], found, strict=True))[:6]:
        print(f"{' '.join(spelled(int(value))):32}", *guess)
    right = float((found == test_digits).all(axis=1).mean())
    print(f"final {right:.3f} of numbers that were not trained with are right")
    assert right > 0.6


if __name__ == "__main__":
    main("--short" in sys.argv)
