"""Data parallel: every device has all parameters and a part of the batch; gradients are summed."""

from __future__ import annotations

import sys

from training import mesh, mlp_batches, mlp_loss, mlp_params, report, sgd, train

import weft
from weft import parallel


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=8)
    step = weft.jit(sgd(mlp_loss))
    expected = train(step, mlp_params(), mlp_batches(steps))

    params = weft.device_put(mlp_params(), parallel.replicated(mlp_params(), devices))
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, mlp_batches(steps), put)
    report("data parallel", losses, expected, step, params, *put(next(mlp_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
