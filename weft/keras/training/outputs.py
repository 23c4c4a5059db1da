"""Which targets, losses, weights and metrics belong to which output of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError
from weft.keras.core.context import type_text


class Output(NamedTuple):
    """One output: its key in a dict (or its position in a list, or None if it is the only one), its name, its value."""

    key: str | int | None
    name: str
    value: Any


def outputs_of(y_pred: Any, names: Sequence[str] | None) -> list[Output]:
    """The outputs of a model.

    >>> [(o.key, o.name) for o in outputs_of([1, 2], ["a", "b"])]
    [(0, 'a'), (1, 'b')]
    """
    if isinstance(y_pred, Mapping):
        return [Output(key, str(key), value) for key, value in y_pred.items()]
    if isinstance(y_pred, list | tuple):
        known = names if names is not None and len(names) == len(y_pred) else None
        return [Output(i, known[i] if known else f"output_{i + 1}", value) for i, value in enumerate(y_pred)]
    return [Output(None, names[0] if names else "output", y_pred)]


def part_of(structure: Any, output: Output, outputs: Sequence[Output], what: str, shared: bool) -> Any:
    """What of a structure belongs to an output: by key or name in a dict, by position in a list.

    Args:
        structure: targets, weights, losses, ...; None if there is none.
        output, outputs: the output, and all of them.
        what: what it is called in errors.
        shared: whether something that is neither a dict nor a list is for all outputs.
    """
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        names = {key for o in outputs for key in (o.key, o.name)}
        unknown = [str(key) for key in structure if key not in names]
        if unknown:
            raise ArgumentError(
                f"{what} has a key for something that is not an output of the model.",
                received=", ".join(repr(key) for key in unknown),
                fix=f"the outputs are {', '.join(repr(o.name) for o in outputs)}",
            )
        return structure[output.key] if output.key in structure else structure.get(output.name)
    if isinstance(structure, list | tuple):
        if len(structure) != len(outputs):
            raise ArgumentError(
                f"{what} has as many entries as the model has outputs, {len(outputs)}.",
                received=f"{len(structure)}: {type_text(structure)}",
                fix=f"a dict with the keys {', '.join(repr(o.name) for o in outputs)}" if len(outputs) > 1 else None,
            )
        return structure[next(i for i, o in enumerate(outputs) if o.key == output.key)]
    if len(outputs) == 1 or shared:
        return structure
    raise ArgumentError(
        f"The model has {len(outputs)} outputs, and {what} only one entry.",
        received=type_text(structure),
        fix=f"a list of {len(outputs)}, or a dict with the keys {', '.join(repr(o.name) for o in outputs)}",
    )


class Kind(NamedTuple):
    """What the shapes of targets and predictions say about a classification."""

    binary: bool
    sparse: bool


def kind_of(y_true: Any, y_pred: Any) -> Kind:
    """Whether a classification is binary (the last axis of predictions is 1), or has targets that are classes."""
    true, predicted = np.shape(y_true), np.shape(y_pred)
    binary = bool(predicted) and predicted[-1] == 1
    sparse = len(true) < len(predicted) or (bool(true) and true[-1] == 1 and predicted[-1] > 1)
    return Kind(binary, sparse)
