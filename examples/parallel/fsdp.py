"""Fully sharded data parallel: parameters are stored in parts, gathered where they are used, and gradients are summed
to where the parts are."""

from __future__ import annotations

import sys

from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=8)
    step = weft.jit(sgd(transformer_loss))
    expected = train(step, transformer_params(), transformer_batches(steps))

    shardings = parallel.fsdp(transformer_params(), devices)
    params = weft.device_put(transformer_params(), shardings)
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, transformer_batches(steps), put)
    part = sum(leaf.addressable_shards[0].data.size for leaf in weft.tree.leaves(params))
    whole = sum(leaf.size for leaf in weft.tree.leaves(params))
    print(f"each device stores {part} of {whole} parameters")
    report("fsdp", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
