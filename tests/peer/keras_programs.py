"""Random Keras programs, run with Keras 3 and with weft.keras from the same weights, whose results are compared.

    python -m tests.peer.keras_programs --count 200            seeds 0 to 199
    python -m tests.peer.keras_programs --seed 17              one program, with its plan

A program is drawn as a plan, a nested dict of plain values. Both libraries execute it: a model is built, compiled,
trained, saved and loaded. Numbers, shapes, dtypes, names in histories and errors on one side only are mismatches.
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true")

import argparse
import itertools
import json
import pathlib
import random
import sys
import tempfile
import time
import types
import warnings
from typing import Any

import keras as peer
import numpy as np

from weft import keras

ROWS, WIDTH, LENGTH, CLASSES = 20, 4, 5, 3


# ------------------------------------------------------------------------------------------------------------- drawing


def draw(seed: int) -> dict[str, Any]:
    """Draw a program."""
    rng = random.Random(seed)
    form = rng.choice(["sequential", "functional", "shared", "lists", "dicts", "subclass"])
    outputs = rng.randint(2, 3) if form in ("lists", "dicts") else 1
    is_sequence = form in ("sequential", "functional") and rng.random() < 0.35
    plan: dict[str, Any] = {"seed": seed, "form": form, "sequence": is_sequence}
    plan["layers"] = [_layer(rng, is_sequence and i == 0) for i in range(rng.randint(1, 3))]
    for (name, arguments), (following, _) in itertools.pairwise(plan["layers"]):
        if following == "BatchNormalization":
            _drop_shift(name, arguments)
    if form == "shared":  # Keras trains with the activity_regularizer of the last call of a shared layer only
        for _, arguments in plan["layers"]:
            arguments.pop("activity_regularizer", None)
    plan["tasks"] = [rng.choice(["floats", "binary", "classes", "onehot"]) for _ in range(outputs)]
    plan["compile"] = _compilation(rng, plan["tasks"], form)
    plan["weights"] = rng.choice([None, None, "sample", "class"] if outputs == 1 else [None, "sample", "each"])
    if plan["weights"] == "class" and plan["tasks"][0] not in ("classes", "binary"):
        plan["weights"] = "sample"
    actions = ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch", "save", "weights"]
    plan["actions"] = [_action(rng, rng.choice(actions), form) for _ in range(rng.randint(2, 4))]
    if not any(one["do"] in ("fit", "train_on_batch") for one in plan["actions"]):
        plan["actions"].insert(0, _action(rng, "fit", form))
    return plan


def _layer(rng: random.Random, is_sequence: bool) -> list[Any]:
    if is_sequence:
        name = rng.choice(["LSTM", "GRU", "SimpleRNN", "GlobalAveragePooling1D", "Flatten", "Bidirectional"])
        return [name, {"units": 3} if name in ("LSTM", "GRU", "SimpleRNN", "Bidirectional") else {}]
    name = rng.choice(["Dense", "Dense", "Dense", "BatchNormalization", "LayerNormalization", "Dropout", "Activation"])
    arguments: dict[str, Any] = {}
    if name == "Dense":
        arguments = {"units": rng.randint(2, 5), "activation": rng.choice([None, "relu", "tanh", "gelu", "softplus"])}
        for key, values in {
            "kernel_regularizer": ["l1", "l2"],
            "bias_regularizer": ["l2"],
            "activity_regularizer": ["l2"],
            "kernel_constraint": ["max_norm", "non_neg", "unit_norm"],
        }.items():
            if rng.random() < 0.15:
                arguments[key] = rng.choice(values)
        arguments["use_bias"] = rng.random() < 0.8
        if rng.random() < 0.1:
            arguments["trainable"] = False
    elif name == "Dropout":
        arguments = {"rate": 0.4, "seed": 3}
    elif name == "Activation":
        arguments = {"activation": rng.choice(["elu", "sigmoid", "swish"])}
    return [name, arguments]


def _drop_shift(name: str, arguments: dict[str, Any]) -> None:
    """Leave out the shift of a layer before a normalization that subtracts it again.

    Its gradient is rounding only, which optimizers such as Adam turn into whole steps.
    """
    if name == "Dense" and arguments["activation"] is None:
        arguments["use_bias"] = False
    elif name in ("BatchNormalization", "LayerNormalization"):
        arguments["center"] = False


LOSSES = {
    "floats": [
        "mse",
        "mae",
        "huber",
        "log_cosh",
        "mean_squared_error",
        ["MeanSquaredError", {}],
        ["Huber", {"delta": 0.5}],
    ],
    "binary": ["binary_crossentropy", "hinge", "mse", ["BinaryCrossentropy", {"label_smoothing": 0.1}], "poisson"],
    "classes": ["sparse_categorical_crossentropy", ["SparseCategoricalCrossentropy", {}]],
    "onehot": [
        "categorical_crossentropy",
        "kl_divergence",
        ["CategoricalCrossentropy", {"label_smoothing": 0.1}],
        "mse",
    ],
}
METRICS = {
    "floats": ["mae", "mse", ["RootMeanSquaredError", {}], ["MeanAbsoluteError", {"name": "own"}], "cosine_similarity"],
    "binary": ["accuracy", "acc", ["AUC", {"num_thresholds": 10}], ["Precision", {}], ["Recall", {"thresholds": 0.4}]],
    "classes": ["accuracy", "sparse_categorical_accuracy", ["SparseTopKCategoricalAccuracy", {"k": 2}]],
    "onehot": [
        "accuracy",
        "categorical_accuracy",
        ["F1Score", {"average": "macro"}],
        ["TopKCategoricalAccuracy", {"k": 2}],
    ],
}
CALLBACKS = [
    "EarlyStopping",
    "ReduceLROnPlateau",
    "LambdaCallback",
    "SwapEMAWeights",
    "LearningRateScheduler",
    "TerminateOnNaN",
    "ModelCheckpoint",
]
OPTIMIZERS = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Nadam", "Adamax", "Lion", "Ftrl", "Adafactor"]


def _compilation(rng: random.Random, tasks: list[str], form: str) -> dict[str, Any]:
    optimizer = {"learning_rate": rng.choice([0.01, 0.05])}
    if rng.random() < 0.2:
        optimizer["learning_rate"] = {"schedule": rng.choice(["ExponentialDecay", "CosineDecay"])}
    for chance, extra in (
        (0.15, {"use_ema": True, "ema_momentum": 0.8}),
        (0.1, {"use_ema": True, "ema_overwrite_frequency": 2}),
        (0.15, {"gradient_accumulation_steps": 2}),
        (0.1, {"clipnorm": 0.3}),
        (0.1, {"global_clipnorm": 0.3}),
        (0.1, {"clipvalue": 0.1}),
        (0.1, {"weight_decay": 0.01}),
        (0.05, {"loss_scale_factor": 4.0}),
    ):
        if rng.random() < chance and not ("clip" in str(extra) and "clip" in str(optimizer)):
            optimizer.update(extra)
    losses = [rng.choice(LOSSES[task]) for task in tasks]
    metrics = [rng.sample(METRICS[task], rng.randint(0, 2)) for task in tasks]
    weighted = [rng.sample(METRICS[task], 1) if rng.random() < 0.3 else [] for task in tasks]
    found: dict[str, Any] = {"optimizer": [rng.choice(OPTIMIZERS), optimizer], "losses": losses, "metrics": metrics}
    found["weighted"] = weighted if any(weighted) else None
    found["shape"] = rng.choice(["list", "dict"]) if len(tasks) > 1 and form == "dicts" else "list"
    if len(tasks) > 1 and rng.random() < 0.3:
        found["loss_weights"] = [rng.choice([0.5, 1.0, 2.0]) for _ in tasks]
    found["options"] = {}
    if rng.random() < 0.25:
        found["options"]["run_eagerly"] = True
    elif rng.random() < 0.2:
        found["options"]["steps_per_execution"] = 2
    elif rng.random() < 0.3:
        found["options"]["jit_compile"] = False
    if rng.random() < 0.2:
        found["options"]["auto_scale_loss"] = False
    return found


def _action(rng: random.Random, do: str, form: str) -> dict[str, Any]:
    found: dict[str, Any] = {"do": do}
    if do == "fit":
        found["epochs"] = rng.randint(1, 3)
        found["batch_size"] = rng.choice([5, 8, 20, None])
        found["validation"] = rng.choice([None, None, "data", "split"])
        found["callbacks"] = rng.sample(CALLBACKS, rng.choice([0, 0, 1, 2]))
        found["more"] = rng.choice([{}, {}, {"initial_epoch": 1}, {"validation_freq": 2}, {"steps_per_epoch": 2}])
        found["source"] = rng.choice(["arrays", "arrays", "generator"])
    elif do == "evaluate":
        found["arguments"] = {"batch_size": rng.choice([7, 32]), "return_dict": rng.random() < 0.5}
        if rng.random() < 0.2:
            found["arguments"]["steps"] = 2
    elif do == "predict":
        found["arguments"] = {"batch_size": rng.choice([7, 32, None])}
    elif do in ("train_on_batch", "test_on_batch"):
        found["arguments"] = {"return_dict": rng.random() < 0.5}
        found["times"] = rng.randint(1, 3)
    elif do == "save":
        found["how"] = rng.choice(
            ["keras", "weights", "config", "json", "clone"] if form != "subclass" else ["weights"]
        )
    return found


# ----------------------------------------------------------------------------------------------------------- executing


def _targets(task: str, rng: np.random.Generator) -> np.ndarray:
    match task:
        case "floats":
            return rng.normal(size=(ROWS, 2)).astype("float32")
        case "binary":
            return rng.integers(0, 2, (ROWS, 1)).astype("float32")
        case "classes":
            return rng.integers(0, CLASSES, (ROWS,))
    return np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, ROWS)]


def _head(k: Any, task: str, name: str) -> Any:
    units, activation = {"floats": (2, None), "binary": (1, "sigmoid")}.get(task, (CLASSES, "softmax"))
    return k.layers.Dense(units, activation=activation, name=name)


def _make_layer(k: Any, spec: list[Any], index: int) -> Any:
    name, arguments = spec
    if name == "Bidirectional":
        return k.layers.Bidirectional(k.layers.GRU(**arguments), name=f"layer_{index}")
    return getattr(k.layers, name)(**arguments, name=f"layer_{index}")


def build(k: Any, plan: dict[str, Any]) -> Any:
    """Build the model of a plan with a library."""
    layers = [_make_layer(k, spec, i) for i, spec in enumerate(plan["layers"])]
    heads = [_head(k, task, f"head_{i}") for i, task in enumerate(plan["tasks"])]
    front = [k.layers.Embedding(6, 4, mask_zero=True, name="embedding")] if plan["sequence"] else []
    shape, dtype = ((LENGTH,), "int32") if plan["sequence"] else ((WIDTH,), "float32")

    def through(x: Any) -> Any:
        for layer in (*front, *layers):
            x = layer(x)
        return x

    match plan["form"]:
        case "sequential":
            return k.Sequential([k.Input(shape, dtype=dtype), *front, *layers, heads[0]])
        case "functional":
            inputs = k.Input(shape, dtype=dtype)
            return k.Model(inputs, heads[0](through(inputs)))
        case "shared":
            a, b = k.Input(shape, name="a"), k.Input(shape, name="b")
            return k.Model([a, b], heads[0](k.layers.Add()([through(a), through(b)])))
        case "lists":
            a, b = k.Input(shape, name="a"), k.Input(shape, name="b")
            x = through(k.layers.Concatenate()([a, b]))
            return k.Model([a, b], [head(x) for head in heads])
        case "dicts":
            a, b = k.Input(shape, name="a"), k.Input(shape, name="b")
            x = through(k.layers.Average()([a, b]))
            return k.Model({"a": a, "b": b}, {f"out_{i}": head(x) for i, head in enumerate(heads)})

    class Own(k.Model):
        def __init__(self) -> None:
            super().__init__(name="own")
            self.parts, self.head = layers, heads[0]

        def call(self, x: Any, training: Any = False) -> Any:
            for layer in self.parts:
                x = (
                    layer(x, training=training)
                    if isinstance(layer, (k.layers.Dropout, k.layers.BatchNormalization))
                    else layer(x)
                )
            return self.head(x)

    model = Own()
    model(np.zeros((2, *shape), dtype))
    return model


def compile_model(k: Any, model: Any, plan: dict[str, Any]) -> None:
    """Compile a model as the plan says."""
    chosen = plan["compile"]
    name, arguments = chosen["optimizer"]
    arguments = dict(arguments)
    if isinstance(arguments["learning_rate"], dict):
        schedule = getattr(k.optimizers.schedules, arguments["learning_rate"]["schedule"])
        arguments["learning_rate"] = schedule(0.05, 4, 0.9)
    optimizer = getattr(k.optimizers, name)(**arguments)
    loss = [getattr(k.losses, one[0])(**one[1]) if isinstance(one, list) else one for one in chosen["losses"]]
    instance = lambda one: getattr(k.metrics, one[0])(**one[1]) if isinstance(one, list) else one
    metrics = [[instance(one) for one in some] for some in chosen["metrics"]]
    weighted = chosen["weighted"] and [[instance(one) for one in some] for some in chosen["weighted"]]
    weights = chosen.get("loss_weights")
    if chosen["shape"] == "dict":
        keyed = lambda values: values and {f"out_{i}": one for i, one in enumerate(values)}
        loss, metrics, weighted, weights = keyed(loss), keyed(metrics), keyed(weighted), keyed(weights)
    elif plan["form"] == "dicts":
        loss = {f"out_{i}": one for i, one in enumerate(loss)}
        metrics = weighted = weights = None
    elif len(loss) == 1:
        loss, metrics, weighted = loss[0], metrics[0], weighted and weighted[0]
    model.compile(
        optimizer, loss, metrics=metrics, weighted_metrics=weighted, loss_weights=weights, **chosen["options"]
    )


def _callbacks(k: Any, names: list[str], log: list[Any], folder: str, values: Any) -> list[Any]:
    def note(epoch: int, logs: Any) -> None:
        log.append(("epoch", epoch, sorted(logs)))

    found = {
        "EarlyStopping": lambda: k.callbacks.EarlyStopping(monitor="loss", patience=1, restore_best_weights=True),
        "ReduceLROnPlateau": lambda: k.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.1),
        "LambdaCallback": lambda: k.callbacks.LambdaCallback(on_epoch_end=note),
        "SwapEMAWeights": lambda: k.callbacks.SwapEMAWeights(swap_on_epoch=True),
        "LearningRateScheduler": lambda: k.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        "TerminateOnNaN": k.callbacks.TerminateOnNaN,
        "ModelCheckpoint": lambda: k.callbacks.ModelCheckpoint(
            f"{folder}/best.weights.h5", save_weights_only=True, monitor="loss", save_best_only=True
        ),
    }
    return [found[name]() for name in names]


def execute(k: Any, plan: dict[str, Any]) -> list[Any]:
    """Run a plan with a library and return what is seen of it; an error ends the program."""
    k.utils.set_random_seed(plan["seed"])
    k.backend.clear_session()
    rng = np.random.default_rng(plan["seed"])
    log: list[Any] = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        try:
            _execute(k, plan, rng, log, folder)
        except Exception as error:  # whatever it is, the other side must have one too
            log.append(("error", types.SimpleNamespace(text=f"{type(error).__name__}: {str(error)[:400]}")))
    return log


def _execute(k: Any, plan: dict[str, Any], rng: np.random.Generator, log: list[Any], folder: str) -> None:
    model = build(k, plan)
    drawn = [rng.normal(size=w.shape).astype("float32") * 0.5 for w in model.get_weights()]
    drawn = [np.abs(w) + 0.1 for w in drawn]  # variances and scales must be positive
    model.set_weights(
        [w * (1 if w.ndim == 1 else sign) for w, sign in zip(drawn, [1, -0.5] * len(drawn), strict=False)]
    )
    compile_model(k, model, plan)
    size = (ROWS, LENGTH) if plan["sequence"] else (ROWS, WIDTH)
    new = lambda: rng.integers(0, 6, size) if plan["sequence"] else rng.normal(size=size).astype("float32")
    first, second = new(), new()
    if plan["sequence"]:
        first[:, 0] = 1  # a row of nothing but padding has no mean
    x = {"lists": [first, second], "shared": [first, second], "dicts": {"a": first, "b": second}}.get(
        plan["form"], first
    )
    ys = [_targets(task, rng) for task in plan["tasks"]]
    y = {f"out_{i}": one for i, one in enumerate(ys)} if plan["form"] == "dicts" else ys if len(ys) > 1 else ys[0]
    weights: dict[str, Any] = {}
    one = rng.random(ROWS).astype("float32")
    if plan["weights"] == "sample":
        weights = {"sample_weight": one}
    elif plan["weights"] == "each":
        weights = {"sample_weight": [one * (i + 1) for i in range(len(ys))] if plan["form"] == "lists" else
                   {f"out_{i}": one * (i + 1) for i in range(len(ys))}}  # fmt: skip
    elif plan["weights"] == "class":
        weights = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}
    sample = {key: value for key, value in weights.items() if key == "sample_weight"}
    for action in plan["actions"]:
        do = action["do"]
        log.append(("begin", do))
        if do == "fit":
            _fit(k, model, action, log, folder, x, y, weights)
        elif do == "evaluate":
            log.append((do, model.evaluate(x, y, verbose=0, **action["arguments"], **sample)))
        elif do == "predict":
            log.append((do, model.predict(x, verbose=0, **action["arguments"])))
        elif do == "predict_on_batch":
            log.append((do, model.predict_on_batch(x)))
        elif do in ("train_on_batch", "test_on_batch"):
            more = weights if do == "train_on_batch" else sample
            for _ in range(action["times"]):
                log.append((do, getattr(model, do)(x, y, **more, **action["arguments"])))
        elif do == "weights":
            model.set_weights([w * 0.9 for w in model.get_weights()])
        elif do == "save":
            model = _save(k, model, action["how"], plan, log, folder)
        log.append(("weights", model.get_weights()))
        if not int(model.optimizer.iterations):
            continue  # Keras makes the state of the optimizer in evaluate, weft.keras before the first step
        log.append(("iterations", int(model.optimizer.iterations), len(model.optimizer.variables)))
        log.append(("state", [np.asarray(v.value) for v in model.optimizer.variables]))
        if type(model.optimizer).__name__ not in ("Nadam", "Adafactor"):  # in Keras some of theirs have no own names
            log.append(("paths", [v.path for v in model.optimizer.variables]))


def _fit(k: Any, model: Any, action: Any, log: list[Any], folder: str, x: Any, y: Any, weights: Any) -> None:
    more = dict(action["more"])
    if action["validation"] == "data":
        more["validation_data"] = (x, y)
    elif action["validation"] == "split" and action["source"] == "arrays":
        more["validation_split"] = 0.3
    callbacks = _callbacks(k, action["callbacks"], log, folder, None)
    if action["source"] == "generator" and not weights:

        def batches() -> Any:
            while True:
                yield x, y

        more.setdefault("steps_per_epoch", 4)  # Keras rounds up to multiples of steps_per_execution
        history = model.fit(batches(), epochs=action["epochs"], verbose=0, callbacks=callbacks, **more)
    else:
        history = model.fit(
            x, y, epochs=action["epochs"], batch_size=action["batch_size"], shuffle=False, verbose=0,
            callbacks=callbacks, **weights, **more,
        )  # fmt: skip
    log.append(("history", list(history.history), history.history, history.epoch))


def _save(k: Any, model: Any, how: str, plan: dict[str, Any], log: list[Any], folder: str) -> Any:
    if how == "keras":
        model.save(f"{folder}/model.keras")
        return k.models.load_model(f"{folder}/model.keras")
    if how == "weights":
        model.save_weights(f"{folder}/model.weights.h5")
        model.set_weights([w * 0 for w in model.get_weights()])
        model.load_weights(f"{folder}/model.weights.h5")
        return model
    if how == "clone":
        again = k.models.clone_model(model)
    elif how == "json":
        again = k.models.model_from_json(model.to_json())
    else:
        again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    # Clones of Keras have new names of inputs, those of weft.keras the model's own; copies of clones likewise.
    cloned = any(action.get("how") == "clone" for action in plan["actions"])
    named = [layer for layer in again.layers if not (cloned and isinstance(layer, k.layers.InputLayer))]
    log.append(("names", [layer.name for layer in named]))
    compile_model(k, again, plan)
    return again


# ----------------------------------------------------------------------------------------------------------- comparing


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return where two results differ."""
    if isinstance(ours, types.SimpleNamespace) or isinstance(theirs, types.SimpleNamespace):
        return [] if type(ours) is type(theirs) else [f"{path}: {ours!r} for {theirs!r}"]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return [f"{path}: keys {list(ours)} for {list(theirs)}"]
        return [text for key in ours for text in differences(ours[key], theirs[key], f"{path}.{key}")]
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} entries for {len(theirs)}: {str(ours)[:200]} for {str(theirs)[:200]}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [text for i, (a, b) in pairs for text in differences(a, b, f"{path}[{i}]")]
    if isinstance(ours, str) or ours is None or isinstance(theirs, str) or theirs is None:
        return [] if ours == theirs else [f"{path}: {ours!r} for {theirs!r}"]
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape or (a.ndim and a.dtype != b.dtype):
        return [f"{path}: {a.dtype}{a.shape} for {b.dtype}{b.shape}"]
    if not np.allclose(a.astype(float), b.astype(float), rtol=3e-3, atol=3e-4, equal_nan=True):
        return [f"{path}: {str(a)[:150]} for {str(b)[:150]}"]
    return []


# Errors inside of Keras, which has no answer to compare with: its backend is given a buffer twice, or a variable of its
# optimizer has no initializer any more.
PEER_FAULTS = ("JaxRuntimeError", "TypeError: 'NoneType' object is not callable")


def compare(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Return the first differences of two logs, each with the step before which it lies."""
    step = ""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        step = a[1] if a[0] == "begin" else step
        if b[0] == "error" and b[1].text.startswith(PEER_FAULTS):
            return []
        if a[0] != b[0]:
            return [f"step {i} ({step}): {a!s:.500} for {b!s:.500}"]
        found = differences(a, b, f"{step} {a[0]}")
        if found:
            return found[:4]
    return [] if len(ours) == len(theirs) else [f"{len(ours)} entries for {len(theirs)}"]


def check(seed: int) -> list[str]:
    """Run the program of a seed on both sides and return the differences."""
    plan = draw(seed)
    return compare(execute(keras, plan), execute(peer, plan))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--log", type=pathlib.Path, help="append mismatches to this file too")
    options = parser.parse_args()
    if options.seed is not None:
        print(json.dumps(draw(options.seed), indent=1))
    seeds = range(options.first, options.first + options.count) if options.seed is None else [options.seed]
    begin, done, wrong, failing = time.monotonic(), 0, [], 0
    for seed in seeds:
        if time.monotonic() - begin > options.seconds:
            break
        plan = draw(seed)
        ours, theirs = execute(keras, plan), execute(peer, plan)
        found, done = compare(ours, theirs), done + 1
        failing += theirs[-1][0] == "error"
        if theirs[-1][0] == "error" and not found and (options.log or options.seed is not None):
            print(f"seed {seed} raises in both: {ours[-1][1].text!r:.300} | {theirs[-1][1].text!r:.300}", flush=True)
        if found:
            wrong.append(seed)
            lines = "\n".join([f"seed {seed}:", *(f"  {text}" for text in found)])
            print(lines, flush=True)
            if options.log:
                with options.log.open("a") as file:
                    file.write(lines + "\n")
    print(f"{done} programs from seed {seeds[0]}, {failing} raise in Keras, {len(wrong)} differ: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
