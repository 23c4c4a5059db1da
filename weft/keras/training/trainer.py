"""`Trainer`, the mixin for training models: `compile`, `fit`, `evaluate`, `predict`, and steps to override."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft import keras
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import registry
from weft.keras.core.layouts import own_rows, shard_batch
from weft.keras.core.scope import StatelessScope, stateless, values_in
from weft.keras.graph.shapes import compute_output_spec
from weft.keras.graph.tensor import KerasTensor
from weft.keras.metrics import Mean
from weft.keras.training import evaluating, fitting
from weft.keras.training.arguments import convert_batch, on_device, pack_data, unpack_batch, with_class_weight
from weft.keras.training.compiled import Compiled, program_for
from weft.keras.training.compiled_losses import CompileLoss
from weft.keras.training.compiled_metrics import CompileMetrics
from weft.keras.training.feed import spec_of_batch
from weft.keras.training.gradients import gradients
from weft.keras.training.logs import check_logs
from weft.keras.training.predicting import as_numpy


class Trainer:
    """The training methods of `Model`."""

    optimizer: Any = None
    loss: Any = None
    stop_training: bool = False
    stop_evaluating: bool = False
    stop_predicting: bool = False
    compiled: bool = False
    history: Any = None
    train_function: Callable[[Any], Any] | None = None
    test_function: Callable[[Any], Any] | None = None
    predict_function: Callable[[Any], Any] | None = None
    _compiled: Compiled | None = None

    @property
    def _training(self) -> Compiled:
        if self._compiled is None:
            self._compiled = Compiled()
        return self._compiled

    # --------------------------------------------------------------------------------------------------------- compile

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Configure training. Programs are compiled at the first batch.

        Args:
            optimizer: an optimizer, its name, or a transform of `weft.optim`.
            loss: a loss (function of `(y_true, y_pred)`, `Loss`, or name), or a list or dict of them by output.
            loss_weights: a float for each output: a list or a dict.
            metrics: metrics that do not see sample weights: a list; for several outputs a list of lists, or a dict.
            weighted_metrics: metrics that do.
            run_eagerly: whether steps run as they are, without a program: slow, but a debugger sees values.
            steps_per_execution: how many batches a call runs where a callback is called for batches. Without such a
                callback a call runs as many as take about 50 ms.
            jit_compile: False is the same as `run_eagerly`.
            auto_scale_loss: whether a model of policy `mixed_float16` gets an optimizer with loss scaling.

        >>> from weft import keras
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", loss="mse", metrics=["mae"])
        """
        if int(steps_per_execution) < 1:
            raise ArgumentError("steps_per_execution must be at least 1.", received=str(steps_per_execution))
        found = keras.optimizers.get(optimizer)
        policy = getattr(self, "dtype_policy", None)
        scaled = getattr(found, "inner_optimizer", None) is not None
        if found is not None and auto_scale_loss and not scaled and getattr(policy, "name", "") == "mixed_float16":
            found = keras.optimizers.LossScaleOptimizer(found, name="loss_scale_optimizer")
        self.optimizer = found
        names = getattr(self, "output_names", None)
        listening = metrics is not None or weighted_metrics is not None
        self._compiled = Compiled(
            loss=None if loss is None else CompileLoss(loss, loss_weights, names),
            metrics=CompileMetrics(metrics, weighted_metrics, names) if listening else None,
            tracker=Mean(name="loss"),
            arguments={
                "optimizer": found,
                "loss": loss,
                "loss_weights": loss_weights,
                "metrics": metrics,
                "weighted_metrics": weighted_metrics,
                "run_eagerly": bool(run_eagerly),
                "steps_per_execution": int(steps_per_execution),
                "jit_compile": jit_compile if isinstance(jit_compile, bool) else not run_eagerly,
            },
            eager=bool(run_eagerly) or jit_compile is False,
            steps_per_execution=int(steps_per_execution),
        )
        self.loss = loss
        self.stop_training = False
        self.compiled = True
        self.train_function = self.test_function = self.predict_function = None

    @property
    def run_eagerly(self) -> bool:
        """Whether steps run without a program."""
        return self._training.eager

    @run_eagerly.setter
    def run_eagerly(self, value: bool) -> None:
        self._training.eager = bool(value)
        self._training.programs.clear()

    @property
    def jit_compile(self) -> bool:
        """Whether steps are compiled."""
        return not self._training.eager

    @jit_compile.setter
    def jit_compile(self, value: bool) -> None:
        self.run_eagerly = not value

    @property
    def steps_per_execution(self) -> int:
        """Number of batches of a call, if callbacks have hooks for batches."""
        return self._training.steps_per_execution

    @steps_per_execution.setter
    def steps_per_execution(self, value: int) -> None:
        self._training.steps_per_execution = int(value)

    def _assert_compiled(self, method: str) -> None:
        if not self.compiled:
            raise ArgumentError(
                f"The model must be compiled: call `compile()` before `{method}()`.",
                fix='model.compile("adam", loss="mse")',
            )

    def _assert_own_loop(self, method: str, *modes: str) -> None:
        """Raise an error if a model overrides functions of batches: programs are compiled from steps, which would
        ignore them.
        """
        for mode in modes:
            name = f"make_{mode}_function"
            if getattr(type(self), name) is not getattr(Trainer, name):
                raise NotSupportedError(
                    f"{type(self).__name__} overrides `{name}`, which `{method}` does not call.",
                    fix=f"override `{mode}_step`; or call what `{name}` returns in a loop of your own",
                )

    def get_compile_config(self) -> dict[str, Any]:
        """Return the arguments of `compile` as plain data; {} before it was called."""
        if not self.compiled:
            return {}
        return {name: registry.serialize_keras_object(value) for name, value in self._training.arguments.items()}

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Call `compile` with the data of `get_compile_config`, and build the optimizer if the model is built."""
        arguments = {name: registry.deserialize_keras_object(value) for name, value in config.items()}
        self.compile(**arguments)
        if self.optimizer is not None and getattr(self, "built", False):
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]

    # --------------------------------------------------------------------------------------------------------- metrics

    @property
    def metrics(self) -> list[Any]:
        """The mean of the loss, the losses of outputs, the metrics of `compile`, and those of layers and attributes."""
        compiled = self._training
        found: list[Any] = [] if compiled.tracker is None else [compiled.tracker]
        found += [] if compiled.loss is None else compiled.loss.metrics
        found += [] if compiled.metrics is None else compiled.metrics.metrics
        found += super().metrics  # type: ignore[misc]
        return list({id(metric): metric for metric in found}.values())

    @property
    def metrics_names(self) -> list[str]:
        """Names in the order in which `evaluate` returns values.

        As in Keras a metric of `compile` is listed by its own name, also where an earlier one has the same name and
        `evaluate` returns the earlier value twice; names that Keras makes unique come last, in alphabetical order.
        """
        names = self._names_of_metrics()
        listed = {names.get(id(metric), metric.name) for metric in self.metrics}
        compiled = [metric for metric in self.metrics if id(metric) in names]
        others = [metric for metric in self.metrics if id(metric) not in names]
        own = [metric.name for metric in (*others[:1], *compiled, *others[1:])]
        return [name for name in own if name in listed] + sorted(listed.difference(own))

    def _names_of_metrics(self) -> dict[int, str]:
        """Return the names under which `compile` lists metrics, by identity of the metric."""
        compiled = self._training
        entries = [] if compiled.metrics is None else compiled.metrics.entries or []
        return {id(entry.metric): entry.name for entry in entries}

    @property
    def metrics_variables(self) -> list[Any]:
        """The variables of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

    def reset_metrics(self) -> None:
        """Reset the state of all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the present values of all metrics by name."""
        names = self._names_of_metrics()
        found: dict[str, Any] = {}
        for metric in self.metrics:
            result = values_in(metric.result())
            if isinstance(result, Mapping):
                found.update(result)
            else:
                found[names.get(id(metric), metric.name)] = result
        return found

    # ----------------------------------------------------------------------------------------------------------- steps

    def gradients(
        self, loss_fn: Callable[[], Any], variables: Sequence[Any] | None = None
    ) -> tuple[Any, Any, list[Any]]:
        """Return the value of a closure, its further outputs and gradients: the building block of a `train_step`.

        Args:
            loss_fn: `loss_fn() -> loss`, or `loss_fn() -> (loss, aux)`. It may call layers and write variables.
            variables: the variables to differentiate with respect to; `self.trainable_variables` if None.

        Returns:
            `(loss, aux, gradients)`, the gradients in the order of the variables.

        >>> from weft import keras
        >>> class Doubling(keras.Model):
        ...     def train_step(self, data):
        ...         x, y = data
        ...         loss, y_pred, gradients = self.gradients(lambda: (self.compute_loss(x, y, p := self(x)), p))
        ...         self.optimizer.apply(gradients, self.trainable_variables)
        ...         return {"loss": loss}
        """
        if variables is None:
            if not getattr(self, "built", True):
                with StatelessScope():
                    weft.eval_shape(lambda: weft.tree.map(wnp.asarray, loss_fn()))
            variables = self.trainable_variables  # type: ignore[attr-defined]
        return gradients(loss_fn, variables)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Compute the loss of a batch: the compiled losses, plus losses that layers and regularizers added in the last
        call.

        Args:
            x, y: inputs and targets.
            y_pred: what the model returned for `x`.
            sample_weight: weights of rows.
            training: whether it is called by `fit`.

        Returns:
            A scalar.
        """
        compiled = self._training
        total = None if compiled.loss is None else compiled.loss(y, y_pred, sample_weight)
        for added in self.losses:  # type: ignore[attr-defined]
            value = wnp.sum(wnp.asarray(added).astype(wnp.float32 if total is None else total.dtype))
            total = value if total is None else total + value
        if total is None and not training:
            # Metrics can be evaluated without a loss.
            total = wnp.zeros((), wnp.float32)
        if total is None:
            raise ArgumentError(
                "Training needs a loss, but there is no loss to compute.",
                received="compile(loss=None), and no layer adds a loss",
                fix=["compile(loss=...)", "self.add_loss(...) in a layer", "a `train_step` of your own"],
            )
        return total

    def _loss_for_step(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool) -> Any:
        arguments: dict[str, Any] = {"x": x, "y": y, "y_pred": y_pred, "sample_weight": sample_weight}
        if "training" in inspect.signature(self.compute_loss).parameters:
            arguments["training"] = training
        return self.compute_loss(**arguments)

    def stateless_compute_loss(
        self,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        metrics_variables: Sequence[Any],
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tuple[Any, tuple[list[Any], list[Any], list[Any]]]:
        """Run `compute_loss` as a function of values; return the loss and the new values of the three lists."""
        groups = (self.trainable_variables, self.non_trainable_variables, self.metrics_variables)  # type: ignore[attr-defined]
        values = [*trainable_variables, *non_trainable_variables, *metrics_variables]
        run = stateless(self._loss_for_step, [variable for group in groups for variable in group])
        loss, new = run(values, x, y, y_pred, sample_weight, training)
        first, second = len(groups[0]), len(groups[0]) + len(groups[1])
        return loss, (new[:first], new[first:second], new[second:])

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Update the metrics of `compile` with a batch, and return the values of all metrics by name."""
        compiled = self._training
        if compiled.metrics is not None:
            compiled.metrics.update_state(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def train_step(self, data: Any, batch: Any = None) -> Any:
        """Train on one batch of `fit`: loss, gradients, update, metrics. Override it to train in another way.

        Args:
            data: `(x, y, sample_weight)`, `(x, y)`, or `x`. A method with the arguments `(state, data)` is stateless
                instead: `state` are lists of values `(trainable, non_trainable, optimizer, metrics)`, and it returns
                `logs, new_state`.

        Returns:
            Logs by name.
        """
        if batch is not None:  # `super().train_step(state, data)`
            return self._stateless_step("train", data, batch)
        x, y, sample_weight = unpack_batch(data)
        variables = self.trainable_variables  # type: ignore[attr-defined]

        def loss_fn() -> tuple[Any, Any]:
            y_pred = self(x, training=True)  # type: ignore[operator]
            return self._loss_for_step(x, y, y_pred, sample_weight, True), y_pred

        scale = getattr(self.optimizer, "scale_loss", None)
        loss, y_pred, found = gradients(loss_fn, variables, scale)
        if variables:
            self.optimizer.apply(found, variables)
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any, batch: Any = None) -> Any:
        """Evaluate one batch of `evaluate`. Override it to evaluate in another way; it may also be `(state, data)` as
        for `train_step`, with the lists `(trainable, non_trainable, metrics)`.
        """
        if batch is not None:  # `super().test_step(state, data)`
            return self._stateless_step("test", data, batch)
        x, y, sample_weight = unpack_batch(data)
        y_pred = self(x, training=False)  # type: ignore[operator]
        loss = self._loss_for_step(x, y, y_pred, sample_weight, False)
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any, batch: Any = None) -> Any:
        """Return the outputs for one batch; also `(state, data)` with `(trainable, non_trainable)`."""
        if batch is not None:  # `super().predict_step(state, data)`
            return self._stateless_step("predict", data, batch)
        x, _, _ = unpack_batch(data)
        return self(x, training=False)  # type: ignore[operator]

    def _stateless_step(self, mode: str, state: Sequence[Any], batch: Any) -> Any:
        """Run the step of this class as a function of values, which a step `(state, data)` of a subclass calls."""
        groups = self._state_groups(mode)
        step = getattr(Trainer, f"{mode}_step")
        run = stateless(lambda data: step(self, data), [variable for group in groups for variable in group])
        result, new = run([value for values in state for value in values], batch)
        lists: list[Any] = []
        for group in groups:
            lists.append(new[: len(group)])
            new = new[len(group) :]
        return result, (lists[1] if mode == "predict" else tuple(lists))

    def compute_loss_and_updates(
        self,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        metrics_variables: Sequence[Any],
        x: Any,
        y: Any,
        sample_weight: Any,
        training: bool = False,
        optimizer_variables: Sequence[Any] | None = None,
    ) -> tuple[Any, tuple[Any, Any, list[Any], list[Any]]]:
        """Compute the loss of a batch as a function of values, for `weft.value_and_grad(..., has_aux=True)`.

        Args:
            trainable_variables, non_trainable_variables, metrics_variables: values of these variables.
            x, y, sample_weight: a batch.
            training: whether layers train, and the loss is scaled as the optimizer does.
            optimizer_variables: values of the optimizer's variables, which a loss scale depends on.

        Returns:
            The loss, and `(unscaled loss, outputs, non-trainable values, metric values)`.
        """
        groups = (self.trainable_variables, self.non_trainable_variables, self.metrics_variables)  # type: ignore[attr-defined]
        optimizer = list(getattr(self.optimizer, "variables", ())) if optimizer_variables is not None else []

        def run() -> tuple[Any, Any, Any]:
            y_pred = self(x, training=training)  # type: ignore[operator]
            loss = self._loss_for_step(x, y, y_pred, sample_weight, training)
            scale = getattr(self.optimizer, "scale_loss", None) if training else None
            return (loss if scale is None else scale(loss)), loss, y_pred

        variables = [variable for group in (*groups, optimizer) for variable in group]
        values = [*trainable_variables, *non_trainable_variables, *metrics_variables, *(optimizer_variables or ())]
        (scaled, loss, y_pred), new = stateless(run, variables)(values)
        first = len(groups[0])
        second, third = first + len(groups[1]), first + len(groups[1]) + len(groups[2])
        return scaled, (loss, y_pred, new[first:second], new[second:third])

    def _track_loss(self, loss: Any, x: Any) -> None:
        tracker = self._training.tracker
        if tracker is not None:
            rows = next(leaf.shape[0] for leaf in weft.tree.leaves(x))
            tracker.update_state(loss, sample_weight=rows)

    def _step_function(self, mode: str) -> Callable[[Any], Any]:
        """Return the step of a mode as a stateful function of a batch, whichever form the model overrides."""
        step = getattr(self, f"{mode}_step")
        if takes_state(step):
            step = self._stateful(step, mode)
        if mode == "predict":
            return step
        return lambda data: check_logs(step(data), f"{mode}_step")

    def _stateful(self, step: Callable[..., Any], mode: str) -> Callable[[Any], Any]:
        """Wrap a step `(state, data) -> (logs, state)` as a stateful function of `data`."""

        def run(data: Any) -> Any:
            groups = self._state_groups(mode)
            result, new = step(tuple([v.value for v in group] for group in groups), data)
            returned = new if mode != "predict" else (groups[0], new)
            if len(returned) != len(groups):
                raise ArgumentError(
                    f"`{mode}_step(state, data)` must return its result and {len(groups)} lists of values.",
                    received=f"{len(returned)} lists",
                )
            for group, values in zip(groups, returned, strict=True):
                if len(group) != len(values):
                    raise ArgumentError(
                        f"`{mode}_step(state, data)` must return one value for each variable.",
                        received=f"{len(values)} values for {', '.join(v.path for v in group)}",
                    )
                for variable, value in zip(group, values, strict=True):
                    if value is not variable:
                        variable.assign(value)
            return result

        return run

    def _state_groups(self, mode: str) -> tuple[list[Any], ...]:
        """Return the groups of variables in the state of a mode: trainable, others, optimizer, metrics."""
        groups = [self.trainable_variables, self.non_trainable_variables]  # type: ignore[attr-defined]
        if mode == "train":
            groups.append(list(getattr(self.optimizer, "variables", ())))
        if mode != "predict":
            groups.append(self.metrics_variables)
        return tuple(groups)

    def _state_variables(self, mode: str) -> list[Any]:
        return [variable for group in self._state_groups(mode) for variable in group]

    def _build_for(self, mode: str, batch: Any) -> None:
        """Create what a step would create: variables of layers, of the optimizer, and metrics."""
        x, y, _ = unpack_batch(batch)
        compiled = self._training
        own_step = getattr(type(self), f"{mode}_step") is not getattr(Trainer, f"{mode}_step")
        if not own_step or takes_state(getattr(self, f"{mode}_step")):
            waiting = mode != "predict" and any(
                part is not None and part.entries is None for part in (compiled.loss, compiled.metrics)
            )
            if waiting or not getattr(self, "built", True):
                y_pred = self._symbolic_outputs(x)
                if mode != "predict":
                    # A `compute_loss` of a subclass may make other outputs of these: the step builds the losses then.
                    if compiled.loss is not None and type(self).compute_loss is Trainer.compute_loss:
                        compiled.loss.build(y, y_pred)
                    if compiled.metrics is not None:
                        compiled.metrics.build(y, y_pred)
        if mode == "train" and self.optimizer is not None:
            # A built optimizer makes slots for variables that became trainable. A model that is built by its own step
            # has no weights yet; then the first update builds the optimizer.
            weights = self.trainable_variables  # type: ignore[attr-defined]
            if weights:
                self.optimizer.build(weights)

    def _symbolic_outputs(self, x: Any) -> Any:
        """Return the types of the outputs for a batch; this builds the model."""
        if not self._training.eager:
            return compute_output_spec(self._forward, weft.tree.map(self._symbolic_input, x))
        # Run eagerly, so that Python code of `call` may inspect values.
        with StatelessScope():
            return self._forward(weft.tree.map(lambda spec: wnp.zeros(spec.shape, spec.dtype), x))

    def _symbolic_input(self, spec: Any) -> KerasTensor:
        """Return the symbolic tensor of an array, with an open batch size unless the model has a fixed one."""
        inputs = getattr(self, "inputs", None) or ()
        layers = self._flatten_layers()  # type: ignore[attr-defined]
        fixed = any(getattr(layer, "stateful", False) for layer in layers) or any(
            t.shape[:1] != (None,) for t in inputs
        )
        return KerasTensor(spec.shape if fixed else (None, *spec.shape[1:]), dtype=str(spec.dtype))

    def _forward(self, x: Any) -> Any:
        return self(x, training=False)  # type: ignore[operator]

    # ------------------------------------------------------------------------------------------------------- functions

    def make_train_function(self, force: bool = False) -> Callable[[Any], Any]:
        """Return a function that trains on one batch: the compiled `train_step`. With `force`, compile its programs
        anew.
        """
        self.train_function = self._batch_function("train", force)
        return self.train_function

    def make_test_function(self, force: bool = False) -> Callable[[Any], Any]:
        """Return a function that evaluates one batch: the compiled `test_step`. With `force`, compile its programs
        anew.
        """
        self.test_function = self._batch_function("test", force)
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Callable[[Any], Any]:
        """Return a function that predicts one batch: the compiled `predict_step`. With `force`, compile its programs
        anew.
        """
        self.predict_function = self._batch_function("predict", force)
        return self.predict_function

    def _batch_function(self, mode: str, force: bool) -> Callable[[Any], Any]:
        if force:
            self._training.programs.clear()

        def run(batch: Any) -> Any:
            program = program_for(self, mode)(spec_of_batch(batch))
            batch = shard_batch(on_device(batch))
            return program.run_batch(batch) if mode == "predict" else batch_logs(program, batch)

        return run

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Train on one batch.

        Args:
            x, y, sample_weight: arrays, or trees of them.
            class_weight: weights of classes, in place of `sample_weight`.
            return_dict: whether results have names.

        Returns:
            The loss and metrics of the batch: one float, a list, or a dict.
        """
        self._assert_compiled("train_on_batch")
        if class_weight is not None:
            if sample_weight is not None:
                raise ArgumentError("At most one of class_weight and sample_weight must be given.")
            sample_weight = with_class_weight(y, class_weight)
        return self._on_batch("train", pack_data(x, y, sample_weight), return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Evaluate one batch; arguments and results are those of `train_on_batch`."""
        self._assert_compiled("test_on_batch")
        return self._on_batch("test", pack_data(x, y, sample_weight), return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the outputs for one batch as NumPy arrays."""
        batch = self._prepare_batch(pack_data(x))
        return as_numpy(own_rows(program_for(self, "predict")(spec_of_batch(batch)).run_batch(batch)))

    def _prepare_batch(self, batch: Any) -> Any:
        return shard_batch(on_device(convert_batch(batch)))

    def _on_batch(self, mode: str, batch: Any, return_dict: bool) -> Any:
        batch = self._prepare_batch(batch)
        program = program_for(self, mode)(spec_of_batch(batch))
        self.reset_metrics()
        return evaluating.format_result(self, batch_logs(program, batch), return_dict)

    # ----------------------------------------------------------------------------------------- fit, evaluate, predict

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | str = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Sequence[int] = 1,
    ) -> Any:
        """Train the model.

        Args:
            x: inputs: an array, or a list or dict of them; or a stream of batches `(x, y)`: a generator, a loader.
            y: targets, with as many rows as `x`.
            batch_size: rows of a batch, 32 if None.
            epochs: the index of the epoch to end before; with `initial_epoch` = 0, their number.
            verbose: 0 silent, 1 a progress bar, 2 a line an epoch; "auto" is 1.
            callbacks: callbacks.
            validation_split: the part of the data, its last rows, that is for validation.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or a stream.
            shuffle: whether rows are in another order in each epoch; "batch": within batches. Seeded by NumPy's
                global generator, which `keras.utils.set_random_seed` seeds.
            class_weight: weights of classes.
            sample_weight: weights of rows (and time steps), or by output.
            initial_epoch: the epoch to begin with.
            steps_per_epoch: batches of an epoch; None is all.
            validation_steps: batches of a validation; None is all.
            validation_batch_size: that of validation, `batch_size` if None.
            validation_freq: the number of epochs between validations, or a list of epochs (from 1).

        Returns:
            A `History`: `history.history["loss"]` are the losses of the epochs.

        >>> import numpy as np
        >>> from weft import keras
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", loss="mse")
        >>> history = model.fit(np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), epochs=3, verbose=0)
        >>> len(history.history["loss"])
        3
        """
        self._assert_compiled("fit")
        self._assert_own_loop("fit", "train", *(["test"] if validation_data is not None or validation_split else []))
        return fitting.fit(
            self,
            fitting.FitArguments(
                x=x,
                y=y,
                batch_size=batch_size,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_split=validation_split,
                validation_data=validation_data,
                shuffle=shuffle,
                class_weight=class_weight,
                sample_weight=sample_weight,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps_per_epoch,
                validation_steps=validation_steps,
                validation_batch_size=validation_batch_size,
                validation_freq=validation_freq,
            ),
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Evaluate the loss and the metrics over data.

        Args:
            x, y, sample_weight, batch_size, verbose, callbacks: as of `fit`.
            steps: the number of batches; None is all.
            return_dict: whether results have names.

        Returns:
            One float, a list in the order of `metrics_names`, or a dict.
        """
        self._assert_compiled("evaluate")
        self._assert_own_loop("evaluate", "test")
        return evaluating.evaluate(self, x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Predict the outputs for data, batch by batch.

        Args:
            x, batch_size, verbose, callbacks: as of `fit`.
            steps: the number of batches; None is all.

        Returns:
            An array of NumPy, or a tree of them.
        """
        self._assert_own_loop("predict", "predict")
        return evaluating.predict(self, x, batch_size, verbose, steps, callbacks)


def batch_logs(program: Any, batch: Any) -> dict[str, Any]:
    """Run one batch and return its logs by name."""
    packed_logs = program.run_batch(batch)
    # An eager program determines its packing while it runs.
    return program.packing.unpack(packed_logs)


def takes_state(step: Callable[..., Any]) -> bool:
    """Return whether a step has the form `step(state, data)` rather than `step(data)`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in inspect.signature(step).parameters.values() if p.kind in kinds]
    return sum(p.default is inspect.Parameter.empty for p in found) == 2
