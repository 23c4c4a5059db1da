"""What `compile` makes: losses, metrics, and the programs that were made of a model's steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.keras.metrics import Mean
from weft.keras.training.compiled_losses import CompileLoss
from weft.keras.training.compiled_metrics import CompileMetrics
from weft.keras.training.eager import EagerProgram
from weft.keras.training.loop import TABLE
from weft.keras.training.predicting import PredictProgram
from weft.keras.training.program import LogsOf, StepProgram
from weft.keras.training.step import Step


@dataclass
class Compiled:
    """What belongs to one call of `compile`. It is no attribute that a model tracks."""

    loss: CompileLoss | None = None
    metrics: CompileMetrics | None = None
    tracker: Mean | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    eager: bool = False
    steps_per_execution: int = 1
    programs: dict[Any, Any] = field(default_factory=dict)
    # The call of `fit` that runs now: backups read it at the ends of chunks.
    fit: Any = None


def batch_key(batch: Any) -> Any:
    """The structure and types of a batch, as a key."""
    leaves, structure = weft.tree.flatten(batch)
    return structure, tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves)


def flags_of(model: Any) -> tuple[Any, ...]:
    """Which variables train now, and which layers: what a program depends on beside its batch."""
    layers = model._flatten_layers()
    return (
        tuple(layer.trainable for layer in layers),
        tuple(variable.trainable for variable in model.variables),
    )


def program_for(model: Any, mode: str, table: bool = False) -> Callable[[Any], Any]:
    """A function that finds or makes the program of a mode for a type of batch, with the flags of now."""
    compiled: Compiled = model._training
    # Without training nothing depends on what trains.
    flags = flags_of(model) if mode == "train" else ()

    def find(batch: Any) -> Any:
        key = (mode, table, flags, batch_key(batch))
        found = compiled.programs.get(key)
        if found is None:
            found = compiled.programs[key] = make_program(model, mode, batch, table)
        return found

    return find


def make_program(model: Any, mode: str, batch: Any, table: bool) -> Any:
    """The program of a mode for a type of batch."""
    compiled: Compiled = model._training
    function = model._step_function(mode)
    model._build_for(mode, batch)
    variables = model._state_variables(mode)
    if compiled.eager:
        return EagerProgram(function, variables, logs=mode != "predict")
    step = Step(function, variables, batch)
    count = next((leaf.shape[0] for leaf in weft.tree.leaves(batch) if leaf.shape), 0)
    if mode == "predict":
        return PredictProgram(step, count)
    return StepProgram(step, LogsOf(step, results_of(model, step)), count, TABLE if table else 0)


def results_of(model: Any, step: Step) -> Callable[[], Any] | None:
    """The results of metrics, if a step updates them and returns just these; else None."""
    written = {id(step.variables[i]) for i in step.written}
    if not any(id(variable) in written for variable in model.metrics_variables):
        return None
    results = model.get_metrics_result
    names = weft.eval_shape(lambda values: step.read(results, values), step.value_specs())
    return results if set(names) == set(step.result) else None
