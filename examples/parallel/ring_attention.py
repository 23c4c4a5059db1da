"""Ring attention: every device has a part of each sequence, and keys and values go round."""

from __future__ import annotations

import functools
import sys

from training import mesh, report, sgd, train, transformer_batches, transformer_loss, transformer_params

import weft
from weft import parallel
from weft.sharding import NamedSharding, PartitionSpec as P


def main(short: bool = False) -> None:
    steps = 3 if short else 100
    devices = mesh(sequence=8)
    expected = train(weft.jit(sgd(transformer_loss)), transformer_params(), transformer_batches(steps))

    heads = P(None, None, "sequence")
    ring = functools.partial(parallel.ring_attention, axis_name="sequence", causal=True)
    attend = weft.shard_map(lambda q, k, v: ring(q, k, v), mesh=devices, in_specs=heads, out_specs=heads)
    step = weft.jit(sgd(functools.partial(transformer_loss, attend=attend)))
    params = weft.device_put(transformer_params(), parallel.replicated(transformer_params(), devices))
    put = lambda batch: weft.device_put(batch, NamedSharding(devices, P(None, "sequence")))
    losses = train(step, params, transformer_batches(steps), put)
    report("ring attention", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
