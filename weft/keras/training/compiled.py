"""The results of `compile`: losses, metrics, and the compiled programs of a model's steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.keras.core.layouts import check_agreement, current_distribution
from weft.keras.metrics import Mean
from weft.keras.training.compiled_losses import CompileLoss
from weft.keras.training.compiled_metrics import CompileMetrics
from weft.keras.training.eager import EagerProgram
from weft.keras.training.feed import batch_key
from weft.keras.training.loop import TABLE
from weft.keras.training.predicting import PredictProgram
from weft.keras.training.program import LogsOf, StepProgram
from weft.keras.training.step import Step, trace_step


@dataclass
class Compiled:
    """The state of one call of `compile`. It is not an attribute that a model tracks."""

    loss: CompileLoss | None = None
    metrics: CompileMetrics | None = None
    tracker: Mean | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    eager: bool = False
    steps_per_execution: int = 1
    programs: dict[Any, Any] = field(default_factory=dict)
    # The graph and the parts that programs were compiled from: see `cached_programs`.
    graph: Any = None
    parts: tuple[list[Any], list[Any]] | None = None
    # The running call of `fit`, which backups read at the ends of chunks.
    fit: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop programs, which are code of this process."""
        return {**self.__dict__, "programs": {}, "graph": None, "parts": None, "fit": None}


def cached_programs(model: Any) -> dict[Any, Any]:
    """Return the cached programs of a model; drop them if layers were added since (a Sequential has another graph
    then).
    """
    compiled: Compiled = model._training
    graph = model.__dict__.get("_functional")
    if compiled.graph is not graph:
        compiled.graph, compiled.parts = graph, None
        compiled.programs.clear()
    return compiled.programs


def training_flags(model: Any) -> tuple[Any, ...]:
    """Return the `trainable` flags of layers and variables, on which a program depends besides the types of its
    batch.
    """
    compiled: Compiled = model._training
    cached_programs(model)
    parts = compiled.parts
    if parts is None:
        parts = model._flatten_layers(), model.variables
        if model.built:
            # A built model gets no further layers.
            compiled.parts = parts
    return tuple([layer.trainable for layer in parts[0]]), tuple([variable.trainable for variable in parts[1]])


def program_for(model: Any, mode: str, table: bool = False) -> Callable[[Any], Any]:
    """Return a function that finds or compiles the program of a mode for a type of batch, with the present flags."""
    # Only training programs depend on the flags.
    flags = training_flags(model) if mode == "train" else ()
    programs = cached_programs(model)

    def find(batch: Any) -> Any:
        key = (mode, table, flags, current_distribution(), batch_key(batch))
        found = programs.get(key)
        if found is None:
            found = make_program(model, mode, batch, table)
            # Building may have created the graph.
            cached_programs(model)[key] = found
        return found

    return find


def make_program(model: Any, mode: str, batch: Any, table: bool) -> Any:
    """Compile the program of a mode for a type of batch."""
    compiled: Compiled = model._training
    function = model._step_function(mode)
    model._build_for(mode, batch)
    variables = model._state_variables(mode)
    distribution = current_distribution()
    if distribution is not None:
        # Variables may be older than the distribution.
        for variable in model.variables:
            variable.distribute()
        if mode == "train" and model.optimizer is not None:
            model.optimizer.distribute()
    if compiled.eager:
        return EagerProgram(function, variables, logs=mode != "predict")
    step = trace_step(function, variables, batch)
    if distribution is not None:
        if mode == "train" and distribution.choose(step):
            compiled.programs.clear()
            step = trace_step(function, step.variables, batch)
        distribution.check_matched()
        check_agreement(step.variables)
    count = next((leaf.shape[0] for leaf in weft.tree.leaves(batch) if leaf.shape), 0)
    if mode == "predict":
        return PredictProgram(step, count)
    results, unlisted = metric_results(model, step)
    if unlisted:
        step = trace_step(function, [*step.variables, *unlisted], batch)
    return StepProgram(step, LogsOf(step, results), count, TABLE if table else 0)


def metric_results(model: Any, step: Step) -> tuple[Callable[[], Any] | None, tuple[Any, ...]]:
    """Return a function for the results of metrics, and the variables that it reads but the step does not list.

    The function is None unless the step updates metrics and returns exactly their results.
    """
    written = {id(step.variables[i]) for i in step.written}
    if not any(id(variable) in written for variable in model.metrics_variables):
        return None, ()
    results = model.get_metrics_result
    names, unlisted = step.trace_read(results)
    return (results, unlisted) if set(names) == set(step.result) else (None, ())
