"""Training that continues after its process has ended, with the same bits."""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from typing import Any

import numpy as np

import weft
from weft import checkpointing
from weft.errors import ArgumentError
from weft.experimental import schedules
from weft.keras.callbacks.base import Callback, Logs
from weft.keras.core.together import any_process

_SHOWN = 8


class BackupAndRestore(Callback):
    """Writes backups while a model is trained; `fit` with the same arguments continues from the last one.

    A backup has all that the next batches depend on: weights, statistics, seeds, the optimizer, metrics, the position
    in the data and the seed of its order, and what callbacks remember. After `kill -9` at any time the continued
    training has the same losses and weights, to the bit, on the same machine. It is written by a thread, and replaces
    the one before last only when it is whole.

    Args:
        backup_dir: a directory of its own.
        save_freq: `"epoch"`, or after how many batches there is a backup too. (Training does not go batch by batch for
            that.)
        double_checkpoint: accepted; there are always two backups.
        delete_checkpoint: whether they are deleted when `fit` has ended.
        memory: whether backups within epochs are kept in the memory of the job, for a training that the launcher starts
            again (`checkpointing.ElasticManager`); those of epochs are written to disk too.
        seconds: within epochs there is a backup when the last one is so old; None: none.

    >>> from weft.keras.callbacks import BackupAndRestore
    >>> BackupAndRestore("backup", save_freq=100).chunk_every
    100
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        seconds: float | None = 30.0,
        memory: bool = False,
    ) -> None:
        super().__init__()
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ArgumentError("save_freq must be 'epoch' or a positive integer.", received=f"save_freq={save_freq!r}")
        if not backup_dir:
            raise ArgumentError("backup_dir must name a directory.", received=f"backup_dir={backup_dir!r}")
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.chunk_every = save_freq if isinstance(save_freq, int) else None
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self.seconds = seconds
        self.memory = memory
        self._manager: checkpointing.CheckpointManager | checkpointing.ElasticManager | None = None
        self._last = 0.0
        self._next = 0

    @property
    def manager(self) -> checkpointing.CheckpointManager | checkpointing.ElasticManager:
        """What writes and reads the directory."""
        if self._manager is None and self.memory:
            self._manager = checkpointing.ElasticManager(self.backup_dir)
            if self._manager.spans_hosts:  # a host has its shards only, and whole arrays are restored
                warnings.warn("BackupAndRestore: hosts share no memory, so backups are on disk only.", stacklevel=2)
                self._manager = None
        if self._manager is None:
            self._manager = checkpointing.CheckpointManager(self.backup_dir, max_to_keep=2)
        return self._manager

    # The three methods below are called by `fit`, after the hooks of all callbacks.

    def resume(self, fit: Any) -> dict[str, Any] | None:
        """Restore the callbacks' states and return the position of the last backup; None if there is no backup."""
        self._last = time.monotonic()
        latest = self.manager.latest_step()
        self._next = 0 if latest is None else latest + 1
        if latest is None:
            return None
        stored = json.loads(self.manager.metadata().metadata["json"])
        self._compare(stored["origin"], self._origin(fit))
        # Before anything is compiled: a kernel and a library compute a matmul with different bits.
        schedules.set_pins(stored.get("schedules", {}))
        arrays = self.manager.restore(like=None)["callbacks"]
        fit.callbacks.set_state(_with_arrays(stored["callbacks"], arrays))
        fit.model.stop_training = stored["stop_training"]
        return stored["position"]

    def restore(self, fit: Any) -> None:
        """Assign the values of the last backup to the variables of a training."""
        stored = json.loads(self.manager.metadata().metadata["json"])["variables"]
        values = dict(zip(stored, self.manager.restore(like=None)["state"], strict=True))
        named = _by_name(fit.variables)
        if len(named) == len(stored) and named.keys() != values.keys():
            # Automatic names depend on what else the process created: match variables by their order then.
            values = dict(zip(named, values.values(), strict=True))
        missing, extra = sorted(named.keys() - values.keys()), sorted(values.keys() - named.keys())
        shapes = [
            f"{name} {np.shape(values[name])}, in the backup, for {tuple(variable.shape)}"
            for name, variable in named.items()
            if name in values and np.shape(values[name]) != tuple(variable.shape)
        ]
        if missing or extra or shapes:
            raise ArgumentError(
                f"The backup in {self.backup_dir!r} is of another model or optimizer.",
                received="; ".join(
                    f"{title}: {', '.join(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''}"
                    for title, names in (("not in it", missing), ("only in it", extra), ("other shapes", shapes))
                    if names
                ),
                fix="another backup_dir, or delete this one",
            )
        for name, variable in named.items():
            variable.assign(values[name])

    def after_chunk(self, fit: Any) -> None:
        """Write a backup if it is due."""
        due = bool(self.chunk_every) and fit.position.done % self.chunk_every == 0
        if not due and self.seconds is not None:
            due = any_process(time.monotonic() - self._last >= self.seconds)
        if due:
            self.save(fit)

    def after_epoch(self, fit: Any) -> None:
        """Write a backup."""
        self.save(fit, is_epoch=True)

    def save(self, fit: Any, is_epoch: bool = False) -> None:
        """Write a backup of a training."""
        arrays: list[Any] = []
        stored: dict[str, Any] = {
            "position": fit.position_state(),
            "callbacks": _without_arrays(fit.callbacks.get_state(), arrays),
            "origin": self._origin(fit),
            "stop_training": bool(fit.model.stop_training),
            "schedules": schedules.get_pins(),
        }
        named = _by_name(fit.variables)
        stored["variables"] = list(named)
        manager, step = self.manager, self._next
        tree = {"state": [variable._value for variable in named.values()], "callbacks": arrays}
        metadata = {"json": json.dumps(stored)}
        if isinstance(manager, checkpointing.ElasticManager):
            manager.save(step, tree, metadata=metadata, on_disk=is_epoch or not manager.has_memory)
        else:
            manager.save(step, tree, metadata=metadata, force=True)
        self._next += 1
        self._last = time.monotonic()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.manager.wait_until_finished()
        if self.delete_checkpoint:
            for step in self.manager.all_steps():
                self.manager.delete(step)
        self.close()

    def close(self) -> None:
        """Wait until pending backups are written. `fit` calls it when an exception ends it."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _origin(self, fit: Any) -> dict[str, Any]:
        """Return what the results depend on, bit by bit, besides the state."""
        return {
            "Weft": weft.__version__,
            "machine": platform.machine(),
            "batch_size": fit.adapter.batch_size,
            "rows": fit.adapter.samples,
            "data": fit.adapter.kind,
        }

    def _compare(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        changed = [f"{name} was {before.get(name)}, is {now[name]}" for name in now if before.get(name) != now[name]]
        if changed:
            what = "; ".join(changed)
            warnings.warn(f"BackupAndRestore: the training continues, but not as it would have: {what}.", stacklevel=2)


def _by_name(variables: list[Any]) -> dict[str, Any]:
    """Return variables by path; later variables with the same path get a count."""
    found: dict[str, Any] = {}
    for variable in variables:
        name, count = variable.path, 1
        while name in found:
            name, count = f"{variable.path}#{count}", count + 1
        found[name] = variable
    return found


def _without_arrays(state: Any, arrays: list[Any]) -> Any:
    """Convert a tree with arrays to JSON; the arrays are appended to `arrays`."""
    if isinstance(state, dict):
        return {name: _without_arrays(value, arrays) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [_without_arrays(value, arrays) for value in state]
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, np.ndarray | weft.Array):
        arrays.append(state)
        return {"array": len(arrays) - 1}
    return state


def _with_arrays(state: Any, arrays: Any) -> Any:
    """Insert the arrays into a tree that `_without_arrays` returned."""
    if isinstance(state, dict):
        if state.keys() == {"array"}:
            return arrays[state["array"]]
        return {name: _with_arrays(value, arrays) for name, value in state.items()}
    if isinstance(state, list):
        return [_with_arrays(value, arrays) for value in state]
    return state
