"""`fit` and `predict` of weft.keras beside Keras 3 on JAX: the same models and data, one process each, in alternation.

A case is measured in rounds: each round asks one process, then the other, so that what else the machine does meets
both. The last case starts processes: from the start to a trained epoch.

python benchmarks/keras_fit.py [--rounds 7] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Each case: what is measured, and what the ratio Weft / Keras is to be at most.
CASES = {
    "mlp 32": ("us a step", 0.15),
    "mlp 256": ("us a step", 0.5),
    "mlp 32, batch callback": ("us a step", 0.35),
    "mlp 32, four epochs": ("us a step", 0.15),
    "cnn 64": ("us a step", 0.3),
    "evaluate 32": ("us a batch", 0.15),
    "predict 1 row": ("us", 0.1),
    "train_on_batch 32": ("us", 0.35),
}
START = "start to a trained epoch"
START_GOAL = 0.5
ROWS = 16384


def library(name: str) -> Any:
    """Return Keras or weft.keras."""
    if name == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        return keras
    from weft import keras

    return keras


def mlp(k: Any) -> Any:
    layers = [k.layers.Dense(64, activation="relu"), k.layers.Dense(64, activation="relu"), k.layers.Dense(10)]
    model = k.Sequential([k.Input((64,)), *layers])
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def cnn(k: Any) -> Any:
    layers = [
        k.layers.Conv2D(16, 3, activation="relu"),
        k.layers.MaxPooling2D(),
        k.layers.Conv2D(32, 3, activation="relu"),
        k.layers.MaxPooling2D(),
        k.layers.Flatten(),
        k.layers.Dropout(0.5),
        k.layers.Dense(10),
    ]
    model = k.Sequential([k.Input((28, 28, 1)), *layers])
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def cases(k: Any) -> dict[str, Callable[[], tuple[Callable[[], Any], int]]]:
    """Return for each case a function that prepares it and returns the timed function and its number of steps."""
    generator = np.random.RandomState(0)
    x, y = generator.randn(ROWS, 64).astype("float32"), generator.randint(0, 10, ROWS)
    images = generator.randn(2048, 28, 28, 1).astype("float32")

    class Batch(k.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.last = batch

    def fit(batch_size: int, epochs: int = 1, callback: bool = False) -> Callable[[], Any]:
        def prepare() -> tuple[Callable[[], Any], int]:
            model = mlp(k)
            extra = {"callbacks": [Batch()]} if callback else {}
            run = lambda: model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0, **extra)
            return run, epochs * ROWS // batch_size

        return prepare

    def convolutions() -> tuple[Callable[[], Any], int]:
        model = cnn(k)
        return (lambda: model.fit(images, y[:2048], batch_size=64, verbose=0)), 2048 // 64

    def evaluate() -> tuple[Callable[[], Any], int]:
        model = mlp(k)
        return (lambda: model.evaluate(x, y, batch_size=32, verbose=0)), ROWS // 32

    def repeated(method: str, *arguments: Any, count: int = 50, **options: Any) -> Callable[[], Any]:
        def prepare() -> tuple[Callable[[], Any], int]:
            call = getattr(mlp(k), method)
            return (lambda: [call(*arguments, **options) for _ in range(count)]), count

        return prepare

    return {
        "mlp 32": fit(32),
        "mlp 256": fit(256),
        "mlp 32, batch callback": fit(32, callback=True),
        "mlp 32, four epochs": fit(32, epochs=4),
        "cnn 64": convolutions,
        "evaluate 32": evaluate,
        "predict 1 row": repeated("predict", x[:1], verbose=0),
        "train_on_batch 32": repeated("train_on_batch", x[:32], y[:32]),
    }


def serve(name: str) -> None:
    """Time cases on request: a line with a case in, a line with microseconds out."""
    available = cases(library(name))
    ready: dict[str, tuple[Callable[[], Any], int]] = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in ready:
            ready[case] = available[case]()
            for _ in range(3):
                ready[case][0]()
        run, steps = ready[case]
        start = time.perf_counter()
        run()
        print((time.perf_counter() - start) / steps * 1e6, flush=True)


def first_epoch(name: str) -> None:
    """Run a short program: build a model, train an epoch whose last batch is smaller."""
    model = mlp(library(name))
    generator = np.random.RandomState(0)
    model.fit(generator.randn(1000, 64).astype("float32"), generator.randint(0, 10, 1000), verbose=0)


class Side:
    """Process of one library."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, __file__, "--serve", name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, case: str) -> float:
        """Return the microseconds of a step."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {case!r} has ended")
        return float(line)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def started(name: str) -> float:
    """Return the microseconds of a process from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--first", name], check=True)
    return (time.perf_counter() - start) * 1e6


def row(case: str, unit: str, goal: float, weft: list[float], keras: list[float]) -> dict[str, Any]:
    """Return the medians of a case, and their ratio in each round."""
    ratios = [a / b for a, b in zip(weft, keras, strict=True)]
    found = {
        "case": case,
        "unit": unit,
        "weft": statistics.median(weft),
        "keras": statistics.median(keras),
        "ratio": statistics.median(ratios),
        "least": min(weft) / min(keras),
        "goal": goal,
    }
    print(
        f"{case:26} {found['weft']:12.1f} {found['keras']:12.1f} {unit:11} ratio {found['ratio']:.3f}"
        f" (of the least {found['least']:.3f}; at most {goal})",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    if arguments.first:
        return first_epoch(arguments.first)
    results = []
    print(f"{'':26} {'Weft':>12} {'Keras':>12}")
    sides = {name: Side(name) for name in ("weft", "keras")}
    try:
        for case, (unit, goal) in CASES.items():
            if arguments.only and case not in arguments.only:
                continue
            times: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(arguments.rounds):
                for name, side in sides.items():
                    times[name].append(side.measure(case))
            results.append(row(case, unit, goal, times["weft"], times["keras"]))
    finally:
        for side in sides.values():
            side.close()
    if not arguments.only or START in arguments.only:
        times = {name: [] for name in sides}
        for _ in range(max(3, arguments.rounds // 2)):
            for name in sides:
                times[name].append(started(name))
        results.append(row(START, "us", START_GOAL, times["weft"], times["keras"]))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
