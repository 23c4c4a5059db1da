"""Loss parallel: each device has the logits of some tokens of the vocabulary, and no device those of all."""

from __future__ import annotations

import functools
import sys

from tensor_parallel import RULES
from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel
from weft.sharding import PartitionSpec as P


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(data=2, model=4)
    expected = train(weft.jit(sgd(transformer_loss)), transformer_params(), transformer_batches(steps))

    body = lambda logits, labels: parallel.cross_entropy(logits, labels, "model")
    specs = P("data", None, "model"), P("data")
    losses_of_parts = weft.shard_map(body, mesh=devices, in_specs=specs, out_specs=P("data"))
    step = weft.jit(sgd(functools.partial(transformer_loss, losses=losses_of_parts)))
    rules = {**RULES, "embed": P("model")}
    params = weft.device_put(transformer_params(), parallel.tensor_parallel(transformer_params(), devices, rules))
    put = lambda batch: weft.device_put(batch, parallel.data_parallel(batch, devices))
    losses = train(step, params, transformer_batches(steps), put)
    report("loss parallel", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
