"""`fit`: epochs of training, validation, and calls of callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft import data
from weft.data.adapters import arrays
from weft.errors import ArgumentError
from weft.keras.callbacks import CallbackList, History
from weft.keras.core.config import settings
from weft.keras.core.together import agree, any_process
from weft.keras.training.arguments import make_adapter, split, unpack_batch, with_class_weight
from weft.keras.training.compiled import training_flags
from weft.keras.training.evaluating import evaluate_feed, limit_steps, make_feed, verbosity
from weft.keras.training.feed import Feed, StreamFeed
from weft.keras.training.loop import EpochLoop, Safe, wants_table
from weft.keras.training.order import NumPyOrder, epoch_generator, is_unbuilt


@dataclass
class FitArguments:
    """The arguments of `Trainer.fit`."""

    x: Any = None
    y: Any = None
    batch_size: int | None = None
    epochs: int = 1
    verbose: int | str = "auto"
    callbacks: Any = None
    validation_split: float = 0.0
    validation_data: Any = None
    shuffle: bool | str = True
    class_weight: Mapping[int, float] | None = None
    sample_weight: Any = None
    initial_epoch: int = 0
    steps_per_epoch: int | None = None
    validation_steps: int | None = None
    validation_batch_size: int | None = None
    validation_freq: int | Sequence[int] = 1


@dataclass
class Position:
    """The position of a training and the settings of its next batches, which a backup stores besides the state.

    The next batch is batch `batch` of `epoch`, and batch `data_batch` of the data's `data_epoch` (they differ with
    `steps_per_epoch`). `seed` is that of the order (of arrays a state of NumPy's generator, as text), `stream` the
    position in a stream, `done` the number of batches so far.
    """

    epoch: int
    batch: int
    data_epoch: int
    data_batch: int
    seed: int | str
    done: int = 0
    stream: Any = None


def validates_after(freq: int | Sequence[int], epoch: int) -> bool:
    """Return whether validation follows an epoch (counted from 0)."""
    if isinstance(freq, int):
        return (epoch + 1) % freq == 0
    return epoch + 1 in freq


class Fit:
    """One call of `fit`."""

    def __init__(self, model: Any, arguments: FitArguments) -> None:
        self.model = model
        self.arguments = arguments
        self.epochs = arguments.epochs if settings.max_epochs is None else min(arguments.epochs, settings.max_epochs)
        self.steps = limit_steps(arguments.steps_per_epoch)
        x, y, sample_weight, self.validation = training_and_validation(arguments)
        self._source = (x, y, sample_weight)
        # Arrays are read in Keras's order. Otherwise the order is a function of the seed and the epoch, so that a
        # training can go on elsewhere, and several processes agree.
        self.order: NumPyOrder | None = None
        of_arrays = bool(arguments.shuffle) and arrays.recognises((x, y, sample_weight))
        generator = epoch_generator() if of_arrays else None
        self.seed: int | str = 0
        if arguments.shuffle and generator is None:
            self.seed = agree(int(np.random.randint(2**31)))
        self.adapter = self.adapt(x, y, sample_weight, self.seed)
        if generator is not None:
            order = self.set_order(generator)
            if is_unbuilt(model):
                order.draw_first_batch()
        size = self.adapter.size if self.steps is None else self.steps
        shown = verbosity(arguments.verbose)
        self.callbacks = CallbackList(
            arguments.callbacks,
            add_history=True,
            add_progbar=shown != 0,
            model=model,
            verbose=shown,
            epochs=self.epochs,
            steps=size,
        )
        self.validation_feed: Feed | None = None
        self.backups = [c for c in self.callbacks if hasattr(c, "after_chunk") and hasattr(c, "restore")]
        first = arguments.initial_epoch
        self.position = Position(first, 0, first, 0, self.seed)

    def set_order(self, generator: Any) -> NumPyOrder:
        """Set the order in which the adapter of arrays reads rows, from a NumPy generator."""
        adapter: Any = self.adapter
        shuffle, size = self.arguments.shuffle, adapter.batch_size
        self.order = adapter.row_order = NumPyOrder(adapter.samples, shuffle, size, generator)
        return self.order

    def adapt(self, x: Any, y: Any, sample_weight: Any, seed: int | str) -> data.Adapter:
        """Wrap the training data in an adapter, with an order for shuffling."""
        arguments = self.arguments
        seed = seed if isinstance(seed, int) else 0
        return make_adapter(
            x, y, sample_weight, arguments.batch_size, arguments.shuffle, seed, arguments.steps_per_epoch
        )

    def run(self) -> History:
        """Run all epochs and return their history."""
        model, callbacks = self.model, self.callbacks
        model.stop_training = False
        self.open_feed()
        model._training.fit = self
        callbacks.on_train_begin({})
        if training_flags(model) != self.flags:
            self.open_feed()
        self.resume()
        logs: dict[str, Any] = {}
        try:
            for epoch in range(self.position.epoch, 0 if model.stop_training else self.epochs):
                ended = self.epoch(epoch)
                if ended is None:
                    break
                logs = ended
                model.stop_training = any_process(bool(model.stop_training))
                if model.stop_training:
                    break
                if training_flags(model) != self.flags:
                    # A callback froze layers or set them free: another program goes on with the same state.
                    self.feed.close()
                    self.open_feed()
        except BaseException:
            self.safe.restore()
            for backup in self.backups:
                backup.close()
            raise
        finally:
            model._training.fit = None
            self.feed.close()
            if self.validation_feed is not None:
                self.validation_feed.close()
        finalize = getattr(model.optimizer, "finalize_variable_values", None)
        if finalize is not None:
            finalize(model.trainable_variables)
        callbacks.on_train_end(logs)
        assert callbacks.history is not None
        return callbacks.history

    def open_feed(self) -> None:
        """Open the feed of training data and prepare its program for what trains now."""
        self.flags = training_flags(self.model)
        self.feed = make_feed(self.model, self.adapter, "train", wants_table(self.callbacks, "train"))
        if self.arguments.class_weight is not None and isinstance(self.feed, StreamFeed):
            self.feed.class_weight = self.arguments.class_weight if self._source[1] is None else None
        program = self.feed.prepare()
        self.variables = program.variables
        self.safe = Safe(self.variables)
        self.loop = EpochLoop(self.model, self.feed, self.callbacks, "train", self.model.steps_per_execution)
        self.loop.position = self.position
        self.loop.after_chunk = self.after_chunk if self.backups else None
        self.opened = False

    def resume(self) -> None:
        """Continue from the position that a callback has stored."""
        for backup in self.backups:
            found = backup.resume(self)
            if found is not None:
                self.position = Position(**found)
                self.seed = self.position.seed
                self.adapter = self.adapt(*self._source, self.seed)
                self.order = None
                if isinstance(self.seed, str):
                    self.set_order(epoch_generator() or np.random.RandomState()).restore(
                        self.position.data_epoch, self.seed
                    )
                self.open_feed()
                backup.restore(self)
                return

    def position_state(self) -> dict[str, Any]:
        """Return the position in the training data as plain data (JSON)."""
        if self.order is not None:
            self.position.seed = self.order.state_text(self.position.data_epoch)
        # Between two epochs of the data there is no position in a stream: the next one begins.
        return {**asdict(self.position), "stream": self.feed.state() if self.position.data_batch else None}

    def after_chunk(self) -> None:
        """Run backups after the hooks of a chunk. The last chunk ends the epoch, when backups are made anyway."""
        if self.position.data_batch != self.feed.size and self.position.batch != self.steps:
            for backup in self.backups:
                backup.after_chunk(self)

    def begin(self) -> None:
        """Move the feed to the batch of the position."""
        position = self.position
        if self.order is not None and (position.data_batch == 0 or not self.opened):
            self.order.begin(position.data_epoch)
        if position.stream is not None:
            self.feed.resume(position.stream)  # type: ignore[union-attr]
            position.stream = None
        elif not self.opened or (position.data_batch == 0 and self.adapter.restartable):
            self.feed.begin(position.data_epoch, position.data_batch)
        self.opened = True

    def epoch(self, epoch: int) -> dict[str, Any] | None:
        """Run one epoch, or the rest of one; None if the data has ended in the epochs before."""
        model, callbacks, position = self.model, self.callbacks, self.position
        if position.batch == 0:
            model.reset_metrics()
        callbacks.on_epoch_begin(epoch, {})
        self.begin()
        size = self.feed.size
        rest = None if size is None else size - position.data_batch
        wanted = None if self.steps is None else self.steps - position.batch
        count = min((n for n in (rest, wanted) if n is not None), default=None)
        first = position.batch
        logs = self.loop.run(count, self.safe)
        if position.batch == first and first:
            # A stream whose end was not known when the backup was made: all batches were there already.
            logs = {name: float(value) for name, value in sorted(model.get_metrics_result().items())}
        if position.batch == 0 and position.done:
            warnings.warn(
                f"The data ran out before epoch {epoch + 1} of {self.epochs}: training ends here.", stacklevel=5
            )
            return None
        if position.batch == 0:
            raise ArgumentError(
                "There is no batch to train on: the data is empty, or a generator has ended.",
                received=f"epoch {epoch + 1} of {self.epochs}",
            )
        ran_out = wanted is not None and position.batch - first < wanted and not model.stop_training
        if ran_out:
            warnings.warn(
                f"The data ran out after {position.batch} of {self.steps} steps of epoch {epoch + 1}.", stacklevel=5
            )
        if self.steps is None or ran_out or position.data_batch == size:
            position.data_epoch, position.data_batch = position.data_epoch + 1, 0
        position.epoch, position.batch = epoch + 1, 0
        if self.validation is not None and validates_after(self.arguments.validation_freq, epoch):
            validated = {f"val_{name}": value for name, value in self.validate().items()}
            logs = dict(sorted({**logs, **validated}.items()))
        callbacks.on_epoch_end(epoch, logs)
        for backup in self.backups:
            backup.after_epoch(self)
        return logs

    def validate(self) -> dict[str, Any]:
        """Run a validation and return its logs."""
        if self.validation_feed is None:
            batch_size = self.arguments.validation_batch_size or self.arguments.batch_size
            x, y, sample_weight = self.validation
            if not arrays.recognises(x):
                batch_size = None
            adapter = make_adapter(x, y, sample_weight, batch_size, steps=self.arguments.validation_steps)
            self.validation_feed = make_feed(self.model, adapter, "test", wants_table(self.callbacks, "test"))
        return evaluate_feed(
            self.model, self.validation_feed, self.callbacks, limit_steps(self.arguments.validation_steps)
        )


def training_and_validation(arguments: FitArguments) -> tuple[Any, Any, Any, Any]:
    """Split the arguments into x, y, sample weights, and `(x, y, sample_weight)` for validation or None."""
    x, y, sample_weight = arguments.x, arguments.y, arguments.sample_weight
    validation = arguments.validation_data
    if x is None:
        raise ArgumentError("There is no data to train on.", received="x=None")
    if arguments.validation_split and validation is None:
        (x, y, sample_weight), validation = split((x, y, sample_weight), arguments.validation_split)
    if arguments.class_weight is not None:
        # After the split: classes have weights in training only.
        if sample_weight is not None:
            raise ArgumentError(
                "At most one of class_weight and sample_weight must be given.", fix="multiply the weights yourself"
            )
        if y is not None or arrays.recognises(x):
            sample_weight = with_class_weight(y, arguments.class_weight)
    if validation is not None:
        is_tuple = isinstance(validation, tuple | list)
        validation = unpack_batch(validation) if is_tuple else (validation, None, None)
    return x, y, sample_weight, validation


def fit(model: Any, arguments: FitArguments) -> History:
    """Implement `Trainer.fit`."""
    return Fit(model, arguments).run()
