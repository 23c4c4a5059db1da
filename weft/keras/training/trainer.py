"""What a model learns with: `compile`, `fit`, `evaluate` and `predict`."""

from __future__ import annotations


class Trainer:
    """The training methods of `Model`."""
