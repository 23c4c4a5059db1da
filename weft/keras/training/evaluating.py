"""`evaluate` and `predict`."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import data
from weft.data.adapters.arrays import DEFAULT_BATCH_SIZE
from weft.errors import ArgumentError
from weft.keras.callbacks import CallbackList
from weft.keras.core.config import settings
from weft.keras.core.layouts import current_distribution
from weft.keras.training.arguments import make_adapter
from weft.keras.training.compiled import cached_programs, program_for
from weft.keras.training.feed import Feed, ResidentFeed, StreamFeed, spec_of_batch
from weft.keras.training.loop import EpochLoop, wants_table
from weft.keras.training.predicting import as_numpy, predict_arrays, predict_batches


def verbosity(verbose: int | str) -> int:
    """Return 0, 1 or 2."""
    if verbose == "auto":
        # Only one of several processes prints.
        return int(weft.process_index() == 0)
    if verbose not in (0, 1, 2):
        raise ArgumentError('verbose must be 0, 1, 2 or "auto".', received=repr(verbose))
    return int(verbose)


def limit_steps(steps: int | None) -> int | None:
    """Limit `steps` to the maximum of the settings."""
    most = settings.max_steps_per_epoch
    return steps if most is None else most if steps is None else min(steps, most)


def make_feed(model: Any, adapter: data.Adapter, mode: str, table: bool = False) -> Feed:
    """Return the feed of data into the programs of a mode."""
    find = program_for(model, mode, table)
    # Under a distribution each device gets only its rows of a batch, also of data in memory.
    if adapter.resident is not None and not model.run_eagerly and current_distribution() is None:
        return ResidentFeed(adapter, find)
    return StreamFeed(adapter, find)


def format_result(model: Any, logs: dict[str, Any], return_dict: bool) -> Any:
    """Format results for users: a dict, or a list in the order of metrics, or a single value."""
    if return_dict:
        return logs
    names = [name for name in model.metrics_names if name in logs]
    values = [logs[name] for name in (*names, *sorted(logs.keys() - set(names)))]
    return values[0] if len(values) == 1 else values


def evaluate(
    model: Any,
    x: Any,
    y: Any,
    batch_size: int | None,
    verbose: int | str,
    sample_weight: Any,
    steps: int | None,
    callbacks: Any,
    return_dict: bool,
) -> Any:
    """Implement `Trainer.evaluate`."""
    adapter = make_adapter(x, y, sample_weight, batch_size, steps=steps)
    steps = limit_steps(steps)
    size = adapter.size if steps is None else steps
    shown = verbosity(verbose)
    if not isinstance(callbacks, CallbackList):
        callbacks = CallbackList(callbacks, add_progbar=shown != 0, model=model, verbose=shown, epochs=1, steps=size)
    feed = make_feed(model, adapter, "test", wants_table(callbacks, "test"))
    return format_result(model, evaluate_feed(model, feed, callbacks, steps), return_dict)


def evaluate_feed(model: Any, feed: Feed, callbacks: CallbackList, steps: int | None) -> dict[str, Any]:
    """Compute the logs over all batches, or over `steps` of them."""
    model.stop_evaluating = False
    feed.prepare()  # it may create metrics, which are reset with the others
    callbacks.on_test_begin({})
    model.reset_metrics()
    loop = EpochLoop(model, feed, callbacks, "test", model.steps_per_execution)
    feed.begin(0)
    try:
        logs = loop.run(steps if steps is not None else feed.size)
    finally:
        feed.close()
    if not loop.position.done:
        raise ArgumentError("There is no batch to evaluate: the data is empty.")
    callbacks.on_test_end(logs)
    return logs


def predict(model: Any, x: Any, batch_size: int | None, verbose: int | str, steps: int | None, callbacks: Any) -> Any:
    """Implement `Trainer.predict`."""
    shown = verbosity(verbose)
    alone = current_distribution() is None
    if alone and not shown and callbacks is None and steps is None and type(x) is np.ndarray and x.dtype == np.float32:
        # A single batch without callbacks or output: skip the feed and call the program.
        if 0 < x.shape[0] <= (batch_size or DEFAULT_BATCH_SIZE) and settings.floatx == "float32":
            programs = cached_programs(model)
            key = ("few rows", x.shape)
            program = programs.get(key)
            if program is None:
                program = program_for(model, "predict")(spec_of_batch(x))
                cached_programs(model)[key] = program
            return as_numpy(program.run_batch(x))
    adapter = make_adapter(x, batch_size=batch_size, steps=steps)
    steps = limit_steps(steps)
    if adapter.samples == 0:
        raise ArgumentError("There is no row to predict from: the data is empty.")
    if not isinstance(callbacks, CallbackList):
        size = adapter.size if steps is None else steps
        callbacks = CallbackList(callbacks, add_progbar=shown != 0, model=model, verbose=shown, epochs=1, steps=size)
    find = program_for(model, "predict")
    model.stop_predicting = False
    callbacks.on_predict_begin({})
    if adapter.resident is not None and not model.run_eagerly and alone:
        every_batch = callbacks.has("on_predict_batch_begin", "on_predict_batch_end")
        outputs = predict_arrays(model, adapter, find, callbacks, steps, every_batch)
    else:
        with adapter.batches() as batches:
            outputs = predict_batches(model, batches, find, callbacks, steps)
    callbacks.on_predict_end({})
    return outputs
