"""The base class of callbacks: what `fit`, `evaluate` and `predict` call, and when."""

from __future__ import annotations

from typing import Any

from weft.keras.core.together import is_writer

Logs = dict[str, Any]


class Callback:
    """Hooks that `fit`, `evaluate` and `predict` call; subclasses override those they need.

    `self.model` is the model, `self.params` has `verbose`, `epochs` and `steps`. Setting `self.model.stop_training`
    ends `fit` at the end of the present chunk, with the hooks of the epoch.

    A *chunk* is a run of batches that one call of a compiled program computes, about 50 ms of them. The hooks of
    batches need one call a batch, so a callback that overrides one makes training slower; those that only look now and
    then override the hook of chunks. A callback whose batch hooks may be called late (for the batches of a chunk one
    after the other, once the chunk is finished; the weights are then those of its end) says so by `async_safe = True`.

    >>> from weft.keras.callbacks import Callback
    >>> class Print(Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         print(epoch, sorted(logs))
    >>> Print().on_epoch_end(0, {"loss": 1.0})
    0 ['loss']
    """

    #: Whether hooks of batches may be called after the chunk that their batches are in.
    async_safe: bool = False
    #: Chunks of training also end after every `chunk_every` batches, with exact logs there; None: anywhere.
    chunk_every: int | None = None

    def __init__(self) -> None:
        self.params: dict[str, Any] | None = None
        self._model: Any = None

    def set_params(self, params: dict[str, Any]) -> None:
        """Store `verbose`, `epochs`, `steps` of the call."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Store the model that is trained, evaluated or predicts."""
        self._model = model

    @property
    def model(self) -> Any:
        """The model."""
        return self._model

    @property
    def is_writer(self) -> bool:
        """Whether this process writes files and messages: of processes that train a model together one does."""
        return is_writer(getattr(self.model, "variables", ()))

    def get_state(self) -> Logs:
        """Return the state that another process needs to go on: numbers, strings, lists, dicts and arrays.

        `BackupAndRestore` stores it and passes it to `set_state` before the first resumed batch.
        """
        return {}

    def set_state(self, state: Logs) -> None:
        """Restore the state that `get_state` returned."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Run at the start of `fit`."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Run at the end of `fit`; `logs` are those of the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Run before the first batch of an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Run after an epoch and its validation. Entries added to `logs` are in the history and seen by later
        callbacks.
        """

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before each training batch; an alias of `on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after each training batch; an alias of `on_train_batch_end`."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a batch of `fit`."""
        self.on_batch_begin(batch, logs=logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a batch of `fit`; `logs` are the running means of the epoch so far."""
        self.on_batch_end(batch, logs=logs)

    def on_train_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a chunk of `fit`: `batch` is its last one. `logs` are the newest that are already computed,
        possibly those of the chunk before: this hook never waits.
        """

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Run at the start of `evaluate` and of validation."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Run at the end of `evaluate` and of validation."""

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a batch of `evaluate` or validation."""

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a batch of `evaluate` or validation."""

    def on_test_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a chunk of `evaluate` or validation."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Run at the start of `predict`."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Run at the end of `predict`."""

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a batch of `predict`."""

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a batch of `predict`; `logs["outputs"]` are its results."""

    def on_predict_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a chunk of `predict`."""


def overrides(callback: Callback, hook: str) -> bool:
    """Return whether a callback overrides a hook, in its class or on the object."""
    own = getattr(callback, hook, None)
    return own is not None and getattr(own, "__func__", own) is not getattr(Callback, hook)
