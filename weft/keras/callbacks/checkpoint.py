"""Models written to files while they are trained."""

from __future__ import annotations

import os
from typing import Any

from weft import checkpointing
from weft.keras.callbacks.base import Logs
from weft.keras.callbacks.monitor import MonitorCallback
from weft.keras.saving import orbax


class ModelCheckpoint(MonitorCallback):
    """Saves the model, or its weights, after each epoch or after each `save_freq` batches.

    Args:
        filepath: where to; may have fields such as `model-{epoch:02d}-{val_loss:.2f}.keras`, filled from the epoch
            (counted from 1), the batch and the logs. Ends with `.keras`, or with `.weights.h5` (`.safetensors`) if only
            weights are saved.
        monitor: name of the value that `save_best_only` looks at.
        verbose: 1 prints what happens.
        save_best_only: whether a model that is no better than the best one yet is not saved.
        save_weights_only: whether only weights are saved.
        mode: `min`, `max`, or `auto`: found from the metric.
        save_freq: `"epoch"`, or after how many batches. (Training does not go batch by batch for that.)
        initial_value_threshold: the value that the first model must be better than.

    >>> from weft.keras.callbacks import ModelCheckpoint
    >>> ModelCheckpoint("best.keras", monitor="val_accuracy", save_best_only=True).monitor
    'val_accuracy'
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__(monitor, mode, initial_value_threshold)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(
                f"ModelCheckpoint: save_freq must be 'epoch' or a positive integer, received {save_freq!r}"
            )
        endings = (".weights.h5", ".safetensors") if save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            kind = "weights are saved to" if save_weights_only else "a model is saved to"
            raise ValueError(f"ModelCheckpoint: {kind} a file that ends with {endings[0]}, received {self.filepath!r}")
        self._epoch = 0
        if isinstance(save_freq, int):
            self.chunk_every = save_freq
            self.on_train_chunk_end = self._after_chunk  # type: ignore[method-assign]
        self._since_saving = 0
        self._last_batch = -1

    def get_state(self) -> Logs:
        return {"best": self.best, "since_saving": self._since_saving}

    def set_state(self, state: Logs) -> None:
        self.best, self._since_saving = state["best"], state["since_saving"]

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch
        self._last_batch = -1

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, None, logs or {})

    def _after_chunk(self, batch: int, logs: Logs | None = None) -> None:
        self._since_saving += batch - self._last_batch
        self._last_batch = batch
        if self._since_saving >= int(self.save_freq):
            self._since_saving = 0
            self._save(self._epoch, batch, logs or {})

    def _save(self, epoch: int, batch: int | None, logs: Logs) -> None:
        path = self._path(epoch, batch, logs)
        verbose = self.verbose > 0 and self.is_writer
        when = f"\nEpoch {epoch + 1}: "
        if self.save_best_only:
            current = self.read_monitor(logs)
            # Nothing to compare is no reason to lose the model: `read_monitor` has warned.
            if current is not None and not self.is_improvement(current, self.best):
                if verbose:
                    print(f"{when}{self.monitor} is not better than {self.best:.5f}")
                return
            if verbose and current is not None:
                before = "nothing" if self.best is None else f"{self.best:.5f}"
                print(f"{when}{self.monitor} improved from {before} to {current:.5f}, saving the model to {path}")
            self.best = self.best if current is None else current
        elif verbose:
            print(f"{when}saving the model to {path}")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)

    def _path(self, epoch: int, batch: int | None, logs: Logs) -> str:
        fields: dict[str, Any] = {"epoch": epoch + 1, **logs}
        if batch is not None:
            fields["batch"] = batch + 1
        try:
            return self.filepath.format(**fields)
        except KeyError as error:
            raise KeyError(
                f"ModelCheckpoint: {self.filepath!r} has the unknown field {error}; there are {', '.join(fields)}"
            ) from None


class OrbaxCheckpoint(MonitorCallback):
    """Saves the model to a directory of checkpoints in Orbax's layout, one for each save; sharded variables by shards.

    `keras.models.load_model(directory)` constructs the model of the last checkpoint, `model.load_weights(directory)`
    assigns its variables. Keras with Orbax reads the directories, and those that it writes are read here.

    Args:
        directory: where to.
        monitor: name of the value that `save_best_only` looks at.
        verbose: 1 prints what happens.
        save_best_only: whether a model that is no better than the best one yet is not saved.
        mode: `min`, `max`, or `auto`: found from the metric.
        save_freq: `"epoch"`, or after how many batches. (Training does not go batch by batch for that.)
        initial_value_threshold: the value that the first model must be better than.
        max_to_keep: how many checkpoints there are at most.
        save_on_background: whether a thread writes.
        save_weights_only: whether only variables of layers are saved, without the optimizer, metrics and config.

    >>> from weft.keras.callbacks import OrbaxCheckpoint
    >>> OrbaxCheckpoint("checkpoints", max_to_keep=3).max_to_keep
    3
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
        max_to_keep: int | None = 1,
        save_on_background: bool = True,
        save_weights_only: bool = False,
    ) -> None:
        super().__init__(monitor, mode, initial_value_threshold)
        self.directory = os.fspath(directory)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.save_on_background = save_on_background
        self.save_weights_only = save_weights_only
        if save_freq != "epoch" and not (type(save_freq) is int and save_freq > 0):
            raise ValueError(
                f"OrbaxCheckpoint: save_freq must be 'epoch' or a positive integer, received {save_freq!r}"
            )
        self._batches = 0
        self._last_batch = -1
        self._manager: checkpointing.CheckpointManager | None = None
        if isinstance(save_freq, int):
            self.chunk_every = save_freq
            self.on_train_chunk_end = self._after_chunk  # type: ignore[method-assign]

    @property
    def manager(self) -> checkpointing.CheckpointManager:
        """What writes and reads the directory: `manager.latest_step()`, `manager.restore()`."""
        if self._manager is None:
            self._manager = checkpointing.CheckpointManager(
                self.directory,
                max_to_keep=self.max_to_keep,
                enable_async_checkpointing=self.save_on_background,
                layout="orbax",
            )
        return self._manager

    def get_state(self) -> Logs:
        return {"best": self.best, "batches": self._batches}

    def set_state(self, state: Logs) -> None:
        self.best, self._batches = state["best"], state["batches"]

    def set_model(self, model: Any) -> None:
        """Take the model; batches are counted on from those that its optimizer has seen."""
        super().set_model(model)
        iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
        if iterations is not None:
            self._batches = max(self._batches, int(iterations))

    def restore(self, step: int | None = None) -> None:
        """Assign the values of a checkpoint to the model, by default of the last one."""
        self.wait_until_finished()
        orbax.load(self.model, self.directory if step is None else os.path.join(self.directory, str(step)))

    def wait_until_finished(self) -> None:
        """Wait for the save that is going on, and raise what went wrong with it."""
        self.manager.wait_until_finished()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._last_batch = -1

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, logs or {})

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.manager.wait_until_finished()

    def _after_chunk(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += batch - self._last_batch
        self._last_batch = batch
        if self._batches % int(self.save_freq) == 0:
            self._save(self._batches, logs or {})

    def _save(self, step: int, logs: Logs) -> None:
        if self.save_best_only:
            current = self.read_monitor(logs)
            if current is None or not self.is_improvement(current, self.best):
                return
            self.best = current
        if self.verbose > 0 and self.is_writer:
            print(f"\nSaving checkpoint {step} to {self.directory}")
        if step in self.manager.all_steps():  # of an earlier training
            self.manager.delete(step)
        self.manager.save(step, orbax.describe(self.model, self.save_weights_only), force=True)
