"""Ring attention: every device has a part of each sequence, and keys and values go round, in two layouts."""

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

    def attend(q, k, v, layout):
        ring = lambda *parts: parallel.ring_attention(*parts, "sequence", causal=True, layout=layout)
        mapped = weft.shard_map(ring, mesh=devices, in_specs=heads, out_specs=heads)
        if layout == "contiguous":
            return mapped(q, k, v)
        # Here only attention has the order in which all devices have the same work; a model may keep it throughout.
        ordered = [parallel.zigzag(x, 8, 2) for x in (q, k, v)]
        return parallel.zigzag_inverse(mapped(*ordered), 8, 2)

    params = weft.device_put(transformer_params(), parallel.replicated(transformer_params(), devices))
    put = lambda batch: weft.device_put(batch, NamedSharding(devices, P(None, "sequence")))
    for layout in ("contiguous", "zigzag"):
        step = weft.jit(sgd(functools.partial(transformer_loss, attend=functools.partial(attend, layout=layout))))
        losses = train(step, params, transformer_batches(steps), put)
        report(f"ring attention, {layout}", losses, expected, step, params, *put(next(transformer_batches(1))))


if __name__ == "__main__":
    main("--short" in sys.argv)
