"""Handwritten digits, 8 by 8 pixels: those that come with scikit-learn, an optional extra of Weft."""

from __future__ import annotations

import numpy as np

import weft.numpy as wnp


class DigitsMissingError(Exception):
    """scikit-learn, which has the digits, is not installed."""


def load(seed: int = 0, unseen: int = 360) -> tuple:
    """Images (count, 8, 8, 1) of numbers from 0 to 1 and labels 0 to 9: for training, and `unseen` for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DigitsMissingError(
            "This example needs the digits of scikit-learn, which is not installed: pip install 'weft[examples]'"
        ) from error
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)[order]
    y = labels.astype(np.int32)[order]
    return wnp.array(x[unseen:]), wnp.array(y[unseen:]), wnp.array(x[:unseen]), wnp.array(y[:unseen])


def run(main, short: bool) -> None:
    """Run an example; without the digits say what is missing, and that is not a failure."""
    try:
        main(short)
    except DigitsMissingError as error:
        print(error)
