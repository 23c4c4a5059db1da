"""The loss of a model from what `compile(loss=...)` received: one for each output, weighted and summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import losses
from weft.keras.core.context import type_text
from weft.keras.losses.base import Loss, LossFunctionWrapper
from weft.keras.metrics import Mean
from weft.keras.training.outputs import Output, kind_of, outputs_of, part_of

_CROSSENTROPIES = ("BinaryCrossentropy", "SparseCategoricalCrossentropy", "CategoricalCrossentropy")


def loss_object(identifier: Any, y_true: Any, y_pred: Any) -> Loss:
    """The loss that an argument means; "crossentropy" by the shapes of targets and predictions."""
    if identifier in ("crossentropy", "ce"):
        kind = kind_of(y_true, y_pred)
        return getattr(losses, _CROSSENTROPIES[0 if kind.binary else 1 if kind.sparse else 2])()
    found = losses.get(identifier)
    if isinstance(found, Loss):
        return found
    if not callable(found):
        raise ArgumentError(
            "A loss is a function of (y_true, y_pred), a `Loss`, or a name.",
            received=f"{type(found).__name__}: {found!r}",
        )
    return LossFunctionWrapper(found, name=getattr(found, "__name__", type(found).__name__))


class Entry(NamedTuple):
    """The loss of one output."""

    key: str | int | None
    name: str
    loss: Loss
    weight: Any
    tracker: Mean | None


class CompileLoss:
    """The sum of the losses of all outputs, each times its weight.

    Args:
        loss: a loss, or a list or dict of them by output.
        loss_weights: a float, or a list or dict of them by output.
        output_names: names of the outputs, where the model knows them.

    The losses of single outputs are tracked (`metrics`) where several outputs have one.
    """

    def __init__(self, loss: Any, loss_weights: Any = None, output_names: Sequence[str] | None = None) -> None:
        self.loss = loss
        self.loss_weights = loss_weights
        self.output_names = output_names
        self.entries: list[Entry] | None = None

    @property
    def metrics(self) -> list[Mean]:
        """The means of the losses of single outputs."""
        return [entry.tracker for entry in self.entries or () if entry.tracker is not None]

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Finds the loss of each output. Shapes and types of arrays are enough."""
        if self.entries is not None:
            return
        outputs = outputs_of(y_pred, self.output_names)
        found: list[tuple[Output, Loss, Any]] = []
        for output in outputs:
            identifier = part_of(self.loss, output, outputs, "loss", shared=True)
            if identifier is None:
                continue
            weight = part_of(self.loss_weights, output, outputs, "loss_weights", shared=False)
            target = part_of(y_true, output, outputs, "y", shared=False)
            if target is None:
                raise ArgumentError(
                    f"There is a loss for the output {output.name!r}, but no targets.",
                    received="y=None" if y_true is None else f"y={type_text(y_true)}",
                    fix="fit(x, y), or a stream of batches (x, y)",
                )
            found.append((output, loss_object(identifier, target, output.value), weight))
        several = len(found) > 1
        self.entries = [
            Entry(o.key, o.name, loss, weight, Mean(name=f"{o.name}_loss") if several else None)
            for o, loss, weight in found
        ]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The loss of a batch, a scalar; None if no output has one."""
        self.build(y_true, y_pred)
        outputs = outputs_of(y_pred, self.output_names)
        by_key = {output.key: output for output in outputs}
        total = None
        for entry in self.entries or ():
            output = by_key[entry.key]
            target = part_of(y_true, output, outputs, "y", shared=False)
            weights = part_of(sample_weight, output, outputs, "sample_weight", shared=True)
            value = self._of_output(entry, target, output.value, weights)
            if entry.tracker is not None:
                entry.tracker.update_state(value, sample_weight=output.value.shape[0])
            if entry.weight is not None:
                value = value * wnp.asarray(entry.weight, value.dtype)
            total = value if total is None else total + value
        return total

    def _of_output(self, entry: Entry, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        try:
            return entry.loss(y_true, y_pred, sample_weight)
        except Exception as error:
            weights = "" if sample_weight is None else f", sample_weight {type_text(sample_weight)}"
            types = f"y_true {type_text(y_true)}, y_pred {type_text(y_pred)}{weights}"
            error.add_note(f"in loss {entry.loss.name} of output {entry.name}: {types}")
            raise
