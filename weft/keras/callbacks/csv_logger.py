"""Logs of epochs as a file of comma-separated values."""

from __future__ import annotations

import collections.abc
import csv
import os
from typing import Any

from weft.keras.callbacks.base import Callback, Logs


class CSVLogger(Callback):
    """Writes the logs of each epoch as one line of a file: `epoch`, then names in alphabetical order.

    Args:
        filename: of the file.
        separator: between two values.
        append: whether lines are added to a file that is there already.

    >>> from weft.keras.callbacks import CSVLogger
    >>> CSVLogger("training.csv").separator
    ','
    """

    def __init__(self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False) -> None:
        super().__init__()
        self.filename = os.fspath(filename)
        self.separator = separator
        self.append = append
        self.keys: list[str] | None = None
        self._file: Any = None
        self._header = True
        self._fresh = True

    def get_state(self) -> Logs:
        return {"keys": self.keys, "size": None if self._file is None else self._file.tell()}

    def set_state(self, state: Logs) -> None:
        # What a run that was ended wrote after its last backup is written again.
        if self.is_writer and state["size"] is not None and os.path.exists(self.filename):
            self._close()
            with open(self.filename, "r+", newline="") as file:
                file.truncate(min(state["size"], os.path.getsize(self.filename)))
            self._file = open(self.filename, "a", newline="")  # noqa: SIM115 (closed at the end of training)
            self.keys = state["keys"]
            self._header = self.keys is None and not (self.append and state["size"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._header = True
        if not self.is_writer:
            return
        if self.append and os.path.exists(self.filename):
            self._header = os.path.getsize(self.filename) == 0
        self.keys = None
        # A file that a backup goes on with must survive until it is known, so it is opened for appending and emptied.
        self._file = open(self.filename, "a", newline="")  # noqa: SIM115 (closed at the end of training)
        self._fresh = not self.append

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = logs or {}
        if self._file is None:
            return
        if self._fresh and self._header:
            self._file.truncate(0)
        self._fresh = False
        if self.keys is None:
            self.keys = sorted(logs)
            # The first epoch may be one without validation: the columns of later ones are there from the start.
            if not any(key.startswith("val_") for key in self.keys):
                self.keys += ["val_" + key for key in self.keys]
        row = {"epoch": epoch, **{key: _cell(logs.get(key, "NA")) for key in self.keys}}
        writer = csv.DictWriter(self._file, ["epoch", *self.keys], delimiter=self.separator, lineterminator="\n")
        if self._header:
            writer.writeheader()
            self._header = False
        writer.writerow(row)
        self._file.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _cell(value: Any) -> Any:
    """Convert a value for a cell: sequences become one string."""
    if isinstance(value, str) or not isinstance(value, collections.abc.Iterable):
        return value
    return "[" + ", ".join(str(part) for part in value) + "]"
