"""Collective matmul: a tensor-parallel perceptron whose gathers and sums go round a ring while devices multiply."""

from __future__ import annotations

import sys

from training import mesh, mlp_batches, mlp_loss, mlp_params, report, sgd, train

import weft
import weft.numpy as wnp
from weft import parallel
from weft.sharding import PartitionSpec as P


def loss(params, x, y):
    """Compute the loss on one device, which has a part of the rows of `x` and `y`, and a part of each weight."""
    for columns, rows in zip(params[::2], params[1::2], strict=True):
        x = wnp.tanh(parallel.collective_matmul(x, columns["w"], "model") + columns["b"])
        x = wnp.tanh(parallel.matmul_scatter(x, rows["w"], "model") + rows["b"])
    return weft.lax.pmean(((x - y) ** 2).mean(), "model")


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    expected = train(weft.jit(sgd(mlp_loss)), mlp_params(), mlp_batches(steps))

    specs = [{"w": P(None, "model"), "b": P("model")}, {"w": P("model"), "b": P()}] * 2
    data = P("model")
    mapped = weft.shard_map(loss, mesh=mesh(model=8), in_specs=(specs, data, data), out_specs=P())
    step = weft.jit(sgd(mapped))
    losses = train(step, mlp_params(), mlp_batches(steps))
    report("collective matmul", losses, expected, step, mlp_params(), *next(mlp_batches(1)))


if __name__ == "__main__":
    main("--short" in sys.argv)
