"""Pipeline: layers on different devices, and microbatches that go through them, by four schedules."""

from __future__ import annotations

import sys

from training import mesh, mlp_batches, mlp_loss, mlp_params, report, sgd, train

import weft
import weft.numpy as wnp
from weft import parallel


def stage(layer, x):
    return wnp.tanh(x @ layer["w"] + layer["b"])


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(stage=4, data=2)
    for schedule, layers in (("gpipe", 4), ("interleaved", 8), ("1f1b", 4), ("zero_bubble", 4)):
        params = mlp_params(layers=layers)
        expected = train(weft.jit(sgd(mlp_loss)), params, mlp_batches(steps))
        loss = parallel.pipeline(
            stage, 8, schedule, mesh=devices, data_axis="data", loss=lambda y, t: ((y - t) ** 2).mean()
        )
        stacked = weft.tree.map(lambda *leaves: wnp.stack(leaves), *params)
        step = weft.jit(sgd(loss))
        losses = train(step, stacked, mlp_batches(steps))
        report(schedule, losses, expected, step, stacked, *next(mlp_batches(1)))


if __name__ == "__main__":
    main("--short" in sys.argv)
