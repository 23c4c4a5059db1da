"""The callback that writes what TensorBoard shows."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from weft import profiler
from weft.errors import ArgumentError
from weft.keras.callbacks.base import Callback, Logs
from weft.keras.callbacks.rates import find_optimizers, learning_rates
from weft.keras.callbacks.tensorboard import events
from weft.keras.core.together import whole_value

IMAGES = 3  # kernels of a layer that are shown as images, at most


class TensorBoard(Callback):
    """Writes logs for TensorBoard: scalars of epochs (and batches), histograms and images of weights, the graph.

    The files are written without TensorFlow. `tensorboard --logdir logs` shows them.

    Args:
        log_dir: the directory; `train` and `validation` in it have the files.
        histogram_freq: after how many epochs there are histograms of weights; 0: never.
        write_graph: whether the graph of layers is written.
        write_images: whether weights are also written as images, with the histograms.
        write_steps_per_second: whether the speed is written.
        update_freq: `"epoch"`, `"batch"`, or after how many batches there are scalars of batches too. They come from
            the chunks, so training does not go batch by batch.
        profile_batch: a batch, or `(first, last)`, that is traced by `weft.profiler`; 0: none. (Training goes batch by
            batch then.)
        embeddings_freq: after how many epochs the tables of embedding layers are written; 0: never.
        embeddings_metadata: names of files with labels: one for all embedding layers, or a dict by layer.

    >>> from weft.keras.callbacks import TensorBoard
    >>> TensorBoard("logs", histogram_freq=1).log_dir
    'logs'
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: int | tuple[int, int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: str | dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq = histogram_freq
        self.write_graph = write_graph
        self.write_images = write_images
        self.write_steps_per_second = write_steps_per_second
        if update_freq not in ("epoch", "batch") and not (isinstance(update_freq, int) and update_freq > 0):
            raise ArgumentError(
                "update_freq must be 'epoch', 'batch' or a positive integer.", received=f"{update_freq!r}"
            )
        self.update_freq = 1 if update_freq == "batch" else update_freq
        self.embeddings_freq = embeddings_freq
        self.embeddings_metadata = embeddings_metadata
        first, last = (profile_batch, profile_batch) if isinstance(profile_batch, int) else profile_batch
        if not 0 <= first <= last:
            raise ArgumentError(
                "profile_batch must be the index of a batch, or a pair (first, last).", received=f"{profile_batch!r}"
            )
        self._profiled = (first, last) if first else None
        if self.update_freq != "epoch" or self._profiled:
            self.async_safe = not self._profiled
            self.on_train_batch_end = self._after_batch  # type: ignore[method-assign]
        if self._profiled:
            self.on_train_batch_begin = self._before_batch  # type: ignore[method-assign]
        self._train = events.EventFile(os.path.join(self.log_dir, "train"))
        self._validation = events.EventFile(os.path.join(self.log_dir, "validation"))
        self._batches = 0
        self._tracing = False
        self._epoch_began = (0.0, 0)

    def get_state(self) -> Logs:
        return {"batches": self._batches}

    def set_state(self, state: Logs) -> None:
        self._batches = state["batches"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._batches = 0
        if self.write_graph and self.is_writer:
            self._train.write(0, graph=events.graph(describe_graph(self.model)))
            self._train.flush()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch_began = (time.monotonic(), self._batches)

    def on_train_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.update_freq == "epoch" and not self._profiled:
            self._batches = self._epoch_began[1] + batch + 1

    def _before_batch(self, batch: int, logs: Logs | None = None) -> None:
        assert self._profiled is not None
        if self._batches + 1 == self._profiled[0]:
            profiler.start_trace(os.path.join(self.log_dir, "profile"))
            self._tracing = True

    def _after_batch(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        if self._profiled and self._tracing and self._batches == self._profiled[1]:
            self._end_trace()
        if self.update_freq != "epoch" and self._batches % int(self.update_freq) == 0:
            self._scalars(self._train, "batch_", self._batches, logs or {})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = dict(logs or {})
        validation = {name[4:]: logs.pop(name) for name in list(logs) if name.startswith("val_")}
        logs.update(learning_rates(find_optimizers(self.model)))
        if self.write_steps_per_second:
            began, batches = self._epoch_began
            logs["steps_per_second"] = (self._batches - batches) / max(time.monotonic() - began, 1e-9)
        self._scalars(self._train, "epoch_", epoch, logs)
        self._scalars(self._validation, "epoch_", epoch, validation)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._embeddings()
        self._train.flush()
        self._validation.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._tracing:
            self._end_trace()
        self._train.close()
        self._validation.close()

    def _end_trace(self) -> None:
        profiler.stop_trace()
        self._tracing = False

    def _scalars(self, file: events.EventFile, prefix: str, step: int, logs: Logs) -> None:
        if not self.is_writer:
            return
        values = [events.scalar(prefix + name, float(v)) for name, v in logs.items() if np.ndim(v) == 0]
        if values:
            file.write(step, *values)

    def _weights(self, epoch: int) -> None:
        writes = self.is_writer
        for layer in self.model._flatten_layers(include_self=False):
            for weight in layer._own_variables():
                value = whole_value(weight).astype(np.float32)
                if not writes:
                    continue
                tag = weight.path
                self._train.write(epoch, events.histogram(f"{tag}/histogram", value))
                if self.write_images:
                    images = as_images(value)
                    shown = [events.image(f"{tag}/image/{i}", image) for i, image in enumerate(images[:IMAGES])]
                    if shown:
                        self._train.write(epoch, *shown)

    def _embeddings(self) -> None:
        """Write the tables of embedding layers as text, and the settings that name the files."""
        settings = []
        directory = os.path.join(self.log_dir, "train")
        layers = self.model._flatten_layers(include_self=False)
        found = [(layer, getattr(layer, "embeddings", None)) for layer in layers]
        tables = {layer.name: whole_value(table) for layer, table in found if table is not None}
        if not self.is_writer:
            return
        os.makedirs(directory, exist_ok=True)
        for layer, table in tables.items():
            name = f"{layer}_embedding.tsv"
            np.savetxt(os.path.join(directory, name), table, delimiter="\t")
            labels = self.embeddings_metadata
            labels = labels.get(layer) if isinstance(labels, dict) else labels
            lines = [f'  tensor_name: "{layer}"', f'  tensor_path: "{name}"']
            lines += [f'  metadata_path: "{labels}"'] if labels else []
            settings.append("embeddings {\n" + "\n".join(lines) + "\n}\n")
        if settings:
            with open(os.path.join(directory, "projector_config.pbtxt"), "w") as file:
                file.write("".join(settings))


def as_images(value: np.ndarray) -> list[np.ndarray]:
    """Convert a weight to images `(rows, columns, channels)`: one for each convolution kernel, one for a matrix."""
    value = np.squeeze(value)
    if value.ndim == 0:
        return []
    if value.ndim == 1:
        return [value[None, :, None]]
    if value.ndim == 2:
        return [value[:, :, None]]
    if value.ndim == 3:
        return [value[:, :, i, None] for i in range(value.shape[2])]
    if value.ndim == 4:
        channels = value.shape[2] if value.shape[2] in (1, 3) else 1
        return [value[:, :, :channels, i] for i in range(value.shape[3])]
    return []


def describe_graph(model: Any) -> list[events.GraphNode]:
    """Describe a model as a graph: its layers, with their inputs if it is functional."""
    functional = model if hasattr(model, "operations") else model.__dict__.get("_functional")
    if functional is None:
        layers = model._flatten_layers(include_self=False)
        return [events.GraphNode(f"{model.name}/{layer.name}", type(layer).__name__, []) for layer in layers]
    known = {id(operation) for operation in functional.operations}
    nodes = []
    for operation in functional.operations:
        calls = operation._inbound_nodes
        parents = [parent.operation for call in calls for parent in call.parent_nodes if id(parent.operation) in known]
        inputs = list(dict.fromkeys(f"{model.name}/{parent.name}" for parent in parents))
        tensors = calls[0].output_tensors if calls else []
        shape = tensors[0].shape if tensors else None
        nodes.append(events.GraphNode(f"{model.name}/{operation.name}", type(operation).__name__, inputs, shape))
    return nodes
