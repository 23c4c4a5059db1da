"""The metrics of a model from what `compile(metrics=..., weighted_metrics=...)` received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from weft.errors import ArgumentError
from weft.keras import metrics as metrics_module
from weft.keras.core.context import type_text
from weft.keras.metrics.base import Metric
from weft.keras.metrics.reduction import MeanMetricWrapper
from weft.keras.training.outputs import Output, kind_of, outputs_of, part_of

_BY_KIND = {
    "accuracy": ("BinaryAccuracy", "SparseCategoricalAccuracy", "CategoricalAccuracy"),
    "crossentropy": ("BinaryCrossentropy", "SparseCategoricalCrossentropy", "CategoricalCrossentropy"),
}
_SHORT = {"acc": "accuracy", "ce": "crossentropy"}


def metric_object(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    """The metric that an argument means; "accuracy" and "crossentropy" by the shapes of targets and predictions."""
    if isinstance(identifier, str) and (long := _SHORT.get(identifier.lower(), identifier)) in _BY_KIND:
        kind = kind_of(y_true, y_pred)
        return getattr(metrics_module, _BY_KIND[long][0 if kind.binary else 1 if kind.sparse else 2])(name=identifier)
    found = metrics_module.get(identifier)
    if not isinstance(found, Metric):
        if not callable(found):
            raise ArgumentError(
                "A metric is a `Metric`, a function of (y_true, y_pred), or a name.",
                received=f"{type(found).__name__}: {found!r}",
            )
        name = getattr(found, "__name__", None) or getattr(found, "name", None) or type(found).__name__
        found = MeanMetricWrapper(found, name=name.strip("<>"))
    if isinstance(identifier, str):
        found.name = identifier
    return found


class Entry(NamedTuple):
    """One metric of one output, and what histories call it."""

    key: str | int | None
    output: str
    name: str
    metric: Metric
    weighted: bool


class CompileMetrics:
    """The metrics of all outputs.

    Args:
        metrics: metrics that do not see sample weights: a list for a model with one output; a list with an entry for
            each output, or a dict by output, for one with several.
        weighted_metrics: metrics that do.
        output_names: names of the outputs, where the model knows them.
    """

    def __init__(
        self, metrics: Any = None, weighted_metrics: Any = None, output_names: Sequence[str] | None = None
    ) -> None:
        self._arguments = (metrics, weighted_metrics)
        self.output_names = output_names
        self.entries: list[Entry] | None = None

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, in the order that they were listed in."""
        return [entry.metric for entry in self.entries or ()]

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Finds the metrics of each output. Shapes and types of arrays are enough."""
        if self.entries is not None:
            return
        outputs = outputs_of(y_pred, self.output_names)
        entries: list[Entry] = []
        for output in outputs:
            taken: set[str] = set()
            for argument, weighted in zip(self._arguments, (False, True), strict=True):
                target = None
                for identifier in _listed(argument, output, outputs, "weighted_metrics" if weighted else "metrics"):
                    target = part_of(y_true, output, outputs, "y", shared=False) if target is None else target
                    if target is None:
                        raise ArgumentError(
                            f"There are metrics for the output {output.name!r}, but no targets.",
                            received=f"metrics={type_text(identifier)}, y={type_text(y_true)}",
                        )
                    metric = metric_object(identifier, target, output.value)
                    name = f"weighted_{metric.name}" if weighted and metric.name in taken else metric.name
                    name = next(n for n in _candidates(name) if n not in taken)
                    taken.add(name)
                    full = f"{output.name}_{name}" if len(outputs) > 1 else name
                    entries.append(Entry(output.key, output.name, full, metric, weighted))
        self.entries = entries

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Accumulates a batch."""
        if self._arguments == (None, None):
            return
        self.build(y_true, y_pred)
        outputs = outputs_of(y_pred, self.output_names)
        by_key = {output.key: output for output in outputs}
        for entry in self.entries or ():
            output = by_key[entry.key]
            target = part_of(y_true, output, outputs, "y", shared=False)
            weights = part_of(sample_weight, output, outputs, "sample_weight", shared=True)
            try:
                if entry.weighted:
                    entry.metric.update_state(target, output.value, sample_weight=weights)
                else:
                    entry.metric.update_state(target, output.value)
            except Exception as error:
                types = f"y_true {type_text(target)}, y_pred {type_text(output.value)}"
                error.add_note(f"in metric {entry.metric.name} of output {entry.output}: {types}")
                raise

    def result(self) -> dict[str, Any]:
        """The values by name."""
        return {entry.name: entry.metric.result() for entry in self.entries or ()}


def _listed(argument: Any, output: Output, outputs: Sequence[Output], what: str) -> list[Any]:
    """The metrics of an output."""
    if argument is None:
        return []
    if len(outputs) > 1 or isinstance(argument, Mapping):
        if isinstance(argument, str | Metric) or (callable(argument) and not isinstance(argument, Mapping)):
            argument = [argument]
        argument = part_of(argument, output, outputs, what, shared=False)
    elif isinstance(argument, list | tuple) and len(argument) == 1 and isinstance(argument[0], list | tuple):
        argument = argument[0]
    if argument is None:
        return []
    listed = list(argument) if isinstance(argument, list | tuple) else [argument]
    return [identifier for identifier in listed if identifier is not None]


def _candidates(name: str) -> Iterator[str]:
    yield name
    i = 1
    while True:
        yield f"{name}_{i}"
        i += 1
