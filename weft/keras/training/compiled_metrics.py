"""The metrics of a model according to `compile(metrics=..., weighted_metrics=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft.errors import ArgumentError
from weft.keras import metrics as metrics_module
from weft.keras.core.context import type_text
from weft.keras.metrics.base import Metric
from weft.keras.metrics.reduction import MeanMetricWrapper
from weft.keras.training.outputs import (
    Path,
    align,
    align_targets,
    align_weights,
    at_path,
    classify_targets,
    entries,
    is_config,
    leaf_names,
    leaf_paths,
    tree_order,
    unused_name,
)

_BY_KIND = {
    "accuracy": ("BinaryAccuracy", "SparseCategoricalAccuracy", "CategoricalAccuracy"),
    "crossentropy": ("BinaryCrossentropy", "SparseCategoricalCrossentropy", "CategoricalCrossentropy"),
}
_SHORT = {"acc": "accuracy", "ce": "crossentropy"}


def metric_object(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    """Return the metric for an argument of `compile`; "accuracy" and "crossentropy" depend on the shapes of targets and
    predictions.
    """
    if isinstance(identifier, str) and (long := _SHORT.get(identifier.lower(), identifier)) in _BY_KIND:
        kind = classify_targets(y_true, y_pred)
        return getattr(metrics_module, _BY_KIND[long][0 if kind.binary else 1 if kind.sparse else 2])(name=identifier)
    found = metrics_module.get(identifier)
    if not isinstance(found, Metric):
        if not callable(found):
            raise ArgumentError(
                "A metric must be a `Metric`, a function of (y_true, y_pred), or a name.",
                received=f"{type(found).__name__}: {found!r}",
            )
        name = getattr(found, "__name__", None) or getattr(found, "name", None) or type(found).__name__
        found = MeanMetricWrapper(found, name=name.strip("<>"))
    if isinstance(identifier, str):
        found.name = identifier
    return found


class Entry(NamedTuple):
    """One metric of one output, the name of the output (if any), and the name of the metric in histories."""

    path: Path
    output: str | None
    name: str
    metric: Metric
    weighted: bool


class CompileMetrics:
    """The metrics of all outputs.

    Args:
        metrics: metrics that do not see sample weights: a list for a model with one output; for one with several a
            list with an entry for each output, a dict by output, or the structure of the outputs.
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
        """The metrics in the order of their listing, those without sample weights first."""
        return [entry.metric for entry in self.entries or ()]

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Find the metrics of each output. Shapes and types of arrays are enough."""
        if self.entries is not None:
            return
        names = leaf_names(y_pred, self.output_names)
        several = len(leaf_paths(y_pred)) > 1
        listed = [
            (path, identifier, weighted)
            for argument, weighted in zip(self._arguments, (False, True), strict=True)
            for path, identifier in list_metrics(
                argument, y_pred, names, self.output_names, "weighted_metrics" if weighted else "metrics"
            )
        ]
        targets = align_targets(y_true, y_pred, names, list(dict.fromkeys(path for path, _, _ in listed)))
        found: list[Entry] = []
        for path, identifier, weighted in listed:
            target = None if targets is None else at_path(targets, path)
            output = names.get(path)
            if target is None:
                raise ArgumentError(
                    f"There are metrics for the output {output or path!r}, so it must have targets.",
                    received=f"metrics={type_text(identifier)}, y={type_text(y_true)}",
                )
            metric = metric_object(identifier, target, at_path(y_pred, path))
            prefix = f"{output}_" if several and output is not None else ""
            used = [entry.name for entry in found]
            again = weighted and prefix + metric.name in used
            name = unused_name(f"{prefix}weighted_{metric.name}" if again else prefix + metric.name, used)
            found.append(Entry(path, output if several else None, name, metric, weighted))
        self.entries = found

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Accumulate a batch."""
        if self._arguments == (None, None):
            return
        self.build(y_true, y_pred)
        found = self.entries or []
        names = leaf_names(y_pred, self.output_names)
        targets = align_targets(y_true, y_pred, names, list(dict.fromkeys(entry.path for entry in found)))
        for entry in found:
            target, predicted = at_path(targets, entry.path), at_path(y_pred, entry.path)
            try:
                if entry.weighted:
                    weights = align_weights(sample_weight, y_pred, names, entry.path)
                    entry.metric.update_state(target, predicted, sample_weight=weights)
                else:
                    entry.metric.update_state(target, predicted)
            except Exception as error:
                types = f"y_true {type_text(target)}, y_pred {type_text(predicted)}"
                of_output = "" if entry.output is None else f" of output {entry.output}"
                error.add_note(f"in metric {entry.metric.name}{of_output}: {types}")
                raise

    def reset_state(self) -> None:
        """Reset all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def result(self) -> dict[str, Any]:
        """Return the values by name."""
        return {entry.name: entry.metric.result() for entry in self.entries or ()}


def list_metrics(
    structure: Any,
    y_pred: Any,
    names: Mapping[Path, str],
    order: Sequence[str] | None,
    what: str,
    path: Path = (),
) -> list[tuple[Path, Any]]:
    """Return pairs of the path of a single output and one of its metrics.

    Args:
        structure: a metric, or a structure of metrics.
        y_pred: the outputs at `path`.
        names: the names of single outputs by path.
        order: the names in the order of the model, which a list of metrics for a dict of outputs has.
        what: the name of the argument in errors.
        path: the path of `y_pred` in all outputs.
    """
    if structure is None or (isinstance(structure, Mapping | list | tuple) and not structure):
        return []
    leaves = leaf_paths(y_pred, path)
    if len(leaves) == 1:
        if isinstance(structure, Mapping) and not is_config(structure):
            structure = align(structure, [0], {(0,): names.get(leaves[0], "output")}, what)
        return [(leaves[0], one) for one in _flat(structure)]
    inner = dict(entries(y_pred))
    if order is not None and set(order) == set(inner):
        inner = {name: inner[name] for name in order}
    elif isinstance(y_pred, Mapping):
        inner = {key: inner[key] for (key,) in tree_order([(key,) for key in inner])}
    if isinstance(structure, Mapping) and not is_config(structure):
        labels = [key if isinstance(y_pred, Mapping) else names.get((*path, key), key) for key in inner]
        # Unknown keys are an error of the alignment.
        align(dict.fromkeys(structure), y_pred, names, what, path)
        parts = [structure.get(label) for label in labels]
    elif isinstance(structure, list | tuple) and len(structure) == len(inner):
        parts = list(structure)
    elif isinstance(structure, list | tuple) and len(structure) == len(leaves):
        pairs = zip(tree_order(leaves), structure, strict=True)
        return [(leaf, one) for leaf, item in pairs for one in _flat(item)]
    else:
        shown = ", ".join(repr(name) for name in names.values()) or ", ".join(str(leaf) for leaf in leaves)
        raise ArgumentError(
            f"{what} must have as many entries as the model has outputs, {len(inner)}.",
            received=f"{len(structure)}: {structure!r}" if isinstance(structure, list | tuple) else repr(structure),
            fix=f"a list of {len(inner)} lists, or a dict with the keys {shown}",
        )
    return [
        found
        for part, (key, item) in zip(parts, inner.items(), strict=True)
        for found in list_metrics(part, item, names, None, what, (*path, key))
    ]


def _flat(structure: Any) -> list[Any]:
    """List the metrics of one output."""
    if structure is None:
        return []
    if isinstance(structure, list | tuple):
        return [one for item in structure for one in _flat(item)]
    return [structure]
