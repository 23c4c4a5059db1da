"""Sequence parallel: between the matmuls of tensor parallelism each device has a part of the sequence."""

from __future__ import annotations

import functools
import sys

from tensor_parallel import RULES
from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=2, model=4)
    expected = train(weft.jit(sgd(transformer_loss)), transformer_params(), transformer_batches(steps))

    between = lambda x: parallel.sequence_parallel(x, devices, "model", batch_axis="data")
    step = weft.jit(sgd(functools.partial(transformer_loss, between=between)))
    params = weft.device_put(transformer_params(), parallel.tensor_parallel(transformer_params(), devices, RULES))
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, transformer_batches(steps), put)
    report("sequence parallel", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
