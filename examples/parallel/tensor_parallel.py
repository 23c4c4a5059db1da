"""Tensor parallel: matmuls are split by their columns and the next ones by their rows, as rules on the paths of
parameters say; one sum a block brings the parts together."""

from __future__ import annotations

import sys

from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel
from weft.sharding import PartitionSpec as P

RULES = {
    r"(query|key|value)$": P(None, "model"),
    r"out$": P("model"),
    r"up$": P(None, "model"),
    r"down$": P("model"),
}


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=2, model=4)
    step = weft.jit(sgd(transformer_loss))
    expected = train(step, transformer_params(), transformer_batches(steps))

    params = weft.device_put(transformer_params(), parallel.tensor_parallel(transformer_params(), devices, RULES))
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, transformer_batches(steps), put)
    report("tensor parallel", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
