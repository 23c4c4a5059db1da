"""8 by 8 pixel handwritten digits of scikit-learn, an optional dependency of the examples."""

from __future__ import annotations

import numpy as np
import picture

import weft.numpy as wnp


class DigitsMissingError(Exception):
    """scikit-learn, which has the digits, is not installed."""


def load(seed: int = 0, unseen: int = 360) -> tuple:
    """Load images (count, 8, 8, 1) with values from 0 to 1 and labels 0 to 9: a training set and a test set of
    `unseen`."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DigitsMissingError(
            "This example needs the digits of scikit-learn, which is not installed: pip install 'weft-jit[examples]'"
        ) from error
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)[order]
    y = labels.astype(np.int32)[order]
    return wnp.array(x[unseen:]), wnp.array(y[unseen:]), wnp.array(x[:unseen]), wnp.array(y[:unseen])


def run(main, short: bool, name: str = "") -> None:
    """Run an example and save its picture under `name`, or print what is missing if the digits are not installed."""
    try:
        panel = main(short)
        if name:
            picture.save(name, panel)
    except DigitsMissingError as error:
        print(error)
